package peer

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/dev/bench"
	"github.com/lorafuse/lorafuse/dev/bench/checkpoint"
)

// TestMain lets this binary be the programs that a Peer starts.
func TestMain(m *testing.M) {
	if len(os.Args) < 2 || os.Args[1] != "as" {
		os.Exit(m.Run())
	}
	lines := bufio.NewScanner(os.Stdin)
	switch os.Args[2] {
	case "counter": // answers with the number of the request, fails where it is asked to
		for n := 1; lines.Scan(); n++ {
			var r struct {
				Do   string
				ID   int
				What string
			}
			if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
				panic(err)
			}
			if r.What == "fill" {
				fmt.Println(`{"error": "OutOfMemoryError: CUDA out of memory"}`)
				continue
			}
			if r.What == "fail" {
				fmt.Println(`{"error": "asked to"}`)
				continue
			}
			fmt.Printf("{\"seconds\": %d.%d}\n", r.ID, n)
		}
	case "mortal":
		lines.Scan()
		fmt.Fprintln(os.Stderr, "some words\nthe last word")
		os.Exit(3)
	case "talker":
		for lines.Scan() {
			fmt.Println("hello")
		}
	case "idler":
		time.Sleep(time.Hour)
	}
	os.Exit(0)
}

func as(t *testing.T, part string) *Peer {
	p := New(os.Args[0], "as", part)
	t.Cleanup(func() { p.Close() })
	return p
}

func TestPeer(t *testing.T) {
	p := as(t, "counter")
	one, err := p.Begin(t.Context(), "one")
	require.NoError(t, err)
	two, err := p.Begin(t.Context(), "two")
	require.NoError(t, err)
	_, err = p.Begin(t.Context(), "fail")
	require.ErrorContains(t, err, "asked to")
	require.NotErrorIs(t, err, bench.ErrMemory)
	_, err = p.Begin(t.Context(), "fill")
	require.ErrorIs(t, err, bench.ErrMemory)
	x, err := two.Sample(t.Context())
	require.NoError(t, err, "an error ends no peer")
	assert.Equal(t, 2.5, x)
	x, err = one.Sample(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 1.6, x)
	require.NoError(t, one.Close())
	require.NoError(t, p.Close())
	_, err = two.Sample(t.Context())
	assert.ErrorContains(t, err, "closed")
	require.NoError(t, p.Close(), "twice is once")
	require.NoError(t, New("nothing").Close(), "never started")
}

func TestPeerFails(t *testing.T) {
	for part, says := range map[string]string{"mortal": "has ended: the last word", "talker": "invalid character"} {
		p := as(t, part)
		_, err := p.Begin(t.Context(), "one")
		assert.ErrorContains(t, err, says)
	}
	p := as(t, "mortal")
	_, err := p.Begin(t.Context(), "one")
	require.Error(t, err)
	_, again := p.Begin(t.Context(), "one")
	assert.Equal(t, err, again, "it is not started again")
	_, err = New("/no/such/program").Begin(t.Context(), "one")
	assert.ErrorIs(t, err, os.ErrNotExist)
}

// The end of the context ends a peer that does not answer.
func TestPeerInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	p := as(t, "idler")
	time.AfterFunc(50*time.Millisecond, cancel)
	_, err := p.Begin(ctx, "one")
	assert.Error(t, err)
}

// The peers' own parts are Python, at least.
func TestScripts(t *testing.T) {
	path, err := exec.LookPath("python3")
	if err != nil {
		t.Skip(err)
	}
	for name, script := range map[string]string{"torch": torch, "llama": llama} {
		c := exec.Command(path, "-c", "import sys; compile(sys.stdin.read(), 'peer', 'exec')")
		c.Stdin = strings.NewReader(script)
		out, err := c.CombinedOutput()
		require.NoError(t, err, "%s: %s", name, out)
	}
}

// TestTorchScript runs the part of Python, where there is a Python with torch:
// LORAFUSE_PYTHON names it.
func TestTorchScript(t *testing.T) {
	python := os.Getenv("LORAFUSE_PYTHON")
	if python == "" {
		t.Skip("LORAFUSE_PYTHON does not name a Python with torch")
	}
	tiny, err := checkpoint.ByName("tiny")
	require.NoError(t, err)
	model := t.TempDir()
	require.NoError(t, tiny.Write(model))
	p := Torch(python, 1)
	defer func() { require.NoError(t, p.Close()) }()
	for _, what := range []map[string]any{
		{"op": "matmul", "m": 8, "k": 16, "n": 4, "ta": false, "tb": true, "dtype": "f32"},
		{"op": "matmul", "m": 8, "k": 16, "n": 4, "ta": true, "tb": false, "dtype": "bf16"},
		{"op": "matmul", "m": 8, "k": 16, "n": 4, "ta": false, "tb": true, "dtype": "f32", "numpy": true},
		{"op": "attention", "texts": 2, "heads": 2, "length": 9, "dim": 8, "dtype": "f32", "back": false},
		{"op": "attention", "texts": 1, "heads": 2, "length": 9, "dim": 8, "dtype": "bf16", "back": true},
		{"op": "decode", "model": model, "dtype": "bf16", "rank": 0, "context": 8, "tokens": 2},
		{"op": "decode", "model": model, "dtype": "f32", "rank": 2, "context": 8, "tokens": 2},
		{"op": "prefill", "model": model, "dtype": "bf16", "rank": 0, "context": 0, "tokens": 16},
	} {
		s, err := p.Begin(t.Context(), what)
		require.NoError(t, err)
		for range 2 {
			seconds, err := s.Sample(t.Context())
			require.NoError(t, err)
			assert.Positive(t, seconds)
		}
		require.NoError(t, s.Close())
	}
	_, err = p.Begin(t.Context(), map[string]any{"op": "zebra"})
	assert.ErrorContains(t, err, "zebra")
}

// TestLlamaScript does so with llama.cpp: LORAFUSE_LLAMA_PYTHON names a Python
// with llama-cpp-python.
func TestLlamaScript(t *testing.T) {
	python := os.Getenv("LORAFUSE_LLAMA_PYTHON")
	if python == "" {
		t.Skip("LORAFUSE_LLAMA_PYTHON does not name a Python with llama-cpp-python")
	}
	tiny, err := checkpoint.ByName("tiny")
	require.NoError(t, err)
	p := Llama(python, 1)
	defer func() { require.NoError(t, p.Close()) }()
	for _, f := range []checkpoint.Format{checkpoint.BF16, checkpoint.Q8} {
		gguf := filepath.Join(t.TempDir(), f.String()+".gguf")
		require.NoError(t, tiny.WriteGGUF(gguf, f))
		for _, what := range []map[string]any{
			{"op": "decode", "gguf": gguf, "positions": 64, "context": 8, "tokens": 2},
			{"op": "prefill", "gguf": gguf, "positions": 64, "context": 8, "tokens": 32},
		} {
			s, err := p.Begin(t.Context(), what)
			require.NoError(t, err)
			for range 2 {
				seconds, err := s.Sample(t.Context())
				require.NoError(t, err)
				assert.Positive(t, seconds)
			}
		}
	}
}

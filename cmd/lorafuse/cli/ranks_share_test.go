package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dist/local"
	"github.com/lorafuse/lorafuse/internal/ranks"
)

// commandOn runs a command line on ranks of this process, whose arguments may differ.
func commandOn(t testing.TB, size int, stdin string, args func(rank int) []string) []result {
	t.Helper()
	results := make([]result, size)
	var all sync.WaitGroup
	for rank, w := range local.New(size) {
		all.Go(func() {
			in := stdin
			if rank > 0 {
				in = "" // as with mpirun
			}
			var out, errs bytes.Buffer
			a := &app{in: &input{ctx: t.Context(), r: strings.NewReader(in)}, out: &output{w: &out}, err: &errs, world: w}
			results[rank] = result{a.run(t.Context(), args(rank)), out.String(), errs.String()}
		})
	}
	all.Wait()
	return results
}

// shared runs a command line on ranks, of which only rank 0 may print, and returns what it does.
func shared(t testing.TB, size int, stdin string, args ...string) result {
	t.Helper()
	results := commandOn(t, size, stdin, func(int) []string { return args })
	for rank, r := range results[1:] {
		require.Equal(t, result{status: results[0].status}, r, "rank %d", rank+1)
	}
	return results[0]
}

// withoutTimes removes the fields of JSON objects that measure time.
func withoutTimes(t testing.TB, text string) (all []map[string]any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	for d.More() {
		x := map[string]any{}
		require.NoError(t, d.Decode(&x))
		for _, key := range []string{"seconds", "tokens_per_second", "prompt_seconds"} {
			delete(x, key)
		}
		all = append(all, x)
	}
	return all
}

// evalRows writes rows of different lengths.
func (l *lab) evalRows(n int) string {
	var rows strings.Builder
	for i := range n {
		fmt.Fprintf(&rows, `{"text": "%s number %d"}`+"\n", strings.Repeat("the quick brown fox ", i%4+1), i)
	}
	return l.file("rows.jsonl", rows.String())
}

// TestRanksEval: ranks print the loss of one process, to the last bit.
func TestRanksEval(t *testing.T) {
	l := newLab(t)
	args := []string{"eval", "--model", llama, "--adapter", llamaLoRA, "--data", l.evalRows(40), "--batch-size", "1", "--train-on", "all", "--json"}
	want := withoutTimes(t, succeed(t, args...))
	for size := 1; size <= 4; size++ {
		r := shared(t, size, "", args...)
		require.Equal(t, ExitOK, r.status, r.stderr)
		require.Equal(t, want, withoutTimes(t, r.stdout), "%d ranks", size)
	}
}

// TestRanksEvalClasses: ranks write the scores of one process, in the order of the rows.
func TestRanksEvalClasses(t *testing.T) {
	l := newLab(t)
	task := goldens + "/tasks/classes-bert"
	args := []string{"eval", "--model", encoders + "/bert", "--adapter", task + "/final", "--data", task + "/rows.jsonl", "--labels", "other,related,same", "--batch-size", "2", "--json", "--scores"}
	want := withoutTimes(t, succeed(t, append(args, l.path("alone.safetensors"))...))
	scores, err := os.ReadFile(l.path("alone.safetensors"))
	require.NoError(t, err)
	for _, size := range []int{2, 3} {
		r := shared(t, size, "", append(args, l.path("shared.safetensors"))...)
		require.Equal(t, ExitOK, r.status, r.stderr)
		require.Equal(t, want, withoutTimes(t, r.stdout), "%d ranks", size)
		got, err := os.ReadFile(l.path("shared.safetensors"))
		require.NoError(t, err)
		require.Equal(t, scores, got, "%d ranks", size)
	}
}

// TestRanksRefuse: an error of one rank ends all with its status, and rank 0 prints it on one
// line with the rank and the host.
func TestRanksRefuse(t *testing.T) {
	l := newLab(t)
	rows := l.evalRows(4)
	good := []string{"eval", "--model", llama, "--data", rows}
	broken := l.model()
	l.remove(broken + "/model.safetensors")
	other := newLab(t).evalRows(5)
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"a model without weights": {[]string{"eval", "--model", broken, "--data", rows}, "model.safetensors"},
		"other data":              {[]string{"eval", "--model", llama, "--data", other}, "data is rows"},
		"another flag":            {append(good, "--batch-size", "2"), "--batch-size is 2 there, not given here"},
		"another adapter":         {append(good, "--adapter", llamaLoRA), "adapter is "},
	} {
		t.Run(name, func(t *testing.T) {
			results := commandOn(t, 3, "", func(rank int) []string {
				if rank == 1 {
					return c.args
				}
				return good
			})
			for rank, r := range results {
				require.Equal(t, ExitUsage, r.status, "rank %d: %s", rank, r.stderr)
				require.Empty(t, r.stdout)
			}
			lines := strings.Split(strings.TrimSpace(results[0].stderr), "\n")
			require.Regexp(t, "^lorafuse: eval: rank 1 on ", lines[len(lines)-1])
			require.Contains(t, lines[len(lines)-1], c.says)
			require.Empty(t, results[1].stderr)
			require.Empty(t, results[2].stderr)
		})
	}
}

// TestRanksOfDevices: a CPU is one device.
func TestRanksOfDevices(t *testing.T) {
	l := newLab(t)
	args := []string{"eval", "--model", llama, "--data", l.evalRows(3), "--backend", backend.CPU, "--devices"}
	require.Equal(t, ExitOK, command(t, "", append(args, "all")...).status)
	r := command(t, "", append(args, "0,1")...)
	require.Equal(t, ExitUsage, r.status)
	require.Contains(t, r.stderr, "--devices: found device 1, expected 0, the only one")
}

// TestRanksInProcess: ranks of one process end together, and the error is that of the rank which caused it, a panic too.
func TestRanksInProcess(t *testing.T) {
	broken := errors.New("out of memory")
	for name, c := range map[string]struct {
		part   func(rank int) error
		says   string
		status int
	}{
		"success": {func(int) error { return nil }, "", ExitOK},
		"error": {func(rank int) error {
			if rank == 1 {
				return &failure{broken}
			}
			return nil
		}, "out of memory", ExitFailure},
		"panic": {func(rank int) error {
			if rank == 2 {
				panic("index out of range")
			}
			return nil
		}, "internal error: index out of range", ExitFailure},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errs bytes.Buffer
			a := &app{in: &input{ctx: t.Context(), r: strings.NewReader("")}, out: &output{w: &out}, err: &errs}
			err := a.onDevices(t.Context(), &modelFlags{command: "eval"}, 3, func(ctx context.Context, a *app, g *ranks.Group) error {
				a.out.printf("rank %d of %d", g.Rank(), g.Size())
				a.note("hello")
				return g.Do(ctx, func(context.Context) error { return c.part(g.Rank()) })
			})
			require.Equal(t, c.status, a.exit(t.Context(), err))
			require.Equal(t, "rank 0 of 3", out.String())
			require.Contains(t, errs.String(), c.says)
			require.Equal(t, 1, strings.Count(errs.String(), "hello"))
		})
	}
}

// TestRanksEmbed: ranks write the embeddings of one process, to the last bit.
func TestRanksEmbed(t *testing.T) {
	l := newLab(t)
	var lines strings.Builder
	for i := range 40 {
		fmt.Fprintf(&lines, `{"id": %d, "text": "%s"}`+"\n", i, strings.Repeat("the quick brown fox ", i*7%9))
	}
	args := []string{"embed", "--model", encoders + "/bert", "--batch-tokens", "64", "--json"}
	want := command(t, lines.String(), args...)
	require.Equal(t, ExitOK, want.status, want.stderr)
	require.Equal(t, 40, strings.Count(want.stdout, "embedding"))
	texts := l.file("texts.jsonl", lines.String())
	succeed(t, append(args, "--input", texts, "--output", l.path("alone.safetensors"))...)
	vectors, err := os.ReadFile(l.path("alone.safetensors"))
	require.NoError(t, err)
	for size := 1; size <= 4; size++ {
		r := shared(t, size, lines.String(), args...)
		require.Equal(t, ExitOK, r.status, r.stderr)
		require.Equal(t, want.stdout, r.stdout, "%d ranks", size)

		r = shared(t, size, "", append(args, "--input", texts, "--output", l.path("shared.safetensors"))...)
		require.Equal(t, ExitOK, r.status, r.stderr)
		got, err := os.ReadFile(l.path("shared.safetensors"))
		require.NoError(t, err)
		require.Equal(t, vectors, got, "%d ranks", size)
	}
	results := commandOn(t, 3, lines.String()+"{}\n", func(int) []string { return args })
	for _, r := range results {
		require.Equal(t, ExitUsage, r.status)
	}
	require.Contains(t, results[0].stderr, "standard input:41: found no text")
	require.Empty(t, results[1].stderr+results[2].stderr)
}

// TestRanksGenerate: ranks write the answers of one process, in the order of the prompts. Draws
// depend on the index of a prompt alone.
func TestRanksGenerate(t *testing.T) {
	lines, _ := promptLines(t, 75)
	stdin := strings.Join(lines, "\n\n")
	args := []string{"generate", "--model", llama, "--adapter", llamaLoRA, "--prompts", "-", "--batch-invariant", "-n", "8", "--temperature", "1.5", "--seed", "3"}
	want := command(t, stdin, args...)
	require.Equal(t, ExitOK, want.status, want.stderr)
	for size := 1; size <= 4; size++ {
		r := shared(t, size, stdin, args...)
		require.Equal(t, ExitOK, r.status, r.stderr)
		require.Equal(t, withoutTimes(t, want.stdout), withoutTimes(t, r.stdout), "%d ranks", size)

		r = shared(t, size, strings.Join(lines[:40], "\n")+"\n{}\n"+lines[40], args...)
		require.Equal(t, ExitUsage, r.status)
		require.Equal(t, "lorafuse: standard input:41: found neither prompt nor messages, expected {\"prompt\": \"...\"} or {\"messages\": [...]}\n", r.stderr)
		require.Equal(t, withoutTimes(t, want.stdout)[:40], withoutTimes(t, r.stdout), "%d ranks", size)
	}
	r := shared(t, 2, "", "generate", "--model", llama, "--prompt", "a")
	require.Equal(t, ExitUsage, r.status)
	require.Contains(t, r.stderr, "share the lines of --prompts")
}

// TestRanksGenerateBreak: the answers before one that fails are written, and its line is named.
func TestRanksGenerateBreak(t *testing.T) {
	l := newLab(t)
	m := l.model()
	l.tensors(weightsFile(m), nan("model.norm.weight"))
	lines, _ := promptLines(t, 20)
	r := shared(t, 2, strings.Join(lines, "\n"), "generate", "--model", m, "--prompts", "-")
	require.Equal(t, ExitFailure, r.status)
	require.Empty(t, r.stdout)
	require.Regexp(t, `^lorafuse: standard input:1: generate: token \d+: .*\n$`, r.stderr)
}

// TestRanksDraw: ranks write the file of one process.
func TestRanksDraw(t *testing.T) {
	l := newLab(t)
	dir, embedding := l.flux()
	args := []string{"draw", "--model", dir, "--embedding", embedding, "--embedding", embedding, "--size", "16x16", "--steps", "2", "--seed", "1,2,3", "-o", l.path("x.png")}
	var want []byte
	for size := 1; size <= 4; size++ {
		r := shared(t, size, "", args...)
		require.Equal(t, ExitOK, r.status, r.stderr)
		got, err := os.ReadFile(l.path("x.png"))
		require.NoError(t, err)
		if want == nil {
			want = got
		}
		require.Equal(t, want, got, "%d ranks", size)
		l.remove(l.path("x.png"))
	}
}

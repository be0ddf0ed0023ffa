package layer

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	_ "github.com/lorafuse/lorafuse/backend/cpu"
	"github.com/lorafuse/lorafuse/dev/bench"
	"github.com/lorafuse/lorafuse/dev/bench/program"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// small are options that take little time.
func small(only string) Options {
	return Options{Turns: bench.Turns{Runs: 2, Only: regexp.MustCompile(only)}, Shrink: 64, Threads: 1}
}

func run(t *testing.T, o Options) *bench.Report {
	t.Helper()
	r, err := Run(t.Context(), o)
	require.NoError(t, err)
	for _, row := range r.Rows {
		assert.Empty(t, row.Failure, row.ID())
		assert.Len(t, row.Seconds, 2, row.ID())
		assert.Positive(t, row.Figures().Min, row.ID())
	}
	return r
}

func TestOverheads(t *testing.T) {
	r := run(t, small("m=8 k=32 n=32"))
	assert.Len(t, r.Rows, 20, "the layer alone, and three ranks in three ways, at two precisions")
	assert.Equal(t, "layer", r.Title)
	assert.Equal(t, 1, r.Environment.Threads)
	flops := map[string]float64{}
	for _, row := range r.Rows {
		flops[row.Name] = row.Flops
		assert.Positive(t, row.Peak.Flops)
	}
	const m, k, n = 8, 32, 32
	assert.InDelta(t, 4*m*k*n, flops["frozen layer alone"], 0)
	assert.InDelta(t, 4*m*k*n+6*m*16*(k+n), flops["LoRA r=16"], 0, "what the mark goes by")
	assert.Equal(t, flops["LoRA r=16"], flops["LoRA r=16, unfused"])
	require.Len(t, r.Verdicts(), 12)
	for _, v := range r.Verdicts() {
		assert.Equal(t, "lorafuse: frozen layer alone", v.Beside)
	}
	assert.InDelta(t, 1.05*(1+1.5*16*(32+32)/(32.*32)), allowed(size{8, 32, 32, 16}), 1e-12)
}

// The three ways to compute a layer give the same numbers.
func TestGraphsAgree(t *testing.T) {
	dev, err := backend.Open(backend.CPU, backend.Options{Threads: 1})
	require.NoError(t, err)
	defer func() { require.NoError(t, dev.Close()) }()
	z := size{5, 24, 40, 3}
	args := map[string]*tensor.Tensor{}
	eval := func(s program.Spec) [][]float32 {
		for _, name := range s.Graph.IR().ParamNames() {
			v, _ := s.Graph.IR().Lookup(name)
			typ := s.Graph.IR().Type(v)
			values := make([]float32, typ.Shape.Elements(nil))
			for i := range values {
				values[i] = float32((i*7+len(name)*3+int(name[0]))%13) / 8
			}
			x := &tensor.Tensor{DType: typ.DType, Shape: typ.Shape.Resolve(nil), Data: make([]byte, typ.Bytes(nil))}
			require.NoError(t, tensor.FromFloat32(x.Data, values, typ.DType))
			args[name] = x
		}
		outs, err := graph.Eval(t.Context(), dev, s.Results, args, nil)
		require.NoError(t, err)
		var all [][]float32
		for _, o := range outs {
			x, err := o.Float32s()
			require.NoError(t, err)
			all = append(all, x)
		}
		return all
	}
	one, other := eval(fused(z, 0)), eval(unfused(z))
	require.Len(t, one, 4)
	for i := range one {
		assert.InDeltaSlice(t, other[i], one[i], 1e-2, "result %d", i)
	}
}

// A program is what its name says: the fused layer is one product forward and
// one for dx, the unfused one is written out.
func TestPrograms(t *testing.T) {
	dev, err := backend.Open(backend.CPU, backend.Options{Threads: 1})
	require.NoError(t, err)
	defer func() { require.NoError(t, dev.Close()) }()
	launches := func(s program.Spec) string {
		p, err := program.New(t.Context(), dev, s)
		require.NoError(t, err)
		defer func() { require.NoError(t, p.Close()) }()
		return strings.Trim(fmt.Sprint(p.Launches()), "[]")
	}
	z := size{4, 8, 8, 2}
	assert.Equal(t, "Gemm Gemm", launches(frozen(z)))
	assert.Equal(t, 6, strings.Count(launches(fused(z, 0)), "Gemm"), "y, h, dh, dx, dA, dB")
	assert.Equal(t, 6, len(strings.Fields(launches(fused(z, 0)))))
	assert.Equal(t, 8, strings.Count(launches(unfused(z)), "Gemm"), "and a second one for y and dx")
	assert.Contains(t, launches(fused(z, 0.1)), ir.LoRADown.String())
	assert.Equal(t, "Gemm Gemm", launches(pair(4, 8, 2)))
}

func TestSingle(t *testing.T) {
	r := run(t, small("^Adapter alone"))
	assert.Len(t, r.Rows, 7, "sizes that are the same when divided are measured once")
}

// fakePython is a program that answers as torch_peer.py does.
func fakePython(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "python")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\nwhile read -r line; do echo '{\"seconds\": 0.25}'; done\n"), 0o755))
	return path
}

func TestPeer(t *testing.T) {
	if _, err := os.Stat("/bin/sh"); err != nil {
		t.Skip("no shell")
	}
	o := small("^Adapter alone")
	o.Python = fakePython(t)
	r := run(t, o)
	assert.Len(t, r.Rows, 14)
	assert.Equal(t, []float64{0.25, 0.25}, r.Rows[1].Seconds)
	require.Len(t, r.Verdicts(), 7)
	assert.True(t, r.Verdicts()[0].Met)
}

func TestBadOptions(t *testing.T) {
	for says, change := range map[string]func(*Options){
		"found 0 runs":               func(o *Options) { o.Runs = 0 },
		"a divisor of sizes of -1":   func(o *Options) { o.Shrink = -1 },
		"found -2 threads":           func(o *Options) { o.Threads = -2 },
		`no row matches "nothing$"`:  func(o *Options) { o.Only = regexp.MustCompile("nothing$") },
		`no row matches "^Other.*x"`: func(o *Options) { o.Only = regexp.MustCompile("^Other.*x") },
	} {
		o := small("")
		change(&o)
		_, err := Run(t.Context(), o)
		assert.ErrorIs(t, err, bench.ErrOptions, says)
		assert.ErrorContains(t, err, says)
	}
	o := small("")
	o.Backend = "tpu"
	_, err := Run(t.Context(), o)
	assert.ErrorIs(t, err, backend.ErrUnavailable)
}

func TestInterrupted(t *testing.T) {
	o := small("^Adapter alone")
	ctx, cancel := context.WithCancel(t.Context())
	o.Progress = func(done, _ int) {
		if done == 2 {
			cancel()
		}
	}
	r, err := Run(ctx, o)
	require.ErrorIs(t, err, context.Canceled)
	assert.Len(t, r.Rows, 1, "what was measured is there")
}

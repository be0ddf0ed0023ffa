//go:build cuda && linux

package cuda_test

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cuda"
	"github.com/lorafuse/lorafuse/backend/cuda/internal/simtest"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

var update = flag.Bool("update", false, "write testdata/counts.txt again")

// envCounts names the file that the simulator writes counts to, and cases between them.
const envCounts = "LFSIM_COUNT"

// TestCounts: the sectors, wavefronts, tensor-core instructions and barriers of the heaviest kernels do not change
// unseen, and do not depend on the order of threads. go test -tags cuda ./backend/cuda -run TestCounts -update
// writes testdata/counts.txt.
func TestCounts(t *testing.T) {
	simtest.Need(t)
	library := filepath.Join(filepath.Dir(simtest.Built()), "libcuda_count.so")
	if _, err := os.Stat(library); err != nil {
		t.Skipf("SKIPPED: no %s: scripts/cuda_sim.sh count builds it", library)
	}
	for _, order := range []string{"forward", "random"} {
		t.Run(order, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "counts")
			if onSimulator(t, simtest.EnvLibrary+"="+library, envCounts+"="+file, "LFSIM_CC=9.0", "LFSIM_ORDER="+order, "LFSIM_SEED=7", "LFSIM_THREADS=2") {
				launchCounted(t, os.Getenv(envCounts))
				return
			}
			got, err := os.ReadFile(file)
			require.NoError(t, err)
			const golden = "testdata/counts.txt"
			if *update {
				require.NoError(t, os.WriteFile(golden, got, 0o644))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			was, is := strings.Split(string(want), "\n"), strings.Split(string(got), "\n")
			for i := range min(len(was), len(is)) {
				assert.Equal(t, was[i], is[i], "line %d of %s", i+1, golden)
			}
			require.Len(t, is, len(was), "lines of %s", golden)
		})
	}
}

// counted is the program of one case.
type counted struct {
	*testing.T
	g    *graph.Graph
	args map[string]*tensor.Tensor
}

func (c *counted) param(d tensor.DType, shape ...int) graph.Tensor {
	name := fmt.Sprintf("in%d", len(c.args))
	c.args[name] = matrix(c.T, rand.New(rand.NewPCG(1, 2)), d, shape...)
	return c.g.Param(name, d, ir.ShapeOf(shape...)...)
}

// words returns a param of n integers or of their bits.
func (c *counted) words(d tensor.DType, n int, word func(i int) uint32) graph.Tensor {
	name := fmt.Sprintf("in%d", len(c.args))
	data := make([]byte, 4*n)
	for i := range n {
		binary.LittleEndian.PutUint32(data[4*i:], word(i))
	}
	c.args[name] = &tensor.Tensor{DType: d, Shape: []int{n}, Data: data}
	return c.g.Param(name, d, ir.Static(n))
}

func (c *counted) apply(op ir.Op, attr any, in ...graph.Tensor) graph.Tensor {
	ids := make([]ir.Value, len(in))
	for i, x := range in {
		ids[i] = x.Value()
	}
	return c.g.Of(c.g.IR().Apply(op, attr, ids...))
}

// attention returns causal attention with heads of 64 channels, two for each key head, or its gradients. A softCap of
// zero caps no scores.
func (c *counted) attention(queries, keys int, grad bool, softCap float32) []graph.Tensor {
	const heads, size = 4, 64
	attr := ir.AttentionAttr{Heads: heads, KVHeads: heads / 2, HeadDim: size, Scale: 0.125, SoftCap: softCap}
	q, k, v := c.param(tensor.F32, queries, heads*size), c.param(tensor.F32, keys, heads/2*size), c.param(tensor.F32, keys, heads/2*size)
	lo := c.words(tensor.I32, queries, func(int) uint32 { return 0 })
	hi := c.words(tensor.I32, queries, func(i int) uint32 { return uint32(keys - queries + i + 1) })
	o, lse := c.g.IR().Attention(q.Value(), k.Value(), v.Value(), lo.Value(), hi.Value(), attr)
	if !grad {
		return []graph.Tensor{c.g.Of(o)}
	}
	d := c.apply(ir.AttentionGrad, attr, c.param(tensor.F32, queries, heads*size), q, k, v, c.g.Of(o), c.g.Of(lse), lo, hi)
	return []graph.Tensor{d, c.g.Of(c.g.IR().Out(d.Value(), 1)), c.g.Of(c.g.IR().Out(d.Value(), 2))}
}

// countedCases have the shapes of layers, with fewer rows and columns.
var countedCases = []struct {
	name      string
	precision backend.Precision
	build     func(c *counted) []graph.Tensor
}{
	{"tiles of 128, f32 by bf16", backend.BF16, func(c *counted) []graph.Tensor {
		return []graph.Tensor{c.param(tensor.F32, 1408, 128).MatMulT(c.param(tensor.BF16, 1280, 128))}
	}},
	{"tiles of 128, f32 by bf16, turned", backend.BF16, func(c *counted) []graph.Tensor {
		return []graph.Tensor{c.param(tensor.F32, 1408, 64).MatMul(c.param(tensor.BF16, 64, 1280))}
	}},
	{"tiles of 128, bf16 by bf16", backend.BF16, func(c *counted) []graph.Tensor {
		x, w := c.param(tensor.BF16, 1408, 128), c.param(tensor.BF16, 1280, 128)
		return []graph.Tensor{c.g.Of(c.g.IR().Gemm([]ir.Product{{A: x.Value(), B: w.Value(), TB: true, Alpha: 1}}, 0, 0))}
	}},
	{"tiles of 128, f32 by nf4", backend.BF16, func(c *counted) []graph.Tensor {
		return []graph.Tensor{c.param(tensor.F32, 1408, 64).Linear(c.param(tensor.NF4, 1280, 64), graph.Tensor{})}
	}},
	{"tiles of 64, in parts", backend.BF16, func(c *counted) []graph.Tensor {
		return []graph.Tensor{c.param(tensor.F32, 70, 512).MatMulT(c.param(tensor.BF16, 256, 512))}
	}},
	{"float32", backend.F32, func(c *counted) []graph.Tensor {
		return []graph.Tensor{c.param(tensor.F32, 128, 256).MatMulT(c.param(tensor.F32, 128, 256))}
	}},
	{"one row", backend.BF16, func(c *counted) []graph.Tensor {
		return []graph.Tensor{c.param(tensor.F32, 1, 1024).MatMulT(c.param(tensor.BF16, 256, 1024))}
	}},
	{"eight rows", backend.BF16, func(c *counted) []graph.Tensor {
		return []graph.Tensor{c.param(tensor.F32, 8, 1024).MatMulT(c.param(tensor.BF16, 256, 1024))}
	}},
	{"adapter of rank 16 under dropout", backend.BF16, func(c *counted) []graph.Tensor {
		key := c.words(tensor.U32, 3, func(i int) uint32 { return uint32(i) })
		return []graph.Tensor{c.param(tensor.F32, 256, 512).LoRADown(c.param(tensor.F32, 16, 512), key, ir.DropoutAttr{P: 0.1, Stream: 3})}
	}},
	{"adapters of 16 rows", backend.BF16, func(c *counted) []graph.Tensor {
		index := c.words(tensor.I32, 16, func(i int) uint32 { return uint32(i / 4) })
		w := graph.RowsWeights{}
		for range 4 {
			w.Matrices = append(w.Matrices, c.param(tensor.F32, 16, 512))
		}
		return []graph.Tensor{c.param(tensor.F32, 16, 512).RowsGemm(index, w, graph.Tensor{})}
	}},
	{"attention, bf16", backend.BF16, func(c *counted) []graph.Tensor { return c.attention(128, 128, true, 0) }},
	{"attention, f32", backend.F32, func(c *counted) []graph.Tensor { return c.attention(64, 64, true, 0) }},
	{"attention of two queries over a cache", backend.BF16, func(c *counted) []graph.Tensor { return c.attention(2, 700, false, 0) }},
	{"attention of a prompt, capped", backend.BF16, func(c *counted) []graph.Tensor { return c.attention(80, 300, false, 30) }},
	{"norm of long rows", backend.BF16, func(c *counted) []graph.Tensor {
		x, w := c.param(tensor.F32, 4, 4096), c.param(tensor.F32, 4096)
		return []graph.Tensor{x.RMSNorm(w, 1e-6), c.apply(ir.RMSNormGrad, ir.NormAttr{Eps: 1e-6}, c.param(tensor.F32, 4, 4096), x, w)}
	}},
	{"norm of heads", backend.BF16, func(c *counted) []graph.Tensor {
		return []graph.Tensor{c.param(tensor.F32, 64, 128).RMSNorm(c.param(tensor.F32, 128), 1e-6)}
	}},
	{"rotary embedding", backend.BF16, func(c *counted) []graph.Tensor {
		table := c.words(tensor.I32, 32, func(i int) uint32 { return uint32(i) }).RoPETable(c.param(tensor.F32, 32), 1)
		return []graph.Tensor{c.param(tensor.F32, 32, 512).RoPE(table, 64)}
	}},
	{"gated unit", backend.BF16, func(c *counted) []graph.Tensor {
		x, y := c.param(tensor.F32, 8, 1024), c.param(tensor.F32, 8, 1024)
		return []graph.Tensor{x.GLU(y, ir.SiLU)}
	}},
	{"cross-entropy", backend.BF16, func(c *counted) []graph.Tensor {
		return []graph.Tensor{c.param(tensor.F32, 16, 2048).CrossEntropy(c.words(tensor.I32, 16, func(i int) uint32 { return uint32(i) }))}
	}},
	{"head and loss", backend.BF16, func(c *counted) []graph.Tensor {
		labels := c.words(tensor.I32, 200, func(i int) uint32 { return uint32(5 * i) })
		d := c.apply(ir.LinearCrossEntropyGrad, nil, c.param(tensor.F32, 200, 64), c.param(tensor.BF16, 1120, 64), labels, c.g.Const(0.25))
		return []graph.Tensor{d, c.g.Of(c.g.IR().Out(d.Value(), 1))}
	}},
	{"AdamW", backend.BF16, func(c *counted) []graph.Tensor {
		p, m, v, grad := c.param(tensor.F32, 4096), c.param(tensor.F32, 4096), c.words(tensor.F32, 4096, func(int) uint32 { return 0 }), c.param(tensor.F32, 4096)
		p, m, v = p.AdamW(m, v, grad, c.g.Const(0.9, ir.Static(3)), c.g.Const(1), ir.AdamWAttr{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8})
		return []graph.Tensor{p, m, v}
	}},
}

// launchCounted runs the cases; the simulator appends a line for each launch to the file.
func launchCounted(t *testing.T, file string) {
	devices := map[backend.Precision]*cuda.Device{}
	for _, c := range countedCases {
		dev := devices[c.precision]
		if dev == nil {
			dev = opened(t, backend.Options{Precision: c.precision})
			devices[c.precision] = dev
		}
		p := &counted{t, graph.New(), map[string]*tensor.Tensor{}}
		outs := c.build(p)
		require.NoError(t, p.g.Err(), c.name)
		f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		require.NoError(t, err)
		_, err = fmt.Fprintf(f, "# %s\n", c.name)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		_, err = graph.Eval(context.Background(), dev, outs, p.args, nil)
		require.NoError(t, err, c.name)
	}
}

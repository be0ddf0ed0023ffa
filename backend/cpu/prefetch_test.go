package cpu

import (
	"context"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// prefetchRun is y = W₂·norm(W₁·x) on two workers, of up to 64 rows.
type prefetchRun struct {
	*executable
	args backend.Args
	w    [2][]byte
}

func newPrefetchRun(t *testing.T, out int) *prefetchRun {
	dev, err := Open(backend.Options{Threads: 2})
	require.NoError(t, err)
	t.Cleanup(func() { dev.Close() })
	g := graph.New()
	n, static := g.Bound("n", 64), ir.Static
	x, scale := g.Param("x", tensor.F32, n, static(128)), g.Param("scale", tensor.F32, static(out))
	w1, w2 := g.Param("w1", tensor.BF16, static(out), static(128)), g.Param("w2", tensor.BF16, static(64), static(out))
	y := x.Linear(w1, graph.Tensor{}).RMSNorm(scale, 1e-5).Linear(w2, graph.Tensor{})
	c, err := g.Program().Result("y", y).Compile(dev)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	e, err := dev.Compile(c.Program())
	require.NoError(t, err)
	a := &prefetchRun{executable: e.(*executable)}
	for _, arg := range c.Program().Args {
		b, err := dev.Alloc(arg.Type.Bytes(g.IR().MaxDims()))
		require.NoError(t, err)
		t.Cleanup(b.Free)
		a.args.Buffers = append(a.args.Buffers, b)
		switch arg.Name {
		case "w1":
			a.w[0] = b.(*buffer).data
		case "w2":
			a.w[1] = b.(*buffer).data
		}
	}
	a.args.Dims = append([]int(nil), g.IR().MaxDims()...)
	return a
}

// rows runs with so many rows of x.
func (a *prefetchRun) rows(t *testing.T, n int) {
	a.args.Dims[1] = n
	_, err := a.Run(context.Background(), a.args)
	require.NoError(t, err)
}

// found is what a worker fetches while a step of op runs.
func (a *prefetchRun) found(t *testing.T, op ir.Op, nth, worker int) [][]byte {
	for i := range a.steps {
		if a.steps[i].launches[0].Op == op {
			if nth == 0 {
				require.NotNil(t, a.prefetches.steps[i])
				return (*a.prefetches.steps[i])[worker]
			}
			nth--
		}
	}
	t.Fatal("no such step")
	return nil
}

// What is fetched while a step runs is the workers' halves of the weights behind
// it, and behind the last one of the first.
func TestPrefetch(t *testing.T) {
	a := newPrefetchRun(t, 256)
	a.rows(t, 1)
	half := func(w []byte, worker int) []byte { return w[worker*len(w)/2:][:len(w)/2] }
	for worker := range 2 {
		for _, during := range []struct {
			op   ir.Op
			nth  int
			want []byte
		}{{ir.Gemm, 0, half(a.w[1], worker)}, {ir.RMSNorm, 0, half(a.w[1], worker)}, {ir.Gemm, 1, half(a.w[0], worker)}} {
			got := a.found(t, during.op, during.nth, worker)
			require.NotEmpty(t, got)
			assert.Same(t, &during.want[0], &got[0][0], "%v %d, worker %d", during.op, during.nth, worker)
			assert.Len(t, got[0], len(during.want))
		}
	}
	before := a.prefetches.steps[0]
	a.rows(t, 2)
	assert.Same(t, before, a.prefetches.steps[0], "made once")
	assert.Zero(t, testing.AllocsPerRun(10, func() { a.rows(t, 1) }))

	a.rows(t, prefetchRows+1)
	assert.Nil(t, a.prefetches.steps[0], "many rows do not wait for memory")
	a.rows(t, 1)
	assert.NotNil(t, a.prefetches.steps[0])

	moved, err := a.dev.Alloc(len(a.w[1]))
	require.NoError(t, err)
	defer moved.Free()
	for i, b := range a.args.Buffers {
		if unsafe.SliceData(b.(*buffer).data) == &a.w[1][0] {
			a.args.Buffers[i] = moved
		}
	}
	a.rows(t, 1)
	assert.Same(t, &moved.(*buffer).data[0], &a.found(t, ir.RMSNorm, 0, 0)[0][0])
}

// A worker comes to an end, however much there is, and begins again when there is
// something else.
func TestPrefetchEnds(t *testing.T) {
	a := newPrefetchRun(t, 64<<10)
	a.rows(t, 1)
	f := newPrefetcher(a.dev.gemm, 2)
	if !a.dev.gemm.FetchBytes(nil) {
		t.Skip("the instruction set has no fetching")
	}
	assert.False(t, f.bite(0), "nothing is to come")
	for range 2 {
		var last *fetchList
		for _, next := range a.prefetches.steps {
			f.next.Store(next)
			for worker := range 2 {
				want, bites := 0, 0
				for _, part := range (*next)[worker] {
					assert.LessOrEqual(t, len(part), prefetchMost)
					want += (len(part) + prefetchBite - 1) / prefetchBite
				}
				for f.bite(worker) {
					bites++
				}
				if next == last {
					want = 0
				}
				assert.Equal(t, want, bites)
			}
			last = next
		}
	}
}

package program

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	_ "github.com/lorafuse/lorafuse/backend/cpu"
	_ "github.com/lorafuse/lorafuse/backend/null"
	"github.com/lorafuse/lorafuse/dev/bench"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

func open(t *testing.T, name string) *Machine {
	m, err := Open(name, 1)
	require.NoError(t, err)
	m.Quick = true
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}

// product is x Wᵀ, with ids of rows of W.
func product(rows int) Spec {
	g := graph.New()
	x, w := g.Param("x", tensor.F32, ir.ShapeOf(2, 3)...), g.Param("w", tensor.BF16, ir.ShapeOf(9, 3)...)
	ids := g.Param("ids", tensor.I32, ir.ShapeOf(rows)...)
	return Spec{Graph: g, Results: []graph.Tensor{x.Linear(w, graph.Tensor{}), w.Gather(ids)}, Words: map[string][]int32{"ids": make([]int32, rows)}}
}

func TestProgram(t *testing.T) {
	m := open(t, backend.CPU)
	p, err := New(t.Context(), m.Device(backend.F32), product(4))
	require.NoError(t, err)
	flops, bytes := p.Cost()
	assert.Equal(t, 2*2*3*9+4*3, flops)
	assert.Equal(t, 4*6+2*27+4*18+2*12+4*4+4*12, bytes)
	assert.ElementsMatch(t, []ir.Op{ir.Gemm, ir.GatherRows}, p.Launches())
	for _, asynchronous := range []bool{true, false} {
		s := p.Sampler(MinSample, asynchronous)
		for range 2 {
			seconds, err := s.Sample(t.Context())
			require.NoError(t, err)
			assert.Positive(t, seconds)
			assert.Less(t, seconds, 0.1)
		}
	}
	allocs := testing.AllocsPerRun(20, func() { require.NoError(t, p.Run(context.Background())) })
	assert.Less(t, allocs, 5.0)
	require.NoError(t, p.Close())
}

// fence counts the runs that nobody has waited for.
type fence struct {
	open  *int
	fails error
}

func (f fence) Wait(context.Context) error {
	*f.open--
	return f.fails
}

// Runs are enqueued before others have ended, and each is waited for: an error of any is returned.
func TestEnqueue(t *testing.T) {
	broke := errors.New("broke")
	for n, bad := range map[int]int{1: -1, 4: -1, 11: -1, 12: 0, 13: 6, 14: 13} {
		open, most, runs := 0, 0, 0
		err := enqueue(t.Context(), func(context.Context) (backend.Fence, error) {
			f := fence{open: &open}
			if runs == bad {
				f.fails = broke
			}
			runs++
			open++
			most = max(most, open)
			return f, nil
		}, n)
		if assert.Equal(t, min(n, backend.MaxInFlight), most, n); bad >= 0 {
			require.ErrorIs(t, err, broke, n)
			continue
		}
		require.NoError(t, err)
		assert.Equal(t, n, runs)
		assert.Zero(t, open, n)
	}
	require.ErrorIs(t, enqueue(t.Context(), func(context.Context) (backend.Fence, error) { return nil, broke }, 2), broke)
}

// Operands that a cache would hold are there several times, and a sample is the time of one of them.
func TestCopies(t *testing.T) {
	assert.Equal(t, 1, copies(200<<20))
	assert.Equal(t, 2, copies(199<<20))
	assert.Equal(t, 7, copies(30<<20))
	assert.Equal(t, 64, copies(1))
	m := open(t, backend.CPU)
	assert.Equal(t, 1, m.Copies(1), "CPUs are measured as before")
	s := sampler{bench.Repeat(func(context.Context, int) error { time.Sleep(20 * time.Millisecond); return nil }, 0), &Program{copies: 1000}}
	seconds, err := s.Sample(t.Context())
	require.NoError(t, err)
	assert.Less(t, seconds, 5e-3)
}

// Arguments of every type that a product takes are filled with numbers.
func TestWeights(t *testing.T) {
	m := open(t, backend.CPU)
	for _, d := range []tensor.DType{tensor.F32, tensor.BF16, tensor.F16, tensor.Q8, tensor.NF4} {
		g := graph.New()
		x, w := g.Param("x", tensor.F32, ir.ShapeOf(2, 70)...), g.Param("w", d, ir.ShapeOf(33, 70)...)
		p, err := New(t.Context(), m.Device(backend.F32), Spec{Graph: g, Results: []graph.Tensor{x.Linear(w, graph.Tensor{})}})
		require.NoError(t, err, d)
		require.NoError(t, p.Run(t.Context()))
		y := make([]float32, 2*33)
		f, err := m.Device(backend.F32).Download(tensor.BytesOf(y), p.buffers[len(p.buffers)-1], 0)
		require.NoError(t, err)
		require.NoError(t, f.Wait(t.Context()))
		squares := 0.0
		for _, v := range y {
			squares += float64(v) * float64(v)
		}
		assert.InDelta(t, 70./9, squares/float64(len(y)), 5, "sums of 70 products of numbers in [-1, 1): %v", d)
		require.NoError(t, p.Close())
	}
}

func TestProgramRefuses(t *testing.T) {
	m := open(t, backend.CPU)
	s := product(4)
	s.Words["ids"] = []int32{1}
	_, err := New(t.Context(), m.Device(backend.F32), s)
	assert.ErrorContains(t, err, `program: "ids": found 1 words, expected 16 bytes`)
	g := graph.New()
	g.Param("x", tensor.F32, ir.ShapeOf(2)...)
	_, err = New(t.Context(), m.Device(backend.F32), Spec{Graph: g, Results: []graph.Tensor{g.Fail(errors.New("no such formula"))}})
	assert.ErrorContains(t, err, "no such formula")
}

// The rows of tasks are held against the machine's peak.
func TestMeasure(t *testing.T) {
	m := open(t, backend.CPU)
	row := &bench.Row{Group: "Products", Program: "ours", Name: "f32"}
	said := &bench.Row{Group: "Products", Program: "ours", Name: "its own cost", Flops: 7}
	r := m.Report("products")
	assert.Equal(t, 1, r.Environment.Threads)
	assert.Contains(t, r.Environment.String(), "1 threads")
	tasks := []bench.Task{
		m.Task(row, backend.F32, func() Spec { return product(4) }), m.Task(said, backend.BF16, func() Spec { return product(4) }),
	}
	require.NoError(t, m.Measure(t.Context(), bench.Turns{Runs: 2}, tasks, r))
	require.Len(t, r.Rows, 2)
	assert.InDelta(t, 2*2*3*9+4*3, row.Flops, 0)
	assert.InDelta(t, 7, said.Flops, 0)
	assert.Greater(t, row.Peak.Flops, 1e8)
	assert.Greater(t, row.Peak.Bytes, 1e8)
	assert.Equal(t, row.Peak.Bytes, said.Peak.Bytes)
	assert.Positive(t, row.Figures().OfFlops)
	assert.Less(t, row.Figures().OfFlops, 1.0)
}

// A device that does not know its peak has none.
func TestNoPeak(t *testing.T) {
	m := open(t, backend.Null)
	row := &bench.Row{Group: "Products", Program: "ours", Name: "f32"}
	r := m.Report("products")
	require.NoError(t, m.Measure(t.Context(), bench.Turns{Runs: 1}, []bench.Task{m.Task(row, backend.F32, func() Spec { return product(4) })}, r))
	assert.Zero(t, row.Peak)
	assert.Zero(t, row.Figures().OfFlops)
}

func TestOpenRefuses(t *testing.T) {
	_, err := Open(backend.CPU, -1)
	require.ErrorIs(t, err, bench.ErrOptions)
	_, err = Open("tpu", 1)
	require.ErrorIs(t, err, backend.ErrUnavailable)
}

// Plain Go multiplies bf16 no faster; a machine whose peak in bf16 is far higher does.
func TestGainsByBF16(t *testing.T) {
	t.Setenv("LORAFUSE_CPU", "portable")
	m := open(t, backend.CPU)
	m.Quick = false
	gains, err := m.GainsByBF16()
	require.NoError(t, err)
	assert.False(t, gains)
	assert.Positive(t, m.peaks[backend.F32].Flops)
	m.peaks[backend.BF16].Flops = 16 * m.peaks[backend.F32].Flops
	gains, err = m.GainsByBF16()
	require.NoError(t, err)
	assert.True(t, gains)

	gains, err = open(t, backend.Null).GainsByBF16()
	require.NoError(t, err)
	assert.False(t, gains, "no peak, no gain")
}

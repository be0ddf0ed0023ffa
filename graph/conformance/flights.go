package conformance

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/graph/exec"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// given is a started run: its fence, or the error of a device that detected it at once.
type given struct {
	fence backend.Fence
	err   error
}

func give(ctx context.Context, e *exec.Executable) given {
	f, err := e.Run(ctx)
	return given{f, err}
}

// wait returns the error of the run. It may be called by several goroutines.
func (g given) wait() error { return wait(g.fence, g.err) }

// testFlights starts several runs before it waits for any. Each has its own sizes, buffers and error, and reads data
// that was uploaded just before it into a shared buffer.
func testFlights(t *testing.T, dev backend.Device) {
	g := graph.New()
	n := g.Bound("n", 8)
	table := g.Param("table", tensor.F32, ir.Static(5), ir.Static(3))
	ids := g.Param("ids", tensor.I32, n)
	e, err := exec.Compile(g.IR(), exec.Spec{Results: []exec.Result{{Name: "y", Value: table.Gather(ids).Scale(2).Value()}}}, dev)
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	rows, numbers := alloc(t, dev, 4*5*3), alloc(t, dev, 4*8)
	require.NoError(t, e.Bind("table", rows))
	require.NoError(t, e.Bind("ids", numbers))
	values := make([]float32, 5*3)
	for i := range values {
		values[i] = float32(i)
	}
	upload(t, dev, rows, tensor.BytesOf(values))
	ended, cancel := context.WithCancel(context.Background())
	cancel()

	runs := []struct {
		ids  []int32
		ctx  context.Context
		want string // the expected error
	}{
		{ids: []int32{4, 0, 1, 2}},
		{ids: []int32{1, 7}, want: "GatherRows: id 7 at 1, the table has 5 rows"},
		{ids: []int32{3, 3, 3, 3, 3, 3, 3, 3}},
		{ids: []int32{2}, ctx: ended, want: context.Canceled.Error()},
		{ids: []int32{0, 2, 4, 1, 3}},
		{ids: []int32{-1}, want: "GatherRows: id -1 at 0, the table has 5 rows"},
	}
	var results []backend.Buffer
	for range runs {
		results = append(results, alloc(t, dev, 4*8*3))
	}
	for turn := range 4 { // later runs of a program may take another path
		var all []given
		check := func(i int) {
			if r := runs[i]; r.want == "" {
				assert.NoError(t, all[i].wait(), "run %d", i)
			} else {
				assert.ErrorContains(t, all[i].wait(), r.want, "run %d", i)
			}
		}
		for i, r := range runs {
			if i >= backend.MaxInFlight {
				check(i - backend.MaxInFlight) // its fence is valid until the next run
			}
			require.NoError(t, e.SetDim("n", len(r.ids)))
			_, err := dev.Upload(numbers, 0, tensor.BytesOf(r.ids))
			require.NoError(t, err)
			_, err = dev.Upload(results[i], 0, poison(4*8*3))
			require.NoError(t, err)
			require.NoError(t, e.Bind("y", results[i]))
			ctx := r.ctx
			if ctx == nil {
				ctx = context.Background()
			}
			all = append(all, give(ctx, e))
		}
		// Fences can be waited for in any order, repeatedly, and from several goroutines.
		for i := len(runs) - 1; i >= len(runs)-backend.MaxInFlight; i-- {
			var waiting sync.WaitGroup
			for range 3 {
				waiting.Go(func() { check(i) })
			}
			waiting.Wait()
		}
		for i, r := range runs {
			if r.want != "" {
				continue
			}
			got := make([]float32, len(r.ids)*3)
			download(t, dev, tensor.BytesOf(got), results[i])
			for j, x := range got {
				require.Equal(t, 2*values[3*int(r.ids[j/3])+j%3], x, "run %d of turn %d, element %d", i, turn, j)
			}
		}
	}
}

// testInOrder starts runs that each depend on the one before, and waits only for the last.
func testInOrder(t *testing.T, dev backend.Device) {
	g := graph.New()
	sum, x := g.Param("sum", tensor.F32, ir.Static(3)), g.Param("x", tensor.F32, ir.Static(3))
	e, err := exec.Compile(g.IR(), exec.Spec{Updates: []exec.Update{{Param: "sum", Value: sum.Scale(2).Add(x).Value()}}}, dev)
	require.NoError(t, err)
	defer func() { require.NoError(t, e.Close()) }()
	total, added := alloc(t, dev, 12), alloc(t, dev, 12)
	require.NoError(t, e.Bind("sum", total))
	require.NoError(t, e.Bind("x", added))
	want, last := make([]float32, 3), given{}
	for i := range 4 * backend.MaxInFlight {
		x := []float32{float32(i), 1, float32(-i % 3)}
		_, err := dev.Upload(added, 0, tensor.BytesOf(x))
		require.NoError(t, err)
		last = give(context.Background(), e)
		for j := range want {
			want[j] = 2*want[j] + x[j]
		}
	}
	require.NoError(t, last.wait())
	got := make([]float32, 3)
	download(t, dev, tensor.BytesOf(got), total)
	require.Equal(t, want, got)

	for range backend.MaxInFlight - 1 {
		last = give(context.Background(), e)
	}
	require.NoError(t, e.Close(), "closing waits for runs")
	require.NoError(t, last.wait())
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if last.fence != nil {
		require.NoError(t, last.fence.Wait(ctx), "it is over already")
	}
}

package graph_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/graph"
)

// Evaluations are queued before the first has started, on a device that runs inside Run. They end in order, and the
// host can build graphs in between.
func TestEvalAsyncOverlaps(t *testing.T) {
	ctx := context.Background()
	dev := &counted{Device: testdevice.Open(t, backend.Options{}), gate: make(chan struct{})}
	e := graph.NewEvaluator(dev, graph.EvaluatorOptions{Depth: 5})
	g := graph.New() // built on while tensors of it wait
	var pending []*graph.Pending
	var wants [][]float32
	for i := range 5 {
		y, want := affine(g, i, float64(i%2+1))
		p, err := y.EvalAsync(ctx, e)
		require.NoError(t, err)
		pending, wants = append(pending, p), append(wants, want)
	}
	assert.Equal(t, 5, e.Stats().Queued, "all are under way")
	assert.Zero(t, dev.runs.Load(), "and none has run")
	full, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	y, _ := affine(g, 9, 1)
	_, err := y.EvalAsync(full, e)
	require.ErrorIs(t, err, context.DeadlineExceeded, "there is no place for one more")
	_, err = pending[4].Wait(full)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	for i, p := range pending {
		for j := i; j < len(pending); j++ {
			select {
			case <-pending[j].Done():
				t.Fatalf("%d has ended before its turn", j)
			default:
			}
		}
		dev.gate <- struct{}{}
		out, err := p.Wait(ctx)
		require.NoError(t, err)
		check(t, wants[i], out[0], nil)
		out, err = p.Wait(full)
		check(t, wants[i], out[0], err)
	}
	assert.Zero(t, e.Stats().Queued)
	require.NoError(t, e.Close())
}

// A queued evaluation is dropped when its context ends, a running one is stopped, and the others continue.
func TestEvalAsyncCancelled(t *testing.T) {
	ctx := context.Background()
	dev := &counted{Device: testdevice.Open(t, backend.Options{}), gate: make(chan struct{})}
	e := graph.NewEvaluator(dev, graph.EvaluatorOptions{})
	running, stop := context.WithCancel(ctx)
	waiting, giveUp := context.WithCancel(ctx)
	start := func(ctx context.Context, i int) (*graph.Pending, []float32) {
		y, want := affine(graph.New(), i, float64(i))
		p, err := y.EvalAsync(ctx, e)
		require.NoError(t, err)
		return p, want
	}
	first, _ := start(running, 1)
	second, _ := start(waiting, 2)
	third, want := start(ctx, 3)
	giveUp()
	_, err := second.Wait(ctx)
	require.ErrorIs(t, err, context.Canceled)
	select {
	case <-first.Done():
		t.Fatal("the first was not cancelled")
	default:
	}
	stop()
	_, err = first.Wait(ctx)
	require.ErrorIs(t, err, context.Canceled)
	close(dev.gate)
	out, err := third.Wait(ctx)
	require.NoError(t, err)
	check(t, want, out[0], nil)
	assert.EqualValues(t, 1, dev.runs.Load())
	require.NoError(t, e.Close())
}

// Close waits for queued evaluations.
func TestCloseWaitsForAsync(t *testing.T) {
	dev := &counted{Device: testdevice.Open(t, backend.Options{}), gate: make(chan struct{})}
	e := graph.NewEvaluator(dev, graph.EvaluatorOptions{})
	y, want := affine(graph.New(), 4, 2)
	p, err := y.EvalAsync(context.Background(), e)
	require.NoError(t, err)
	closed := make(chan error)
	go func() { closed <- e.Close() }()
	select {
	case <-closed:
		t.Fatal("closed under a run")
	case <-time.After(2 * time.Millisecond):
	}
	close(dev.gate)
	require.NoError(t, <-closed)
	out, err := p.Wait(context.Background())
	require.NoError(t, err)
	check(t, want, out[0], nil)
}

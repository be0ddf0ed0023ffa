package batching_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/serve/batching"
)

// slow is a device that compiles only while it is let.
type slow struct {
	backend.Device
	backend.Memory
	let   chan struct{} // holds one where it is let
	asked chan struct{} // gets one when it would compile
}

func (d *slow) CompileIn(p *ir.Program, arena backend.Buffer) (backend.Executable, error) {
	select {
	case d.asked <- struct{}{}:
	default:
	}
	<-d.let
	defer func() { d.let <- struct{}{} }()
	return d.Memory.CompileIn(p, arena)
}

// TestComing: while the program for a new mix of adapters is compiled, those that there
// is a program for are answered, and requests that wait for it may come and go.
func TestComing(t *testing.T) {
	dev := testdevice.OpenOn(t, backend.CPU, backend.Options{Threads: 1, BatchInvariant: true})
	d := &slow{dev, dev.(backend.Memory), make(chan struct{}, 1), make(chan struct{}, 1)}
	d.let <- struct{}{}
	b := benchOn(t, d, open(t, llama), adapters, batching.Options{})
	none, one, other := greedy("", prompt(b.m, 1, 5), 9), greedy("lora", prompt(b.m, 2, 5), 9), greedy("dora", prompt(b.m, 3, 5), 9)
	wantNone, wantOne, wantOther := b.expected(none), b.expected(one), b.expected(other)
	ask := func(r batching.Request, want answer) {
		t.Helper()
		got, _, err := collect(b.Engine, r)
		require.NoError(t, err)
		require.Equal(t, want, got[0])
	}
	ask(one, wantOne) // its program is there from now on

	<-d.let // nothing is compiled
	select {
	case <-d.asked:
	default:
	}
	left, leave := context.WithCancel(ctx)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for _, err := range b.Submit(left, other) {
			assert.ErrorIs(t, err, context.Canceled)
		}
	}()
	<-d.asked
	ask(one, wantOne)
	ask(none, wantNone)
	leave()
	<-gone
	waiting := make(chan []answer)
	go func() {
		got, _, err := collect(b.Engine, other)
		assert.NoError(t, err)
		waiting <- got
	}()
	ask(one, wantOne)
	ask(none, wantNone)
	select {
	case <-waiting:
		t.Fatal("it has no program")
	default:
	}
	d.let <- struct{}{}
	require.Equal(t, wantOther, (<-waiting)[0])
	ask(one, wantOne)

	// The engine closes while something is compiled that nobody wants any more.
	third := built(t, b.m, `"target_modules":["v_proj"],"r":3`, 5)
	_, err := b.Adapters().Load(ctx, "third", third)
	require.NoError(t, err)
	<-d.let
	ended := make(chan error)
	go func() {
		_, _, err := collect(b.Engine, greedy("third", prompt(b.m, 1, 3), 3))
		ended <- err
	}()
	<-d.asked
	closed := make(chan struct{})
	go func() {
		b.Close()
		close(closed)
	}()
	require.ErrorIs(t, <-ended, batching.ErrClosed)
	d.let <- struct{}{}
	<-closed
}

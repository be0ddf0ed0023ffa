package batching_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/serve/batching"
	"github.com/lorafuse/lorafuse/internal/weights"
)

// faulty is a device whose runs, copies or programs fail as long as it is told to.
type faulty struct {
	backend.Device
	backend.Memory
	index               int
	run, compile, alloc atomic.Pointer[func() error]
	compiled            atomic.Int64 // programs
}

func newFaulty(t *testing.T) *faulty {
	dev := testdevice.Open(t, backend.Options{Threads: 1, BatchInvariant: true})
	return &faulty{Device: dev, Memory: dev.(backend.Memory)}
}

func (d *faulty) Info() backend.Info {
	i := d.Device.Info()
	i.Index = d.index
	return i
}

func (d *faulty) Alloc(bytes int) (backend.Buffer, error) {
	if f := d.alloc.Load(); f != nil {
		return nil, (*f)()
	}
	return d.Device.Alloc(bytes)
}

func (d *faulty) Import(src weights.Data) (backend.Buffer, error) {
	if f := d.alloc.Load(); f != nil {
		return nil, (*f)()
	}
	return d.Device.Import(src)
}

func (d *faulty) CompileIn(p *ir.Program, arena backend.Buffer) (backend.Executable, error) {
	if f := d.compile.Load(); f != nil {
		return nil, (*f)()
	}
	d.compiled.Add(1)
	e, err := d.Memory.CompileIn(p, arena)
	return faultyExecutable{e, d}, err
}

type faultyExecutable struct {
	backend.Executable
	dev *faulty
}

func (e faultyExecutable) Run(ctx context.Context, args backend.Args) (backend.Fence, error) {
	if f := e.dev.run.Load(); f != nil {
		return nil, (*f)()
	}
	return e.Executable.Run(ctx, args)
}

// breaker is a decoder that does something at each token.
type breaker func()

func (b breaker) Push(int32) (string, error) {
	b()
	return "", nil
}

func (breaker) Flush() string { return "" }

// TestFaults: a run that fails or panics ends the requests that were in it, and nothing
// else; a program that cannot be made ends those that need it. Then all is as before.
func TestFaults(t *testing.T) {
	dev := newFaulty(t)
	b := benchOn(t, dev, open(t, llama), adapters, batching.Options{PageRows: 4})
	why := errors.New("why")
	fails := func() error { return why }
	panics := func() error { panic(why) }
	r := greedy("lora", prompt(b.m, 1, 12), 8)
	want := b.expected(r)
	for _, f := range []func() error{fails, panics} {
		n := 0
		var last error
		first := r
		first.Answers = slices.Clone(r.Answers)
		first.Answers[0].Decoder = breaker(func() { dev.run.Store(&f) })
		for token, err := range b.Submit(ctx, first) {
			if last = err; err != nil {
				break
			}
			require.Equal(t, want.IDs[n], token.ID)
			n++
		}
		require.ErrorIs(t, last, why)
		require.Equal(t, 1, n)
		_, _, err := collect(b.Engine, r)
		require.ErrorIs(t, err, why)
		dev.run.Store(nil)
		got, _, err := collect(b.Engine, r)
		require.NoError(t, err)
		require.Equal(t, want, got[0])
		require.Zero(t, b.Stats().Pages.Used)
	}

	b.dirs = map[string]string{"other": built(t, b.m, `"target_modules":["q_proj"],"r":3,"use_dora":true`, 1)}
	other := greedy("other", r.Prompt, 8)
	wanted := b.expected(other)
	done := make(chan []answer)
	b.gate.Lock()
	go func() {
		got, _, err := collect(b.Engine, r)
		assert.NoError(t, err)
		done <- got
	}()
	b.await(1)
	dev.compile.Store(&fails)
	b.gate.Unlock()
	_, err := b.Adapters().Load(ctx, "other", b.dirs["other"])
	require.NoError(t, err)
	_, _, err = collect(b.Engine, other)
	require.ErrorIs(t, err, why)
	require.Equal(t, want, (<-done)[0])
	dev.compile.Store(nil)
	got, _, err := collect(b.Engine, other)
	require.NoError(t, err)
	require.Equal(t, wanted, got[0])
}

// TestNoRoom: an adapter that the device has no memory for ends the requests for it.
func TestNoRoom(t *testing.T) {
	dev := newFaulty(t)
	b := benchOn(t, dev, open(t, llama), nil, batching.Options{})
	b.dirs = map[string]string{}
	for i := range 2 {
		name := fmt.Sprint("a", i)
		b.dirs[name] = built(t, b.m, `"target_modules":"all-linear","r":4`, uint64(i))
		_, err := b.Adapters().Load(ctx, name, b.dirs[name])
		require.NoError(t, err)
	}
	one, two := greedy("a0", prompt(b.m, 1, 5), 6), greedy("a1", prompt(b.m, 1, 5), 6)
	first, second := b.expected(one), b.expected(two)
	got, _, err := collect(b.Engine, one)
	require.NoError(t, err)
	require.Equal(t, first, got[0])
	full := func() error { return backend.ErrOutOfMemory }
	dev.alloc.Store(&full)
	_, _, err = collect(b.Engine, two)
	require.ErrorIs(t, err, backend.ErrOutOfMemory)
	got, _, err = collect(b.Engine, one)
	require.NoError(t, err)
	require.Equal(t, first, got[0])
	dev.alloc.Store(nil)
	got, _, err = collect(b.Engine, two)
	require.NoError(t, err)
	require.Equal(t, second, got[0])
}

// TestDropped: the memory of an adapter that is unloaded is free at once, though nobody
// asks and no other has its shape; one that comes to have it needs no new program.
func TestDropped(t *testing.T) {
	dev := newFaulty(t)
	b := benchOn(t, dev, open(t, llama), adapters, batching.Options{})
	both := []batching.Request{greedy("lora", prompt(b.m, 1, 5), 6), greedy("dora", prompt(b.m, 2, 5), 6)}
	want := []answer{b.expected(both[0]), b.expected(both[1])}
	require.Equal(t, want, b.all(both))
	for i, r := range both {
		lease, err := b.Adapters().Acquire(ctx, r.Adapter)
		require.NoError(t, err)
		bytes := b.SlotBytes(lease.Version())
		require.Positive(t, bytes())
		require.NoError(t, b.Adapters().Unload(r.Adapter))
		require.Positive(t, bytes(), "it is leased")
		lease.Release()
		require.Eventually(t, func() bool { return bytes() == 0 }, time.Minute, time.Millisecond)
		_, err = b.Adapters().Load(ctx, r.Adapter, b.dirs[r.Adapter])
		require.NoError(t, err)
		before := dev.compiled.Load()
		require.Equal(t, want[i:i+1], b.all(both[i:i+1]))
		require.Equal(t, before, dev.compiled.Load(), "round %d", i)
		require.Equal(t, want, b.all(both))
	}
}

// TestLost: a device that is lost ends everything, with an error that says so, and nothing
// waits for it.
func TestLost(t *testing.T) {
	dev := newFaulty(t)
	b := benchOn(t, dev, open(t, llama), adapters, batching.Options{MaxTexts: 1})
	lost := func() error { return backend.ErrLost }
	failed := make(chan error)
	b.gate.Lock()
	for _, adapter := range []string{"lora", "dora", ""} {
		go func() {
			_, _, err := collect(b.Engine, greedy(adapter, prompt(b.m, 1, 5), 100))
			failed <- err
		}()
	}
	b.await(3)
	dev.run.Store(&lost)
	b.gate.Unlock()
	for range 3 {
		require.ErrorIs(t, <-failed, backend.ErrLost)
	}
	_, _, err := collect(b.Engine, greedy("", []int32{1}, 1))
	require.ErrorIs(t, err, backend.ErrLost)
	require.NoError(t, b.Drain(ctx))
	dev.run.Store(nil)
}

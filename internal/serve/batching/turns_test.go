package batching_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/serve/batching"
	"github.com/lorafuse/lorafuse/lora"
)

// order notes which answers begin, in the order in which an engine makes them.
type order struct {
	mu    sync.Mutex
	begun []string
}

// beginning is a decoder that notes its name with the first token.
type beginning struct {
	order *order
	name  string
	once  sync.Once
}

func (d *beginning) Push(int32) (string, error) {
	d.once.Do(func() {
		d.order.mu.Lock()
		defer d.order.mu.Unlock()
		d.order.begun = append(d.order.begun, d.name)
	})
	return "", nil
}

func (d *beginning) Flush() string { return "" }

// TestTurns: who asks for little is not kept waiting by who asks for much, whoever came
// first, be it another client or one of another adapter.
func TestTurns(t *testing.T) {
	b := newBench(t, llama, adapters, batching.Options{MaxTexts: 1})
	var order order
	var work sync.WaitGroup
	ask := func(adapter, client string, seed uint64) {
		r := greedy(adapter, prompt(b.m, seed, 8), 8)
		r.Client = client
		r.Answers[0].Decoder = &beginning{order: &order, name: adapter + client}
		work.Go(func() {
			_, _, err := collect(b.Engine, r)
			assert.NoError(t, err)
		})
	}
	b.gate.Lock()
	for i := range 20 {
		ask("lora", "greedy", uint64(i))
	}
	b.await(20)
	for i := range 3 {
		ask("lora", "other", uint64(50+i))
		ask("dora", "greedy", uint64(60+i))
	}
	b.await(26)
	b.gate.Unlock()
	work.Wait()
	for _, one := range []string{"loraother", "doragreedy"} {
		for i := range 3 { // each of the three flows has every third turn
			at := -1
			for range i + 1 {
				at += 1 + slices.Index(order.begun[at+1:], one)
			}
			require.LessOrEqual(t, at, 3*(i+1)+2, "%s number %d in %v", one, i, order.begun)
		}
	}
}

// TestLongPrompt: a short prompt is read beside a long one that came first.
func TestLongPrompt(t *testing.T) {
	b := newBench(t, llama, nil, batching.Options{MaxTexts: 4, MaxBatchTokens: 8, PageRows: 4})
	long, short := greedy("", prompt(b.m, 1, 100), 3), greedy("", prompt(b.m, 2, 9), 3)
	long.Client, short.Client = "long", "short"
	var order order
	var work sync.WaitGroup
	b.gate.Lock()
	for i, r := range []batching.Request{long, short} {
		r.Answers[0].Decoder = &beginning{order: &order, name: r.Client}
		work.Go(func() {
			_, _, err := collect(b.Engine, r)
			assert.NoError(t, err)
		})
		b.await(i + 1)
	}
	b.gate.Unlock()
	work.Wait()
	require.Equal(t, []string{"short", "long"}, order.begun)
}

// TestSamePrompt: a prompt that many ask for at the same time is read once, but for what
// does not fill a page.
func TestSamePrompt(t *testing.T) {
	var read atomic.Int64
	b := newBench(t, llama, adapters, batching.Options{MaxTexts: 10, MaxBatchTokens: 16, PageRows: 4, OnStep: func(s batching.Step) { read.Add(int64(s.Tokens)) }})
	p := prompt(b.m, 1, 90)
	var asked []batching.Request
	var want []answer
	for i := range 8 {
		asked = append(asked, greedy([]string{"lora", "dora"}[i%2], append(slices.Clone(p), int32(i)), 1))
		want = append(want, b.expected(asked[i]))
	}
	require.Equal(t, want, b.all(asked))
	b.Close()
	require.EqualValues(t, 2*88+8*3+2, read.Load(), "88 tokens with each adapter, the rest of each prompt, and a short text")
}

// TestQueue: there is an end to what waits, which is free for others when somebody goes.
func TestQueue(t *testing.T) {
	b := newBench(t, llama, nil, batching.Options{MaxTexts: 1, MaxQueue: 2})
	leave, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	b.gate.Lock()
	begin := func() {
		work.Go(func() {
			for _, err := range b.Submit(leave, greedy("", []int32{1, 2}, 9)) {
				assert.True(t, err == nil || leave.Err() != nil)
			}
		})
	}
	begin()
	b.begun()
	begin()
	begin()
	b.await(3)
	_, _, err := collect(b.Engine, greedy("", []int32{1, 2}, 9))
	require.ErrorIs(t, err, batching.ErrQueue)
	s := b.Stats()
	require.Equal(t, []batching.AdapterCount{{"", 1}}, s.Running)
	require.Equal(t, []batching.AdapterCount{{"", 2}}, s.Waiting)
	require.Eventually(t, func() bool { return b.Stats().Pages.Used > 0 }, time.Minute, time.Millisecond, "as soon as its first step is over")
	cancel()
	b.gate.Unlock()
	work.Wait()
	s = b.Stats()
	require.Zero(t, s.Pages.Used)
	require.Empty(t, append(s.Running, s.Waiting...))
	_, _, err = collect(b.Engine, greedy("", []int32{1, 2}, 9))
	require.NoError(t, err)
}

// TestSlowReader: one who does not read keeps nobody waiting, and finds all tokens later.
func TestSlowReader(t *testing.T) {
	b := newBench(t, llama, adapters, batching.Options{})
	slow, fast := greedy("lora", prompt(b.m, 1, 5), 20), greedy("dora", prompt(b.m, 2, 5), 20)
	var ids []int32
	for token, err := range b.Submit(ctx, slow) {
		require.NoError(t, err)
		if ids = append(ids, token.ID); len(ids) == 1 {
			got, _, err := collect(b.Engine, fast)
			require.NoError(t, err)
			require.Equal(t, b.expected(fast), got[0])
			b.await(0)
		}
	}
	require.Equal(t, b.expected(slow).IDs, ids)
}

// TestUnload: an adapter that is unloaded, or swapped for another, while it runs stays
// until its requests have ended. Where more adapters are asked for than the device may
// have, requests wait for each other.
func TestUnload(t *testing.T) {
	dirs := map[string]string{}
	for name, dir := range adapters {
		dirs[name] = dir
	}
	b := newBench(t, llama, dirs, batching.Options{Adapters: lora.RegistryOptions{MaxResident: 1}})
	for i := range 4 {
		name := fmt.Sprint("built", i)
		b.dirs[name] = built(t, b.m, `"target_modules":"all-linear","r":4`, uint64(i))
		_, err := b.Adapters().Load(ctx, name, b.dirs[name])
		require.NoError(t, err)
	}
	one := greedy("lora", prompt(b.m, 1, 5), 20)
	n := 0
	for token, err := range b.Submit(ctx, one) {
		require.NoError(t, err)
		require.Equal(t, b.expected(one).IDs[n], token.ID)
		if n++; n == 2 {
			require.Equal(t, []string{"lora"}, b.Stats().Resident)
			require.NoError(t, b.Adapters().Unload("lora"))
			_, _, err := collect(b.Engine, one)
			require.ErrorIs(t, err, lora.ErrNotFound)
			_, err = b.Adapters().Load(ctx, "lora", adapters["dora"])
			require.NoError(t, err)
		}
	}
	require.Equal(t, 20, n)
	got, _, err := collect(b.Engine, one)
	require.NoError(t, err)
	one.Adapter = "dora"
	require.Equal(t, b.expected(one), got[0])

	var asked []batching.Request
	var want []answer
	for i := range 12 {
		asked = append(asked, greedy(fmt.Sprint("built", i%4), prompt(b.m, uint64(i), 5), 6))
		want = append(want, b.expected(asked[i]))
	}
	require.Equal(t, want, b.all(asked))

	// What is pinned leaves no room for others.
	require.NoError(t, b.Adapters().Pin("built0"))
	_, _, err = collect(b.Engine, greedy("built0", []int32{1}, 1))
	require.NoError(t, err)
	_, _, err = collect(b.Engine, greedy("built1", []int32{1}, 1))
	require.ErrorIs(t, err, lora.ErrFull)
	_, _, err = collect(b.Engine, greedy("", []int32{1}, 1))
	require.NoError(t, err)
}

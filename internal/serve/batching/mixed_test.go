package batching_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/serve/batching"
	"github.com/lorafuse/lorafuse/lora"
)

// TestMixed: requests with adapters of all kinds that come, go and are cancelled at any
// time, with adapters that are loaded and unloaded meanwhile, in a cache that is much too
// small, get the answers that each gets alone: the same tokens, and the same bits of
// their log-probabilities.
func TestMixed(t *testing.T) {
	dirs := casesOf(t, smallLlama)
	names := slices.Sorted(maps.Keys(dirs))
	m := open(t, smallLlama)
	for i, config := range []string{`"target_modules":"all-linear","r":4`, `"target_modules":"all-linear","r":4`, `"target_modules":["q_proj","lm_head"],"use_dora":true`, `"target_modules":"all-linear","r":33`} {
		name := fmt.Sprint("built", i)
		dirs[name] = built(t, m, config, uint64(i))
		names = append(names, name)
	}
	names = append(names, "")
	dev := testdevice.Open(t, backend.Options{Threads: 1, BatchInvariant: true})
	b := benchOn(t, dev, m, dirs, batching.Options{
		MaxLength: 40, MaxTexts: 6, MaxBatchTokens: 24, CacheTokens: 56, PageRows: 4,
		Adapters: lora.RegistryOptions{MaxResident: 7, HostBytes: 0},
	})
	const requests = 200
	r := rand.New(rand.NewPCG(3, 4))
	asked := make([]batching.Request, requests)
	want := make([]answer, requests)
	for i := range asked {
		p := prompt(m, uint64(r.IntN(4)), 1+r.IntN(20))
		asked[i] = greedy(names[i%len(names)], p, 1+r.IntN(16))
		asked[i].Client = fmt.Sprint(r.IntN(3))
		if r.IntN(4) == 0 {
			asked[i].Answers[0].Sampler.Temperature, asked[i].Answers[0].Sampler.Seed = 1, uint64(i)
		}
	}
	for _, name := range names { // the generator changes adapters seldom
		for i := range asked {
			if asked[i].Adapter == name {
				want[i] = b.expected(asked[i])
			}
		}
	}
	var work, swaps sync.WaitGroup
	stop := make(chan struct{})
	swaps.Go(func() { // names come to stand for other versions, and for none
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
			name := names[i%(len(names)-1)]
			_, err := b.Adapters().Load(ctx, "other", dirs[name])
			require.NoError(t, err)
			_, err = b.Adapters().Load(ctx, name, dirs[name])
			require.NoError(t, err)
			if i%3 == 0 {
				require.NoError(t, b.Adapters().Unload("other"))
			}
		}
	})
	for i := range asked {
		work.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 9))
			time.Sleep(time.Duration(r.IntN(100)) * time.Millisecond)
			if r.IntN(4) == 0 { // one who leaves
				b.leave(asked[i], want[i], r.IntN(6), r.IntN(2) == 0)
			}
			got, _, err := collect(b.Engine, asked[i])
			require.NoError(t, err)
			require.Equal(t, want[i], got[0], "request %d with %q", i, asked[i].Adapter)
		})
	}
	work.Wait()
	close(stop)
	swaps.Wait()
	// Whether the mix has preempted anything depends on the machine. Six that enter
	// together with 12 of the 14 pages, and need 36 to finish, do so on any.
	crowd, crowdWant := make([]batching.Request, 6), make([]answer, 6)
	for i := range crowd {
		crowd[i] = greedy("", prompt(m, uint64(100+i), 8), 16)
		crowdWant[i] = b.expected(crowd[i])
	}
	require.Equal(t, crowdWant, b.all(crowd))
	s := b.Stats()
	require.Positive(t, s.Preemptions)
	require.Positive(t, s.Pages.Hits)
	require.Zero(t, s.Pages.Used)
	require.Equal(t, 14, s.Pages.Free+s.Pages.Cached)
	require.Empty(t, s.Running)
	require.Empty(t, s.Waiting)
	for _, info := range b.Adapters().List() {
		for _, v := range info.Versions {
			require.Zero(t, v.Leases)
		}
	}
}

// TestMixedOnAnyDevice: on a device whose bits depend on the company too, answers in a
// mix of adapters of all kinds are those alone, but for the order of sums.
func TestMixedOnAnyDevice(t *testing.T) {
	dirs, m := casesOf(t, smallLlama), open(t, smallLlama)
	b := benchOn(t, testdevice.Open(t, backend.Options{Threads: 1}), m, dirs, batching.Options{MaxLength: 40, MaxTexts: 8, MaxBatchTokens: 48, PageRows: 4})
	var asked []batching.Request
	var want []answer
	for i, name := range append(slices.Sorted(maps.Keys(dirs)), "") {
		r := greedy(name, prompt(m, uint64(i), 3+i%9), 6)
		asked, want = append(asked, r), append(want, b.expected(r))
	}
	for i, got := range b.all(asked) {
		requireNear(t, want[i], got)
	}
}

// leave begins a request and leaves it after a few tokens, or cancels it.
func (b *bench) leave(r batching.Request, want answer, after int, cancels bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	at := 0
	for token, err := range b.Submit(ctx, r) {
		if err != nil {
			require.ErrorIs(b.t, err, context.Canceled)
			return
		}
		require.Equal(b.t, want.IDs[at], token.ID)
		if at++; at > after && !cancels {
			return
		} else if at > after {
			cancel()
		}
	}
}

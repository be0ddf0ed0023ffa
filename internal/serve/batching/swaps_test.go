package batching_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/serve/batching"
	"github.com/lorafuse/lorafuse/lora"
)

// past is what one name has stood for, in its order: bytes, or none.
type past struct {
	mu       sync.Mutex
	settled  int      // changes that have been made
	versions []string // up to the one that is being made, "" where it stood for none
}

// change has the name come to stand for something else.
func (p *past) change(version string, do func() error) error {
	p.mu.Lock()
	p.versions = append(p.versions, version)
	p.mu.Unlock()
	err := do()
	p.mu.Lock()
	p.settled++
	p.mu.Unlock()
	return err
}

// now is from which version on a request that begins may meet.
func (p *past) now() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(0, p.settled-1)
}

// since are the versions that a request can have met.
func (p *past) since(first int) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.versions[first:]
}

// TestSwaps: names come to stand for other bytes, for none and for some again, a thousand
// times, while requests for them are answered: each answer is, to the bit, that of one
// version that the name stood for when the request was taken, alone. In the end all is
// free.
func TestSwaps(t *testing.T) {
	const swaps, clients, names = 1000, 6, 3
	m := open(t, smallLlama)
	dirs, versions := map[string]string{}, []string{}
	for i := range 8 { // of two shapes, so that positions and programs change
		config := `"target_modules":"all-linear","r":4`
		if i%4 == 3 {
			config = `"target_modules":["q_proj","v_proj"],"r":9,"use_dora":true`
		}
		version := fmt.Sprint("version", i)
		dirs[version] = built(t, m, config, uint64(i))
		versions = append(versions, version)
	}
	step := make(chan struct{}, 1)
	working, stop := context.WithCancel(ctx)
	defer stop()
	await := func() {
		select {
		case <-step:
		case <-working.Done():
		}
	}
	b := benchOn(t, testdevice.Open(t, backend.Options{Threads: 1, BatchInvariant: true}), m, nil, batching.Options{
		MaxLength: 24, MaxTexts: clients, MaxBatchTokens: 24, CacheTokens: 96, PageRows: 4,
		Adapters: lora.RegistryOptions{MaxResident: 4},
		OnStep: func(batching.Step) {
			select {
			case step <- struct{}{}:
			default:
			}
		},
	})
	b.dirs = dirs
	asked := make([]batching.Request, 4)
	want := make([]map[string]answer, len(asked))
	for i := range asked {
		asked[i] = greedy("", prompt(m, uint64(i/2), 3+2*i), 6+i)
		want[i] = map[string]answer{}
	}
	for _, version := range append(versions, "") { // the generator changes adapters seldom
		for i, r := range asked {
			r.Adapter = version
			want[i][version] = b.expected(r)
		}
	}
	for i := range asked { // else it would not be seen which one has answered
		for _, v := range versions[1:] {
			require.NotEqual(t, want[i][versions[0]].Said, want[i][v].Said)
		}
	}
	pasts, all := make([]past, names), make([]string, names)
	swap := func(i int, version string) error {
		return pasts[i].change(version, func() error {
			_, err := b.Adapters().Load(ctx, all[i], dirs[version])
			return err
		})
	}
	for i := range pasts {
		all[i] = fmt.Sprint("name", i)
		require.NoError(t, swap(i, versions[i]))
	}

	var work, swapping sync.WaitGroup
	answered, unknown, met := 0, 0, map[string]bool{}
	var mu sync.Mutex
	for c := range clients {
		work.Go(func() {
			r := rand.New(rand.NewPCG(uint64(c), 5))
			defer stop() // where something is wrong
			for working.Err() == nil && !t.Failed() {
				i, of := r.IntN(len(asked)), r.IntN(names+1)
				q := asked[i]
				if of == names { // the model alone, so that there always are steps
					got, _, err := collect(b.Engine, q)
					assert.NoError(t, err)
					assert.Equal(t, want[i][""], got[0])
					continue
				}
				q.Adapter = all[of]
				first := pasts[of].now()
				got, _, err := collect(b.Engine, q)
				known := pasts[of].since(first)
				if errors.Is(err, lora.ErrNotFound) {
					assert.Contains(t, known, "")
					mu.Lock()
					unknown++
					mu.Unlock()
					continue
				}
				assert.NoError(t, err)
				is := ""
				for _, v := range known {
					if v != "" && assert.ObjectsAreEqual(want[i][v], got[0]) {
						is = v
					}
				}
				assert.NotEmpty(t, is, "the answer of %q is that of none of %q", q.Adapter, known)
				mu.Lock()
				answered++
				met[is] = true
				mu.Unlock()
			}
		})
	}
	each := swaps / names
	for i := range pasts {
		swapping.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 6))
			for n := range each {
				await()
				if n%5 == 4 {
					assert.NoError(t, pasts[i].change("", func() error { return b.Adapters().Unload(all[i]) }))
					await()
				}
				assert.NoError(t, swap(i, versions[r.IntN(len(versions))]))
				for _, resident := range b.Stats().Resident {
					assert.True(t, slices.Contains(all, resident), resident)
				}
			}
		})
	}
	swapping.Wait()
	stop()
	work.Wait()
	t.Logf("%d answers, %d requests for a name that stood for nothing, %d versions", answered, unknown, len(met))
	require.Len(t, met, len(versions))
	s := b.Stats()
	require.Zero(t, s.Pages.Used)
	require.Equal(t, s.Pages.Pages, s.Pages.Free+s.Pages.Cached)
	require.Empty(t, append(s.Running, s.Waiting...))
	for _, info := range b.Adapters().List() {
		for _, v := range info.Versions {
			require.Zero(t, v.Leases)
		}
		require.NoError(t, b.Adapters().Unload(info.Name))
	}
	require.Empty(t, b.Adapters().List())
	require.Empty(t, b.Stats().Resident)
}

package lora_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/internal/weights"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tensor"
)

// gate is a layer's weight that is given when the gate opens, and counts who came.
type gate struct {
	open chan struct{}
	came atomic.Int32
}

func (g *gate) Weight(string) (nn.Weight, error) {
	g.came.Add(1)
	<-g.open
	x := tensor.BytesOf([]float32{3, 0, 0, 0, 0, 2, 0, 0})
	return nn.Weight{DType: tensor.F32, Shape: []int{2, 4}, Source: weights.Data{Bytes: x}}, nil
}

func (g *gate) Has(string) bool { return true }

func (g *gate) wait() {
	for g.came.Load() == 0 {
		runtime.Gosched()
	}
}

// Whoever asks for what is being loaded waits for it, and it is loaded once.
func TestRegistryLoadsOnce(t *testing.T) {
	pissa := func(c *lora.Config) { c.InitLoraWeights = lora.InitPiSSA }
	ctx := context.Background()
	for _, demanded := range []bool{true, false} {
		root := t.TempDir()
		dir := saveTiny(t, filepath.Join(root, "a"), 1, pissa)
		g := &gate{open: make(chan struct{})}
		o := lora.RegistryOptions{HostBytes: 1 << 20}
		if demanded {
			o.Root = root
		}
		r := registryOf(t, g, tiny, o)
		var group sync.WaitGroup
		versions := make([]*lora.Version, 8)
		if !demanded {
			group.Go(func() { mustLoad(t, r, "a", dir) })
			g.wait()
		}
		for i := range versions {
			group.Go(func() { versions[i] = acquire(t, r, "a").Version() })
		}
		g.wait()
		short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
		_, err := r.Acquire(short, "a")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = r.Load(short, "b", dir)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		cancel()
		twin, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		_, err = r.Load(twin, "b", dir)
		require.ErrorIs(t, err, context.DeadlineExceeded, "the same bytes, under way")
		cancel()
		assert.Empty(t, r.List())
		close(g.open)
		group.Wait()
		assert.EqualValues(t, 2, g.came.Load(), "one load looks at the weight twice")
		for _, v := range versions {
			assert.Same(t, versions[0], v)
		}
		infos := r.List()
		require.Len(t, infos, 1, "b was given up")
		assert.Equal(t, 8, infos[0].Versions[0].Leases)
		assert.EqualValues(t, 2*tinyBytes+4*8, versions[0].Bytes(), "the adapter, its beginning, the residual")
	}
}

// Nothing is bound that was given up, and nothing is held by it.
func TestRegistryGivesUp(t *testing.T) {
	g := &gate{open: make(chan struct{})}
	r := registryOf(t, g, tiny, lora.RegistryOptions{})
	dir := saveTiny(t, t.TempDir(), 1, func(c *lora.Config) { c.InitLoraWeights = lora.InitPiSSA })
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		_, err := r.Load(ctx, "a", dir)
		done <- err
	}()
	g.wait()
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	_, err := r.Load(ctx, "a", dir)
	require.ErrorIs(t, err, context.Canceled)
	close(g.open)
	assert.Empty(t, r.List())
	for r.Live() > 0 { // until it has landed, for nobody
		runtime.Gosched()
	}
	v := mustLoad(t, r, "a", dir)
	assert.EqualValues(t, 4, g.came.Load(), "loaded again")
	require.NoError(t, r.Unload("a"))
	assert.Nil(t, v.State())
}

// lateContext ends at the moment at which the host has all of a.
type lateContext struct {
	context.Context
	t *testing.T
	r *lora.Registry
}

func (c lateContext) Done() <-chan struct{} {
	for where(c.t, c.r, "a") == "disk" {
		runtime.Gosched()
	}
	done := make(chan struct{})
	close(done)
	return done
}

func (c lateContext) Err() error { return context.Canceled }

// Who gives up at the moment at which a load ends holds nothing.
func TestRegistryGivesUpLate(t *testing.T) {
	dir := t.TempDir()
	r := newRegistry(t, lora.RegistryOptions{HostBytes: tinyBytes})
	one, two := saveTiny(t, dir+"/1", 1), saveTiny(t, dir+"/2", 2)
	mustLoad(t, r, "a", one)
	gaveUp := 0
	for gaveUp < 5 {
		mustLoad(t, r, "b", two)
		l, err := r.Acquire(lateContext{context.Background(), t, r}, "a")
		if err == nil {
			l.Release()
			continue
		}
		require.ErrorIs(t, err, context.Canceled)
		gaveUp++
		require.Zero(t, r.List()[0].Versions[0].Leases)
	}
}

// The files of a version may be lost, but not to those who bring its bytes.
func TestRegistryBringsBytes(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	r := newRegistry(t, lora.RegistryOptions{HostBytes: tinyBytes})
	lost, twin, other := saveTiny(t, dir+"/lost", 1), saveTiny(t, dir+"/twin", 1), saveTiny(t, dir+"/other", 2)
	var stop atomic.Bool
	var group sync.WaitGroup
	defer group.Wait()
	defer stop.Store(true)
	for range 50 {
		saveTiny(t, lost, 1)
		mustLoad(t, r, "a", lost)
		mustLoad(t, r, "a", other)
		require.NoError(t, r.Unload("a"))
		mustLoad(t, r, "a", lost)
		mustLoad(t, r, "b", other)
		require.NoError(t, os.RemoveAll(lost))
		stop.Store(false)
		group.Go(func() {
			for !stop.Load() {
				if l, err := r.Acquire(ctx, "a"); err == nil {
					l.Release()
				} else if !errors.Is(err, lora.ErrFull) {
					assert.ErrorIs(t, err, lora.ErrChanged)
				}
			}
		})
		_, err := r.Load(ctx, "c", twin)
		require.NoError(t, err)
		stop.Store(true)
		group.Wait()
		require.NoError(t, errors.Join(r.Unload("a"), r.Unload("b"), r.Unload("c")))
		require.Zero(t, r.Live(), "no folder is remembered")
	}
}

// A folder of Root that was asked for does not take the place of what was loaded
// under its name meanwhile.
func TestRegistryLoadBeforeDemand(t *testing.T) {
	root := t.TempDir()
	saveTiny(t, filepath.Join(root, "a"), 1, func(c *lora.Config) { c.InitLoraWeights = lora.InitPiSSA })
	g := &gate{open: make(chan struct{})}
	r := registryOf(t, g, tiny, lora.RegistryOptions{Root: root, KeepVersions: 1})
	var group sync.WaitGroup
	group.Go(func() { assert.EqualValues(t, 2, valueOf(t, acquire(t, r, "a").Version())) })
	g.wait()
	v := mustLoad(t, r, "a", saveTiny(t, t.TempDir(), 2))
	close(g.open)
	group.Wait()
	require.Len(t, r.List()[0].Versions, 1)
	assert.Equal(t, v.Digest(), r.List()[0].Versions[0].Digest)
	assert.Equal(t, 1, r.Live())
}

// A lease that is released while it is brought to the device keeps nothing there.
func TestRegistryReleaseInUpload(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	d := &device{t: t}
	r := newRegistry(t, lora.RegistryOptions{Slots: []lora.Slots{d}, MaxResident: 1})
	mustLoad(t, r, "a", saveTiny(t, dir+"/a", 1))
	mustLoad(t, r, "b", saveTiny(t, dir+"/b", 2))
	a, b := acquire(t, r, "a"), acquire(t, r, "b")
	d.during = a.Release
	require.ErrorContains(t, a.Upload(ctx, 0), "released")
	d.during = nil
	require.NoError(t, b.Upload(ctx, 0), "in the place of a")
	assert.Zero(t, r.List()[0].Versions[0].Leases)
}

// 1,000 swaps under those who lease, bring to the device, list and alias: each lease
// has what its name stood for at some moment of Acquire, whole and until it is
// released.
func TestRegistrySwaps(t *testing.T) {
	const contents, swaps = 16, 1000
	ctx := context.Background()
	root := t.TempDir()
	var dirs []string
	for i := range contents {
		dirs = append(dirs, saveTiny(t, filepath.Join(root, fmt.Sprint("root", i)), float32(1+i)))
	}
	d := []*device{{t: t}, {t: t}}
	r := newRegistry(t, lora.RegistryOptions{Root: root, HostBytes: 12 * tinyBytes, Slots: []lora.Slots{d[0], d[1]}, MaxResident: 3})
	mustLoad(t, r, "a", dirs[0])
	require.NoError(t, r.Alias("alias", "a"))
	var begun, done atomic.Int64
	var stop atomic.Bool
	var group sync.WaitGroup
	for i := range 3 {
		group.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(i)))
			for n := 0; !stop.Load(); n++ {
				if random.IntN(4) == 0 { // another name, often from the disk
					k := random.IntN(contents)
					l, err := r.Acquire(ctx, fmt.Sprint("root", k))
					if assert.NoError(t, err) {
						assert.EqualValues(t, 1+k, valueOf(t, l.Version()))
						l.Release()
					}
					continue
				}
				first := done.Load()
				l, err := r.Acquire(ctx, []string{"a", "alias"}[n%2])
				last := begun.Load()
				if !assert.NoError(t, err) {
					return
				}
				got := int64(valueOf(t, l.Version())) - 1
				at := first
				for at <= last && at%contents != got {
					at++
				}
				assert.LessOrEqual(t, at, last, "content %d between swaps %d and %d", got, first, last)
				if err := l.Upload(ctx, n%3%2); err != nil {
					assert.ErrorIs(t, err, lora.ErrFull)
				}
				assert.EqualValues(t, 1+got, valueOf(t, l.Version()))
				l.Release()
			}
		})
	}
	group.Go(func() {
		for !stop.Load() {
			for _, info := range r.List() {
				assert.NotEmpty(t, info.Versions, info.Name)
			}
			assert.NoError(t, r.Pin("alias"))
			assert.NoError(t, r.Unpin("alias"))
			if r.Unload("root3") != nil {
				assert.NoError(t, r.Alias("alias", "a"))
			}
		}
	})
	for i := int64(1); i <= swaps; i++ {
		begun.Store(i)
		_, err := r.Load(ctx, "a", dirs[i%contents])
		require.NoError(t, err)
		done.Store(i)
	}
	stop.Store(true)
	group.Wait()
	r.Close()
	assert.Empty(t, d[0].has)
	assert.Empty(t, d[1].has)
}

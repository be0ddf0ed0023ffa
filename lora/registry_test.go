package lora_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/nn"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

const (
	layer     = "model.layers.0.self_attn.q_proj"
	tinyBytes = 4 * (4 + 2) // of an adapter of rank 1 for tiny
)

// tiny is a model of one layer.
var tiny = []nn.Module{{Name: layer, Kind: nn.KindLinear, In: 4, Out: 2}}

// saveTiny writes an adapter for tiny whose values are all x.
func saveTiny(t testing.TB, dir string, x float32, edits ...func(*lora.Config)) string {
	t.Helper()
	c := lora.DefaultConfig()
	c.R, c.TargetModules.Names = 1, []string{"q_proj"}
	for _, edit := range edits {
		edit(c)
	}
	p, err := lora.NewPlacement(c, lora.ModelOf("llama", tiny))
	require.NoError(t, err)
	target := p.Targets[0]
	w := &lora.Weights{A: []float32{x, x, x, x}, B: []float32{x, x}}
	tensors, err := w.Tensors(target)
	require.NoError(t, err)
	require.NoError(t, lora.Save(dir, c, tensors))
	return dir
}

// newRegistry is one for tiny, which leaves nothing behind when the test ends.
func newRegistry(t testing.TB, o lora.RegistryOptions) *lora.Registry {
	t.Helper()
	return registryOf(t, nil, tiny, o)
}

func registryOf(t testing.TB, w nn.Weights, modules []nn.Module, o lora.RegistryOptions) *lora.Registry {
	t.Helper()
	leaks := goleak.IgnoreCurrent()
	r, err := lora.NewRegistry(w, "llama", modules, o)
	require.NoError(t, err)
	t.Cleanup(func() {
		r.Close()
		goleak.VerifyNone(t, leaks)
	})
	return r
}

func mustLoad(t testing.TB, r *lora.Registry, name, dir string) *lora.Version {
	t.Helper()
	v, err := r.Load(context.Background(), name, dir)
	require.NoError(t, err)
	return v
}

func acquire(t testing.TB, r *lora.Registry, ref string) *lora.Lease {
	t.Helper()
	l, err := r.Acquire(context.Background(), ref)
	require.NoError(t, err, ref)
	return l
}

// valueOf is what all values of an adapter by saveTiny are.
func valueOf(t testing.TB, v *lora.Version) float32 {
	t.Helper()
	s := v.State()
	require.NotNil(t, s)
	first := s.Values[lora.Target{Module: lora.Module{Name: layer, Kind: lora.Linear}}.Key(lora.RoleA)][0]
	require.Equal(t, 6, s.Params())
	for key, values := range s.Values {
		for _, x := range values {
			require.Equal(t, first, x, key)
		}
	}
	return first
}

func where(t testing.TB, r *lora.Registry, name string) string {
	t.Helper()
	for _, info := range r.List() {
		if info.Name == name {
			return info.Versions[0].Where.String()
		}
	}
	t.Fatalf("no %q", name)
	return ""
}

// device is a fake that knows what lies on it.
type device struct {
	t   testing.TB
	has map[lora.Digest]bool
	err error
}

func (d *device) Put(_ context.Context, v *lora.Version) error {
	if d.err != nil {
		return d.err
	}
	assert.NotNil(d.t, v.State())
	assert.False(d.t, d.has[v.Digest()], "put twice")
	if d.has == nil {
		d.has = map[lora.Digest]bool{}
	}
	d.has[v.Digest()] = true
	return nil
}

func (d *device) Drop(v *lora.Version) {
	assert.True(d.t, d.has[v.Digest()], "dropped without being there")
	delete(d.has, v.Digest())
}

// What a registry has is what LoadState reads, checked as loudly.
func TestRegistryLoads(t *testing.T) {
	m := openModel(t, "../testdata/lm/llama/model")
	r := registryOf(t, m, m.Modules(), lora.RegistryOptions{})
	for _, kind := range []string{"lora", "dora", "patterns", "rslora_all", "saved_head"} {
		dir := "../testdata/lm/llama/adapters/" + kind
		want, err := lora.LoadState(dir, m, m.Config.ModelType, m.Modules())
		require.NoError(t, err)
		v := mustLoad(t, r, kind, dir)
		assert.Equal(t, want.Values, v.State().Values)
		assert.Equal(t, int64(4*want.Params()), v.Bytes())
		l := acquire(t, r, kind+"@"+v.Digest().Short())
		assert.Same(t, v, l.Version())
		l.Release()
	}
	infos := r.List()
	require.Len(t, infos, 5)
	assert.Equal(t, "rank 8, alpha 16, 4 targets", infos[1].Versions[0].Summary)
	assert.Equal(t, 8, infos[1].Versions[0].Rank)
	assert.Contains(t, infos[0].Versions[0].Summary, "DoRA")

	_, err := r.Load(context.Background(), "other", saveTiny(t, t.TempDir(), 1))
	require.ErrorIs(t, err, lora.ErrShape)
	require.ErrorIs(t, err, lora.ErrMissing)
	_, err = r.Load(context.Background(), "other", "../testdata/peft/file-bin/adapter")
	require.ErrorIs(t, err, lora.ErrUnsupported)
	assert.ErrorContains(t, err, "found adapter_model.bin, expected adapter_model.safetensors")
	_, err = r.Load(context.Background(), "other", "../testdata/lm")
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = newRegistry(t, lora.RegistryOptions{}).Load(context.Background(), "other", saveTiny(t, t.TempDir(), 0))
	require.ErrorIs(t, err, lora.ErrZeroB)
	assert.Len(t, r.List(), 5, "what fails changes nothing")
}

// Base weights that came with an adapter do not lie in its file's memory.
func TestRegistryBase(t *testing.T) {
	dir := "../testdata/peft/embedding/adapter"
	var c struct{ Base string }
	readJSON(t, filepath.Join(dir, "../case.json"), &c)
	m := openModel(t, filepath.Join(dir, "..", c.Base))
	want, err := lora.LoadState(dir, m, m.Config.ModelType, m.Modules())
	require.NoError(t, err)
	r, err := lora.NewRegistry(m, m.Config.ModelType, m.Modules(), lora.RegistryOptions{})
	require.NoError(t, err)
	defer r.Close()
	v := mustLoad(t, r, "a", dir)
	require.NotEmpty(t, want.Base)
	assert.Equal(t, want.Values, v.State().Values)
	bytes := int64(4 * want.Params())
	for name, base := range want.Base {
		assert.Equal(t, base.Data, v.State().Base[name].Data)
		bytes += int64(len(base.Data))
	}
	assert.Equal(t, bytes, v.Bytes())
}

// The same bytes are one version, and one piece of memory, under any name and from
// any folder; other bytes are another.
func TestRegistryVersions(t *testing.T) {
	dir := t.TempDir()
	one, twin, two := saveTiny(t, dir+"/1", 1), saveTiny(t, dir+"/1b", 1), saveTiny(t, dir+"/2", 2)
	r := newRegistry(t, lora.RegistryOptions{})
	v := mustLoad(t, r, "a", one)
	assert.Same(t, v, mustLoad(t, r, "a", one))
	assert.Same(t, v, mustLoad(t, r, "b", twin))
	assert.Same(t, v.State(), acquire(t, r, "b").Version().State())

	lease := acquire(t, r, "a")
	w := mustLoad(t, r, "a", two)
	assert.NotEqual(t, v.Digest(), w.Digest())
	assert.EqualValues(t, 1, valueOf(t, lease.Version()))
	assert.EqualValues(t, 2, valueOf(t, acquire(t, r, "a").Version()))
	_, err := r.Acquire(context.Background(), "a@"+v.Digest().Short())
	require.ErrorIs(t, err, lora.ErrNotFound, "former versions are not kept")
	assert.ErrorContains(t, err, `"a" has the versions `+w.Digest().Short())
	require.NoError(t, r.Unload("b"))
	assert.EqualValues(t, 1, valueOf(t, lease.Version()), "in use")
	assert.Same(t, v, mustLoad(t, r, "c", one), "no second copy of what is in use")
	require.NoError(t, r.Unload("c"))
	lease.Release()
	lease.Release()
	assert.NotNil(t, v.State(), "one lease of b is left")
}

func TestRegistryFrees(t *testing.T) {
	dir := t.TempDir()
	r := newRegistry(t, lora.RegistryOptions{})
	v := mustLoad(t, r, "a", saveTiny(t, dir, 1))
	l := acquire(t, r, "a")
	require.NoError(t, r.Unload("a"))
	require.NotNil(t, v.State())
	require.ErrorIs(t, l.Upload(context.Background()), lora.ErrUnsupported, "no device")
	l.Release()
	assert.Nil(t, v.State())
	assert.NotSame(t, v, mustLoad(t, r, "a", dir))
}

// References choose among the versions that a name keeps.
func TestRegistryFormer(t *testing.T) {
	dir := t.TempDir()
	r := newRegistry(t, lora.RegistryOptions{Former: 1})
	var vs []*lora.Version
	for i := range 4 {
		vs = append(vs, mustLoad(t, r, "a", saveTiny(t, dir+strconv.Itoa(i), float32(i+1))))
		if i == 0 {
			require.NoError(t, r.Alias("first", "a@"+vs[0].Digest().String()))
			require.NoError(t, r.Alias("now", "a"))
		}
		if i == 1 {
			require.NoError(t, r.Pin("a@"+vs[1].Digest().Short()))
		}
	}
	names := func() (digests []lora.Digest) {
		for _, v := range r.List()[0].Versions {
			digests = append(digests, v.Digest)
		}
		return digests
	}
	assert.Equal(t, []lora.Digest{vs[3].Digest(), vs[2].Digest(), vs[1].Digest(), vs[0].Digest()}, names())
	assert.Same(t, vs[0], acquire(t, r, "first").Version())
	assert.Same(t, vs[3], acquire(t, r, "now").Version())
	assert.Same(t, vs[2], acquire(t, r, "now@"+vs[2].Digest().Short()).Version())
	assert.Equal(t, []string{"first", "now"}, r.List()[0].Aliases)

	require.NoError(t, r.Unpin("a@"+vs[1].Digest().Short()))
	assert.Equal(t, []lora.Digest{vs[3].Digest(), vs[2].Digest(), vs[0].Digest()}, names())
	require.NoError(t, r.Unload("first"))
	assert.Equal(t, []lora.Digest{vs[3].Digest(), vs[2].Digest()}, names())
	require.NoError(t, r.Alias("last", "a@"+vs[3].Digest().Short()))
	require.NoError(t, r.Unload("a@"+vs[3].Digest().Short()))
	assert.Same(t, vs[2], acquire(t, r, "now").Version(), "the former one is back")
	_, err := r.Acquire(context.Background(), "last")
	require.ErrorIs(t, err, lora.ErrNotFound)
	require.NoError(t, r.Unload("a"))
	_, err = r.Acquire(context.Background(), "now")
	require.ErrorIs(t, err, lora.ErrNotFound)
	assert.Empty(t, r.List())
}

// Of 17 versions two begin alike.
func TestRegistryAmbiguous(t *testing.T) {
	dir := t.TempDir()
	r := newRegistry(t, lora.RegistryOptions{Former: 16})
	begin := map[string]bool{}
	for i := range 17 {
		first := mustLoad(t, r, "a", saveTiny(t, filepath.Join(dir, strconv.Itoa(i)), float32(i+1))).Digest().String()[:1]
		if _, err := r.Acquire(context.Background(), "a@"+first); begin[first] {
			require.ErrorIs(t, err, lora.ErrNotFound)
			assert.ErrorContains(t, err, "several versions begin so")
		} else {
			require.NoError(t, err)
		}
		begin[first] = true
	}
}

func TestRegistryNames(t *testing.T) {
	dir := saveTiny(t, t.TempDir(), 1)
	r := newRegistry(t, lora.RegistryOptions{})
	ctx := context.Background()
	for _, bad := range []string{"", ".a", "/a", "a/", "a//b", "a/.b", "..", "a/../b", "a..b", "a,b", "a\x00b", "a b", "ä", "a@b", "a@", "a@12", `a\b`, "a:b", strings.Repeat("a", 256)} {
		_, err := r.Load(ctx, bad, dir)
		require.ErrorIs(t, err, lora.ErrName, "%q", bad)
	}
	v := mustLoad(t, r, "org/sql-v1.0_x", dir)
	for _, bad := range []string{"org/sql-v1.0_x@", "org/sql-v1.0_x@xyz", "org/sql-v1.0_x@ABC", "@12", "a@1@2", "a@" + strings.Repeat("0", 65)} {
		_, err := r.Acquire(ctx, bad)
		require.ErrorIs(t, err, lora.ErrName, "%q", bad)
		for _, f := range []func(string) error{r.Unload, r.Pin, r.Unpin, func(s string) error { return r.Alias("x", s) }, func(s string) error { return r.Alias(s, "org/sql-v1.0_x") }} {
			require.ErrorIs(t, f(bad), lora.ErrName, "%q", bad)
		}
	}
	assert.Same(t, v, acquire(t, r, "org/sql-v1.0_x@"+v.Digest().String()[:1]).Version())
	require.NoError(t, r.Alias("org/sql", "org/sql-v1.0_x"))
	_, err := r.Acquire(ctx, "org/sqk")
	require.ErrorIs(t, err, lora.ErrNotFound)
	assert.EqualError(t, err, `lora: "org/sqk": adapter not found, did you mean "org/sql"?`)
	require.ErrorIs(t, r.Pin("org/sqk"), lora.ErrNotFound)
	require.ErrorIs(t, r.Alias("x", "org/sqk"), lora.ErrNotFound)
	require.ErrorIs(t, r.Alias("org/sql-v1.0_x", "org/sql"), lora.ErrTaken)
	_, err = r.Load(ctx, "org/sql", dir)
	require.ErrorIs(t, err, lora.ErrTaken)
	assert.ErrorContains(t, err, "by an alias of org/sql-v1.0_x")
}

// What becomes of the files of a version changes nothing, until it must be read
// again; then it is what it was, or an error that says so.
func TestRegistryFiles(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	one, other := saveTiny(t, dir+"/one", 1), saveTiny(t, dir+"/other", 9)
	o := lora.RegistryOptions{HostBytes: tinyBytes} // room for one
	r := newRegistry(t, o)
	v := mustLoad(t, r, "a", one)
	evict := func() { mustLoad(t, r, "other", other); require.Equal(t, "disk", where(t, r, "a")) }

	file := filepath.Join(one, lora.WeightsFile)
	whole, err := os.ReadFile(file)
	require.NoError(t, err)
	for _, harm := range []struct {
		name string
		do   func()
		err  error
	}{
		{"changed", func() { saveTiny(t, one, 3) }, lora.ErrChanged},
		{"another scale", func() { saveTiny(t, one, 1, func(c *lora.Config) { c.LoraAlpha = 1 }) }, lora.ErrChanged},
		{"truncated", func() { require.NoError(t, os.Truncate(file, 30)) }, safetensors.ErrHeaderPastEnd},
		{"without weights", func() { require.NoError(t, os.Remove(file)) }, fs.ErrNotExist},
		{"deleted", func() { require.NoError(t, os.RemoveAll(one)) }, fs.ErrNotExist},
	} {
		l := acquire(t, r, "a")
		harm.do()
		assert.EqualValues(t, 1, valueOf(t, l.Version()), harm.name)
		l.Release()
		assert.EqualValues(t, 1, valueOf(t, acquireOnce(t, r, "a")), harm.name)
		evict()
		_, err := r.Acquire(ctx, "a")
		require.ErrorIs(t, err, lora.ErrChanged, harm.name)
		require.ErrorIs(t, err, harm.err, harm.name)
		assert.ErrorContains(t, err, v.Digest().Short())
		assert.ErrorContains(t, err, one)

		saveTiny(t, one, 1)
		now, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, whole, now)
		assert.Same(t, v, acquireOnce(t, r, "a"), "the files are what they were")
	}
	evict()
	saveTiny(t, one, 3)
	twin := saveTiny(t, dir+"/twin", 1)
	assert.Same(t, v, mustLoad(t, r, "b", twin))
	evict()
	assert.Same(t, v, acquireOnce(t, r, "a"), "from the folder of its twin")
	assert.EqualValues(t, 3, valueOf(t, mustLoad(t, r, "a", one)), "to load is to take what is there")
}

// acquireOnce gives a version that is released again.
func acquireOnce(t testing.TB, r *lora.Registry, ref string) *lora.Version {
	t.Helper()
	l := acquire(t, r, ref)
	defer l.Release()
	return l.Version()
}

// What has not been used for the longest time goes from the device to the host, and
// from there to the disk.
func TestRegistryEviction(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	d := &device{t: t}
	r := newRegistry(t, lora.RegistryOptions{HostBytes: 4 * tinyBytes, Slots: d, MaxResident: 2})
	use := func(name string) {
		l := acquire(t, r, name)
		defer l.Release()
		require.NoError(t, l.Upload(ctx))
		require.NoError(t, l.Upload(ctx), "again")
	}
	places := func() (all string) {
		for _, info := range r.List() {
			all += info.Name + " " + info.Versions[0].Where.String() + ", "
		}
		return strings.TrimSuffix(all, ", ")
	}
	for i, name := range []string{"a", "b", "c", "d"} {
		mustLoad(t, r, name, saveTiny(t, dir+name, float32(i+1)))
	}
	assert.Equal(t, "a host, b host, c host, d host", places())
	use("a")
	use("b")
	use("a")
	use("c")
	assert.Equal(t, "a device, b host, c device, d host", places())
	acquire(t, r, "b").Release()
	mustLoad(t, r, "e", saveTiny(t, dir+"e", 5))
	assert.Equal(t, "a device, b host, c device, d disk, e host", places(), "d is the oldest")
	use("d") // a is the oldest, on the device too
	assert.Equal(t, "a disk, b host, c device, d device, e host", places())
	assert.Len(t, d.has, 2)

	require.NoError(t, r.Pin("c"))
	c, dd := acquire(t, r, "c"), acquire(t, r, "d")
	require.NoError(t, c.Upload(ctx))
	c.Release()
	require.NoError(t, dd.Upload(ctx))
	b := acquire(t, r, "b")
	require.ErrorIs(t, b.Upload(ctx), lora.ErrFull, "one is pinned, one in use")
	e := acquire(t, r, "e")
	_, err := r.Acquire(ctx, "a")
	require.ErrorIs(t, err, lora.ErrFull)
	assert.ErrorContains(t, err, "no room on the host: the adapter has 24 bytes, expected at most 0: the limit is 96")
	_, err = r.Load(ctx, "f", saveTiny(t, dir+"f", 6))
	require.ErrorIs(t, err, lora.ErrFull)
	dd.Release()
	require.NoError(t, b.Upload(ctx))
	assert.Equal(t, "a disk, b device, c device, d host, e host", places())
	use("c")
	require.NoError(t, r.Unpin("c"))
	acquire(t, r, "a").Release()
	assert.Equal(t, "a host, b device, c device, d disk, e host", places())

	b.Release()
	c = acquire(t, r, "c")
	use("e")
	assert.Equal(t, "a host, b host, c device, d disk, e device", places(), "to lease is to use")
	c.Release()
	b = acquire(t, r, "b")
	require.NoError(t, b.Upload(ctx))
	use("c")
	assert.Equal(t, "a host, b device, c device, d disk, e host", places())

	d.err = errors.New("broken")
	require.ErrorIs(t, e.Upload(ctx), d.err)
	d.err = nil
	assert.Equal(t, "a host, b device, c host, d disk, e host", places())
	b.Release()
	require.NoError(t, r.Unload("b"))
	assert.Empty(t, d.has)
	e.Release()
	require.ErrorContains(t, e.Upload(ctx), "the lease is released")
}

// gate is a layer's weight that is given when the gate opens, and counts who came.
type gate struct {
	open chan struct{}
	came atomic.Int32
}

func (g *gate) Weight(string) (nn.Weight, error) {
	g.came.Add(1)
	<-g.open
	x := tensor.BytesOf([]float32{3, 0, 0, 0, 0, 2, 0, 0})
	return nn.Weight{DType: tensor.F32, Shape: []int{2, 4}, Source: backend.Source{Bytes: x}}, nil
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
	r := registryOf(t, g, tiny, lora.RegistryOptions{Root: root, Former: 1})
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
	r := newRegistry(t, lora.RegistryOptions{Slots: &device{t: t}, MaxResident: 1})
	mustLoad(t, r, "a", saveTiny(t, dir+"/a", 1))
	mustLoad(t, r, "b", saveTiny(t, dir+"/b", 2))
	for i := range 500 {
		l := acquire(t, r, []string{"a", "b"}[i%2])
		var group sync.WaitGroup
		group.Go(func() {
			if err := l.Upload(ctx); err != nil {
				assert.ErrorContains(t, err, "released")
			}
		})
		group.Go(l.Release)
		group.Wait()
		assert.Zero(t, r.List()[i%2].Versions[0].Leases)
	}
}

func TestRegistryRoot(t *testing.T) {
	ctx := context.Background()
	outside := saveTiny(t, filepath.Join(t.TempDir(), "outside"), 9)
	root := t.TempDir()
	dir := saveTiny(t, filepath.Join(root, "sql-v1"), 1)
	saveTiny(t, filepath.Join(root, "deep/er"), 2)
	require.NoError(t, os.Mkdir(filepath.Join(root, "empty"), 0o777))
	require.NoError(t, os.WriteFile(filepath.Join(root, "file"), nil, 0o666))
	links := map[string]string{"inside": "sql-v1", "out": outside}
	for name, to := range links {
		if err := os.Symlink(to, filepath.Join(root, name)); err != nil {
			t.Skip(err)
		}
	}
	require.NoError(t, os.Mkdir(filepath.Join(root, "half-out"), 0o777))
	require.NoError(t, os.Symlink(filepath.Join(outside, lora.ConfigFile), filepath.Join(root, "half-out", lora.ConfigFile)))
	r := newRegistry(t, lora.RegistryOptions{Root: root, HostBytes: tinyBytes})

	v := acquireOnce(t, r, "sql-v1")
	assert.Equal(t, dir, r.List()[0].Versions[0].Dir)
	assert.Same(t, v, acquireOnce(t, r, "inside"), "the same bytes")
	assert.Same(t, v, acquireOnce(t, r, "inside@"+v.Digest().Short()))
	_, err := r.Acquire(ctx, "inside@"+strings.Repeat("0", 64))
	require.ErrorIs(t, err, lora.ErrNotFound)
	for _, name := range []string{"out", "half-out"} {
		_, err := r.Acquire(ctx, name)
		require.ErrorContains(t, err, "escapes", name)
	}
	for _, name := range []string{"sql-v2", "deep/er", "file"} {
		_, err := r.Acquire(ctx, name)
		require.ErrorIs(t, err, lora.ErrNotFound, name)
	}
	_, err = r.Acquire(ctx, "half-in")
	assert.ErrorContains(t, err, `did you mean "half-out"?`, "a folder that was not loaded")
	for _, name := range []string{"empty", "deep"} {
		_, err = r.Acquire(ctx, name)
		require.ErrorIs(t, err, fs.ErrNotExist, name)
		require.NotErrorIs(t, err, lora.ErrNotFound, "there is such a folder")
	}
	require.NoError(t, r.Unload("sql-v1"))
	require.NoError(t, r.Unload("inside"))
	saveTiny(t, dir, 3)
	assert.EqualValues(t, 3, valueOf(t, acquireOnce(t, r, "sql-v1")))
	mustLoad(t, r, "x", outside)
	require.NoError(t, os.RemoveAll(dir))
	_, err = r.Acquire(ctx, "sql-v1")
	require.ErrorIs(t, err, lora.ErrChanged)
	require.ErrorIs(t, err, fs.ErrNotExist)

	_, err = lora.NewRegistry(nil, "llama", tiny, lora.RegistryOptions{Root: filepath.Join(root, "file")})
	require.Error(t, err)
}

func TestRegistryCloses(t *testing.T) {
	ctx := context.Background()
	d := &device{t: t}
	root := t.TempDir()
	dir := saveTiny(t, filepath.Join(root, "a"), 1)
	r := newRegistry(t, lora.RegistryOptions{Root: root, Slots: d})
	l := acquire(t, r, "a")
	require.NoError(t, l.Upload(ctx))
	r.Close()
	assert.Empty(t, r.List())
	assert.EqualValues(t, 1, valueOf(t, l.Version()))
	assert.Len(t, d.has, 1)
	l.Release()
	assert.Nil(t, l.Version().State())
	assert.Empty(t, d.has)
	_, err := r.Load(ctx, "a", dir)
	require.ErrorIs(t, err, lora.ErrClosed)
	_, err = r.Acquire(ctx, "a")
	require.ErrorIs(t, err, lora.ErrClosed)
	assert.Zero(t, r.Live())
	for _, err := range []error{r.Unload("a"), r.Pin("a"), r.Unpin("a"), r.Alias("b", "a")} {
		require.ErrorIs(t, err, lora.ErrClosed)
	}
	r.Close()
}

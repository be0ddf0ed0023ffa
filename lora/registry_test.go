package lora_test

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/lora"
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
	w := lora.Weights{lora.RoleA: []float32{x, x, x, x}, lora.RoleB: []float32{x, x}}
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
			return info.Versions[0].Location.String()
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
	// during is called by Put, for what happens elsewhere meanwhile.
	during func()
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
	if d.during != nil {
		d.during()
	}
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
	require.ErrorIs(t, l.Upload(context.Background(), 0), lora.ErrUnsupported, "no device")
	l.Release()
	assert.Nil(t, v.State())
	assert.NotSame(t, v, mustLoad(t, r, "a", dir))
}

// References choose among the versions that a name keeps.
func TestRegistryFormer(t *testing.T) {
	dir := t.TempDir()
	r := newRegistry(t, lora.RegistryOptions{KeepVersions: 1})
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
	r := newRegistry(t, lora.RegistryOptions{KeepVersions: 16})
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
	r := newRegistry(t, lora.RegistryOptions{HostBytes: 4 * tinyBytes, Slots: []lora.Slots{d}, MaxResident: 2})
	use := func(name string) {
		l := acquire(t, r, name)
		defer l.Release()
		require.NoError(t, l.Upload(ctx, 0))
		require.NoError(t, l.Upload(ctx, 0), "again")
	}
	places := func() (all string) {
		for _, info := range r.List() {
			all += info.Name + " " + info.Versions[0].Location.String() + ", "
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
	require.NoError(t, c.Upload(ctx, 0))
	c.Release()
	require.NoError(t, dd.Upload(ctx, 0))
	b := acquire(t, r, "b")
	require.ErrorIs(t, b.Upload(ctx, 0), lora.ErrFull, "one is pinned, one in use")
	e := acquire(t, r, "e")
	_, err := r.Acquire(ctx, "a")
	require.ErrorIs(t, err, lora.ErrFull)
	assert.ErrorContains(t, err, "no room on the host: the adapter has 24 bytes, expected at most 0: the limit is 96")
	_, err = r.Load(ctx, "f", saveTiny(t, dir+"f", 6))
	require.ErrorIs(t, err, lora.ErrFull)
	dd.Release()
	require.NoError(t, b.Upload(ctx, 0))
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
	require.NoError(t, b.Upload(ctx, 0))
	use("c")
	assert.Equal(t, "a host, b device, c device, d disk, e host", places())

	d.err = errors.New("broken")
	require.ErrorIs(t, e.Upload(ctx, 0), d.err)
	d.err = nil
	assert.Equal(t, "a host, b device, c host, d disk, e host", places())
	b.Release()
	require.NoError(t, r.Unload("b"))
	assert.Empty(t, d.has)
	e.Release()
	require.ErrorContains(t, e.Upload(ctx, 0), "the lease is released")
}

// A state that was published needs no file, also after it had to make room for others.
func TestRegistryPublish(t *testing.T) {
	ctx, dir := context.Background(), t.TempDir()
	r := newRegistry(t, lora.RegistryOptions{HostBytes: 2 * tinyBytes})
	mustLoad(t, r, "a", saveTiny(t, dir+"a", 1))
	first := acquire(t, r, "a")
	before := first.Version().State()
	values := map[string][]float32{}
	for key, x := range before.Values {
		values[key] = make([]float32, len(x)) // a step may do nothing yet
	}
	state, err := before.WithValues(values)
	require.NoError(t, err)
	for _, identity := range []string{"run/1", "run/2"} {
		v, err := r.Publish(ctx, "live", identity, state)
		require.NoError(t, err)
		assert.Same(t, state, v.State())
	}
	one, err := r.Publish(ctx, "live", "run/1", state)
	require.NoError(t, err)
	two, err := r.Publish(ctx, "live", "run/2", state)
	require.NoError(t, err)
	assert.NotEqual(t, one.Digest(), two.Digest(), "states differ by their identity")
	first.Release()
	mustLoad(t, r, "b", saveTiny(t, dir+"b", 2))
	acquire(t, r, "a").Release()
	require.Nil(t, two.State(), "evicted")
	l := acquire(t, r, "live")
	assert.Same(t, state, l.Version().State())
	l.Release()
	_, err = r.Publish(ctx, "no name", "x", state)
	require.ErrorIs(t, err, lora.ErrName)
	for key := range values {
		values[key] = values[key][1:]
		_, err = before.WithValues(values)
		require.ErrorIs(t, err, lora.ErrShape)
	}
}

func TestRegistryCloses(t *testing.T) {
	ctx := context.Background()
	d := &device{t: t}
	root := t.TempDir()
	dir := saveTiny(t, filepath.Join(root, "a"), 1)
	r := newRegistry(t, lora.RegistryOptions{Root: root, Slots: []lora.Slots{d}})
	l := acquire(t, r, "a")
	require.NoError(t, l.Upload(ctx, 0))
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

// A device that is closed has nothing and takes nothing, and others keep what they have.
func TestRegistryCloseDevice(t *testing.T) {
	ctx := context.Background()
	first, second := &device{t: t}, &device{t: t}
	r := newRegistry(t, lora.RegistryOptions{Slots: []lora.Slots{first, second}, MaxResident: 1})
	v := mustLoad(t, r, "a", saveTiny(t, t.TempDir(), 1))
	a, b := acquire(t, r, "a"), acquire(t, r, "a")
	require.NoError(t, a.Upload(ctx, 0))
	require.NoError(t, b.Upload(ctx, 1))
	assert.Equal(t, []int{0, 1}, r.List()[0].Versions[0].Devices)
	require.ErrorContains(t, a.Upload(ctx, 1), "the lease is on device 0")
	require.ErrorIs(t, b.Upload(ctx, 2), lora.ErrUnsupported)

	r.CloseDevice(0)
	assert.Empty(t, first.has)
	assert.False(t, v.On(0))
	assert.True(t, v.On(1))
	assert.Equal(t, []int{1}, r.List()[0].Versions[0].Devices)
	a.Release()
	c := acquire(t, r, "a")
	require.ErrorIs(t, c.Upload(ctx, 0), lora.ErrClosed)
	require.NoError(t, c.Upload(ctx, 1))

	_, err := lora.NewRegistry(nil, "llama", tiny, lora.RegistryOptions{Slots: make([]lora.Slots, 65)})
	require.ErrorContains(t, err, "a registry of 65 devices, expected at most 64")
}

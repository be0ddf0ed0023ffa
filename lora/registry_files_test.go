package lora_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/safetensors"
)

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

// An adapter that is open is taken as its file's would be, of whatever format, and what
// becomes of the file changes nothing.
func TestRegistryAdds(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	one, other := saveTiny(t, dir+"/one", 1), saveTiny(t, dir+"/other", 9)
	r := newRegistry(t, lora.RegistryOptions{HostBytes: tinyBytes}) // room for one
	a, err := lora.Load(one)
	require.NoError(t, err)
	v, err := r.Add(ctx, "a", a)
	require.NoError(t, err)
	require.NoError(t, a.Close())
	require.NoError(t, os.Truncate(filepath.Join(one, lora.WeightsFile), 0))
	assert.EqualValues(t, 1, valueOf(t, acquireOnce(t, r, "a")))
	saveTiny(t, one, 1)
	mustLoad(t, r, "other", other)
	require.Equal(t, "disk", where(t, r, "a"))
	assert.Same(t, v, acquireOnce(t, r, "a"), "from its folder")
	_, err = r.Add(ctx, "..", a)
	require.ErrorIs(t, err, lora.ErrName)

	m := openModel(t, "../testdata/peft/base/small-llama")
	bin := "../testdata/peft/file-bin/adapter"
	want, err := lora.LoadState(bin, m, m.Config.ModelType, m.Modules())
	require.NoError(t, err)
	if a, err = lora.Load(bin); err == nil {
		v, err = registryOf(t, m, m.Modules(), lora.RegistryOptions{}).Add(ctx, "bin", a)
	}
	require.NoError(t, err)
	assert.Equal(t, want.Values, v.State().Values)
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

// What is found elsewhere goes before a folder of the root, and is read when it is first
// asked for.
func TestRegistryFinds(t *testing.T) {
	root, elsewhere := t.TempDir(), t.TempDir()
	saveTiny(t, filepath.Join(root, "both"), 1)
	saveTiny(t, filepath.Join(root, "folder"), 2)
	saveTiny(t, filepath.Join(elsewhere, "x"), 3)
	dirs := map[string]string{"both": "x", "a/b": "x", "gone": "y"}
	r := newRegistry(t, lora.RegistryOptions{Root: root, Find: func(name string) (string, bool) {
		dir, ok := dirs[name]
		return filepath.Join(elsewhere, dir), ok
	}})
	for name, want := range map[string]float32{"both": 3, "a/b": 3, "folder": 2} {
		require.NotContains(t, fmt.Sprint(r.List()), name)
		assert.EqualValues(t, want, valueOf(t, acquireOnce(t, r, name)), name)
	}
	_, err := r.Acquire(t.Context(), "gone")
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = r.Acquire(t.Context(), "a/c")
	require.ErrorIs(t, err, lora.ErrNotFound)
	delete(dirs, "both")
	assert.EqualValues(t, 3, valueOf(t, acquireOnce(t, r, "both")), "it is loaded")
}

// A folder below the root can be loaded by any name, and nothing outside of it.
func TestRegistryLoadsBelow(t *testing.T) {
	root, outside := t.TempDir(), saveTiny(t, filepath.Join(t.TempDir(), "outside"), 3)
	dir := saveTiny(t, filepath.Join(root, "team", "first"), 1)
	saveTiny(t, filepath.Join(root, "second"), 2)
	require.NoError(t, os.Symlink(outside, filepath.Join(root, "link")))
	r := newRegistry(t, lora.RegistryOptions{Root: root})
	for _, c := range []struct {
		path string
		want float32
	}{{"team/first", 1}, {"second/", 2}, {dir, 1}, {"./team/../second", 2}} {
		v, err := r.LoadBelow(context.Background(), "a", c.path)
		require.NoError(t, err, c.path)
		assert.Equal(t, c.want, valueOf(t, v), c.path)
		l := acquire(t, r, "a")
		assert.Equal(t, v, l.Version())
		l.Release()
	}
	before := r.List()[0].Versions[0].Digest
	for _, path := range []string{"none", "../" + filepath.Base(root) + "/second/../../x", outside, "/", ""} {
		_, err := r.LoadBelow(context.Background(), "a", path)
		require.ErrorIs(t, err, lora.ErrNotFound, path)
	}
	_, err := r.LoadBelow(context.Background(), "a", "link")
	require.ErrorContains(t, err, "escapes")
	_, err = r.LoadBelow(context.Background(), "a,b", "second")
	require.ErrorIs(t, err, lora.ErrName)
	assert.Equal(t, before, r.List()[0].Versions[0].Digest)

	_, err = newRegistry(t, lora.RegistryOptions{}).LoadBelow(context.Background(), "a", dir)
	require.ErrorIs(t, err, lora.ErrNotFound)
}

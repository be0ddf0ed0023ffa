package safetensors

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// systems runs a test as on Linux, where files need no name, as elsewhere, and
// where they can be made but not named.
func systems(t *testing.T, test func(t *testing.T)) {
	before := nameless
	defer func() { nameless = before }()
	t.Run("native", test)
	nameless.link = func(*os.File, string) error { return os.ErrPermission }
	t.Run("without the right to link", test)
	nameless.create = func(string) (*os.File, error) { return nil, errors.ErrUnsupported }
	t.Run("named", test)
}

func TestStageOnOtherSystems(t *testing.T) {
	systems(t, func(t *testing.T) {
		dir := t.TempDir()
		path := filepath.Join(dir, "x")
		var want bytes.Buffer
		require.NoError(t, Write(&want, checkpoint(3), nil))
		for _, opts := range [][]Option{nil, {Durable()}} {
			for range 2 { // new, and over the old file
				require.NoError(t, WriteFile(path, checkpoint(3), nil, opts...))
				got, err := os.ReadFile(path)
				require.NoError(t, err)
				assert.Equal(t, want.String(), string(got))
				assertFiles(t, dir, "x")
			}
		}
		if runtime.GOOS != "windows" {
			require.NoError(t, os.Chmod(path, 0o640))
			require.NoError(t, WriteFile(path, checkpoint(1), nil))
			info, err := os.Stat(path)
			require.NoError(t, err)
			assert.Equal(t, os.FileMode(0o640), info.Mode().Perm())
		}
		for range 2 {
			require.NoError(t, WriteSharded(dir, generation(3, 1), 1, nil, Durable()))
			set, err := OpenModel(dir)
			require.NoError(t, err)
			assert.Len(t, set.Names(), 3)
			require.NoError(t, set.Close())
			assertFiles(t, dir, append(shardNames(3), "x")...)
		}
	})
}

// A failure anywhere, a panic in the caller's function included, leaves nothing
// behind.
func TestStageFailures(t *testing.T) {
	systems(t, func(t *testing.T) {
		dir := t.TempDir()
		path := filepath.Join(dir, "x")
		require.NoError(t, WriteFile(path, generation(1, 1), nil))
		broken := errors.New("broken")
		err := WriteFile(path, []Entry{{Name: "a", DType: U8, Write: func(io.Writer) error { return broken }}}, nil)
		assert.ErrorIs(t, err, broken)
		assert.ErrorContains(t, err, "safetensors: write "+path+" (")
		assert.ErrorContains(t, err, `tensor "a": broken`)
		assert.PanicsWithValue(t, broken, func() {
			_ = WriteFile(path, []Entry{{Name: "a", DType: U8, Write: func(io.Writer) error { panic(broken) }}}, nil)
		})
		assertFiles(t, dir, "x")

		// Something is in the way when the file should get its name.
		way := filepath.Join(dir, "way")
		err = WriteFile(way, []Entry{{Name: "a", DType: U8, Write: func(w io.Writer) error {
			_, err := w.Write([]byte{1})
			return errors.Join(err, os.MkdirAll(filepath.Join(way, "full"), 0o777))
		}}}, nil)
		assert.ErrorContains(t, err, "safetensors: write "+way+" (")
		assertFiles(t, dir, "way", "x")
		require.NoError(t, os.RemoveAll(way))

		// The folder is gone when the file should get its name.
		gone := filepath.Join(dir, "gone")
		require.NoError(t, os.Mkdir(gone, 0o777))
		l, err := newLayout(generation(1, 2), nil)
		require.NoError(t, err)
		p, err := l.stage(filepath.Join(gone, "x"), generation(1, 2), false)
		require.NoError(t, err)
		if runtime.GOOS != "windows" {
			require.NoError(t, os.RemoveAll(gone))
			err = p.commit()
			assert.ErrorIs(t, err, os.ErrNotExist)
			assert.ErrorContains(t, err, filepath.Join(gone, "x"))
			assert.NotContains(t, err.Error(), unfinished)
		}
		p.discard()

		// What is there when the file should get its name cannot be replaced.
		p, err = l.stage(filepath.Join(dir, "y"), generation(1, 2), false)
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "y", "full"), 0o777))
		assert.Error(t, p.commit())
		assertFiles(t, dir, "x", "y")
	})
}

// The first writer has the plain name, others who write at the same time have
// names of their own, and all of them are gone in the end.
func TestTemporaryNames(t *testing.T) {
	if locked, err := tryLock(mustOpen(t, mustWrite(t, filepath.Join(t.TempDir(), "x")))); err != nil || !locked {
		t.Skip("no locks here: ", err)
	}
	dir := t.TempDir()
	target := filepath.Join(dir, "x.safetensors")
	first, err := createTemporary(target)
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(dir, ".x.safetensors.unfinished"), first.Name())
	second, err := createTemporary(target)
	require.NoError(t, err)
	assert.Regexp(t, `/\.x\.safetensors\.[0-9a-f]{16}\.unfinished$`, filepath.ToSlash(second.Name()))
	for _, f := range []*os.File{first, second} {
		assert.False(t, removeAbandoned(f.Name()), "its writer lives")
		name, ok := temporaryTarget(filepath.Base(f.Name()))
		assert.Equal(t, "x.safetensors", name)
		assert.True(t, ok)
	}

	_, err = first.WriteString("left behind")
	require.NoError(t, err)
	require.NoError(t, first.Close()) // its writer dies
	third, err := createTemporary(target)
	require.NoError(t, err)
	assert.Equal(t, first.Name(), third.Name())
	info, err := third.Stat()
	require.NoError(t, err)
	assert.Zero(t, info.Size())
	assert.True(t, stillThere(third))
	require.NoError(t, os.Remove(third.Name()))
	assert.False(t, stillThere(third))
	assert.True(t, removeAbandoned(third.Name()), "it is free")
	require.NoError(t, os.WriteFile(third.Name(), nil, 0o600))
	assert.False(t, stillThere(third), "another file")
	assert.True(t, removeAbandoned(third.Name()))
	assertFiles(t, dir, filepath.Base(second.Name()))

	// What is no file of ours is left alone.
	require.NoError(t, os.Mkdir(third.Name(), 0o777))
	assert.False(t, removeAbandoned(third.Name()))
	fourth, err := createTemporary(target)
	require.NoError(t, err)
	assert.NotEqual(t, third.Name(), fourth.Name())
	for _, f := range []*os.File{second, third, fourth} {
		f.Close()
	}

	long := strings.Repeat("x", 255)
	f, err := createTemporary(filepath.Join(dir, long))
	require.NoError(t, err)
	assert.Len(t, filepath.Base(f.Name()), 1+200+len(unfinished))
	require.NoError(t, f.Close())
	require.NoError(t, WriteFile(filepath.Join(dir, long), nil, nil), "the longest name that there is")
	_, err = createTemporary(filepath.Join(dir, "none", "x"))
	assert.ErrorIs(t, err, os.ErrNotExist)
}

func mustOpen(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// Many writers of one file: one of them wins, whole, and nothing is left.
func TestWritersAtOnce(t *testing.T) {
	systems(t, func(t *testing.T) {
		dir := t.TempDir()
		path := filepath.Join(dir, "x")
		var wg sync.WaitGroup
		errs := make([]error, 8)
		for i := range errs {
			wg.Go(func() {
				for range 20 {
					if err := WriteFile(path, generation(50, byte(i+1)), nil); err != nil {
						errs[i] = err
					}
				}
			})
		}
		for range 50 {
			f, err := Open(path)
			if errors.Is(err, os.ErrNotExist) {
				continue
			}
			require.NoError(t, err)
			value := lookup(t, f, "tensor.000").Bytes()[0]
			for _, name := range f.Names() {
				require.Equal(t, value, lookup(t, f, name).Bytes()[0])
			}
			require.NoError(t, f.Close())
		}
		wg.Wait()
		assert.NoError(t, errors.Join(errs...))
		assertFiles(t, dir, "x")
	})
}

func TestFolderThatCannotBeMade(t *testing.T) {
	file := mustWrite(t, filepath.Join(t.TempDir(), "file"))
	for _, opts := range [][]Option{nil, {Durable()}} {
		for _, dir := range []string{file, filepath.Join(file, "below"), filepath.Join(file, "far", "below")} {
			assert.Error(t, WriteSharded(dir, generation(1, 1), 0, nil, opts...), dir)
		}
		dir := filepath.Join(t.TempDir(), "far", "below")
		require.NoError(t, WriteSharded(dir, generation(1, 1), 0, nil, opts...))
		assertFiles(t, dir, ModelFile)
		t.Chdir(t.TempDir())
		require.NoError(t, WriteSharded("far/below", generation(1, 1), 0, nil, opts...))
		require.NoError(t, WriteSharded(".", generation(1, 1), 0, nil, opts...))
		require.NoError(t, WriteFile("x", generation(1, 1), nil, opts...))
		assertFiles(t, ".", "far", ModelFile, "x")
	}
	if keepsOpen {
		assert.Error(t, syncFolder(filepath.Join(t.TempDir(), "none")))
	}
}

// 100 writes of one map of metadata are one file, whatever the order in which a
// map is walked and however many processors there are.
func TestWriteIsDeterministic(t *testing.T) {
	metadata := map[string]string{}
	for i := range 200 {
		metadata[fmt.Sprint("key ", i*7919%200)] = fmt.Sprint(i)
	}
	path := filepath.Join(t.TempDir(), "x")
	var first []byte
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for i := range 100 {
		runtime.GOMAXPROCS(1 + i%4)
		require.NoError(t, WriteFile(path, checkpoint(20), metadata))
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		if first == nil {
			first = got
		}
		require.True(t, bytes.Equal(first, got))
	}
}

package convert

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/weights"
	"github.com/lorafuse/lorafuse/safetensors"
)

// one is a file of one tensor.
func one(t testing.TB, path string) string {
	return write(t, path, nil, safetensors.Entry{Name: "x", DType: safetensors.U8, Shape: []int{1}, Data: []byte{7}})
}

func TestOutputs(t *testing.T) {
	dir := t.TempDir()
	model := filepath.Join(dir, "above", "model")
	in := one(t, filepath.Join(model, "model.safetensors"))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "empty"), 0o777))
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, []byte("mine"), 0o666))
	s := open(t, model)
	for _, c := range []struct {
		path   string
		folder bool
		force  bool
		want   error
	}{
		{"", false, true, nil},
		{"", true, true, nil},
		{file, false, false, ErrExists},
		{in, false, true, ErrSource},
		{dir, false, true, nil},
		{filepath.Join(dir, "no", "x.safetensors"), false, true, nil},
		{filepath.Join(file, "x.safetensors"), false, true, nil},
		{os.DevNull, false, true, nil},
		{file, true, true, nil},
		{model, true, true, ErrSource},
		{filepath.Join(dir, "above"), true, true, ErrSource},
		{dir, true, false, ErrSource},
		{filepath.Join(dir, "no", "x"), true, true, nil},
	} {
		f := File
		if c.folder {
			f = Folder
		}
		_, err := f(t.Context(), c.path, s, Options{Replace: c.force})
		var output *OutputError
		require.ErrorAs(t, err, &output, c.path)
		assert.Equal(t, c.path, output.Path)
		if c.want != nil {
			assert.ErrorIs(t, err, c.want)
		}
		t.Log(err)
	}
	assert.Equal(t, "mine", readFile(t, file))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "empty", "notes"), nil, 0o666))
	_, err := Folder(t.Context(), filepath.Join(dir, "empty"), s, Options{})
	assert.ErrorIs(t, err, ErrExists)
	_, err = Folder(t.Context(), filepath.Join(dir, "empty"), s, Options{Replace: true})
	require.NoError(t, err)
	assert.NoFileExists(t, filepath.Join(dir, "empty", "notes"))
	_, err = File(t.Context(), file, s, Options{Replace: true})
	require.NoError(t, err)
	assert.Equal(t, readFile(t, in), readFile(t, file))
	// Within the folder that is read there is room for something new.
	_, err = Folder(t.Context(), filepath.Join(model, "inside"), s, Options{})
	require.NoError(t, err)
	assert.NoDirExists(t, filepath.Join(model, "inside", "inside"))
	_, err = File(t.Context(), filepath.Join(model, "copy.safetensors"), s, Options{})
	require.NoError(t, err)
}

// TestLinks: the file that a link leads to is replaced, with its permissions,
// and a link to the source is the source.
func TestLinks(t *testing.T) {
	dir := t.TempDir()
	in := one(t, filepath.Join(dir, "in.safetensors"))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "target"), []byte("old"), 0o640))
	link := filepath.Join(dir, "link.safetensors")
	if err := os.Symlink("target", link); err != nil {
		t.Skip(err)
	}
	_, err := File(t.Context(), link, open(t, in), Options{Replace: true})
	require.NoError(t, err)
	assert.Equal(t, readFile(t, in), readFile(t, filepath.Join(dir, "target")))
	info, err := os.Lstat(link)
	require.NoError(t, err)
	assert.NotZero(t, info.Mode()&os.ModeSymlink)
	if info, err = os.Stat(filepath.Join(dir, "target")); runtime.GOOS != "windows" {
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o640), info.Mode().Perm())
	}
	require.NoError(t, os.Symlink("in.safetensors", filepath.Join(dir, "source.safetensors")))
	_, err = File(t.Context(), filepath.Join(dir, "source.safetensors"), open(t, in), Options{Replace: true})
	assert.ErrorIs(t, err, ErrSource)
}

// TestSweep: what a conversion that was killed has left is gone after the next.
func TestSweep(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("folders have no locks: young leftovers stay")
	}
	dir := t.TempDir()
	in := one(t, filepath.Join(dir, "in.safetensors"))
	for i, write := range []func(context.Context, string, *weights.Set, Options) (*Result, error){File, Folder} {
		left := filepath.Join(dir, ".tmp-0123456789ab-out")
		require.NoError(t, os.MkdirAll(left, 0o777))
		require.NoError(t, os.WriteFile(filepath.Join(left, "model.safetensors"), []byte("half"), 0o666))
		_, err := write(t.Context(), filepath.Join(dir, fmt.Sprint("out", i)), open(t, in), Options{})
		require.NoError(t, err)
		assert.NoDirExists(t, left)
	}
}

package fsatomic_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/fsatomic"
)

func fill(files map[string]string) func(string) error {
	return func(dir string) error {
		for name, text := range files {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
				return err
			}
			if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
				return err
			}
		}
		return nil
	}
}

func TestReplaceDir(t *testing.T) {
	parent := t.TempDir()
	path := filepath.Join(parent, "checkpoint")
	require.NoError(t, fsatomic.ReplaceDir(path, fill(map[string]string{"a": "1", "b/c": "2"})))
	assert.Equal(t, "2", read(t, filepath.Join(path, "b", "c")))
	if runtime.GOOS != "windows" {
		require.NoError(t, os.Chmod(path, 0o750))
	}

	require.NoError(t, fsatomic.ReplaceDir(path+string(filepath.Separator), fill(map[string]string{"a": "3"})))
	assert.Equal(t, []string{"a"}, names(t, path), "what only the old folder had is gone")
	assert.Equal(t, "3", read(t, filepath.Join(path, "a")))
	assert.Equal(t, []string{"checkpoint"}, names(t, parent))
	if runtime.GOOS != "windows" {
		assert.Equal(t, fs.FileMode(0o750), mode(t, path))
	}

	failure := errors.New("disk full")
	err := fsatomic.ReplaceDir(path, func(dir string) error {
		assert.DirExists(t, dir)
		assert.Empty(t, names(t, dir))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "half"), nil, 0o666))
		return failure
	})
	assert.ErrorIs(t, err, failure)
	assert.Equal(t, []string{"a"}, names(t, path))
	assert.Equal(t, []string{"checkpoint"}, names(t, parent))
}

func TestReplaceDirRefusals(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, []byte("x"), 0o666))
	err := fsatomic.ReplaceDir(file, fill(nil))
	assert.ErrorIs(t, err, syscall.ENOTDIR)
	assert.Equal(t, "x", read(t, file))
	err = fsatomic.ReplaceDir(filepath.Join(dir, "no", "parent"), fill(nil))
	assert.ErrorIs(t, err, fs.ErrNotExist)
}

func TestReplaceDirFollowsLinks(t *testing.T) {
	dir := t.TempDir()
	target, link := filepath.Join(dir, "target"), filepath.Join(dir, "link")
	if err := os.Symlink("target", link); err != nil {
		t.Skip("no symbolic links here")
	}
	require.NoError(t, fsatomic.ReplaceDir(link, fill(map[string]string{"a": "1"})))
	require.NoError(t, fsatomic.ReplaceDir(link, fill(map[string]string{"a": "2"})))
	assert.Equal(t, "2", read(t, filepath.Join(target, "a")))
	assert.Equal(t, []string{"link", "target"}, names(t, dir))
}

func TestSweepSparesTheLivingAndStrangers(t *testing.T) {
	dir := t.TempDir()
	for _, dead := range []string{".tmp-0123456789ab-model.safetensors", ".tmp-ba9876543210-x"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, dead), []byte("half"), 0o666))
	}
	require.NoError(t, os.MkdirAll(filepath.Join(dir, ".tmp-00112233aabb-checkpoint-9", "sub"), 0o777))
	strangers := []string{".tmp-1-x", ".tmpfile", "model.safetensors"}
	for _, s := range strangers {
		require.NoError(t, os.WriteFile(filepath.Join(dir, s), nil, 0o666))
	}
	if runtime.GOOS == "windows" {
		t.Skip("folders have no locks: young leftovers stay")
	}
	living, err := fsatomic.Create(filepath.Join(dir, "living"))
	require.NoError(t, err)
	require.NoError(t, fsatomic.ReplaceDir(filepath.Join(dir, "folder"), func(string) error {
		require.NoError(t, fsatomic.Sweep(dir))
		assert.Len(t, names(t, dir), len(strangers)+2)
		return nil
	}))
	require.NoError(t, living.Commit())
	assert.ElementsMatch(t, append(strangers, "living", "folder"), names(t, dir))
	assert.NoError(t, fsatomic.Sweep(filepath.Join(dir, "missing")))
}

func TestReplaceFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "model")
	write := func(text string) func(string) error {
		return func(name string) error {
			assert.Equal(t, "model", filepath.Base(name))
			assert.NoFileExists(t, name)
			return os.WriteFile(name, []byte(text), 0o666)
		}
	}
	require.NoError(t, fsatomic.ReplaceFile(path, write("1")))
	assert.Equal(t, "1", read(t, path))
	if runtime.GOOS != "windows" {
		require.NoError(t, os.Chmod(path, 0o640))
	}
	require.NoError(t, fsatomic.ReplaceFile(path, write("2")))
	assert.Equal(t, "2", read(t, path))
	if runtime.GOOS != "windows" {
		assert.Equal(t, fs.FileMode(0o640), mode(t, path))
	}
	failure := errors.New("not what was written")
	err := fsatomic.ReplaceFile(path, func(name string) error {
		require.NoError(t, os.WriteFile(name, []byte("3"), 0o666))
		return failure
	})
	assert.ErrorIs(t, err, failure)
	assert.ErrorIs(t, fsatomic.ReplaceFile(path, func(string) error { return nil }), fs.ErrNotExist)
	assert.Equal(t, "2", read(t, path))
	assert.Equal(t, []string{"model"}, names(t, dir))

	assert.ErrorIs(t, fsatomic.ReplaceFile(dir, write("4")), fsatomic.ErrNotRegular)
	assert.ErrorIs(t, fsatomic.ReplaceFile(filepath.Join(dir, "no", "parent"), write("5")), fs.ErrNotExist)
	if err := os.Symlink("model", filepath.Join(dir, "link")); err != nil {
		t.Skip("no symbolic links here")
	}
	require.NoError(t, fsatomic.ReplaceFile(filepath.Join(dir, "link"), write("6")))
	assert.Equal(t, "6", read(t, path))
	assert.Equal(t, []string{"link", "model"}, names(t, dir))
}

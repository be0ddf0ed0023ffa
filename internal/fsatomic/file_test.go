package fsatomic_test

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/fsatomic"
)

func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.json")
	require.NoError(t, fsatomic.WriteFile(path, []byte("one")))
	require.NoError(t, fsatomic.WriteFile(path, []byte("2")))
	assert.Equal(t, "2", read(t, path))
	assert.Equal(t, []string{"a.json"}, names(t, dir))
}

func TestFileIsInvisibleUntilCommit(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	require.NoError(t, os.WriteFile(path, []byte("old"), 0o666))

	f, err := fsatomic.Create(path)
	require.NoError(t, err)
	_, err = f.Write([]byte("....body"))
	require.NoError(t, err)
	_, err = f.WriteAt([]byte("head"), 0)
	require.NoError(t, err)
	end, err := f.Seek(0, io.SeekCurrent)
	require.NoError(t, err)
	assert.EqualValues(t, 8, end)
	assert.Equal(t, "old", read(t, path))
	assert.Equal(t, path, f.Name())
	require.NoError(t, f.Commit())
	assert.Equal(t, "headbody", read(t, path))
	assert.ErrorIs(t, f.Commit(), fs.ErrClosed)
	f.Abort()
	assert.Equal(t, "headbody", read(t, path))
}

func TestAbortLeavesTheOldFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	require.NoError(t, fsatomic.WriteFile(path, []byte("old")))
	f, err := fsatomic.Create(path)
	require.NoError(t, err)
	_, err = f.Write([]byte("new"))
	require.NoError(t, err)
	f.Abort()
	assert.Equal(t, "old", read(t, path))
	assert.Equal(t, []string{"a"}, names(t, dir))
}

func TestModes(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("permissions of Unix")
	}
	dir := t.TempDir()
	byUmask, atomic := filepath.Join(dir, "plain"), filepath.Join(dir, "atomic")
	require.NoError(t, os.WriteFile(byUmask, nil, 0o666))
	require.NoError(t, fsatomic.WriteFile(atomic, nil))
	assert.Equal(t, mode(t, byUmask), mode(t, atomic), "a new file has the mode of the umask")

	require.NoError(t, os.Chmod(atomic, 0o640))
	require.NoError(t, fsatomic.WriteFile(atomic, []byte("x")))
	assert.Equal(t, fs.FileMode(0o640), mode(t, atomic), "a replaced file keeps its mode")
}

func TestSymlinksAreFollowed(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "far"), 0o777))
	target := filepath.Join(dir, "far", "target")
	link, chain := filepath.Join(dir, "link"), filepath.Join(dir, "chain")
	if err := os.Symlink(filepath.Join("far", "target"), link); err != nil {
		t.Skip("no symbolic links here")
	}
	require.NoError(t, os.Symlink(link, chain))

	require.NoError(t, fsatomic.WriteFile(chain, []byte("dangling")))
	assert.Equal(t, "dangling", read(t, target))
	require.NoError(t, fsatomic.WriteFile(link, []byte("again")))
	assert.Equal(t, "again", read(t, target))
	info, err := os.Lstat(link)
	require.NoError(t, err)
	assert.Equal(t, fs.ModeSymlink, info.Mode().Type(), "the link stays")
	assert.Equal(t, []string{"target"}, names(t, filepath.Join(dir, "far")))

	loop := filepath.Join(dir, "loop")
	require.NoError(t, os.Symlink("loop", loop))
	assert.ErrorContains(t, fsatomic.WriteFile(loop, nil), "too many symbolic links")
}

func TestRefusals(t *testing.T) {
	dir := t.TempDir()
	err := fsatomic.WriteFile(dir, nil)
	assert.ErrorIs(t, err, fsatomic.ErrNotRegular)
	assert.ErrorContains(t, err, dir)

	missing := filepath.Join(dir, "no", "such", "file")
	err = fsatomic.WriteFile(missing, nil)
	assert.ErrorIs(t, err, fs.ErrNotExist)
	assert.ErrorContains(t, err, "write "+missing+":", "names the target, not the temporary file")
	assert.Empty(t, names(t, dir))
}

func TestNoPermission(t *testing.T) {
	if runtime.GOOS == "windows" || os.Getuid() == 0 {
		t.Skip("needs a user whom permissions bind")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	require.NoError(t, os.WriteFile(path, []byte("old"), 0o444))
	assert.ErrorIs(t, fsatomic.WriteFile(path, []byte("new")), fs.ErrPermission, "a read-only file")
	assert.Equal(t, "old", read(t, path))

	require.NoError(t, os.Chmod(dir, 0o555))
	t.Cleanup(func() { os.Chmod(dir, 0o777) })
	assert.ErrorIs(t, fsatomic.WriteFile(filepath.Join(dir, "b"), nil), fs.ErrPermission, "a read-only folder")
}

func TestLongNames(t *testing.T) {
	path := filepath.Join(t.TempDir(), strings.Repeat("n", 250))
	require.NoError(t, fsatomic.WriteFile(path, []byte("x")))
	assert.Equal(t, "x", read(t, path))
}

func Example() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "adapter_config.json")

	f, err := fsatomic.Create(path)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer f.Abort() // nothing after Commit
	fmt.Fprintln(f, `{"r": 8}`)
	_, err = os.Stat(path)
	fmt.Println("missing before Commit:", os.IsNotExist(err))
	fmt.Println("commit:", f.Commit())
	data, _ := os.ReadFile(path)
	fmt.Print(string(data))
	// Output:
	// missing before Commit: true
	// commit: <nil>
	// {"r": 8}
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(data)
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

func mode(t *testing.T, path string) fs.FileMode {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	return info.Mode().Perm()
}

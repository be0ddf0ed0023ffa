//go:build unix

package safetensors

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A new file has the mode that any new file has, one that is replaced keeps its
// own, whatever the umask and the system.
func TestModes(t *testing.T) {
	systems(t, func(t *testing.T) {
		defer syscall.Umask(syscall.Umask(0))
		for _, umask := range []int{0, 0o022, 0o027, 0o077, 0o266} {
			syscall.Umask(umask)
			dir := t.TempDir()
			mode := func(name string) os.FileMode {
				info, err := os.Stat(filepath.Join(dir, name))
				require.NoError(t, err)
				return info.Mode().Perm()
			}
			require.NoError(t, WriteFile(filepath.Join(dir, "x"), generation(1, 1), nil))
			assert.Equal(t, os.FileMode(0o666&^umask), mode("x"), "%o", umask)
			require.NoError(t, WriteSharded(dir, generation(2, 1), 1, nil))
			for _, name := range shardNames(2) {
				assert.Equal(t, os.FileMode(0o666&^umask), mode(name), "%o", umask)
			}
			for _, old := range []os.FileMode{0o600, 0o755, 0o666, 0o200} {
				require.NoError(t, os.Chmod(filepath.Join(dir, "x"), old))
				require.NoError(t, WriteFile(filepath.Join(dir, "x"), generation(1, 2), nil))
				assert.Equal(t, old, mode("x"), "%o", umask)
			}
			require.NoError(t, os.Chmod(filepath.Join(dir, defaultName.shard(2, 2)), 0o640))
			require.NoError(t, WriteSharded(dir, generation(2, 2), 1, nil))
			assert.Equal(t, os.FileMode(0o640), mode(defaultName.shard(2, 2)))
		}
	})
}

// Other names of a file that is replaced keep the old contents.
func TestHardLinks(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	require.NoError(t, WriteFile(a, generation(1, 1), nil))
	require.NoError(t, os.Link(a, b))
	require.NoError(t, WriteFile(a, generation(1, 2), nil))
	for path, want := range map[string]byte{a: 2, b: 1} {
		f, err := Open(path)
		require.NoError(t, err)
		assert.Equal(t, want, lookup(t, f, "tensor.000").Bytes()[0])
		require.NoError(t, f.Close())
	}
}

func init() {
	// Processes of the superuser may do everything: this one is somebody else.
	roles["write as nobody"] = func(dir string, _ int64) {
		check(syscall.Setuid(65534))
		for _, name := range []string{"readonly/x", "readonly/new", "folder/x", "folder/new", "free/readonly", "free/x"} {
			fmt.Println(WriteFile(filepath.Join(dir, name), generation(1, 2), nil))
		}
		for _, name := range []string{"folder", "free"} {
			fmt.Println(WriteSharded(filepath.Join(dir, name), generation(2, 2), 1, nil))
			fmt.Println(WriteSharded(filepath.Join(dir, name, "new"), generation(2, 2), 1, nil, Durable()))
		}
	}
}

// Files and folders that may not be written stay as they are.
func TestReadOnly(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only the superuser can become somebody else")
	}
	dir, err := os.MkdirTemp("", "safetensors") // not below a folder that is closed to others
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	require.NoError(t, os.Chmod(dir, 0o755))
	for _, folder := range []string{"readonly", "folder", "free"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, folder), 0o755))
	}
	require.NoError(t, os.Chmod(filepath.Join(dir, "free"), 0o777))
	for _, file := range []string{"readonly/x", "folder/x", "free/readonly", "free/x"} {
		require.NoError(t, WriteFile(filepath.Join(dir, file), generation(1, 1), nil))
		require.NoError(t, os.Chmod(filepath.Join(dir, file), 0o666))
	}
	require.NoError(t, os.Chmod(filepath.Join(dir, "readonly/x"), 0o444))
	require.NoError(t, os.Chmod(filepath.Join(dir, "free/readonly"), 0o444))
	out, err := inRole("write as nobody", dir, 0).Output()
	require.NoError(t, err, string(out))
	denied := func(name string) string {
		return fmt.Sprintf("safetensors: write %s (73 bytes): permission denied\n", filepath.Join(dir, name))
	}
	assert.Equal(t, denied("readonly/x")+denied("readonly/new")+denied("folder/x")+denied("folder/new")+denied("free/readonly")+"<nil>\n"+
		fmt.Sprintf("safetensors: write %s (201 bytes): permission denied\n", filepath.Join(dir, "folder", ModelIndex))+
		fmt.Sprintf("safetensors: mkdir %s: permission denied\n", filepath.Join(dir, "folder", "new"))+"<nil>\n<nil>\n", string(out))
	assertFiles(t, filepath.Join(dir, "readonly"), "x")
	assertFiles(t, filepath.Join(dir, "folder"), "x")
}

package fsatomic

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fullDisk stands between a File and its temporary file: the disk takes room
// bytes, and then none; or it fails only when asked to sync or close.
type fullDisk struct {
	*os.File
	room        int
	sync, close error
}

func (d *fullDisk) Write(p []byte) (int, error) {
	if len(p) <= d.room {
		d.room -= len(p)
		return d.File.Write(p)
	}
	n, _ := d.File.Write(p[:d.room])
	d.room = 0
	return n, &fs.PathError{Op: "write", Path: d.Name(), Err: syscall.ENOSPC}
}

func (d *fullDisk) Sync() error {
	if d.sync != nil {
		return d.sync
	}
	return d.File.Sync()
}

func (d *fullDisk) Close() error {
	err := d.File.Close()
	if d.close != nil {
		return d.close
	}
	return err
}

func TestFaults(t *testing.T) {
	for name, disk := range map[string]fullDisk{
		"write": {room: 3},
		"sync":  {room: 99, sync: syscall.EIO},
		"close": {room: 99, close: syscall.EDQUOT},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "a")
			require.NoError(t, WriteFile(path, []byte("old")))
			f, err := Create(path)
			require.NoError(t, err)
			disk.File = f.f.(*os.File)
			f.f = &disk

			_, err = f.Write([]byte("four"))
			if name == "write" {
				require.ErrorIs(t, err, syscall.ENOSPC)
				require.EqualError(t, err, "write "+path+": no space left on device")
				_, err = f.Write(nil)
				require.NoError(t, err, "a later write may succeed, the file is lost all the same")
			}
			assert.Error(t, f.Commit())
			got, err := os.ReadFile(path)
			require.NoError(t, err)
			assert.Equal(t, "old", string(got))
			entries, err := os.ReadDir(dir)
			require.NoError(t, err)
			assert.Len(t, entries, 1, "nothing is left behind")
		})
	}
}

// Where two names cannot be exchanged in one step, a process may die between
// the two renames: Sweep finds the old folder and gives it its name back.
func TestStepAside(t *testing.T) {
	parent := t.TempDir()
	final, temp := filepath.Join(parent, "d"), filepath.Join(parent, "t")
	write := func(dir, text string) {
		require.NoError(t, os.Mkdir(dir, 0o777))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "f"), []byte(text), 0o666))
	}
	check := func(want string) {
		t.Helper()
		got, err := os.ReadFile(filepath.Join(final, "f"))
		require.NoError(t, err)
		assert.Equal(t, want, string(got))
		entries, err := os.ReadDir(parent)
		require.NoError(t, err)
		assert.Len(t, entries, 1)
	}
	write(final, "old")
	write(temp, "new")
	require.NoError(t, stepAside(temp, final))
	check("new")

	aside := tempName(oldPrefix, final)
	require.NoError(t, os.Rename(final, aside)) // and then the power went
	require.NoError(t, Sweep(parent))
	check("new")

	write(aside, "older") // killed while the old folder was being removed
	require.NoError(t, Sweep(parent))
	check("new")

	assert.Error(t, stepAside(filepath.Join(parent, "missing"), final))
	check("new")
}

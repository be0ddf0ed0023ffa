//go:build unix

package fsatomic_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/fsatomic"
)

// holder takes a lock, says so and waits to be killed.
func holder(path string) {
	if _, err := fsatomic.TryLock(path); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("held")
	select {}
}

func TestTryLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "FSATOMIC_HOLDER="+path)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "held\n", line)

	_, err = fsatomic.TryLock(path)
	require.ErrorIs(t, err, fsatomic.ErrLocked)
	var held *fsatomic.LockedError
	require.ErrorAs(t, err, &held)
	host, _ := os.Hostname()
	assert.Equal(t, cmd.Process.Pid, held.Owner.PID)
	assert.Equal(t, host, held.Owner.Host)
	assert.WithinDuration(t, time.Now(), held.Owner.Since, time.Minute)
	assert.Contains(t, err.Error(), fmt.Sprintf("%s: locked by process %d on %s, since ", path, cmd.Process.Pid, host))

	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	require.FileExists(t, path, "the dead leave it")
	lock, err := fsatomic.TryLock(path)
	require.NoError(t, err)
	assert.Contains(t, read(t, path), fmt.Sprintf(`{"pid":%d,`, os.Getpid()))
	assert.Equal(t, 1, strings.Count(read(t, path), "\n"), "nothing is left of the last owner's")
	_, err = fsatomic.TryLock(path)
	assert.ErrorIs(t, err, fsatomic.ErrLocked, "the same process is no exception")
	require.NoError(t, lock.Unlock())
	assert.NoFileExists(t, path)

	require.NoError(t, os.WriteFile(path, []byte("{"), 0o666))
	torn, err := fsatomic.Lock(t.Context(), path)
	require.NoError(t, err)
	_, err = fsatomic.TryLock(path)
	assert.EqualError(t, err, path+": locked by a process that has left no name")
	require.NoError(t, torn.Unlock())
}

// However owners come and go, and though each removes the file, there is one
// at a time.
func TestTryLockIsHeldByOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	var inside, most, times atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 200 {
				l, err := fsatomic.TryLock(path)
				if err != nil {
					assert.ErrorIs(t, err, fsatomic.ErrLocked)
					continue
				}
				times.Add(1)
				most.Store(max(most.Load(), inside.Add(1)))
				inside.Add(-1)
				assert.NoError(t, l.Unlock())
			}
		})
	}
	all.Wait()
	assert.EqualValues(t, 1, most.Load())
	assert.Positive(t, times.Load())
}

func TestRemoveDir(t *testing.T) {
	parent := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(parent, "a", "b"), 0o777))
	require.NoError(t, fsatomic.RemoveDir(filepath.Join(parent, "a")))
	require.NoError(t, fsatomic.RemoveDir(filepath.Join(parent, "a")), "gone already")
	assert.Empty(t, names(t, parent))
}

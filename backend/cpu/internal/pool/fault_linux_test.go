package pool_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend/cpu/internal/pool"
)

// TestFaultOfAnyWorker: a page that cannot be read is a panic of the task, on whichever
// worker it runs. Every worker has one: the tasks wait for each other.
func TestFaultOfAnyWorker(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	require.NoError(t, os.WriteFile(path, make([]byte, 1<<16), 0o666))
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	data, err := syscall.Mmap(int(f.Fd()), 0, 1<<16, syscall.PROT_READ, syscall.MAP_SHARED)
	require.NoError(t, err)
	defer syscall.Munmap(data)
	require.NoError(t, os.Truncate(path, 0))
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true)) // as the caller of Run has to

	p := pool.New(4)
	defer p.Close()
	for faulting := range 4 {
		all := make(chan struct{}, 4)
		sum := byte(0)
		run := func() (err error) {
			defer func() { err, _ = recover().(error) }()
			p.RunWorker(4, func(worker, _ int) {
				all <- struct{}{}
				for len(all) < 4 {
					runtime.Gosched()
				}
				if worker == faulting {
					sum += data[1<<15]
				}
			})
			return nil
		}
		var fault interface {
			runtime.Error
			Addr() uintptr
		}
		assert.True(t, errors.As(run(), &fault), "worker %d, %d", faulting, sum)
	}
}

package tuning_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/serve/keys"
	"github.com/lorafuse/lorafuse/internal/serve/tuning"
)

// send uploads so many bytes in pieces.
func (h *house) send(bytes int) (string, error) {
	u, err := h.Upload()
	if err != nil {
		return "", err
	}
	defer u.Abort()
	for ; bytes > 0; bytes -= min(bytes, 10) {
		if _, err := u.Write(make([]byte, min(bytes, 10))); err != nil {
			return "", err
		}
	}
	f, err := u.Commit(tuning.File{Name: "x", Purpose: tuning.UserData})
	return f.ID, err
}

// limited has a service keep so many bytes of files.
func limited(bytes int64) func(*tuning.Options) {
	return func(o *tuning.Options) { o.MaxFiles = bytes }
}

// All files together have a limit, to the byte: also while they are sent at the same time, after
// those that were removed or broken off, and when the service is opened again.
func TestStorageLimit(t *testing.T) {
	dir := t.TempDir()
	var first string
	t.Run("before", func(t *testing.T) {
		h := open(t, dir, &trainer{}, limited(1000))
		var err error
		first, err = h.send(400)
		require.NoError(t, err)
		_, err = h.send(601)
		require.ErrorIs(t, err, tuning.ErrNoSpace)
		require.ErrorContains(t, err, "at most 1000 bytes")
		broken, err := h.Upload()
		require.NoError(t, err)
		_, err = broken.Write(make([]byte, 600))
		require.NoError(t, err)
		_, err = h.send(1)
		require.ErrorIs(t, err, tuning.ErrNoSpace, "what is being sent counts")
		broken.Abort()
		broken.Abort()

		var taken atomic.Int64
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if _, err := h.send(100); err == nil {
					taken.Add(1)
				} else {
					assert.ErrorIs(t, err, tuning.ErrNoSpace)
				}
			})
		}
		all.Wait()
		assert.LessOrEqual(t, taken.Load(), int64(6))
		for taken.Load() < 6 { // those that were broken off have given back what they had
			_, err := h.send(100)
			require.NoError(t, err)
			taken.Add(1)
		}
		_, err = h.send(1)
		require.ErrorIs(t, err, tuning.ErrNoSpace)
	})
	h := open(t, dir, &trainer{}, limited(1000))
	_, err := h.send(1)
	require.ErrorIs(t, err, tuning.ErrNoSpace)
	require.NoError(t, h.DeleteFile(keys.Client{}, first))
	_, err = h.send(401)
	require.ErrorIs(t, err, tuning.ErrNoSpace)
	_, err = h.send(400)
	require.NoError(t, err)
}

// What a job holds of a file that was deleted counts until it has ended.
func TestStorageOfJobs(t *testing.T) {
	dir, size := t.TempDir(), int64(len(four))
	var j tuning.Job
	t.Run("before", func(t *testing.T) {
		h := open(t, dir, &trainer{gate: make(chan struct{})}, limited(size))
		j = h.create()
		h.await(j.ID, tuning.Running)
		require.NoError(t, h.DeleteFile(keys.Client{}, j.Request.TrainingFile))
		_, err := h.send(1)
		require.ErrorIs(t, err, tuning.ErrNoSpace)
	})
	h := open(t, dir, &trainer{gate: make(chan struct{})}, limited(size))
	_, err := h.send(1)
	require.ErrorIs(t, err, tuning.ErrNoSpace)
	_, err = h.Cancel(keys.Client{}, j.ID)
	require.NoError(t, err)
	require.Eventually(t, func() bool { _, err := h.send(len(four)); return err == nil }, time.Minute, time.Millisecond)
	_, err = h.send(1)
	require.ErrorIs(t, err, tuning.ErrNoSpace)
}

// Uploads leave room on the disk.
func TestStorageKeepsDiskFree(t *testing.T) {
	h := open(t, t.TempDir(), &trainer{}, func(o *tuning.Options) { o.KeepFree = 1 << 60 })
	_, err := h.send(1)
	require.ErrorIs(t, err, tuning.ErrNoSpace)
	require.ErrorContains(t, err, "nearly full")
	require.Empty(t, h.Files(keys.Client{}))
}

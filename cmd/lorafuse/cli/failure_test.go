//go:build unix

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/train"
)

// TestStatusOfErrnos: what the system has no more of is no wrong input; a file
// that is not there or not allowed is one, unless the work was under way.
func TestStatusOfErrnos(t *testing.T) {
	for _, c := range []struct {
		no     syscall.Errno
		before int // while what was given is read
	}{
		{syscall.ENOSPC, ExitFailure}, {syscall.EDQUOT, ExitFailure}, {syscall.EFBIG, ExitFailure}, {syscall.EIO, ExitFailure},
		{syscall.EROFS, ExitFailure}, {syscall.EPIPE, ExitFailure}, {syscall.EMFILE, ExitFailure}, {syscall.ENFILE, ExitFailure},
		{syscall.ENOMEM, ExitFailure}, {syscall.EPERM, ExitUsage}, {syscall.EACCES, ExitUsage}, {syscall.ENOENT, ExitUsage},
	} {
		err := fmt.Errorf("train: %w", &fs.PathError{Op: "open", Path: "x", Err: c.no})
		assert.Equal(t, c.before, statusOf(t.Context(), err), c.no.Error())
		assert.Equal(t, ExitFailure, statusOf(t.Context(), &failure{err}), c.no.Error())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.Equal(t, ExitInterrupted, statusOf(ctx, &failure{fmt.Errorf("%w: %w", train.ErrInterrupted, syscall.ENOENT)}))
}

// TestWork: what the system says is a failure from when the work has begun;
// what else is wrong stays what it was.
func TestWork(t *testing.T) {
	var w work
	gone, input := &fs.PathError{Op: "open", Path: "x", Err: syscall.ENOENT}, errors.New("prompt is too long")
	assert.Equal(t, ExitUsage, statusOf(t.Context(), w.failed(gone)))
	w.begun.Store(true)
	for _, no := range []syscall.Errno{syscall.ENOENT, syscall.EACCES, syscall.EPERM, syscall.ENOTDIR, syscall.EMFILE} {
		assert.Equal(t, ExitFailure, statusOf(t.Context(), w.failed(fmt.Errorf("merge: %w", &fs.PathError{Op: "write", Path: "x", Err: no}))), no.Error())
	}
	assert.Equal(t, ExitUsage, statusOf(t.Context(), w.failed(input)))
	assert.NoError(t, w.failed(nil))
}

// TestConvertUnderWay takes the output away while the input is read: the server
// that has it does so when it is asked for the tensors.
func TestConvertUnderWay(t *testing.T) {
	for _, output := range []string{"out/m.safetensors", "out/model"} {
		l := newLab(t)
		data, err := os.ReadFile(l.write("m.safetensors", floats("x", make([]float32, 1<<20), 1<<20)))
		require.NoError(t, err)
		require.NoError(t, os.Mkdir(l.path("out"), 0o777))
		var asked atomic.Int32
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if asked.Add(1) > 1 {
				assert.NoError(t, os.RemoveAll(l.path("out")))
			}
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
		}))
		t.Cleanup(s.Close)
		r := command(t, "", "convert", s.URL+"/m.safetensors", l.path(output))
		assert.Equal(t, ExitFailure, r.status, r.stderr)
		assert.Contains(t, r.stderr, "no such file or directory")
		assert.NoFileExists(t, l.path(output))
		assert.NoDirExists(t, l.path("out"))
		assert.Equal(t, ExitUsage, command(t, "", "convert", l.path("m.safetensors"), l.path(output)).status, "before it begins")
	}
}

// TestFailureUnderWay takes the output folder away from a run that has begun.
func TestFailureUnderWay(t *testing.T) {
	l := newLab(t)
	file := l.settings(llama, "steps: 4\nsave_steps: 1\n")
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	l.file("train.yaml", strings.Replace(string(raw), "steps: 3\n", "", 1))
	// A file lies where the first checkpoint goes.
	l.file("output/checkpoint-1", "in the way")
	require.NoError(t, os.Chmod(filepath.Join(l.dir, "output"), 0o777))
	r := command(t, "", "train", file)
	assert.Equal(t, ExitFailure, r.status, r.stderr)
	assert.Contains(t, r.stderr, "checkpoint-1")
}

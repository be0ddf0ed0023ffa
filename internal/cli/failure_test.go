//go:build unix

package cli

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/train"
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
		assert.Equal(t, c.before, classify(t.Context(), err), c.no.Error())
		assert.Equal(t, ExitFailure, classify(t.Context(), &failure{err}), c.no.Error())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.Equal(t, ExitInterrupted, classify(ctx, &failure{fmt.Errorf("%w: %w", train.ErrInterrupted, syscall.ENOENT)}))
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

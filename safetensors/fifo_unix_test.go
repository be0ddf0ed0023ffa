//go:build unix

package safetensors

import (
	"net"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestOpenDoesNotWaitForAPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe.safetensors")
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	_, err := Open(path)
	assert.ErrorIs(t, err, ErrNotRegular)
	assert.ErrorContains(t, err, "a named pipe")
	assert.ErrorIs(t, WriteFile(path, nil, nil), ErrNotRegular)
}

func TestOpenRefusesASocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Skip(err)
	}
	defer l.Close()
	_, err = Open(path)
	assert.ErrorIs(t, err, ErrNotRegular)
	assert.ErrorContains(t, err, "a socket")
}

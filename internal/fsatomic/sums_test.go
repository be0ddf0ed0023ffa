package fsatomic_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/fsatomic"
)

func TestSums(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a"), []byte("123456789"), 0o666))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "b"), nil, 0o666))
	sums, err := fsatomic.Sums(dir, "a", "b")
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a": "crc32c e3069283", "b": "crc32c 00000000"}, sums) // the check value of CRC-32C
	_, err = fsatomic.Sums(dir, "a", "c")
	require.ErrorIs(t, err, fs.ErrNotExist)
}

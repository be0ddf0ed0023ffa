package safetensors_test

import (
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/safetensors"
)

// TestMapping: the mapping of a view is the whole file, and its bytes lie in it; what is
// not mapped, or closed, has none.
func TestMapping(t *testing.T) {
	header := `{"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}}`
	raw := append([]byte{byte(len(header)), 0, 0, 0, 0, 0, 0, 0}, header+"xyz"...)
	path := filepath.Join(t.TempDir(), "a.safetensors")
	require.NoError(t, os.WriteFile(path, raw, 0o600))
	f, err := safetensors.Open(path)
	require.NoError(t, err)
	v, err := f.Lookup("a")
	require.NoError(t, err)
	all := v.Mapping()
	if all == nil {
		t.Skip("files are not mapped here")
	}
	require.Equal(t, raw, all)
	require.Same(t, unsafe.SliceData(v.Bytes()), &all[len(raw)-3])
	require.Zero(t, uintptr(unsafe.Pointer(&all[0]))%uintptr(os.Getpagesize()))
	require.NoError(t, f.Close())
	require.Nil(t, v.Mapping())

	g, err := safetensors.FromBytes(raw)
	require.NoError(t, err)
	v, err = g.Lookup("a")
	require.NoError(t, err)
	require.NotNil(t, v.Bytes())
	require.Nil(t, v.Mapping())
}

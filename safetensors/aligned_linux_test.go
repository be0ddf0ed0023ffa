package safetensors

import (
	"path/filepath"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// TestMappingBeginsAtAHugePage: a large file is mapped where its huge pages
// can be, with its bytes, and closing it leaves no address taken.
func TestMappingBeginsAtAHugePage(t *testing.T) {
	for _, size := range []int{1 << 10, hugePage - 200, hugePage, hugePage + 1, 3*hugePage + 4097} {
		data := make([]byte, size)
		for i := range data {
			data[i] = byte(i * 7)
		}
		path := filepath.Join(t.TempDir(), "x.safetensors")
		require.NoError(t, WriteFile(path, []Entry{{Name: "a", DType: U8, Shape: []int{size}, Data: data}}, nil))
		f, err := Open(path)
		require.NoError(t, err)
		v, err := f.Lookup("a")
		require.NoError(t, err)
		require.NoError(t, v.WithBytes(func(got []byte) error {
			require.Equal(t, data, got)
			return nil
		}))
		require.NoError(t, Advise([]*View{v}, AdviseHugePages))
		mapped := f.mapping.data
		if len(mapped) >= hugePage {
			require.Zero(t, uintptr(unsafe.Pointer(&mapped[0]))%hugePage)
		}
		require.Equal(t, 1, mappings(t, path), "of %d bytes", size)
		require.NoError(t, f.Close())
		require.Zero(t, mappings(t, path), "of %d bytes", size)
	}
}

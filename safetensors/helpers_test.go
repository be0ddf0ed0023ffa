package safetensors

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
)

// file puts a header before n zero bytes of data.
func file(header string, n int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), make([]byte, n)...)
}

func mustEncode(t testing.TB, entries []Entry, metadata map[string]string) *File {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, Write(&b, entries, metadata))
	f, err := FromBytes(b.Bytes())
	require.NoError(t, err)
	return f
}

package cli

import (
	"os"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestInspectReadsHeadersOnly looks into a file that is larger than any memory,
// and finds afterwards that its data is not in memory.
func TestInspectReadsHeadersOnly(t *testing.T) {
	const size = 1 << 40
	l := newLab(t)
	header := `{"x":{"dtype":"BF16","shape":[1048576,524288],"data_offsets":[0,1099511627776]}}`
	path := l.file("x.safetensors", string([]byte{byte(len(header)), 0, 0, 0, 0, 0, 0, 0})+header)
	if err := os.Truncate(path, size+int64(8+len(header))); err != nil {
		t.Skip(err) // a file system without such files
	}
	began := time.Now()
	i := decode[inspection](t, succeed(t, "inspect", path, "--json"))
	assert.EqualValues(t, int64(size), i.Bytes)
	assert.Less(t, time.Since(began), time.Minute)

	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	const looked = 1 << 30 // of the data
	data, err := syscall.Mmap(int(f.Fd()), 0, looked, syscall.PROT_READ, syscall.MAP_SHARED)
	require.NoError(t, err)
	defer syscall.Munmap(data)
	pages := make([]byte, looked/os.Getpagesize())
	_, _, errno := syscall.Syscall(syscall.SYS_MINCORE, uintptr(unsafe.Pointer(&data[0])), looked, uintptr(unsafe.Pointer(&pages[0])))
	require.Zero(t, errno)
	resident := 0
	for _, p := range pages {
		resident += int(p & 1)
	}
	assert.Less(t, resident, len(pages)/1000, "no more than what the system reads ahead of the header")
}

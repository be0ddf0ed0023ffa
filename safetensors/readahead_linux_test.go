package safetensors

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// coldFile writes 480 tensors of the given number of floats, and takes the file
// out of the page cache.
func coldFile(t testing.TB, floatsEach int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cold.safetensors")
	entries := make([]Entry, 480)
	data := bytes.Repeat([]byte("data"), floatsEach)
	for i := range entries {
		entries[i] = Entry{Name: fmt.Sprintf("base_model.model.model.layers.%02d.self_attn.q_proj.lora_A.weight", i), DType: F32, Shape: []int{floatsEach}, Data: data}
	}
	require.NoError(t, WriteFile(path, entries, nil))
	dropCache(t, path)
	if n, pages := cachedPages(t, path); n > pages/100 {
		t.Skipf("%d of %d pages stay in memory whatever one does", n, pages)
	}
	return path
}

func dropCache(t testing.TB, path string) {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
}

// cachedPages counts the pages of a file that are in memory.
func cachedPages(t testing.TB, path string) (n, pages int) {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	info, err := f.Stat()
	require.NoError(t, err)
	data, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Munmap(data)) }()
	in := make([]byte, (len(data)+int(pageSize)-1)/int(pageSize))
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&data[0])), uintptr(len(data)), uintptr(unsafe.Pointer(&in[0])))
	require.Zero(t, errno)
	for _, page := range in {
		n += int(page & 1)
	}
	return n, len(in)
}

// One of 480 tensors takes the header and its own pages into memory, whichever
// it is and however its bytes are reached.
func TestOneTensorTouchesFewPages(t *testing.T) {
	skipEmulated(t)
	path := coldFile(t, 6<<10) // 24 KiB each: a LoRA of rank 8 of a model 768 wide
	for name, read := range map[string]func(v *View) byte{
		"use": func(v *View) (last byte) {
			require.NoError(t, v.WithBytes(func(b []byte) error { last = b[0] + b[len(b)-1]; return nil }))
			return last
		},
		"bytes": func(v *View) byte { b := v.Bytes(); return b[0] + b[len(b)-1] },
		"hold": func(v *View) byte {
			h, err := v.Hold()
			require.NoError(t, err)
			defer h.Release()
			return h.Bytes()[0] + h.Bytes()[v.Len()-1]
		},
		"read": func(v *View) byte {
			b := make([]byte, v.Len())
			_, err := v.ReadAt(b, 0)
			require.NoError(t, err)
			return b[0] + b[v.Len()-1]
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, i := range []int{0, 1, 240, 478, 479} {
				require.Eventually(t, func() bool { runtime.GC(); return mappings(t, path) == 0 }, time.Minute, time.Millisecond)
				dropCache(t, path) // what is mapped would stay
				f, err := Open(path)
				require.NoError(t, err)
				opened, _ := cachedPages(t, path)
				v := lookup(t, f, f.Names()[i])
				read(v)
				n, pages := cachedPages(t, path)
				t.Logf("tensor %d: %d pages of %d after opening, %d after reading", i, opened, pages, n)
				assert.Less(t, float64(n), 0.02*float64(pages))
				runtime.KeepAlive(v)
				require.NoError(t, f.Close())
			}
		})
	}
}

// What is said to be needed comes into memory without being touched, all of it
// and little else.
func TestWillNeed(t *testing.T) {
	skipEmulated(t)
	path := coldFile(t, 6<<10)
	f, err := Open(path)
	require.NoError(t, err)
	whole := &View{Name: "all", DType: U8, Shape: []int{len(f.mapping.data)}, file: f, data: f.mapping.data}
	part, err := whole.Rows(5<<20, 10<<20)
	require.NoError(t, err)
	before, _ := cachedPages(t, path)
	require.NoError(t, Advise([]*View{part}, AdviseWillNeed))
	want := before + 5<<20/int(pageSize)
	assert.Eventually(t, func() bool { n, _ := cachedPages(t, path); return n >= want }, time.Minute, 5*time.Millisecond)
	n, _ := cachedPages(t, path)
	assert.LessOrEqual(t, n, want+1)
	require.NoError(t, f.Close())
	assert.ErrorIs(t, Advise([]*View{part}, AdviseWillNeed), ErrClosed)
}

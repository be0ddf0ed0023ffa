package safetensors

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// smallDisk returns a folder that is a file system of its own with room for so
// many bytes.
func smallDisk(t *testing.T, size int) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
		t.Skip("needs the right to mount a small tmpfs: ", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	return dir
}

func free(t *testing.T, dir string) int64 {
	t.Helper()
	var s unix.Statfs_t
	require.NoError(t, unix.Statfs(dir, &s))
	return int64(s.Bfree) * int64(s.Bsize)
}

// fill leaves room for so many bytes, or all but a page of them.
func fill(t *testing.T, dir string, room int64) {
	t.Helper()
	path := filepath.Join(dir, "fill")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, unix.Fallocate(int(f.Fd()), 0, 0, free(t, dir)-room))
}

func TestFullDisk(t *testing.T) {
	dir := smallDisk(t, 16<<20)
	path := filepath.Join(dir, "x.safetensors")
	require.NoError(t, WriteFile(path, everySize(1), nil))
	info, err := os.Stat(path)
	require.NoError(t, err)
	for range 50 {
		room := rand.Int64N(info.Size())
		fill(t, dir, room)
		before := free(t, dir)
		started := false
		entries := everySize(2)
		entries[1].Write = func(io.Writer) error { started = true; return nil }
		err := WriteFile(path, entries, nil)
		require.ErrorIs(t, err, unix.ENOSPC)
		require.EqualError(t, err, fmt.Sprintf("safetensors: write %s (%d bytes): no space left on device", path, info.Size()))
		require.False(t, started, "found out before anything is written")
		require.Equal(t, before, free(t, dir), "what had been allocated is free again")
		assertFiles(t, dir, "fill", "x.safetensors")
		f, err := Open(path)
		require.NoError(t, err)
		require.Equal(t, byte(1), wholeGeneration(t, f.Lookup))
		require.NoError(t, f.Close())
	}
	require.NoError(t, os.Remove(filepath.Join(dir, "fill")))
	require.NoError(t, WriteFile(path, everySize(2), nil))
}

func TestFullDiskWhileReplacingAModel(t *testing.T) {
	dir := smallDisk(t, 16<<20)
	require.NoError(t, WriteSharded(dir, everySize(1), 1<<16, nil))
	old := shardNames(5)
	for range 50 {
		fill(t, dir, rand.Int64N(2_400_000))
		err := WriteSharded(dir, everySize(2), 1<<16, nil)
		require.ErrorIs(t, err, unix.ENOSPC)
		require.ErrorContains(t, err, "safetensors: write "+dir+"/model")
		assertFiles(t, dir, append([]string{"fill"}, old...)...)
		set, err := OpenModel(dir)
		require.NoError(t, err)
		require.Equal(t, byte(1), wholeGeneration(t, set.Lookup))
		require.NoError(t, set.Close())
	}
}

// Where room cannot be reserved the disk is full in the middle of a write: what
// could be written is counted, wherever that is.
func TestFullDiskInTheMiddle(t *testing.T) {
	dir := smallDisk(t, 16<<20)
	l, err := newLayout(everySize(1), nil)
	require.NoError(t, err)
	for range 50 {
		room := rand.Int64N(l.size / 4096)
		fill(t, dir, room*4096)
		f, err := os.Create(filepath.Join(dir, "x"))
		require.NoError(t, err)
		w := &fileWriter{f: f}
		err = l.writeTo(w, everySize(1))
		if err == nil {
			err = w.flush()
		}
		require.ErrorIs(t, err, unix.ENOSPC)
		require.Equal(t, room*4096, w.written)
		require.NoError(t, f.Close())
		require.NoError(t, os.Remove(f.Name()))
	}
}

func init() {
	// A file that may not grow beyond a limit is the full disk of those who may not mount one.
	roles["write beyond the limit"] = func(dir string, limit int64) {
		check(syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: uint64(limit), Max: uint64(limit)}))
		fmt.Print(WriteFile(filepath.Join(dir, "x.safetensors"), everySize(2), nil))
		fmt.Print("\n", WriteSharded(dir, everySize(2), 1<<16, nil))
		f, err := os.Create(filepath.Join(dir, "x"))
		check(err)
		w := &fileWriter{f: f}
		l, err := newLayout(everySize(1), nil)
		check(err)
		if err := l.writeTo(w, everySize(1)); err != nil {
			fmt.Print("\n", err, " ", w.written)
		} else {
			fmt.Print("\n", w.flush(), " ", w.written)
		}
	}
}

func TestFileSizeLimit(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.safetensors")
	require.NoError(t, WriteFile(path, everySize(1), nil))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.NoError(t, WriteSharded(dir, everySize(1), 1<<16, nil))
	for i := range int64(10) {
		limit := 1 + i*info.Size()/12
		out, err := inRole("write beyond the limit", dir, limit).Output()
		require.NoError(t, err, string(out))
		lines := strings.Split(string(out), "\n")
		require.Len(t, lines, 3, string(out))
		assert.Equal(t, fmt.Sprintf("safetensors: write %s (%d bytes): file too large", path, info.Size()), lines[0])
		assert.Contains(t, lines[1], "file too large")
		assert.Contains(t, lines[2], fmt.Sprintf("file too large %d", limit))
		require.NoError(t, os.Remove(filepath.Join(dir, "x")))
		f, err := Open(path)
		require.NoError(t, err)
		assert.Equal(t, byte(1), wholeGeneration(t, f.Lookup))
		require.NoError(t, f.Close())
		set, err := OpenModel(dir)
		require.NoError(t, err)
		assert.Equal(t, byte(1), wholeGeneration(t, set.Lookup))
		require.NoError(t, set.Close())
		assertFiles(t, dir, append(shardNames(5), "x.safetensors")...)
	}
}

// The source of a file is cut short while the file is written: an error that
// names the source and the tensor, whether the system meets the missing pages in
// write(2) or we do when we copy.
func TestSourceIsCutShort(t *testing.T) {
	for _, size := range []int{40_000_000, 300_000} { // in pieces of 16 MiB; copied
		dir := t.TempDir()
		source := filepath.Join(dir, "source")
		data := make([]byte, size)
		require.NoError(t, WriteFile(source, []Entry{{Name: "a", DType: U8, Shape: []int{100}, Data: data[:100]}, {Name: "b", DType: U8, Shape: []int{size}, Data: data}}, nil))
		path := filepath.Join(dir, "x")
		require.NoError(t, WriteFile(path, everySize(1), nil))
		f, err := Open(source)
		require.NoError(t, err)
		defer f.Close()
		a, b := lookup(t, f, "a"), lookup(t, f, "b")
		require.NoError(t, os.Truncate(source, int64(size)*6/10))

		err = WriteFile(path, []Entry{a.Entry(), b.Entry()}, nil)
		require.ErrorIs(t, err, ErrFault)
		assert.ErrorContains(t, err, "safetensors: write "+path)
		assert.ErrorContains(t, err, source+`: tensor "b"`)

		if size > 1<<20 { // bytes that the caller has got from a mapping
			err = WriteFile(path, []Entry{
				{Name: "one", DType: U8, Shape: []int{100}, Data: a.Bytes()}, {Name: "two", DType: U8, Shape: []int{size}, Data: b.Bytes()}, {Name: "zero", DType: I32, Shape: []int{0}},
				{Name: "three", DType: I8, Shape: []int{size}, Data: data},
			}, nil)
			require.ErrorIs(t, err, ErrFault)
			assert.EqualError(t, err, fmt.Sprintf(`safetensors: write %s (%d bytes): tensor "two": its data: %v`, path, 2*size+100+280, ErrFault))
		}
		assertFiles(t, dir, "source", "x")
		g, err := Open(path)
		require.NoError(t, err)
		assert.Equal(t, byte(1), wholeGeneration(t, g.Lookup))
		require.NoError(t, g.Close())
	}
}

package safetensors

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// checkpoint makes n small tensors with names as language models have them.
func checkpoint(n int) []Entry { return checkpointOf(n, 8, 4) }

// checkpointOf makes n tensors of a shape.
func checkpointOf(n int, shape ...int) []Entry {
	size := 2
	for _, d := range shape {
		size *= d
	}
	entries := make([]Entry, n)
	data := make([]byte, size)
	for i := range entries {
		entries[i] = Entry{
			Name:  fmt.Sprintf("model.layers.%d.self_attn.q_proj.experts.%d.weight", i/100, i%100),
			DType: BF16, Shape: shape, Data: data,
		}
	}
	return entries
}

// onDisk writes a file of these entries.
func onDisk(b *testing.B, entries []Entry) (path string) {
	b.Helper()
	path = filepath.Join(b.TempDir(), "model.safetensors")
	require.NoError(b, WriteFile(path, entries, nil))
	return path
}

// large is 64 MiB in 64 tensors.
func large() []Entry { return checkpointOf(64, 512, 1024) }

const largeBytes = 64 << 20

func BenchmarkParseHeader(b *testing.B) {
	for _, n := range []int{1000, 50000} {
		l, err := newLayout(checkpoint(n), map[string]string{"format": "pt"})
		require.NoError(b, err)
		text := l.header[lengthSize:]
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := parseHeader(text, uint64(n*64)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// The index of names alone, which finds duplicates as well.
func BenchmarkNameIndex(b *testing.B) {
	for _, n := range []int{1000, 50000} {
		records := mustEncode(b, checkpoint(n), nil).header.records
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				var x nameIndex
				if x.build(records) >= 0 {
					b.Fatal("duplicate")
				}
			}
		})
	}
}

func BenchmarkOpen(b *testing.B) {
	for _, n := range []int{218, 336} { // a model's, and its adapter's
		path := onDisk(b, checkpoint(n))
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				f, err := Open(path)
				if err != nil {
					b.Fatal(err)
				}
				f.Close()
			}
		})
	}
}

func BenchmarkLookup(b *testing.B) {
	entries := checkpoint(1000)
	f := mustEncode(b, entries, nil)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := f.Lookup(entries[500].Name); err != nil {
			b.Fatal(err)
		}
	}
}

// One tensor of many, from a file that is opened for it.
func BenchmarkOneTensor(b *testing.B) {
	entries := checkpointOf(480, 256, 256)
	path := onDisk(b, entries)
	to := make([]byte, 2*256*256)
	b.SetBytes(int64(len(to)))
	for b.Loop() {
		f, err := Open(path)
		if err != nil {
			b.Fatal(err)
		}
		v, err := f.Lookup(entries[240].Name)
		if err == nil {
			_, err = v.ReadAt(to, 0)
		}
		if err != nil {
			b.Fatal(err)
		}
		f.Close()
	}
}

// views opens a file and makes all views of it.
func views(b *testing.B, path string) (*File, []*View) {
	f, err := Open(path)
	if err != nil {
		b.Fatal(err)
	}
	var views []*View
	for _, name := range f.Names() {
		v, err := f.Lookup(name)
		if err != nil {
			b.Fatal(err)
		}
		views = append(views, v)
	}
	return f, views
}

// Every byte of a file that has just been mapped, into memory that is used again.
func BenchmarkCopy(b *testing.B) {
	path := onDisk(b, large())
	to := make([]byte, largeBytes)
	b.SetBytes(largeBytes)
	for b.Loop() {
		f, all := views(b, path)
		at := 0
		for _, v := range all {
			n, err := v.ReadAt(to[at:at+v.Len()], 0)
			if err != nil {
				b.Fatal(err)
			}
			at += n
		}
		f.Close()
	}
}

// Nothing is allocated per tensor: compare the two sizes.
func BenchmarkWrite(b *testing.B) {
	for _, n := range []int{10, 10000} {
		entries := checkpoint(n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.SetBytes(int64(n * 64))
			b.ReportAllocs()
			for b.Loop() {
				if err := Write(io.Discard, entries, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkWriteFile(b *testing.B) {
	entries := large()
	for _, how := range []struct {
		name    string
		options []Option
	}{{"Plain", nil}, {"Durable", []Option{Durable()}}} {
		for _, replace := range []bool{false, true} {
			b.Run(how.name+map[bool]string{false: "/new", true: "/replace"}[replace], func(b *testing.B) {
				path := onDisk(b, entries)
				b.SetBytes(largeBytes)
				for b.Loop() {
					if !replace {
						b.StopTimer()
						os.Remove(path)
						b.StartTimer()
					}
					if err := WriteFile(path, entries, nil, how.options...); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkWriteSharded(b *testing.B) {
	entries := large()
	dir := b.TempDir()
	b.SetBytes(largeBytes)
	for b.Loop() {
		if err := WriteSharded(dir, entries, largeBytes/4, nil); err != nil {
			b.Fatal(err)
		}
	}
}

package safetensors

import (
	"fmt"
	"io"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// checkpoint makes n small tensors with names as language models have them.
func checkpoint(n int) []Entry {
	entries := make([]Entry, n)
	data := make([]byte, 2*8*4)
	for i := range entries {
		entries[i] = Entry{
			Name:  fmt.Sprintf("model.layers.%d.self_attn.q_proj.experts.%d.weight", i/100, i%100),
			DType: BF16, Shape: []int{8, 4}, Data: data,
		}
	}
	return entries
}

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

func BenchmarkOpen(b *testing.B) {
	path := filepath.Join(b.TempDir(), "model.safetensors")
	require.NoError(b, WriteFile(path, checkpoint(218), nil, NoSync()))
	b.ReportAllocs()
	for b.Loop() {
		f, err := Open(path)
		if err != nil {
			b.Fatal(err)
		}
		f.Close()
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

// Nothing is allocated per tensor: compare the two sizes.
func BenchmarkWrite(b *testing.B) {
	for _, n := range []int{10, 10000} {
		entries := checkpoint(n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
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
	dir := b.TempDir()
	entries := []Entry{{Name: "a", DType: F32, Shape: []int{4 << 20}, Data: make([]byte, 16<<20)}}
	for name, opts := range map[string][]Option{"sync": nil, "nosync": {NoSync()}} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(16 << 20)
			for b.Loop() {
				if err := WriteFile(filepath.Join(dir, "x.safetensors"), entries, nil, opts...); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

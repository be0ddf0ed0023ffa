package safetensors

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// benchFile makes a file like one of a language model: bf16 matrices and norms,
// n MB of them.
func benchFile(b *testing.B, mb int) *File {
	b.Helper()
	var entries []Entry
	block := make([]byte, 8<<20)
	for i := range block {
		block[i] = byte(i * 7)
	}
	for i := 0; i*9 < mb; i++ {
		entries = append(entries,
			Entry{Name: fmt.Sprintf("model.layers.%d.mlp.weight", i), DType: BF16, Shape: []int{2048, 2048}, Data: block},
			Entry{Name: fmt.Sprintf("model.layers.%d.attn.weight", i), DType: BF16, Shape: []int{256, 2048}, Data: block[:1<<20]},
			Entry{Name: fmt.Sprintf("model.layers.%d.norm.weight", i), DType: BF16, Shape: []int{2048}, Data: block[:4096]})
	}
	path := filepath.Join(b.TempDir(), "model.safetensors")
	require.NoError(b, WriteFile(path, entries, map[string]string{"format": "pt"}))
	f, err := Open(path)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, f.Close()) })
	return f
}

func benchMB() int {
	if os.Getenv("LORAFUSE_LONG") != "" {
		return 1112
	}
	return 256
}

// BenchmarkLoadHost makes a private copy in memory that has been used before.
func BenchmarkLoadHost(b *testing.B) {
	f := benchFile(b, benchMB())
	views, err := f.Views()
	require.NoError(b, err)
	for _, threads := range []int{1, 2} {
		for _, strategy := range []Strategy{Auto, Pread, Mmap, Direct} {
			b.Run(fmt.Sprintf("threads=%d/%v", threads, strategy), func(b *testing.B) {
				buffer, err := NewHostBuffer(views)
				require.NoError(b, err)
				defer buffer.Close()
				o := LoadOptions{Threads: threads, Strategy: strategy}
				stats, err := Load(context.Background(), views, buffer, o)
				require.NoError(b, err)
				b.SetBytes(stats.Bytes)
				b.ReportAllocs()
				for b.Loop() {
					require.NoError(b, buffer.Reset(views))
					if stats, err = Load(context.Background(), views, buffer, o); err != nil {
						b.Fatal(err)
					}
				}
				b.Log(stats.String())
			})
		}
	}
}

// BenchmarkLoadHostFirst makes a private copy in fresh memory.
func BenchmarkLoadHostFirst(b *testing.B) {
	f := benchFile(b, benchMB())
	views, err := f.Views()
	require.NoError(b, err)
	for _, threads := range []int{1, 2} {
		b.Run(fmt.Sprintf("threads=%d", threads), func(b *testing.B) {
			for b.Loop() {
				buffer, stats, err := LoadHost(context.Background(), views, LoadOptions{Threads: threads})
				if err != nil {
					b.Fatal(err)
				}
				b.SetBytes(stats.Bytes)
				buffer.Close()
			}
		})
	}
}

// BenchmarkLoadPlain is what loads are compared with: loops over read(2), into
// memory that has been used before.
func BenchmarkLoadPlain(b *testing.B) {
	f := benchFile(b, benchMB())
	file, err := os.Open(f.Path())
	require.NoError(b, err)
	defer file.Close()
	info, err := file.Stat()
	require.NoError(b, err)
	read := func(b *testing.B, memory []byte) {
		b.SetBytes(info.Size())
		for b.Loop() {
			for at := 0; at < len(memory); at += 16 << 20 {
				if _, err := file.ReadAt(memory[at:min(at+16<<20, len(memory))], int64(at)); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	b.Run("make", func(b *testing.B) { read(b, make([]byte, info.Size())) })
	b.Run("huge pages", func(b *testing.B) {
		memory, err := newArena(info.Size())
		require.NoError(b, err)
		defer memory.free()
		_, err = io.ReadFull(file, memory.data)
		require.NoError(b, err)
		read(b, memory.data)
	})
	b.Run("os.ReadFile", func(b *testing.B) {
		b.SetBytes(info.Size())
		for b.Loop() {
			if _, err := os.ReadFile(f.Path()); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkLoadPopulate opens a file and has all of it mapped.
func BenchmarkLoadPopulate(b *testing.B) {
	path := benchFile(b, benchMB()).Path()
	for _, threads := range []int{1, 2} {
		b.Run(fmt.Sprintf("threads=%d", threads), func(b *testing.B) {
			for b.Loop() {
				f, err := Open(path)
				if err != nil {
					b.Fatal(err)
				}
				stats, err := f.Populate(context.Background(), LoadOptions{Threads: threads})
				if err != nil {
					b.Fatal(err)
				}
				b.SetBytes(stats.Bytes)
				f.Close()
			}
		})
	}
}

// BenchmarkLoadPlan plans a model of many tensors.
func BenchmarkLoadPlan(b *testing.B) {
	for _, n := range []int{1000, 50000} {
		f := mustEncode(b, checkpoint(n), nil)
		views, err := f.Views()
		require.NoError(b, err)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := PlanLoad(views, LoadOptions{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkLoadSmall is what a load costs beside reading.
func BenchmarkLoadSmall(b *testing.B) {
	path := filepath.Join(b.TempDir(), "x.safetensors")
	require.NoError(b, WriteFile(path, checkpoint(100), nil))
	f, err := Open(path)
	require.NoError(b, err)
	defer f.Close()
	views, err := f.Views()
	require.NoError(b, err)
	buffer, err := NewHostBuffer(views)
	require.NoError(b, err)
	defer buffer.Close()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Load(context.Background(), views, buffer, LoadOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

package safetensors

import (
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every page of a file in memory is touched, tensor after tensor and in any
// order, by way of a new mapping each time.
func BenchmarkTouch(b *testing.B) {
	path := filepath.Join(b.TempDir(), "x.safetensors")
	entries := checkpoint(336)
	for i := range entries {
		entries[i].Shape, entries[i].Data = []int{112, 1024}, make([]byte, 112*1024*2)
	}
	require.NoError(b, WriteFile(path, entries, nil))
	for name, shuffle := range map[string]bool{"in order": false, "in any order": true} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				f, err := Open(path)
				if err != nil {
					b.Fatal(err)
				}
				names := f.Names()
				if shuffle {
					rand.New(rand.NewPCG(1, 2)).Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
				}
				var sum int
				for _, name := range names {
					v, err := f.Lookup(name)
					if err != nil {
						b.Fatal(err)
					}
					if err := v.WithBytes(func(data []byte) error {
						for i := 0; i < len(data); i += 4096 {
							sum += int(data[i])
						}
						return nil
					}); err != nil {
						b.Fatal(err)
					}
				}
				sink += sum
				f.Close()
			}
		})
	}
}

var sink int

func BenchmarkUse(b *testing.B) {
	path := filepath.Join(b.TempDir(), "model.safetensors")
	require.NoError(b, WriteFile(path, checkpoint(218), nil))
	f, err := Open(path)
	require.NoError(b, err)
	defer f.Close()
	v, err := f.Lookup(f.Names()[100])
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		if err := v.WithBytes(func(data []byte) error { sink += int(data[0]); return nil }); err != nil {
			b.Fatal(err)
		}
	}
}

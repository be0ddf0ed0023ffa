package data

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestAscending: a compressed sequence has the values that were appended, and finds them.
func TestAscending(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		steps := rapid.SliceOfN(rapid.OneOf(rapid.IntRange(0, 300), rapid.IntRange(0, min(1<<40, math.MaxInt/256))), 0, 200).Draw(t, "steps")
		var want []int
		x, last := newAscending(), rapid.IntRange(0, 9).Draw(t, "first")
		for _, step := range steps {
			last += step
			want = append(want, last)
			x.append(last)
		}
		require.Equal(t, len(want), x.len())
		for i, v := range want {
			require.Equal(t, v, x.at(i))
		}
		sought := rapid.IntRange(0, last+1).Draw(t, "sought")
		less := 0
		for _, v := range want {
			if v < sought {
				less++
			}
		}
		require.Equal(t, less, x.find(sought))
	})
	x := newAscending() // several pages
	for i := range 200_000 {
		x.append(i * 1000)
	}
	require.Greater(t, len(x.pages), 2)
	for i := range 200_000 {
		require.Equal(t, i*1000, x.at(i))
	}
}

// TestMemoryPerRow: a dataset whose tokens are in a file needs less than 4 bytes of memory for each row, and so does a
// loader of it; a packed one, and the parts of a split, less than 8. A file of 4 GB has about 20 million rows.
func TestMemoryPerRow(t *testing.T) {
	const rows = 100_000
	path := filepath.Join(t.TempDir(), "t.jsonl")
	f, err := os.Create(path)
	require.NoError(t, err)
	for i := range rows {
		_, err = fmt.Fprintf(f, `{"text": "%0*d"}`+"\n", 1+i%40, i%10)
		require.NoError(t, err)
	}
	require.NoError(t, f.Close())
	heap := func() int {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	var kept []any
	grows := func(what string, perRow int, make func() any) {
		t.Helper()
		before := heap()
		kept = append(kept, make())
		assert.Less(t, heap()-before, perRow*rows, what)
	}
	var d *Dataset
	o := Options{Tokenizer: byteTokenizer{}, InMemory: 1000, CacheDir: t.TempDir()}
	loader := func(d *Dataset, c LoaderConfig) any {
		l, err := NewLoader(d, c)
		require.NoError(t, err)
		return l
	}
	grows("dataset", 4, func() any {
		d, err = Load(t.Context(), []string{path}, o)
		require.NoError(t, err)
		return d
	})
	require.Equal(t, rows, d.Len())
	grows("loader", 1, func() any { return loader(d, LoaderConfig{BatchSize: 16, Shuffle: true}) })
	grows("packed", 8, func() any {
		return loader(d, LoaderConfig{BatchSize: 16, Shuffle: true, Packing: true, MaxLength: 128})
	})
	grows("split", 8, func() any {
		rest, part, err := d.Split(0.1, 1)
		require.NoError(t, err)
		return []any{rest, part}
	})
	before, after := runtime.MemStats{}, runtime.MemStats{}
	l, err := NewLoader(d, LoaderConfig{BatchSize: 16, Shuffle: true})
	require.NoError(t, err)
	runtime.ReadMemStats(&before)
	d.Digest()
	l.MaxTokens()
	runtime.ReadMemStats(&after)
	if !raceDetector { // with it, pools forget buffers at random
		assert.Less(t, int(after.TotalAlloc-before.TotalAlloc), 8*rows, "digest and limits")
	}
	runtime.KeepAlive(kept)
}

package safetensors

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Sharding a model that transformers has sharded, with max_shard_size="90KB",
// gives the same folder, byte for byte: names, index, every shard.
func TestWriteShardedGolden(t *testing.T) {
	set, err := OpenModel(shardedModel)
	require.NoError(t, err)
	defer set.Close()
	var entries []Entry
	for _, f := range set.Files() {
		// Within a shard the order does not matter, but what comes first must not
		// fit into the shard before.
		views := make([]*View, 0, f.Len())
		for _, name := range f.Names() {
			views = append(views, lookup(t, f, name))
		}
		slices.SortFunc(views, func(a, b *View) int { return b.Len() - a.Len() })
		for _, v := range views {
			entries = append(entries, v.Entry())
		}
	}
	dir := filepath.Join(t.TempDir(), "new", "folder")
	require.NoError(t, WriteSharded(dir, entries, 90_000, map[string]string{"format": "pt"}))
	names := shardNames(5)
	assertFiles(t, dir, names...)
	for _, name := range names {
		want, err := os.ReadFile(filepath.Join(shardedModel, name))
		require.NoError(t, err)
		got, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		assert.Equal(t, string(want), string(got), name)
	}
}

// shardNames is what a folder with n shards holds.
func shardNames(n int) []string {
	if n == 1 {
		return []string{ModelFile}
	}
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, n))
	}
	return append(names, ModelIndex)
}

// letters makes one-byte tensors named by the letters of a string.
func letters(s string) []Entry {
	var entries []Entry
	for _, letter := range s {
		entries = append(entries, Entry{Name: string(letter), DType: U8, Data: []byte{byte(letter)}})
	}
	return entries
}

func TestWriteShardedReplacesTheOldModel(t *testing.T) {
	dir := t.TempDir()
	others := []string{"config.json", "model-00001-of-00002.bin"}
	for _, name := range others {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	for _, shards := range []int{1, 3, 2, 2, 1, 1, 4} {
		names := "abcdefgh"[:shards]
		require.NoError(t, WriteSharded(dir, letters(names), 1, nil))
		want := append(shardNames(shards), others...)
		slices.Sort(want)
		assertFiles(t, dir, want...)
		set, err := OpenModel(dir)
		require.NoError(t, err)
		assert.Equal(t, strings.Split(names, ""), set.Names())
		require.NoError(t, set.Close())
	}
}

func TestWriteShardedFailureKeepsTheOldModel(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, WriteSharded(dir, letters("abc"), 1, nil))
	broken := errors.New("broken")
	last := Entry{Name: "d", DType: U8, Write: func(io.Writer) error { return broken }}
	for want, entries := range map[error][]Entry{
		broken:             append(letters("xy"), last),
		ErrDuplicateTensor: letters("xyzx"),
		ErrDType:           append(letters("xy"), Entry{Name: "z"}),
		ErrSize:            append(letters("xy"), Entry{Name: "z", DType: U8}),
	} {
		assert.ErrorIs(t, WriteSharded(dir, entries, 1, nil), want)
		assertFiles(t, dir, shardNames(3)...)
		set, err := OpenModel(dir)
		require.NoError(t, err)
		assert.Equal(t, []string{"a", "b", "c"}, set.Names())
		require.NoError(t, set.Close())
	}
	file := filepath.Join(dir, ModelIndex)
	assert.Error(t, WriteSharded(file, letters("a"), 1, nil), "a file is no folder")
}

func TestDefaultShardSize(t *testing.T) {
	for _, size := range []int64{0, -1} {
		dir := t.TempDir()
		require.NoError(t, WriteSharded(dir, letters("ab"), size, nil))
		assertFiles(t, dir, ModelFile)
	}
	assert.Equal(t, int64(10*1024*1024*1024), int64(DefaultShardSize))
}

func TestSplitShards(t *testing.T) {
	sized := func(sizes ...int) []Entry {
		var entries []Entry
		for i, n := range sizes {
			entries = append(entries, Entry{Name: fmt.Sprint(i), DType: U8, Shape: []int{n}})
		}
		return entries
	}
	for _, c := range []struct {
		sizes []int
		want  string
	}{
		{nil, "[]"},
		{[]int{10}, "[0]"},
		{[]int{4, 6, 1}, "[0 1][2]"},
		{[]int{4, 7, 3}, "[0][1 2]"},
		{[]int{4, 11, 6, 1}, "[1][0 2][3]"}, // as the hub library has it: a large tensor does not end the shard
		{[]int{11, 12}, "[0][1]"},
		{[]int{0, 10, 0, 1}, "[0 1 2][3]"},
	} {
		shards, err := splitShards(sized(c.sizes...), 10)
		require.NoError(t, err)
		got := ""
		for _, shard := range shards {
			var names []string
			for _, e := range shard {
				names = append(names, e.Name)
			}
			got += "[" + strings.Join(names, " ") + "]"
		}
		assert.Equal(t, c.want, got, c.sizes)
	}
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOf(rapid.IntRange(0, 20)).Draw(t, "sizes")
		shards, err := splitShards(sized(sizes...), 10)
		require.NoError(t, err)
		seen := map[string]bool{}
		for _, shard := range shards {
			total := 0
			for _, e := range shard {
				require.False(t, seen[e.Name])
				seen[e.Name] = true
				total += e.Shape[0]
			}
			require.True(t, total <= 10 || len(shard) == 1)
		}
		require.Len(t, seen, len(sizes))
	})
}

// The texts are what Python's json.dumps(…, indent=2, sort_keys=True) gives.
func TestEncodeIndex(t *testing.T) {
	entries := []Entry{
		{Name: "é🙂\"\\/\x7f\n\x01", DType: F32, Shape: []int{2, 3}},
		{Name: "a", DType: U8, Shape: []int{}},
	}
	got, err := encodeIndex([][]Entry{entries[:1], entries[1:]}, []string{"1", "2"}, defaultName.indexStyle())
	require.NoError(t, err)
	assert.Equal(t, `{
  "metadata": {
    "total_parameters": 7,
    "total_size": 25
  },
  "weight_map": {
    "a": "2",
    "\u00e9\ud83d\ude42\"\\/\u007f\n\u0001": "1"
  }
}
`, string(got))
	index, err := parseIndex([]byte(strings.ReplaceAll(strings.ReplaceAll(string(got), `: "1"`, `: "1.safetensors"`), `: "2"`, `: "2.safetensors"`)), shardExtension)
	require.NoError(t, err)
	assert.Equal(t, map[string]string{entries[0].Name: "1.safetensors", "a": "2.safetensors"}, index.shard)

	one := func(n int) ([]byte, error) {
		return encodeIndex([][]Entry{{{Name: strings.Repeat("x", n), DType: U8}}}, []string{"1"}, indexStyle{})
	}
	short, err := one(0)
	require.NoError(t, err)
	longest, err := one(maxIndex - len(short))
	require.NoError(t, err)
	assert.Len(t, longest, maxIndex)
	_, err = one(maxIndex - len(short) + 1)
	assert.ErrorIs(t, err, ErrIndex)
}

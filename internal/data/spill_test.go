package data

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTokenCache: a dataset in a file has the rows, batches and digest of one in memory, and leaves no file.
func TestTokenCache(t *testing.T) {
	for name, rows := range map[string]string{"t.jsonl": manyLines(700), "t.csv": "prompt,completion\n" + strings.Repeat("abc,de\nf,ghi\n", 90)} {
		memory, err := load(t, name, rows, Options{})
		require.NoError(t, err)
		dir := t.TempDir()
		for _, limit := range []int{1, 50, 300, memory.Stats().Tokens} {
			file, err := load(t, name, rows, Options{InMemory: limit, CacheDir: dir})
			require.NoError(t, err)
			require.NotNil(t, file.store.file)
			require.Equal(t, memory.Stats(), file.Stats())
			require.Equal(t, memory.Digest(), file.Digest())
			require.Equal(t, rowsOf(memory), rowsOf(file))
			a, err := NewLoader(memory, LoaderConfig{BatchSize: 3, Shuffle: true, LengthBucketing: true})
			require.NoError(t, err)
			b, err := NewLoader(file, LoaderConfig{BatchSize: 3, Shuffle: true, LengthBucketing: true})
			require.NoError(t, err)
			for step := range a.StepsPerEpoch() {
				require.Equal(t, a.LossTokens(step), b.LossTokens(step))
				x, err := a.Batch(step, 0)
				require.NoError(t, err)
				y, err := b.Batch(step, 0)
				require.NoError(t, err)
				require.Equal(t, x, y)
			}
			left, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Empty(t, left)
		}
	}
	whole := strings.Repeat(`{"prompt": "ab", "chosen": "cd", "rejected": "e"}`+"\n", 40)
	memory, err := load(t, "p.jsonl", whole, Options{Rows: PreferenceRows})
	require.NoError(t, err)
	file, err := load(t, "p.jsonl", whole, Options{Rows: PreferenceRows, InMemory: 7, CacheDir: t.TempDir()})
	require.NoError(t, err)
	require.Equal(t, memory.Digest(), file.Digest())

	require.NoError(t, file.store.file.Close())
	l, err := NewLoader(file, LoaderConfig{BatchSize: 2})
	require.NoError(t, err)
	_, err = l.Batch(0, 0)
	require.ErrorIs(t, err, os.ErrClosed)
	_, err = load(t, "p.jsonl", whole, Options{Rows: PreferenceRows, InMemory: 7, CacheDir: filepath.Join(t.TempDir(), "none")})
	require.ErrorContains(t, err, "data: the token cache: ")
}

// TestSplitRows: the parts of a dataset have all its rows in order, and only the seed decides which.
func TestSplitRows(t *testing.T) {
	d, err := load(t, "t.jsonl", manyLines(200), Options{})
	require.NoError(t, err)
	train, eval, err := d.Split(0.1, 7)
	require.NoError(t, err)
	require.Equal(t, 20, eval.Len())
	require.Equal(t, 180, train.Len())
	assert.Equal(t, d.Stats().Tokens, train.Stats().Tokens+eval.Stats().Tokens)
	assert.Equal(t, d.Stats().LossTokens, train.Stats().LossTokens+eval.Stats().LossTokens)
	i, j := 0, 0
	for r := range d.Len() {
		switch row := d.Row(r); {
		case j < eval.Len() && slices.Equal(row.IDs, eval.Row(j).IDs):
			j++
		default:
			require.Equal(t, row, train.Row(i))
			i++
		}
	}
	again, _, err := d.Split(0.1, 7)
	require.NoError(t, err)
	assert.Equal(t, train.Digest(), again.Digest())
	other, _, err := d.Split(0.1, 8)
	require.NoError(t, err)
	assert.NotEqual(t, train.Digest(), other.Digest())
	loader, err := NewLoader(eval, LoaderConfig{BatchSize: 4})
	require.NoError(t, err)
	b, err := loader.Batch(0, 0)
	require.NoError(t, err)
	assert.Equal(t, eval.Row(0).IDs, b.Tokens()[:b.Starts[1]])

	_, part, err := d.Split(1e-9, 7)
	require.NoError(t, err)
	assert.Equal(t, 1, part.Len())
	_, _, err = d.Split(0.999, 7)
	assert.ErrorContains(t, err, "eval_fraction 0.999 of 200 rows leaves none to train on")
}

// TestMix: entries have their shares of each epoch, and all rows of an entry come before one comes again.
func TestMix(t *testing.T) {
	a, b := write(t, "a.jsonl", manyLines(30)), write(t, "b.jsonl", strings.ReplaceAll(manyLines(10), " x", " y"))
	d, err := Load(t.Context(), []string{a, b}, Options{Tokenizer: byteTokenizer{}})
	require.NoError(t, err)
	for _, shuffle := range []bool{false, true} {
		l, err := NewLoader(d, LoaderConfig{BatchSize: 4, Shuffle: shuffle, Seed: 3, Mix: []float64{1, 3}})
		require.NoError(t, err)
		require.Equal(t, 10, l.StepsPerEpoch())
		counts := make([]int, d.Len())
		for epoch := range 3 {
			ofA := 0
			for place := range 40 {
				row := l.order.at(epoch, place)
				counts[row]++
				if row < 30 {
					ofA++
				}
			}
			require.Equal(t, 10, ofA)
			require.Equal(t, slices.Repeat([]int{3 * (epoch + 1)}, 10), counts[30:])
		}
		require.Equal(t, slices.Repeat([]int{1}, 30), counts[:30])
		first, err := l.Batch(0, 0)
		require.NoError(t, err)
		again, err := NewLoader(d, LoaderConfig{BatchSize: 4, Shuffle: shuffle, Seed: 3, Mix: []float64{1, 3}})
		require.NoError(t, err)
		same, err := again.Batch(0, 0)
		require.NoError(t, err)
		require.Equal(t, first, same)
		require.LessOrEqual(t, len(first.Tokens()), l.MaxTokens())
	}
	train, _, err := d.Split(0.25, 1)
	require.NoError(t, err)
	_, err = NewLoader(train, LoaderConfig{BatchSize: 4, Mix: []float64{1, 1}})
	require.NoError(t, err)
	packed, err := NewLoader(d, LoaderConfig{BatchSize: 1, Packing: true, MaxLength: 64, Mix: []float64{1, 1e-3}})
	require.ErrorContains(t, err, "mix: the weight 0.001 of entry 2 is less than one of 40 rows")
	require.Nil(t, packed)
	packed, err = NewLoader(d, LoaderConfig{BatchSize: 1, Packing: true, MaxLength: 64, Mix: []float64{1, 1}})
	require.NoError(t, err)
	docs := 0
	for r := range packed.packs.len() {
		packed.packs.each(r, func(int) { docs++ })
	}
	require.Equal(t, 40, docs)
	_, err = NewLoader(d, LoaderConfig{BatchSize: 1, Mix: []float64{1}})
	require.ErrorContains(t, err, "mix: found 1 weights, expected one for each of the 2 entries")
}

// TestFolders: folders and patterns are read in the order of names; several splits are an error.
func TestFolders(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	put("b/2.csv", "text\nbb\n")
	put("a.jsonl", `{"text": "aa"}`)
	put("README.md", "# words")
	put("config.yaml", "x: 1")
	put(".cache/x.jsonl", "broken")
	o := Options{Tokenizer: byteTokenizer{}, MaxLength: 100}
	d, err := Load(t.Context(), []string{dir}, o)
	require.NoError(t, err)
	assert.Equal(t, [][]int32{idsOf("aa", eos), idsOf("bb", eos)}, [][]int32{d.Row(0).IDs, d.Row(1).IDs})
	assert.Equal(t, []string{"text, 2 rows of 2 files, a.jsonl to 2.csv"}, d.Report())
	o.Files = os.DirFS(dir)
	fromFS, err := Load(t.Context(), []string{"."}, o)
	require.NoError(t, err)
	assert.Equal(t, d.Digest(), fromFS.Digest())
	o.Files = nil

	put("c.jsonl", `{"text": "cc"}`)
	d, err = Load(t.Context(), []string{filepath.Join(dir, "*.jsonl")}, o)
	require.NoError(t, err)
	assert.Equal(t, 2, d.Len())
	_, err = Load(t.Context(), []string{filepath.Join(dir, "*.tsv")}, o)
	require.ErrorIs(t, err, os.ErrNotExist)
	assert.ErrorContains(t, err, "*.tsv: no file matches this pattern")
	_, err = Load(t.Context(), []string{filepath.Join(dir, "**.tsv")}, o)
	assert.ErrorContains(t, err, "** is not supported")

	put("train-00000.csv", "text\na\n")
	put("data/test.csv", "text\na\n")
	_, err = Load(t.Context(), []string{dir}, o)
	assert.ErrorContains(t, err, "the folder has the splits test, train, expected one: give files or a pattern, such as ")
	_, err = Load(t.Context(), []string{t.TempDir()}, o)
	require.ErrorIs(t, err, ErrEmpty)
}

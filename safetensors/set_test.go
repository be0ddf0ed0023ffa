package safetensors

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const shardedModel = "../testdata/lm/qwen2/model-sharded"

func TestOpenModelSharded(t *testing.T) {
	set, err := OpenModel(shardedModel)
	require.NoError(t, err)
	whole, err := OpenModel("../testdata/lm/qwen2/model")
	require.NoError(t, err)
	assert.Len(t, set.Files(), 5)
	assert.Len(t, whole.Files(), 1)
	assert.Equal(t, filepath.Join(shardedModel, ModelIndex), set.Path())
	assert.Equal(t, whole.Len(), set.Len())
	assert.ElementsMatch(t, whole.Names(), set.Names())
	assert.Empty(t, set.Absent())
	for _, name := range whole.Names() {
		a, b := lookup(t, whole, name), lookup(t, set, name)
		assert.Equal(t, a.Shape, b.Shape, name)
		assert.Equal(t, a.Bytes(), b.Bytes(), name)
	}
	for _, s := range []*Set{set, whole} {
		_, err = s.Lookup("model.layers.0.self_attn.k_proj.weigth")
		assert.ErrorIs(t, err, ErrNotFound)
		assert.ErrorContains(t, err, `nearest: "model.layers.0.self_attn.k_proj.weight"`)
		assert.False(t, s.Has("x"))
		assert.True(t, s.Has("model.norm.weight"))
	}

	v := lookup(t, set, "model.norm.weight")
	require.NoError(t, v.WithBytes(func([]byte) error {
		assert.ErrorIs(t, set.Close(), ErrInUse)
		_, err := set.Lookup("model.embed_tokens.weight")
		assert.NoError(t, err, "none of the files was closed")
		return nil
	}))
	require.NoError(t, set.Close())
	_, err = set.Lookup("model.norm.weight")
	assert.ErrorIs(t, err, ErrClosed)
	require.NoError(t, whole.Close())
}

// model writes the files of a model: shards by name, each with one-byte tensors
// named by the letters of a string, and an index.
func model(t *testing.T, index string, shards map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, letters := range shards {
		var entries []Entry
		for _, letter := range letters {
			entries = append(entries, Entry{Name: string(letter), DType: U8, Data: []byte{byte(letter)}})
		}
		require.NoError(t, WriteFile(filepath.Join(dir, name), entries, nil))
	}
	if index != "" {
		require.NoError(t, os.WriteFile(filepath.Join(dir, ModelIndex), []byte(index), 0o600))
	}
	return dir
}

func TestOpenModelChoosesFiles(t *testing.T) {
	both := model(t, `{"weight_map":{"a":"model-1.safetensors"}}`, map[string]string{"model.safetensors": "xy", "model-1.safetensors": "a"})
	set, err := OpenModel(both)
	require.NoError(t, err)
	assert.Equal(t, []string{"x", "y"}, set.Names(), "one file comes before an index")
	require.NoError(t, set.Close())

	stale := model(t, `{"metadata":{"total_size":2},"weight_map":{"a":"model-1.safetensors","b":"sub.safetensors"}}`,
		map[string]string{"model-1.safetensors": "a", "sub.safetensors": "b", "model-3.safetensors": "abc"})
	set, err = OpenModel(stale)
	require.NoError(t, err)
	assert.Equal(t, []string{"a", "b"}, set.Names(), "files that the index does not name are ignored")
	require.NoError(t, set.Close())

	_, err = OpenModel(t.TempDir())
	assert.ErrorIs(t, err, fs.ErrNotExist)
	assert.ErrorContains(t, err, "model.safetensors.index.json")

	corrupt := model(t, `{"weight_map":{"a":"model-1.safetensors"}}`, map[string]string{"model-1.safetensors": "a"})
	require.NoError(t, os.WriteFile(filepath.Join(corrupt, ModelFile), []byte("corrupt file"), 0o600))
	_, err = OpenModel(corrupt)
	assert.ErrorIs(t, err, ErrHeaderTooLarge, "a file that is there is used or is an error")
}

// The set holds the tensors of the shards, whatever the index lists.
func TestIndexAndShardsDisagree(t *testing.T) {
	set, err := OpenModel(model(t, `{"weight_map":{"a":"1.safetensors","b":"1.safetensors","gone":"2.safetensors"}}`,
		map[string]string{"1.safetensors": "a", "2.safetensors": "bc"}))
	require.NoError(t, err)
	defer set.Close()
	assert.Equal(t, []string{"a", "b", "c"}, set.Names())
	assert.Equal(t, []byte("b"), lookup(t, set, "b").Bytes(), "in another shard than the index says")
	assert.Equal(t, []string{"gone"}, set.Absent())
	_, err = set.Lookup("gone")
	assert.ErrorIs(t, err, ErrNotFound)
	assert.ErrorContains(t, err, "the index places it in 2.safetensors, which does not hold it")

	twice := model(t, `{"weight_map":{"a":"1.safetensors","b":"2.safetensors"}}`, map[string]string{"1.safetensors": "a", "2.safetensors": "ba"})
	_, err = OpenModel(twice)
	assert.ErrorIs(t, err, ErrDuplicateTensor)
	assert.Zero(t, mappings(t, twice), "what had been opened is closed")
	assert.ErrorContains(t, err, "1.safetensors")
	assert.ErrorContains(t, err, "2.safetensors")
}

func TestMissingShards(t *testing.T) {
	var members []string
	for i := range 20 {
		members = append(members, fmt.Sprintf(`"%d":"shard-%02d.safetensors"`, i, i))
	}
	dir := model(t, `{"weight_map":{`+strings.Join(members, ",")+`}}`, map[string]string{"shard-01.safetensors": "a"})
	_, err := OpenModel(dir)
	assert.ErrorIs(t, err, ErrMissingShard)
	assert.ErrorIs(t, err, fs.ErrNotExist)
	assert.ErrorContains(t, err, "19 of 20: shard-00.safetensors, shard-02.safetensors")

	dir = model(t, `{"weight_map":{"a":"1.safetensors","b":"2.safetensors"}}`, map[string]string{"1.safetensors": "a"})
	require.NoError(t, os.WriteFile(filepath.Join(dir, "2.safetensors"), []byte("cut"), 0o600))
	_, err = OpenModel(dir)
	assert.ErrorIs(t, err, ErrHeaderTooSmall)
	assert.ErrorContains(t, err, "2.safetensors")
}

func TestParseIndex(t *testing.T) {
	shard := func(path string) string {
		text, err := json.Marshal(path)
		require.NoError(t, err)
		return `{"weight_map":{"a":` + string(text) + `}}`
	}
	for text, want := range map[string]error{
		`{"weight_map":{}}`: nil,
		` {"x":[{"weight_map":3}],"weight_map":{"a":"m.safetensors","b":"m.safetensors"},"metadata":{"total_size":1e9}} `: nil,
		``:                                       ErrSyntax,
		`[]`:                                     ErrSyntax,
		`{}`:                                     ErrIndex,
		`{"Weight_map":{}}`:                      ErrIndex,
		`{"weight_map":null}`:                    ErrIndex,
		`{"weight_map":["m.safetensors"]}`:       ErrIndex,
		`{"weight_map":{"a":1}}`:                 ErrIndex,
		`{"weight_map":{"a":["m.safetensors"]}}`: ErrIndex,
		`{"weight_map":{},"weight_map":{}}`:      ErrIndex,
		`{"weight_map":{}}{}`:                    ErrSyntax,
		"{\"weight_map\":{\"\xff\":\"m\"}}":      ErrUTF8,
		`{"weight_map":{"a":"m.safetensors","a":"m.safetensors"}}`: ErrDuplicateTensor,
		shard("sub/m.safetensors"):                                 nil,
		shard("a..b.safetensors"):                                  nil,
		shard(".hidden.safetensors"):                               nil,
		shard(""):                                                  ErrShardPath,
		shard(".safetensors"):                                      ErrShardPath,
		shard("m.bin"):                                             ErrShardPath,
		shard("m.safetensors.exe"):                                 ErrShardPath,
		shard("m.SAFETENSORS"):                                     ErrShardPath,
		shard("/etc/m.safetensors"):                                ErrShardPath,
		shard("../m.safetensors"):                                  ErrShardPath,
		shard("sub/../m.safetensors"):                              ErrShardPath,
		shard(`..\m.safetensors`):                                  ErrShardPath,
		shard(`sub\..\..\m.safetensors`):                           ErrShardPath,
		shard(`\\host\share\m.safetensors`):                        ErrShardPath,
		shard(`\m.safetensors`):                                    ErrShardPath,
		shard(`C:\m.safetensors`):                                  ErrShardPath,
		shard("C:m.safetensors"):                                   ErrShardPath,
		shard("m\x00.safetensors"):                                 ErrShardPath,
		`{"weight_map":{"a":"..\u002fm.safetensors"}}`:             ErrShardPath,
	} {
		_, err := parseIndex([]byte(text), shardExtension)
		if want == nil {
			assert.NoError(t, err, text)
		} else {
			assert.ErrorIs(t, err, want, text)
		}
	}

	exact := []byte(`{"weight_map":{}}`)
	exact = append(exact, bytes.Repeat([]byte{' '}, maxIndex-len(exact))...)
	path := filepath.Join(t.TempDir(), "exact.json")
	require.NoError(t, os.WriteFile(path, exact, 0o600))
	set, err := OpenIndex(path)
	require.NoError(t, err)
	require.NoError(t, set.Close())
	path = filepath.Join(t.TempDir(), "big.json")
	require.NoError(t, os.WriteFile(path, make([]byte, maxIndex+1), 0o600))
	_, err = OpenIndex(path)
	assert.ErrorIs(t, err, ErrIndex)
	_, err = OpenIndex(t.TempDir())
	assert.ErrorIs(t, err, ErrNotRegular)
}

func FuzzParseIndex(f *testing.F) {
	for _, text := range []string{`{"weight_map":{}}`, `{"metadata":{"total_size":1},"weight_map":{"a":"m-1.safetensors","\u0062":"../m.safetensors"}}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		index, err := parseIndex(text, shardExtension)
		if err != nil {
			var format *FormatError
			require.True(t, errors.As(err, &format))
			return
		}
		var want struct {
			WeightMap map[string]string `json:"weight_map"`
		}
		if strings.Count(strings.ToLower(string(text)), "map") == 1 {
			require.NoError(t, json.Unmarshal(text, &want))
			require.Len(t, index.shard, len(want.WeightMap))
		}
		for _, shard := range index.shards {
			require.True(t, filepath.IsLocal(filepath.FromSlash(shard)), shard)
			require.NotContains(t, strings.FieldsFunc(shard, func(r rune) bool { return r == '/' || r == '\\' }), "..")
		}
	})
}

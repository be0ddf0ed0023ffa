package hub

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestShards(t *testing.T) {
	h, o := setup(t)
	files := tiny(h).Trees[commitA]
	index, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"total_size": 2},
		"weight_map": map[string]string{
			"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors", "c": "model-00001-of-00002.safetensors",
		},
	})
	require.NoError(t, err)
	files["model.safetensors.index.json"] = string(index)
	files["model-00001-of-00002.safetensors"], files["model-00002-of-00002.safetensors"] = "one", "two"
	dir, err := Resolve(t.Context(), "acme/tiny", o)
	require.NoError(t, err)
	assert.Equal(t, "one", read(t, filepath.Join(dir, "model-00001-of-00002.safetensors")))
	assert.Equal(t, "two", read(t, filepath.Join(dir, "model-00002-of-00002.safetensors")))
	assert.NoFileExists(t, filepath.Join(dir, "model.safetensors"), "the index does not name it")

	require.NoError(t, os.Remove(filepath.Join(dir, "model-00002-of-00002.safetensors")))
	o.Offline = true
	_, err = Resolve(t.Context(), "acme/tiny", o)
	assert.ErrorIs(t, err, ErrOffline)
	assert.ErrorContains(t, err, "model-00002-of-00002.safetensors is missing")

	o.Offline, o.Cache = false, t.TempDir()
	delete(files, "model-00002-of-00002.safetensors")
	_, err = Resolve(t.Context(), "acme/tiny", o)
	assert.ErrorIs(t, err, ErrNoWeights)
	assert.ErrorContains(t, err, "names model-00002-of-00002.safetensors, which is not in the repository")
}

func TestWithoutWeights(t *testing.T) {
	h, o := setup(t)
	o.WithoutWeights = true
	dir, err := Resolve(t.Context(), "acme/tiny", o)
	require.NoError(t, err)
	assert.FileExists(t, filepath.Join(dir, "tokenizer.json"))
	assert.NoFileExists(t, filepath.Join(dir, "model.safetensors"))
	assert.Empty(t, h.Ranges())

	o.Offline = true
	_, err = Resolve(t.Context(), "acme/tiny", o)
	require.NoError(t, err)
	o.WithoutWeights = false
	_, err = Resolve(t.Context(), "acme/tiny", o)
	assert.ErrorContains(t, err, "model.safetensors is missing")
	o.Offline = false
	_, err = Resolve(t.Context(), "acme/tiny", o)
	require.NoError(t, err)
	assert.FileExists(t, filepath.Join(dir, "model.safetensors"), "they come later")
}

func TestChooseWeights(t *testing.T) {
	repo := repository{id: "a/b", revision: "main"}
	for _, c := range []struct {
		files, want []string
		err         string
	}{
		{[]string{"consolidated.safetensors", "model.safetensors"}, []string{"model.safetensors"}, ""},
		{[]string{"adapter_config.json", "adapter_model.safetensors"}, []string{"adapter_model.safetensors"}, ""},
		{[]string{"z.safetensors", "x.safetensors", "sub/y.safetensors", "consolidated-1.safetensors"}, []string{"x.safetensors", "z.safetensors"}, ""},
		{[]string{"pytorch_model.bin"}, nil, "a/b has them only as pytorch_model.bin; convert them to safetensors first"},
		{[]string{"README.md"}, nil, "a/b has no model.safetensors"},
	} {
		got, err := chooseWeights(repo, c.files, nil)
		if c.err != "" {
			assert.ErrorIs(t, err, ErrNoWeights)
			assert.ErrorContains(t, err, c.err)
			continue
		}
		require.NoError(t, err)
		assert.Equal(t, c.want, got)
	}
}

func TestBadIndex(t *testing.T) {
	for text, want := range map[string]string{
		``:   "unexpected end",
		`{}`: "no weight_map",
		`{"weight_map":{"a":"../x.safetensors"}}`: `tensor "a" lies in "../x.safetensors"`,
		`{"weight_map":{"a":"x.bin"}}`:            `"x.bin", expected the name of a .safetensors file`,
		`{"weight_map":{"a":1}}`:                  "cannot unmarshal",
	} {
		_, err := chooseWeights(repository{id: "a/b", revision: "main"}, nil, []byte(text))
		assert.ErrorContains(t, err, want)
		assert.ErrorContains(t, err, "a/b: model.safetensors.index.json: ")
	}
	_, err := parseIndex(make([]byte, largestIndex+1))
	assert.ErrorContains(t, err, "more than an index has")
}

func FuzzParseIndex(f *testing.F) {
	f.Add([]byte(`{"weight_map":{"a":"x.safetensors"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		shards, err := parseIndex(text)
		for _, s := range shards {
			require.True(t, filepath.IsLocal(filepath.FromSlash(s)))
		}
		require.Equal(t, err == nil, len(shards) > 0)
	})
}

// What sentence-transformers needs beside the model comes along, and no more.
func TestChooseSentenceFiles(t *testing.T) {
	files := []string{"modules.json", "1_Pooling/config.json", "2_Dense/model.safetensors", "2_Dense/config.json", "2_Dense/pytorch_model.bin",
		"sentence_bert_config.json", "sentence_xlm-roberta_config.json", "config_sentence_transformers.json", "onnx/config.json", "data_config.json", "a/1_Pooling/config.json", "model.safetensors"}
	assert.Equal(t, []string{"1_Pooling/config.json", "2_Dense/config.json", "2_Dense/model.safetensors", "config_sentence_transformers.json",
		"modules.json", "sentence_bert_config.json", "sentence_xlm-roberta_config.json"}, chooseSmall(files))
}

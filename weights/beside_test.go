package weights

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestChangeConfig(t *testing.T) {
	out, err := ChangeConfig([]byte(`{"b": 1.0, "dtype": "x", "a": {"z": [1, 2]}}`), map[string]any{"dtype": "bfloat16", "tie_word_embeddings": false})
	require.NoError(t, err)
	var compact map[string]any
	require.NoError(t, json.Unmarshal(out, &compact))
	assert.Regexp(t, `(?s)"b": 1\.0,.*"dtype": "bfloat16",.*"a": .*"tie_word_embeddings": false\s*}\n$`, string(out))
	_, err = ChangeConfig([]byte(`[1]`), map[string]any{"dtype": 1})
	assert.Error(t, err)
}

// FuzzChangeConfig: any object comes back with the change and all else as it was.
func FuzzChangeConfig(f *testing.F) {
	f.Add([]byte(`{"a": 1, "dtype": "x", "b": {"c": [1.50, null]}}`))
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"a": 1} trailing`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		out, err := ChangeConfig(raw, map[string]any{"dtype": "bfloat16"})
		var want, got map[string]any
		if json.Unmarshal(raw, &want) != nil || want == nil {
			return
		}
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(out, &got))
		want["dtype"] = "bfloat16"
		require.Equal(t, want, got)
	})
}

func TestIsWeights(t *testing.T) {
	for name, want := range map[string]bool{
		"model.safetensors": true, "model.SAFETENSORS": true, "model.safetensors.index.json": true, "model.safetensors.index.fp16.json": true,
		"pytorch_model.bin.index.json": true, "pytorch_model-00001-of-00002.bin": true, "config.json": false, "tokenizer.json": false, "index.json": false,
		"generation_config.json": false, "spiece.model": false, "model.safetensors.index.md": false,
	} {
		assert.Equal(t, want, isWeights(name), name)
	}
}

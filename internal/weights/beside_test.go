package weights

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/tensor"
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

// TestCopyBeside: what is no weights comes along, links are followed, and only
// the folder of chat templates is entered.
func TestCopyBeside(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	for name, content := range map[string]string{
		"config.json": `{"a": 1}`, "tokenizer.json": "t", "LICENSE": "l", "additional_chat_templates/tool.jinja": "j", "runs/events": "no", "2_Dense/model.safetensors": "d", "2_Dense/config.json": "{}", ".gitattributes": "no",
		"model.safetensors": "no", "model.safetensors.index.json": "no", "pytorch_model.BIN": "no", "x.gguf": "no", "rng_state.pth": "no",
	} {
		text(t, filepath.Join(from, name), content)
	}
	want := []string{"2_Dense/config.json", "2_Dense/model.safetensors", "LICENSE", "additional_chat_templates/tool.jinja", "config.json", "tokenizer.json"}
	if os.Symlink(filepath.Join(from, "LICENSE"), filepath.Join(from, "link.md")) == nil {
		want = []string{"2_Dense/config.json", "2_Dense/model.safetensors", "LICENSE", "additional_chat_templates/tool.jinja", "config.json", "link.md", "tokenizer.json"}
	}
	names, err := CopyBeside(from, to, nil)
	require.NoError(t, err)
	assert.Equal(t, want, names)
	for _, name := range want {
		info, err := os.Lstat(filepath.Join(to, name))
		require.NoError(t, err)
		assert.True(t, info.Mode().IsRegular(), name)
	}
	to = t.TempDir()
	_, err = CopyBeside(from, to, []byte("changed"))
	require.NoError(t, err)
	raw, err := os.ReadFile(filepath.Join(to, "config.json"))
	require.NoError(t, err)
	assert.Equal(t, "changed", string(raw))
	_, err = CopyBeside(from, to, nil)
	assert.ErrorIs(t, err, os.ErrExist, "the folder of templates is there")
	_, err = CopyBeside(filepath.Join(from, "no"), to, nil)
	assert.ErrorIs(t, err, os.ErrNotExist)
	_, err = CopyBeside(from, filepath.Join(to, "no"), nil)
	assert.ErrorIs(t, err, os.ErrNotExist)
}

func TestConfigName(t *testing.T) {
	assert.Equal(t, []string{"float32", "bfloat16", "float16", "", ""},
		[]string{ConfigName(tensor.F32), ConfigName(tensor.BF16), ConfigName(tensor.F16), ConfigName(tensor.F8E4M3), ConfigName(tensor.Invalid)})
}

package merge

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/tokenizer"
	"github.com/lorafuse/lorafuse/tokenizer/chat"
)

// TestTexts: the tokenizer and the chat template of an adapter go before those of its model.
func TestTexts(t *testing.T) {
	const dir = "../../testdata/lm/llama/"
	model, adapter := copyFolder(t, dir+"model"), copyFolder(t, dir+"adapters/lora")
	show := func(folder string) string {
		template, err := chat.Load(folder)
		require.NoError(t, err)
		text, err := template.Render(nil, chat.Options{})
		require.NoError(t, err)
		return text
	}
	writeFile(t, filepath.Join(model, "chat_template.jinja"), "model's")
	out, _ := open(t, model, adapter).merged(t, Options{})
	assert.Equal(t, "model's", show(out))

	words := readFile(t, filepath.Join(model, "tokenizer.json"))
	writeFile(t, filepath.Join(adapter, "tokenizer.json"), strings.ReplaceAll(words, "<|im_end|>", "<|done|>"))
	writeFile(t, filepath.Join(adapter, "tokenizer_config.json"), `{"eos_token": "<|done|>"}`)
	out, _ = open(t, model, adapter).merged(t, Options{})
	assert.Equal(t, "model's", show(out))
	tok, err := tokenizer.Load(out)
	require.NoError(t, err)
	id, ok := tok.TokenID("<|done|>")
	require.True(t, ok)
	eos, _ := tok.EOS()
	assert.Equal(t, id, eos)

	writeFile(t, filepath.Join(adapter, "tokenizer_config.json"), `{"eos_token": "<|done|>", "chat_template": "adapter's"}`)
	writeFile(t, filepath.Join(model, "additional_chat_templates", "tool_use.jinja"), "model's")
	out, _ = open(t, model, adapter).merged(t, Options{})
	assert.Equal(t, "adapter's", show(out))
	assert.NoDirExists(t, filepath.Join(out, "additional_chat_templates"))

	writeFile(t, filepath.Join(adapter, "tokenizer.json"), strings.Replace(strings.ReplaceAll(words, "<|im_end|>", "<|done|>"), `"added_tokens": [`, `"added_tokens": [{"id": 512, "content": "<more>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true},`, 1))
	_, err = open(t, model, adapter).write(t, t.TempDir(), Options{})
	require.ErrorIs(t, err, tokenizer.ErrRows)
	require.ErrorContains(t, err, `token "<more>" has id 512, the model has 512 embeddings`)
}

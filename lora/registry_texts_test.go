package lora_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tokenizer"
	"github.com/lorafuse/lorafuse/tokenizer/chat"
)

// The chat template of an adapter belongs to its version, and a tokenizer with other tokens than
// the model's is refused.
func TestTextsOfVersions(t *testing.T) {
	words := func(token string) string {
		return `{"model":{"type":"WordLevel","vocab":{"a":0,"` + token + `":1},"unk_token":"a"},"pre_tokenizer":{"type":"Whitespace"}}`
	}
	base, err := tokenizer.Parse([]byte(words("b")), nil)
	require.NoError(t, err)
	r := newRegistry(t, lora.RegistryOptions{Tokenizer: base})
	plain := mustLoad(t, r, "plain", saveTiny(t, filepath.Join(t.TempDir(), "plain"), 1))
	assert.Nil(t, plain.State().Template)

	dir := saveTiny(t, filepath.Join(t.TempDir(), "own"), 1)
	write := func(name, content string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o666))
	}
	write("chat_template.jinja", "own")
	write("tokenizer.json", words("b"))
	own := mustLoad(t, r, "own", dir)
	assert.NotEqual(t, plain.Digest(), own.Digest())
	text, err := own.State().Template.Render(nil, chat.Options{})
	require.NoError(t, err)
	assert.Equal(t, "own", text)

	write("chat_template.jinja", "{{")
	_, err = r.Load(t.Context(), "own", dir)
	require.ErrorIs(t, err, chat.ErrTemplate)
	require.ErrorContains(t, err, dir)
	write("chat_template.jinja", "other")
	assert.NotEqual(t, own.Digest(), mustLoad(t, r, "other", dir).Digest())
	for content, want := range map[string]string{
		words("c"): `id 1 is "c", expected "b"`,
		strings.Replace(words("b"), "Whitespace", "WhitespaceSplit", 1): "the text",
		strings.Replace(words("b"), `"b":1`, `"b":1,"<think>":2`, 1):    `id 2 is "<think>", expected no token`,
		words("b") + "{": tokenizer.ErrFormat.Error(),
	} {
		write("tokenizer.json", content)
		_, err = r.Load(t.Context(), "other", dir) // whose tensors are on the host already
		require.ErrorContains(t, err, want)
		_, unusable := errors.AsType[*lora.UnusableError](err)
		require.True(t, unusable)
	}
	write("tokenizer.json", words("b"))
	write("tokenizer_config.json", `{"added_tokens_decoder":{"2":{"content":"<think>"}}}`)
	_, err = r.Load(t.Context(), "other", dir)
	require.ErrorIs(t, err, tokenizer.ErrTokens)
	write("tokenizer.json", strings.Replace(words("b"), `"model"`, `"added_tokens":[{"id":2,"content":"<pad>","special":true}],"model"`, 1))
	write("tokenizer_config.json", `{"pad_token":"<pad>"}`)
	mustLoad(t, r, "padded", dir)
	write("tokenizer_config.json", `{"eos_token":"<pad>"}`)
	_, err = r.Load(t.Context(), "other", dir)
	require.ErrorContains(t, err, `id 2 is "<pad>", expected no token`)
}

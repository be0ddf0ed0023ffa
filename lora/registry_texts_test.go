package lora_test

import (
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
// the model's is named.
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
	warnings := func(name string) []string {
		for _, info := range r.List() {
			if info.Name == name {
				return info.Versions[0].Warnings
			}
		}
		return nil
	}
	assert.Empty(t, warnings("own"))

	write("chat_template.jinja", "{{")
	_, err = r.Load(t.Context(), "own", dir)
	require.ErrorIs(t, err, chat.ErrTemplate)
	require.ErrorContains(t, err, dir)
	write("chat_template.jinja", "other")
	write("tokenizer.json", words("c"))
	assert.NotEqual(t, own.Digest(), mustLoad(t, r, "other", dir).Digest())
	assert.Contains(t, strings.Join(warnings("other"), ""), "tokenizer.json has other tokens than that of the model and is not used")
}

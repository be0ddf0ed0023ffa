package pretrained_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/generate/constrain"
	"github.com/lorafuse/lorafuse/internal/pretrained"
	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tokenizer/chat"
)

const llama = "../../testdata/lm/llama/"

// The chat template in the folder of an adapter takes precedence over the model's, until another
// adapter is used, and a template file over both.
func TestTexts(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(llama+"adapters/lora")))
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o666))
		return path
	}
	write("chat_template.jinja", "the {{ messages[0].content }}")
	file := write("file.jinja", "a {{ messages[0].content }}")
	m, err := pretrained.Open(llama+"model", pretrained.Options{Adapter: dir})
	require.NoError(t, err)
	defer m.Close()
	rendered := func(m *pretrained.Model, file string) string {
		texts, err := m.Texts("--file", file)
		require.NoError(t, err)
		ids, err := texts.Chat(t.Context(), []chat.Message{{Role: "user", Content: "quick fox"}})
		require.NoError(t, err)
		text, err := texts.Decode(ids, false)
		require.NoError(t, err)
		return text
	}
	assert.Equal(t, "the quick fox", rendered(m, ""))
	assert.Equal(t, "a quick fox", rendered(m, file))
	assert.NotNil(t, m.State)

	bare, err := m.Adapt("")
	require.NoError(t, err)
	assert.Nil(t, bare.State)
	texts, err := bare.Texts("--file", "")
	require.NoError(t, err)
	_, err = texts.Chat(t.Context(), nil)
	require.ErrorIs(t, err, chat.ErrNoTemplate)
	template, err := chat.New(" ", nil)
	require.NoError(t, err)
	_, err = texts.With(template).Chat(t.Context(), nil)
	require.NoError(t, err)
	_, err = texts.Prompt("", false)
	require.ErrorIs(t, err, pretrained.ErrEmpty)
	o, err := texts.Answer(constrain.JSON(), true)
	require.NoError(t, err)
	assert.NotNil(t, o.Grammar)
	require.NoError(t, bare.Close())
	assert.Equal(t, "the quick fox", rendered(m, ""), "the model is still open")

	write("tokenizer.json", "{")
	_, err = m.Texts("--file", file)
	require.ErrorContains(t, err, dir)
	_, err = bare.Texts("--file", filepath.Join(dir, "none"))
	require.ErrorContains(t, err, "--file: ")
}

func TestOpen(t *testing.T) {
	m, err := pretrained.Open(llama+"model", pretrained.Options{Quantize: quant.Int8})
	require.NoError(t, err)
	assert.NotEmpty(t, m.Quantization().Lines())
	require.NoError(t, m.Close())

	_, err = pretrained.Open(llama+"model", pretrained.Options{Adapter: "../../testdata/peft/head-tied/adapter"})
	require.ErrorIs(t, err, lora.ErrShape)
	var notes []string
	m, err = pretrained.Open("../../testdata/peft/base/small-llama", pretrained.Options{
		Adapter: "../../testdata/peft/file-bin/adapter", Note: func(text string) { notes = append(notes, text) },
	})
	require.NoError(t, err)
	require.NoError(t, m.Close())
	assert.Contains(t, strings.Join(notes, ""), "adapter_model.bin")
	_, err = pretrained.Open(llama+"none", pretrained.Options{})
	require.ErrorIs(t, err, os.ErrNotExist)
}

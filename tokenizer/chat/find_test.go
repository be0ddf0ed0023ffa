package chat

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFind: a file that is named, else what the folder has, which may be nothing.
func TestFind(t *testing.T) {
	dir := t.TempDir()
	template, err := Find("", nil, dir)
	require.NoError(t, err)
	require.Nil(t, template)
	template, err = Find("", nil, filepath.Join(dir, "none"))
	require.NoError(t, err)
	require.Nil(t, template)
	file := filepath.Join(dir, "own.jinja")
	_, err = Find(file, nil, dir)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, os.WriteFile(file, []byte("{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}"), 0o666))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "chat_template.jinja"), []byte("the folder's"), 0o666))
	for name, want := range map[string]string{file: "<s>Hi", "": "the folder's"} {
		template, err = Find(name, map[string]string{"bos_token": "<s>"}, dir)
		require.NoError(t, err)
		got, err := template.Render([]Message{{Role: "user", Content: "Hi"}}, Options{})
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	require.NoError(t, os.WriteFile(file, []byte("{{"), 0o666))
	_, err = Find(file, nil, dir)
	require.ErrorContains(t, err, "own.jinja: ")
}

// The template of an adapter goes before that of its model, with the model's tokens if the
// adapter names none.
func TestFindInAdapter(t *testing.T) {
	adapter, model := t.TempDir(), t.TempDir()
	write := func(dir, name, content string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o666))
	}
	write(model, "chat_template.jinja", "model's {{ bos_token }}")
	tokens := map[string]string{"bos_token": "<s>"}
	show := func() string {
		template, err := Find("", tokens, adapter, model)
		require.NoError(t, err)
		text, err := template.Render(nil, Options{})
		require.NoError(t, err)
		return text
	}
	require.Equal(t, "model's <s>", show())
	write(adapter, "chat_template.jinja", "adapter's {{ bos_token }}")
	require.Equal(t, "adapter's <s>", show())
	write(adapter, "tokenizer_config.json", `{"bos_token": "<own>"}`)
	require.Equal(t, "adapter's <own>", show())
	write(adapter, "chat_template.jinja", "{{")
	_, err := Find("", tokens, adapter, model)
	require.ErrorContains(t, err, adapter)
}

// The source is that of the template that renders, which tools may change.
func TestSource(t *testing.T) {
	template, err := newTemplate(map[string]string{"default": "plain", "tool_use": "with tools"}, nil)
	require.NoError(t, err)
	require.Equal(t, "plain", template.Source(Options{}))
	require.Equal(t, "with tools", template.Source(Options{Tools: []any{}}))
	require.Empty(t, template.Source(Options{Name: "none"}))
}

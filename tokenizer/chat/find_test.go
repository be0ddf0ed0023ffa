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
	template, err := Find(dir, "", nil)
	require.NoError(t, err)
	require.Nil(t, template)
	template, err = Find(filepath.Join(dir, "none"), "", nil)
	require.NoError(t, err)
	require.Nil(t, template)
	file := filepath.Join(dir, "own.jinja")
	_, err = Find(dir, file, nil)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, os.WriteFile(file, []byte("{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}"), 0o666))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "chat_template.jinja"), []byte("the folder's"), 0o666))
	for name, want := range map[string]string{file: "<s>Hi", "": "the folder's"} {
		template, err = Find(dir, name, map[string]string{"bos_token": "<s>"})
		require.NoError(t, err)
		got, err := template.Render([]Message{{Role: "user", Content: "Hi"}}, Options{})
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	require.NoError(t, os.WriteFile(file, []byte("{{"), 0o666))
	_, err = Find(dir, file, nil)
	require.ErrorContains(t, err, "own.jinja: ")
}

// The source is that of the template that renders, which tools may change.
func TestSource(t *testing.T) {
	template, err := newTemplate(map[string]string{"default": "plain", "tool_use": "with tools"}, nil)
	require.NoError(t, err)
	require.Equal(t, "plain", template.Source(Options{}))
	require.Equal(t, "with tools", template.Source(Options{Tools: []any{}}))
	require.Empty(t, template.Source(Options{Name: "none"}))
}

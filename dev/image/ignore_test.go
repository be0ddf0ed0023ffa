package image

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestIgnore(t *testing.T) {
	g, err := ParseIgnore(strings.NewReader("# c\n*\n!a\n!scripts/x_*.sh\n**/testdata\n**/*_test.go\na/secret\n!a/secret/but\n"))
	require.NoError(t, err)
	for name, ignored := range map[string]bool{
		"b": true, "b/c": true, "a": false, "a/b/c": false, "a/x/testdata": true, "a/x/testdata/y": true, "testdata": true,
		"a/b_test.go": true, "a/b_test.gox": false, "scripts": true, "scripts/x_1.sh": false, "scripts/y.sh": true,
		"a/secret": true, "a/secret/x": true, "a/secret/but/z": false, "ab": true,
	} {
		assert.Equal(t, ignored, g.Ignored(name), name)
	}
	dir := t.TempDir()
	for _, name := range []string{"b/c", "a/b/c", "a/x/testdata/y", "scripts/x_1.sh", "scripts/y.sh", "a/secret/x", "a/secret/but/z"} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("123"), 0o644))
	}
	files, err := g.Context(dir)
	require.NoError(t, err)
	assert.Equal(t, map[string]int64{"a/b/c": 3, "scripts/x_1.sh": 3, "a/secret/but/z": 3}, files)
	for _, bad := range []string{"[a]", ".", "!", `a\b`, "\x93"} {
		_, err := ParseIgnore(strings.NewReader(bad))
		require.ErrorIs(t, err, ErrSyntax, bad)
	}
}

func FuzzIgnore(f *testing.F) {
	f.Add("*\n!a/**/b\nx?", "a/c/b")
	f.Fuzz(func(t *testing.T, text, name string) {
		if g, err := ParseIgnore(strings.NewReader(text)); err == nil {
			g.Ignored(name)
		}
	})
}

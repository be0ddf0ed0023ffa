package cache

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// damage are ways to spoil an entry. Damage in the header is found without reading the tensors.
var damage = []struct {
	name   string
	header bool
	do     func(t testing.TB, path string)
	says   string
}{
	{"cut short", true, func(t testing.TB, path string) {
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.NoError(t, os.Truncate(path, info.Size()-1))
	}, "cut short"},
	{"empty", true, func(t testing.TB, path string) { require.NoError(t, os.Truncate(path, 0)) }, "header"},
	{"something else", true, func(t testing.TB, path string) {
		require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("x", 100)), 0o666))
	}, "header"},
	{"one bit", false, func(t testing.TB, path string) { flip(t, path, 3) }, "checksum"},
	{"no mask", true, rewrite(func(x tensors) { delete(x, maskName) }), "prompt_embeds_mask is missing"},
	{"no embeddings", true, rewrite(func(x tensors) { delete(x, embedsName) }), "prompt_embeds is missing"},
	{"short mask", true, rewrite(func(x tensors) {
		x[maskName] = tensor.Tensor{DType: tensor.I64, Shape: []int{1}, Data: make([]byte, 8)}
	}), "found shape [1], expected [9]"},
	{"mask of floats", true, rewrite(func(x tensors) {
		x[maskName] = tensor.Tensor{DType: tensor.F64, Shape: []int{9}, Data: make([]byte, 72)}
	}), "found F64, expected I64"},
	{"embeddings of bytes", true, rewrite(func(x tensors) { x[embedsName] = floats(tensor.U8, make([]byte, 18), 9, 2) }), "found U8"},
	{"garbage in the mask", false, func(t testing.TB, path string) { // with the right checksum, as a writer's mistake
		rewriteWith(t, path, func(x tensors) { x[maskName].Data[0] = 7 }, func(x tensors, m map[string]string) { m[sumKey] = checksum(x) })
	}, "element 0: found 7, expected 0 or 1"},
	{"no checksum", false, func(t testing.TB, path string) {
		rewriteWith(t, path, func(tensors) {}, func(_ tensors, m map[string]string) { delete(m, sumKey) })
	}, "checksum"},
	{"bad recipe", true, func(t testing.TB, path string) {
		rewriteWith(t, path, func(tensors) {}, func(_ tensors, m map[string]string) { m[recipeKey] = "{" })
	}, "lorafuse_recipe"},
}

// rewrite changes the tensors of an entry and keeps its metadata.
func rewrite(change func(tensors)) func(testing.TB, string) {
	return func(t testing.TB, path string) { rewriteWith(t, path, change, func(tensors, map[string]string) {}) }
}

func rewriteWith(t testing.TB, path string, change func(tensors), mark func(tensors, map[string]string)) {
	x, err := LoadEmbeddings(path)
	require.NoError(t, err)
	f, err := safetensors.Open(path)
	require.NoError(t, err)
	metadata := f.Metadata()
	require.NoError(t, f.Close())
	change(x)
	mark(x, metadata)
	require.NoError(t, save(path, x, metadata))
}

// A damaged entry is an error that names it, or it is rebuilt. Nothing else is ever used instead.
func TestDamage(t *testing.T) {
	for _, d := range damage {
		t.Run(d.name, func(t *testing.T) {
			w := newWorld(t, 2)
			w.build(w.open(recipes()), BuildOptions{})
			w.taken()
			path := w.entry("text_embs/a.txt")
			before := files(t, w.cacheDir())
			d.do(t, path)
			s := w.samples[0]

			refusing := w.open(recipes())
			_, err := refusing.Text(t.Context(), s.Caption, w.text)
			require.ErrorIs(t, err, ErrCorrupt)
			require.ErrorContains(t, err, path)
			require.ErrorContains(t, err, d.says)
			_, err = w.all(refusing, false)
			require.ErrorIs(t, err, ErrCorrupt)
			_, err = refusing.Build(t.Context(), w.samples, w.encoders(), BuildOptions{Verify: true})
			require.ErrorIs(t, err, ErrCorrupt)
			_, err = refusing.Build(t.Context(), w.samples, w.encoders(), BuildOptions{})
			if d.header {
				require.ErrorIs(t, err, ErrCorrupt)
			} else {
				require.NoError(t, err)
			}
			require.Empty(t, w.taken())

			options := recipes()
			options.Corrupt = Rebuild
			text, err := w.open(options).Text(t.Context(), s.Caption, w.text)
			require.NoError(t, err)
			require.Equal(t, embed("caption a"), text)
			require.Equal(t, []string{"caption a"}, w.taken())
			require.Equal(t, before, files(t, w.cacheDir()))
			_, err = w.open(options).Text(t.Context(), s.Caption, nil)
			require.NoError(t, err)
		})
	}
}

// An unreadable entry does not count as damaged: it is neither rebuilt nor skipped.
func TestUnreadable(t *testing.T) {
	w := newWorld(t, 1)
	options := recipes()
	options.Corrupt, options.Unkeyed = Rebuild, Rebuild
	c := w.open(options)
	path := w.entry("text_embs/a.txt")
	require.NoError(t, os.MkdirAll(path, 0o777)) // a folder in the entry's place
	require.NoError(t, os.WriteFile(strings.TrimSuffix(path, ".safetensors")+".pt", []byte("?"), 0o666))
	_, err := c.Text(t.Context(), w.samples[0].Caption, w.text)
	require.ErrorIs(t, err, safetensors.ErrNotRegular)
	require.NotErrorIs(t, err, ErrCorrupt)
	require.Empty(t, w.taken())
}

// A folder that cannot be written to.
func TestNoRoom(t *testing.T) {
	w := newWorld(t, 1)
	require.NoError(t, os.WriteFile(w.cacheDir(), nil, 0o666))
	_, err := w.open(recipes()).Text(t.Context(), w.samples[0].Caption, w.text)
	require.Error(t, err)
	require.ErrorContains(t, err, filepath.Base(w.cacheDir()))
}

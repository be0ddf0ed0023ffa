package cache

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// findings maps entries to kinds of errors.
func findings(t testing.TB, dir string, r *Report) map[string]error {
	all := map[string]error{}
	for _, f := range r.Findings {
		name, err := filepath.Rel(dir, f.Entry)
		require.NoError(t, err)
		require.ErrorContains(t, f.Err, f.Entry)
		for _, kind := range []error{ErrStale, ErrCorrupt, ErrOrphan} {
			if isKind(f.Err, kind) {
				all[filepath.ToSlash(name)] = kind
			}
		}
	}
	require.Len(t, all, len(r.Findings))
	return all
}

func isKind(err, kind error) bool {
	u, ok := err.(interface{ Unwrap() []error })
	if ok {
		for _, e := range u.Unwrap() {
			if e == kind {
				return true
			}
		}
		return false
	}
	one, ok := err.(interface{ Unwrap() error })
	return ok && one.Unwrap() == kind
}

// Check works without a model and settings.
func TestCheck(t *testing.T) {
	w := newWorld(t, 4)
	w.build(w.open(recipes()), BuildOptions{})
	check := func() *Report {
		before := files(t, w.dir)
		r, err := w.open(Options{}).Check(t.Context(), w.samples, nil)
		require.NoError(t, err)
		require.Equal(t, before, files(t, w.dir))
		return r
	}
	require.Equal(t, &Report{Text: 5, Images: 4, Controls: 4}, check())

	w.write("data/a.txt", "changed")
	flip(t, w.entry("img_embs/b.png"), 1)
	require.NoError(t, os.Remove(w.entry("img_embs_control/c.png")))
	require.NoError(t, os.Rename(w.entry("text_embs/d.txt"), w.entry("text_embs/e.txt")))
	w.write("cache/img_embs/gone.jpg.pt", "old")
	w.write("cache/img_embs/notes.md", "not an entry")
	r := check()
	require.Equal(t, map[string]error{
		"text_embs/a.txt.safetensors": ErrStale,
		"img_embs/b.png.safetensors":  ErrCorrupt,
		"text_embs/e.txt.safetensors": ErrOrphan,
		"img_embs/gone.jpg.pt":        ErrOrphan,
	}, findings(t, w.cacheDir(), r))
	require.Equal(t, []int{3, 3, 3, 2, 0}, []int{r.Text, r.Images, r.Controls, r.Missing, r.Unkeyed})

	removed, err := w.open(Options{}).Prune(w.samples)
	require.NoError(t, err)
	require.Equal(t, []string{w.entry("text_embs/e.txt"), filepath.Join(w.cacheDir(), "img_embs/gone.jpg.pt")}, removed)
	require.NoFileExists(t, removed[0])
	require.FileExists(t, filepath.Join(w.cacheDir(), "img_embs/notes.md"))
	require.Len(t, check().Findings, 2)
	removed, err = w.open(Options{}).Prune(w.samples)
	require.NoError(t, err)
	require.Empty(t, removed)
}

// Entries whose recipe differs from the majority of a folder are stale.
func TestCheckRecipes(t *testing.T) {
	w := newWorld(t, 3)
	w.build(w.open(recipes()), BuildOptions{})
	other := recipes()
	other.Image.Settings = map[string]string{"size": "1024"}
	_, err := w.open(other).Image(t.Context(), w.samples[1].Image, w.image)
	require.NoError(t, err)
	r, err := w.open(Options{}).Check(t.Context(), w.samples, nil)
	require.NoError(t, err)
	require.Equal(t, map[string]error{"img_embs/b.png.safetensors": ErrStale}, findings(t, w.cacheDir(), r))
	require.ErrorContains(t, r.Findings[0].Err, `"size":"1024"`)
	// With recipes, the recipes decide.
	r, err = w.open(other).Check(t.Context(), w.samples, nil)
	require.NoError(t, err)
	require.Len(t, findings(t, w.cacheDir(), r), 2+3) // control images too
}

// Text that was encoded with an image is checked with that image.
func TestCheckTextWith(t *testing.T) {
	w := newWorld(t, 2)
	_, err := w.open(recipes()).Build(t.Context(), w.samples, Encoders{TextWith: w.textWith, Image: w.image}, BuildOptions{})
	require.NoError(t, err)
	r, err := w.open(Options{}).Check(t.Context(), w.samples, nil)
	require.NoError(t, err)
	require.Equal(t, &Report{Text: 4, Images: 2, Controls: 2}, r)
	w.write("control/b.png", "another")
	r, err = w.open(Options{}).Check(t.Context(), w.samples, nil)
	require.NoError(t, err)
	require.Equal(t, map[string]error{
		"text_embs/b.txt.safetensors": ErrStale, "text_embs/b.txt.empty_embedding.safetensors": ErrStale, "img_embs_control/b.png.safetensors": ErrStale,
	}, findings(t, w.cacheDir(), r))
	removed, err := w.open(Options{}).Prune(w.samples[:1])
	require.NoError(t, err)
	require.Len(t, removed, 4)

	// Each caption has an empty prompt of its own.
	e, err := w.open(recipes()).Sample(t.Context(), w.samples[0], true)
	require.NoError(t, err)
	require.Equal(t, embed(" control a"), e.Text)
	e, err = w.open(recipes()).Sample(t.Context(), w.samples[0], false)
	require.NoError(t, err)
	require.Equal(t, embed("caption acontrol a"), e.Text)
}

// For entries without a key only the times are compared.
func TestCheckUnkeyed(t *testing.T) {
	w := newWorld(t, 2)
	w.build(w.open(recipes()), BuildOptions{})
	for _, name := range []string{"a", "b"} {
		path := w.entry("text_embs/" + name + ".txt")
		x, err := LoadEmbeddings(path)
		require.NoError(t, err)
		require.NoError(t, SaveEmbeddings(path, x))
	}
	r, err := w.open(Options{}).Check(t.Context(), w.samples, nil)
	require.NoError(t, err)
	require.Equal(t, &Report{Text: 3, Images: 2, Controls: 2, Unkeyed: 2}, r)
	later := time.Now().Add(time.Minute)
	require.NoError(t, os.Chtimes(w.samples[0].Caption, later, later))
	r, err = w.open(Options{}).Check(t.Context(), w.samples, nil)
	require.NoError(t, err)
	require.Equal(t, map[string]error{"text_embs/a.txt.safetensors": ErrStale}, findings(t, w.cacheDir(), r))
	require.Equal(t, 1, r.Unkeyed)

	// The same for a .pt entry.
	raw, err := os.ReadFile("testdata/dit/text_embs/000.txt.pt")
	require.NoError(t, err)
	require.NoError(t, os.Remove(w.entry("text_embs/a.txt")))
	w.write("cache/text_embs/a.txt.pt", string(raw))
	r, err = w.open(Options{}).Check(t.Context(), w.samples, nil)
	require.NoError(t, err)
	require.Equal(t, map[string]error{"text_embs/a.txt.pt": ErrStale}, findings(t, w.cacheDir(), r))
}

func TestCheckErrors(t *testing.T) {
	w := newWorld(t, 1)
	c := w.open(recipes())
	w.build(c, BuildOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := c.Check(ctx, w.samples, nil)
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, os.Remove(w.samples[0].Caption))
	var steps []int
	r, err := c.Check(t.Context(), w.samples, func(done, total int) { steps = append(steps, done, total) })
	require.NoError(t, err)
	require.Equal(t, []int{1, 4, 2, 4, 3, 4, 4, 4}, steps)
	require.Len(t, r.Findings, 1)
	require.Equal(t, w.entry("text_embs/a.txt"), r.Findings[0].Entry)
	require.ErrorIs(t, r.Findings[0].Err, os.ErrNotExist, "a source that is not there")
	require.NoError(t, os.RemoveAll(filepath.Join(w.cacheDir(), "img_embs")))
	w.write("cache/img_embs", "a file")
	_, err = c.Orphans(w.samples)
	require.ErrorContains(t, err, "img_embs")
	r, err = w.open(recipes()).Check(t.Context(), nil, nil)
	require.Error(t, err)
	require.Nil(t, r)
}

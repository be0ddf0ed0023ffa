package cache

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// The layout equals the one of the Python trainers, and each entry holds the output of its encoder.
func TestLayout(t *testing.T) {
	w := newWorld(t, 2)
	c := w.open(recipes())
	require.Equal(t, Stats{Entries: 7, Built: 7}, w.build(c, BuildOptions{}))
	require.NoError(t, c.Close())
	require.ElementsMatch(t, []string{
		"text_embs/a.txt.safetensors", "text_embs/b.txt.safetensors", "text_embs/empty_embedding.safetensors",
		"img_embs/a.png.safetensors", "img_embs/b.png.safetensors",
		"img_embs_control/a.png.safetensors", "img_embs_control/b.png.safetensors",
	}, withoutSources(names(files(t, w.cacheDir()))))
	require.ElementsMatch(t, []string{" ", "caption a", "caption b", "image a", "image b", "control a", "control b"}, w.taken())

	text, err := c.Text(t.Context(), w.samples[1].Caption, nil)
	require.NoError(t, err)
	require.Equal(t, embed("caption b"), text)
	empty, err := c.Empty(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, embed(" "), empty)
	latent, err := c.Image(t.Context(), w.samples[0].Image, nil)
	require.NoError(t, err)
	require.Equal(t, floats(tensor.F16, []byte("image aimage a"), 2, 1, 1, 7), latent)
	control, err := c.Control(t.Context(), w.samples[0].Control, nil)
	require.NoError(t, err)
	require.Equal(t, floats(tensor.F16, []byte("control acontrol a"), 2, 1, 1, 9), control)

	f, err := safetensors.Open(w.entry("text_embs/a.txt"))
	require.NoError(t, err)
	require.Equal(t, "embeddings", f.Metadata()["type"])
	require.JSONEq(t, `{"kind":"text","model":"text/encoder@1","settings":{"dtype":"bf16","max_sequence_length":"1024"}}`, f.Metadata()["lorafuse_recipe"])
	require.Len(t, f.Metadata()["lorafuse_key"], 64)
	require.ElementsMatch(t, []string{"prompt_embeds", "prompt_embeds_mask"}, f.Names())
	require.NoError(t, f.Close())
}

func withoutSources(names []string) []string {
	var rest []string
	for _, n := range names {
		if n != sourcesFile {
			rest = append(rest, n)
		}
	}
	return rest
}

// A change rebuilds only the entries that depend on it.
func TestChanges(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(w *world, o *Options)
		want   []string
	}{
		{"nothing", func(*world, *Options) {}, nil},
		{"one caption", func(w *world, _ *Options) { w.write("data/b.txt", "caption B") }, []string{"caption B"}},
		{"one image", func(w *world, _ *Options) { w.write("data/b.png", "image B") }, []string{"image B"}},
		{"one control image", func(w *world, _ *Options) { w.write("control/b.png", "control B") }, []string{"control B"}},
		{"touched files", func(w *world, _ *Options) {
			for _, s := range w.samples {
				now := time.Now().Add(time.Hour)
				require.NoError(w.t, os.Chtimes(s.Caption, now, now))
				require.NoError(w.t, os.Chtimes(s.Image, now, now))
			}
		}, nil},
		{"text encoder", func(_ *world, o *Options) { o.Text.Model = "text/encoder@2" }, []string{" ", "caption a", "caption b", "caption c"}},
		{"text settings", func(_ *world, o *Options) { o.Text.Settings = map[string]string{"dtype": "bf16"} }, []string{" ", "caption a", "caption b", "caption c"}},
		{"size", func(_ *world, o *Options) { o.Image.Settings = map[string]string{"size": "1024"} }, []string{"image a", "image b", "image c", "control a", "control b", "control c"}},
		{"size of control images", func(_ *world, o *Options) {
			o.Control = Recipe{Model: "vae@1", Settings: map[string]string{"size": "256"}}
		}, []string{"control a", "control b", "control c"}},
		{"entry removed", func(w *world, _ *Options) { require.NoError(w.t, os.Remove(w.entry("img_embs/c.png"))) }, []string{"image c"}},
		{"entries swapped", func(w *world, _ *Options) {
			a, b := w.entry("text_embs/a.txt"), w.entry("text_embs/b.txt")
			require.NoError(w.t, os.Rename(a, a+"x"))
			require.NoError(w.t, os.Rename(b, a))
			require.NoError(w.t, os.Rename(a+"x", b))
		}, []string{"caption a", "caption b"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, 3)
			options := recipes()
			first := w.open(options)
			w.build(first, BuildOptions{})
			require.NoError(t, first.Close())
			w.taken()
			before := files(t, w.cacheDir())

			c.change(w, &options)
			second := w.open(options)
			stats := w.build(second, BuildOptions{Verify: true})
			require.NoError(t, second.Close())
			require.Equal(t, Stats{Entries: 10, Built: len(c.want)}, stats)
			require.ElementsMatch(t, c.want, w.taken())
			changed := 0
			for name, content := range files(t, w.cacheDir()) {
				if name != sourcesFile && content != before[name] {
					changed++
				}
			}
			if c.name != "entry removed" && c.name != "entries swapped" { // returned unchanged
				require.Equal(t, len(c.want), changed)
			}
			for i, s := range w.samples {
				text, err := second.Text(t.Context(), s.Caption, nil)
				require.NoError(t, err)
				raw, err := os.ReadFile(s.Caption)
				require.NoError(t, err)
				require.Equal(t, embed(string(raw)), text, i)
			}
		})
	}
}

// An open Cache notices changes too.
func TestChangeWhileOpen(t *testing.T) {
	w := newWorld(t, 1)
	c := w.open(recipes())
	for _, text := range []string{"one", "two", "one", "sam", "mas"} { // some of the same length
		w.write("data/a.txt", text)
		got, err := c.Text(t.Context(), w.samples[0].Caption, w.text)
		require.NoError(t, err)
		require.Equal(t, embed(text), got)
		require.Equal(t, []string{text}, w.taken())
		_, err = c.Text(t.Context(), w.samples[0].Caption, w.text)
		require.NoError(t, err)
		require.Empty(t, w.taken())
	}
}

// Keys must not change: other keys would invalidate every existing cache. The constant is sha256 of the three lines by
// sha256sum.
func TestKey(t *testing.T) {
	recipe := record{textKind, Recipe{Model: "m", Settings: map[string]string{"b": "2", "a": "1"}}}.json()
	require.Equal(t, `{"kind":"text","model":"m","settings":{"a":"1","b":"2"}}`, recipe)
	require.Equal(t, "ed7ac86046f7e2a5a0609eddc7fcd1a8668a94e7bc3549536b1fd8a71858100a", makeKey(recipe, []digest{digestOf([]byte("caption"))}))
}

// The encoder gets the same text as in Python.
func TestCaptions(t *testing.T) {
	w := newWorld(t, 1)
	c := w.open(recipes())
	for raw, want := range map[string]string{
		"two\r\nlines\rand\n": "two\nlines\nand\n", "\ufeffmarked": "marked", "": "", " wide ": " wide ", "žluť 🐈": "žluť 🐈", "\ufffd": "\ufffd",
	} {
		w.write("data/a.txt", raw)
		_, err := c.Text(t.Context(), w.samples[0].Caption, w.text)
		require.NoError(t, err, raw)
		require.Equal(t, []string{want}, w.taken())
		got, err := ReadCaption(w.samples[0].Caption)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for raw, says := range map[string]string{"caf\xe9": "byte 4: found 0xe9", "\xff\xfea\x00": "UTF-16", "\xed\xa0\x80": "byte 1"} {
		w.write("data/a.txt", raw)
		_, err := c.Text(t.Context(), w.samples[0].Caption, w.text)
		require.ErrorIs(t, err, ErrUTF8)
		require.ErrorContains(t, err, "a.txt")
		require.ErrorContains(t, err, says)
		require.Empty(t, w.taken())
	}
	_, err := ReadCaption(filepath.Join(w.dir, "none.txt"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// Text that is encoded with an image depends on both.
func TestTextWith(t *testing.T) {
	w := newWorld(t, 2)
	c := w.open(recipes())
	encoders := Encoders{TextWith: w.textWith}
	build := func() []string {
		_, err := c.Build(t.Context(), w.samples, encoders, BuildOptions{})
		require.NoError(t, err)
		return w.taken()
	}
	require.Equal(t, []string{"caption a+control a", " +control a", "caption b+control b", " +control b"}, build())
	require.Empty(t, build())
	w.write("control/b.png", "control B")
	require.Equal(t, []string{"caption b+control B", " +control B"}, build())
	w.write("data/a.txt", "caption A")
	require.Equal(t, []string{"caption A+control a"}, build())
	require.ElementsMatch(t, []string{
		"text_embs/a.txt.safetensors", "text_embs/a.txt.empty_embedding.safetensors",
		"text_embs/b.txt.safetensors", "text_embs/b.txt.empty_embedding.safetensors",
	}, names(files(t, w.cacheDir())))

	s := w.samples[0]
	e, err := c.TextWith(t.Context(), s.Caption, s.Control, nil)
	require.NoError(t, err)
	require.Equal(t, embed("caption Acontrol a"), e)
	e, err = c.EmptyWith(t.Context(), s.Caption, s.Control, nil)
	require.NoError(t, err)
	require.Equal(t, embed(" control a"), e)
	_, err = c.Text(t.Context(), s.Caption, nil)
	require.ErrorIs(t, err, ErrStale, "it was encoded with an image")

	// Without a control image it is the image itself that is seen.
	w.samples[0].Control = ""
	require.Equal(t, []string{"caption A+image a", " +image a"}, build())
}

// Without a build function nothing is built, and every state has its error.
func TestReadOnly(t *testing.T) {
	w := newWorld(t, 1)
	s := w.samples[0]
	c := w.open(recipes())
	_, err := c.Text(t.Context(), s.Caption, nil)
	require.ErrorIs(t, err, ErrMissing)
	require.ErrorContains(t, err, w.entry("text_embs/a.txt"))
	_, err = c.Image(t.Context(), s.Image, nil)
	require.ErrorIs(t, err, ErrMissing)
	require.NoDirExists(t, w.cacheDir())
	require.NoError(t, c.Close())

	w.build(c, BuildOptions{})
	w.write("data/a.txt", "another")
	_, err = c.Text(t.Context(), s.Caption, nil)
	require.ErrorIs(t, err, ErrStale)
	require.ErrorContains(t, err, "its source has changed")
	other := recipes()
	other.Image.Model = "vae@2"
	_, err = w.open(other).Image(t.Context(), s.Image, nil)
	require.ErrorIs(t, err, ErrStale)
	require.ErrorContains(t, err, `"model":"vae@1"`)
	require.ErrorContains(t, err, `"model":"vae@2"`)

	// Without recipes entries of any are read, and none is built.
	any := w.open(Options{})
	_, err = any.Image(t.Context(), s.Image, nil)
	require.NoError(t, err)
	_, err = any.Text(t.Context(), s.Caption, w.text)
	require.ErrorIs(t, err, ErrOption)
	require.ErrorContains(t, err, "no model is given")
}

// Entries can be used without their sources, but not for another recipe.
func TestWithoutSources(t *testing.T) {
	w := newWorld(t, 2)
	w.build(w.open(recipes()), BuildOptions{})
	want, err := w.all(w.open(recipes()), false)
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(filepath.Join(w.dir, "data")))
	_, err = w.all(w.open(recipes()), false)
	require.ErrorIs(t, err, os.ErrNotExist)
	options := recipes()
	options.WithoutSources = true
	got, err := w.all(w.open(options), false)
	require.NoError(t, err)
	require.Equal(t, want, got)
	options.Image.Model = "vae@2"
	_, err = w.all(w.open(options), false)
	require.ErrorIs(t, err, ErrStale)
	flip(t, w.entry("text_embs/b.txt"), 1)
	_, err = w.open(options).Text(t.Context(), w.samples[1].Caption, nil)
	require.ErrorIs(t, err, ErrCorrupt)
}

// Errors of the encoder are returned, and invalid results are errors; nothing is written.
func TestBadBuilds(t *testing.T) {
	w := newWorld(t, 1)
	s := w.samples[0]
	c := w.open(recipes())
	broken := errors.New("out of memory")
	_, err := c.Text(t.Context(), s.Caption, func(string) (Embedding, error) { return Embedding{}, broken })
	require.ErrorIs(t, err, broken)
	require.ErrorContains(t, err, w.entry("text_embs/a.txt"))
	_, err = c.Image(t.Context(), s.Image, func([]byte) (tensor.Tensor, error) { return tensor.Tensor{}, broken })
	require.ErrorIs(t, err, broken)
	for says, e := range map[string]Embedding{
		"expected [tokens, features]":              {Embeds: floats(tensor.F32, []byte{1, 2}, 2), Mask: []int64{1, 1}},
		"found shape [1], expected [2]":            {Embeds: floats(tensor.F32, []byte{1, 2}, 2, 1), Mask: []int64{1}},
		"element 1: found 2, expected 0 or 1":      {Embeds: floats(tensor.F32, []byte{1, 2}, 2, 1), Mask: []int64{1, 2}},
		"found I64, expected F32, F16 or BF16":     {Embeds: floats(tensor.I64, []byte{1, 2}, 2, 1), Mask: []int64{1, 1}},
		"found INVALID, expected F32":              {},
		"F32[2 1] takes 8 bytes, found 4":          {Embeds: tensor.Tensor{DType: tensor.F32, Shape: []int{2, 1}, Data: make([]byte, 4)}, Mask: []int64{1, 1}},
		"prompt_embeds_mask: found shape [0], exp": {Embeds: floats(tensor.F32, []byte{1, 2}, 2, 1)},
	} {
		_, err := c.Text(t.Context(), s.Caption, func(string) (Embedding, error) { return e, nil })
		require.ErrorIs(t, err, ErrTensor)
		require.ErrorContains(t, err, says)
	}
	for says, x := range map[string]tensor.Tensor{
		"expected [channels, …, height, width]": floats(tensor.F32, []byte{1, 2}, 2, 1),
		"found U8":               {DType: tensor.U8, Shape: []int{1, 1, 1}, Data: []byte{1}},
		"takes 4 bytes, found 0": {DType: tensor.F32, Shape: []int{1, 1, 1}},
	} {
		_, err := c.Image(t.Context(), s.Image, func([]byte) (tensor.Tensor, error) { return x, nil })
		require.ErrorIs(t, err, ErrTensor)
		require.ErrorContains(t, err, says)
	}
	require.NoFileExists(t, w.entry("text_embs/a.txt"))
	require.NoFileExists(t, w.entry("img_embs/a.png"))
	_, err = c.Image(t.Context(), s.Image, func([]byte) (tensor.Tensor, error) { return nanTensor(), nil })
	require.NoError(t, err, "values are the encoder's affair")
}

func TestBadSources(t *testing.T) {
	w := newWorld(t, 1)
	c := w.open(recipes())
	_, err := c.Text(t.Context(), filepath.Join(w.dir, "none.txt"), w.text)
	require.ErrorIs(t, err, os.ErrNotExist)
	folder := filepath.Join(w.dir, "folder.png")
	require.NoError(t, os.Mkdir(folder, 0o777))
	_, err = c.Image(t.Context(), folder, w.image)
	require.ErrorContains(t, err, "not a regular file")

	// There is no entry of nothing, and the empty prompt's belongs to no file.
	_, err = c.Text(t.Context(), "", w.text)
	require.ErrorIs(t, err, ErrOption)
	_, err = c.TextWith(t.Context(), w.samples[0].Caption, "", w.textWith)
	require.ErrorIs(t, err, ErrOption)
	_, err = c.Sample(t.Context(), Sample{Image: w.samples[0].Image}, false)
	require.ErrorIs(t, err, ErrOption)
	_, err = c.Text(t.Context(), w.write("data/empty_embedding", "x"), w.text)
	require.ErrorIs(t, err, ErrName)

	// Two sources of the same name would overwrite each other's entry.
	_, err = c.Image(t.Context(), w.samples[0].Image, w.image)
	require.NoError(t, err)
	_, err = c.Image(t.Context(), w.write("more/a.png", "another"), w.image)
	require.ErrorIs(t, err, ErrName)
	require.ErrorContains(t, err, filepath.Join("more", "a.png"))
}

func TestOptions(t *testing.T) {
	for _, o := range []Options{
		{Corrupt: Accept}, {Unkeyed: Accept + 1},
		{Text: Recipe{Model: "\xff"}}, {Image: Recipe{Model: "m", Settings: map[string]string{"\xff": ""}}},
		{Control: Recipe{Settings: map[string]string{"size": "1"}}},
	} {
		_, err := Open(t.TempDir(), o)
		require.ErrorIs(t, err, ErrOption, o)
	}
	c := newWorld(t, 1).open(recipes())
	_, err := c.Build(t.Context(), nil, Encoders{}, BuildOptions{Workers: -1})
	require.ErrorIs(t, err, ErrOption)
	stats, err := c.Build(t.Context(), nil, Encoders{}, BuildOptions{})
	require.NoError(t, err)
	require.Zero(t, stats)
}

// Many goroutines need few entries, and each entry is built once.
func TestConcurrentReaders(t *testing.T) {
	w := newWorld(t, 3)
	c := w.open(recipes())
	var all sync.WaitGroup
	for i := range 48 {
		s := w.samples[i%3]
		all.Go(func() {
			text, err := c.Text(t.Context(), s.Caption, w.text)
			if err != nil || len(text.Mask) != 9 {
				t.Error(text, err)
			}
			if _, err := c.Image(t.Context(), s.Image, w.image); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	require.ElementsMatch(t, []string{"caption a", "caption b", "caption c", "image a", "image b", "image c"}, w.taken())
}

// A waiting goroutine stops when its context ends.
func TestWaitEnds(t *testing.T) {
	w := newWorld(t, 1)
	c := w.open(recipes())
	building, waited, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		_, err := c.Text(context.Background(), w.samples[0].Caption, func(text string) (Embedding, error) {
			close(building)
			<-waited
			return embed(text), nil
		})
		if err != nil {
			t.Error(err)
		}
	}()
	<-building
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err := c.Text(ctx, w.samples[0].Caption, w.text)
	close(waited)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	<-done
	require.Empty(t, w.taken())
}

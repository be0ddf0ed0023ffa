package cli

import (
	"bytes"
	"image"
	"image/png"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/data/cache"
	"github.com/lorafuse/lorafuse/tensor"
)

// picture is an image for a lab.
func picture(t testing.TB) string {
	var b bytes.Buffer
	require.NoError(t, png.Encode(&b, image.NewGray(image.Rect(0, 0, 3, 2))))
	return b.String()
}

// pictures fills a folder with images and captions: a and b.
func (l *lab) pictures() string {
	for _, name := range []string{"a", "b"} {
		l.file("pictures/"+name+".png", picture(l.t))
		l.file("pictures/"+name+".txt", "a picture of "+name)
		l.file("originals/"+name+".png", picture(l.t))
	}
	return l.path("pictures")
}

func TestDataValidate(t *testing.T) {
	l := newLab(t)
	dir, control := l.pictures(), l.path("originals")
	out := succeed(t, "data", "validate", dir, "--control", control)
	require.Contains(t, out, "images          2, 2 with a caption\n")
	require.Contains(t, out, "control images  2\n")
	require.Contains(t, out, "the folder is valid\n")
	v := decode[validation](t, succeed(t, "data", "validate", dir, "--json"))
	require.True(t, v.Valid)
	require.Empty(t, v.Problems)
	require.Equal(t, []int{2, 2, 2}, []int{v.Images, v.Captions, v.Pairs})

	l.remove(filepath.Join(dir, "a.txt"))
	l.file("pictures/lone.txt", "nothing to see")
	l.remove(filepath.Join(control, "b.png"))
	before := l.tree()
	r := command(t, "", "data", "validate", dir, "--control", control)
	require.Equal(t, ExitDifferent, r.status)
	require.Equal(t, "lorafuse: data validate: "+dir+": 1 missing caption, 1 orphan caption, 1 missing control\n", r.stderr)
	for _, line := range []string{
		"missing caption +.*a.png +expected a.txt",
		"orphan caption +.*lone.txt +expected an image lone.png, .jpg, .jpeg or .webp",
		"missing control +.*b.png +expected .*originals.b.png",
	} {
		require.Regexp(t, line, r.stdout)
	}
	require.NotContains(t, r.stdout, "valid")
	r = command(t, "", "data", "validate", dir, "--control", control, "--json")
	require.Equal(t, ExitDifferent, r.status)
	v = decode[validation](t, r.stdout)
	require.False(t, v.Valid)
	require.Len(t, v.Problems, 3)
	require.EqualValues(t, map[string]int{"missing_caption": 1, "orphan_caption": 1, "missing_control": 1}, plain(v.Counts))
	require.Equal(t, before, l.tree(), "something was written")
}

// plain has the keys of a map as strings.
func plain[K ~string, V any](m map[K]V) map[string]V {
	out := map[string]V{}
	for k, v := range m {
		out[string(k)] = v
	}
	return out
}

func TestDataValidateCache(t *testing.T) {
	l := newLab(t)
	dir, cached := l.pictures(), l.path("cache")
	c, err := cache.Open(cached, cache.Options{Text: cache.Recipe{Model: "letters"}})
	require.NoError(t, err)
	for _, name := range []string{"a", "b"} {
		_, err = c.Text(t.Context(), filepath.Join(dir, name+".txt"), func(text string) (cache.Embedding, error) {
			x, err := tensor.New(tensor.F32, len(text), 2)
			return cache.Embedding{Embeds: x, Mask: make([]int64, len(text))}, err
		})
		require.NoError(t, err)
	}
	out := succeed(t, "data", "validate", dir, "--cache", cached)
	require.Contains(t, out, "2 texts, 0 images, 0 control images; 2 not built yet, 0 without a key\n")

	l.file("pictures/a.txt", "another caption")
	l.truncate(filepath.Join(cached, "text_embs", "b.txt.safetensors"), 1)
	l.file("cache/img_embs/gone.png.pt", "")
	r := command(t, "", "data", "validate", dir, "--cache", cached)
	require.Equal(t, ExitDifferent, r.status)
	require.True(t, strings.HasSuffix(r.stderr, ": 1 stale cache entry, 1 corrupt cache entry, 1 orphan cache entry\n"), r.stderr)
	require.Regexp(t, "stale cache entry +.*a.txt.safetensors +its source has changed\n", r.stdout)
	require.Regexp(t, "corrupt cache entry +.*b.txt.safetensors +safetensors: .*cut short", r.stdout)
	require.Regexp(t, "orphan cache entry +.*gone.png.pt +entry without a source\n", r.stdout)
}

var badFolders = []bad{
	{name: "no folder to validate", args: say("data", "validate"), says: []string{"DIR or FILE is missing"}},
	{name: "unknown command for data", args: say("data", "validat"), says: []string{`"validat"`, `did you mean "validate"`}},
	{name: "missing images", args: say("data", "validate", "/no/such/images"), says: []string{"/no/such/images"}},
	{name: "images are a file", args: func(l *lab) []string { return []string{"data", "validate", l.file("images", "x")} }, says: []string{"images", "1 problem"}, status: ExitDifferent},
	{name: "missing control images", args: func(l *lab) []string {
		l.file("images/a.txt", "x")
		return []string{"data", "validate", l.path("images"), "--control", "/no/such/control"}
	}, says: []string{"/no/such/control"}},
	{name: "missing cache", args: func(l *lab) []string {
		l.file("images/a.txt", "x")
		return []string{"data", "validate", l.path("images"), "--cache", "/no/such/cache"}
	}, says: []string{"/no/such/cache"}},
	{name: "image without caption", args: func(l *lab) []string {
		l.file("images/a.png", "x")
		return []string{"data", "validate", l.path("images")}
	}, says: []string{"images: 1 missing caption, 1 bad image"}, status: ExitDifferent},
}

func TestBadFolders(t *testing.T) {
	for _, b := range badFolders {
		t.Run(b.name, b.run)
	}
}

package imagefolder

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/data/cache"
	"github.com/lorafuse/lorafuse/tensor"
)

// place is a folder to fill.
type place struct {
	t   testing.TB
	dir string
}

func newPlace(t testing.TB) place { return place{t, t.TempDir()} }

func (p place) write(name, content string) string {
	path := filepath.Join(p.dir, name)
	require.NoError(p.t, os.MkdirAll(filepath.Dir(path), 0o777))
	require.NoError(p.t, os.WriteFile(path, []byte(content), 0o666))
	return path
}

// images writes real images under names.
func (p place) images(names ...string) {
	all, _ := golden(p.t)
	kind := map[string]string{".png": "rgb.png", ".jpg": "baseline.jpg", ".jpeg": "gray.jpeg", ".webp": "lossy.webp"}
	for _, name := range names {
		p.write(name, string(all[kind[strings.ToLower(filepath.Ext(name))]]))
	}
}

func (p place) read(o Options) *Folder {
	p.t.Helper()
	f, err := Read(p.t.Context(), filepath.Join(p.dir, "data"), o)
	require.NoError(p.t, err)
	return f
}

// problems returns lines "kind name: detail" with names relative to the folder.
func (p place) problems(f *Folder) []string {
	lines := []string{}
	for _, x := range f.Problems {
		name, err := filepath.Rel(p.dir, x.File)
		require.NoError(p.t, err)
		lines = append(lines, x.Kind.String()+" "+filepath.ToSlash(name)+": "+filepath.ToSlash(strings.ReplaceAll(x.Detail, p.dir+string(filepath.Separator), "")))
	}
	return lines
}

func TestValid(t *testing.T) {
	p := newPlace(t)
	p.images("data/a.png", "data/B.PNG", "data/c.d.jpg", "data/e.JPEG", "data/f.webp", "data/.hidden.png", "data/.hidden.webp")
	for _, name := range []string{"a.txt", "B.TXT", "c.d.txt", "e.txt", "f.txt"} {
		p.write("data/"+name, "caption")
	}
	p.write("data/README.md", "about")
	p.write("data/._a.txt", "\xff")
	p.write("data/lone.gif", "GIF89a")
	p.write("data/a.bmp", "beside a.png")
	p.images("data/more/z.png")
	f := p.read(Options{})
	require.Empty(t, f.Problems)
	require.NotNil(t, f.Problems, "[] in JSON")
	in := func(name string) string { return filepath.Join(p.dir, "data", name) }
	require.Equal(t, []cache.Sample{
		{Image: in("B.PNG"), Caption: in("B.TXT")}, {Image: in("a.png"), Caption: in("a.txt")}, {Image: in("c.d.jpg"), Caption: in("c.d.txt")},
		{Image: in("e.JPEG"), Caption: in("e.txt")}, {Image: in("f.webp"), Caption: in("f.txt")},
	}, f.Samples)
	require.Equal(t, []int{5, 5, 5, 4}, []int{f.Images, f.Captions, f.Pairs, f.Others})
}

func TestProblems(t *testing.T) {
	p := newPlace(t)
	all, _ := golden(t)
	p.images("data/a.png", "data/b.png", "data/b.jpg", "data/Case.png", "data/empty.png", "data/latin.png", "data/wide.png")
	for name, text := range map[string]string{
		"b": "two images", "case": "no image", "empty": " \n", "latin": "caf\xe9", "wide": "\xff\xfeh\x00", "lone": "x", "gif": "x", "short": "x", "none": "x", "text": "",
	} {
		p.write("data/"+name+".txt", text)
	}
	p.write("data/gif.gif", "GIF89a")
	p.write("data/short.jpg", string(all["baseline.jpg"][:100]))
	p.write("data/none.webp", "")
	p.write("data/text.png", "not a PNG")
	require.NoError(t, os.MkdirAll(filepath.Join(p.dir, "data", "folder.png"), 0o777))
	f := p.read(Options{})
	want := []string{
		"missing caption data/Case.png: expected Case.txt; case.txt differs in case",
		"missing caption data/a.png: expected a.txt",
		"missing caption data/folder.png: expected folder.txt",
		"orphan caption data/case.txt: expected an image case.png, .jpg, .jpeg or .webp",
		"orphan caption data/lone.txt: expected an image lone.png, .jpg, .jpeg or .webp",
		"empty caption data/empty.txt: found white space alone",
		"empty caption data/text.txt: found no text",
		"bad caption data/latin.txt: byte 4: found 0xe9",
		"bad caption data/wide.txt: found UTF-16, expected UTF-8",
		"duplicate stem data/b.png: found b.jpg, too, expected one image b",
		"bad image data/none.webp: the file is empty",
		"bad image data/short.jpg: the file is cut short",
		`bad image data/text.png: the file begins with "not "`,
		"unsupported image data/gif.gif: expected .png, .jpg, .jpeg or .webp",
		"unreadable data/folder.png: not a regular file",
	}
	require.Equal(t, want, p.problems(f))
	require.Equal(t, []int{11, 10, 8, 0}, []int{f.Images, f.Captions, f.Pairs, f.Others})
	require.Len(t, f.Samples, 11)
}

func TestNoImages(t *testing.T) {
	p := newPlace(t)
	p.write("data/a.md", "")
	require.Equal(t, []string{"no images data: expected files that end in .png, .jpg, .jpeg or .webp"}, p.problems(p.read(Options{})))
	p.images("data/more/a.png")
	require.Equal(t, []string{"no images data: expected files that end in .png, .jpg, .jpeg or .webp; folders within it are not looked at"}, p.problems(p.read(Options{})))
}

func TestNotes(t *testing.T) {
	p := newPlace(t)
	p.images("data/a.png", "data/more/b.png", "data/.git/c.png")
	p.write("data/a.txt", " ")
	p.write("data/lone.txt", "x")
	f := p.read(Options{})
	require.Equal(t, []string{
		filepath.Join(f.Dir, "a.txt") + ": empty caption: found white space alone",
		f.Dir + ": folders within it are not looked at, found 1",
	}, f.Notes())
	images, _ := golden(t)
	p.write("data/still.webp", string(images["animated.webp"]))
	p.write("data/still.txt", "x")
	require.Contains(t, p.problems(p.read(Options{})), "bad image data/still.webp: found an animation, expected a single image")
}

func TestLinks(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("links need a privilege there")
	}
	p := newPlace(t)
	p.images("elsewhere/x.png")
	p.write("data/a.txt", "a")
	p.write("data/b.txt", "b")
	require.NoError(t, os.Symlink("../elsewhere/x.png", filepath.Join(p.dir, "data", "a.png")))
	require.NoError(t, os.Symlink("../elsewhere/y.png", filepath.Join(p.dir, "data", "b.png")))
	require.Equal(t, []string{"unreadable data/b.png: no such file or directory"}, p.problems(p.read(Options{})))
}

func TestControl(t *testing.T) {
	p := newPlace(t)
	p.images("data/a.png", "data/b.png", "data/c.png", "data/d.jpg", "control/a.png", "control/b.jpg", "control/d.jpg", "control/.x.png")
	for _, name := range []string{"a", "b", "c", "d"} {
		p.write("data/"+name+".txt", "caption")
	}
	p.write("control/d.jpg", "cut")
	p.write("control/notes.txt", "caption")
	control := filepath.Join(p.dir, "control")
	f := p.read(Options{Control: control})
	require.Equal(t, []string{
		`bad image control/d.jpg: the file begins with "cut"`,
		"missing control data/b.png: expected control/b.png; b.jpg has another ending",
		"missing control data/c.png: expected control/c.png",
		"orphan control control/b.jpg: expected an image data/b.jpg",
	}, p.problems(f))
	require.Equal(t, 3, f.Controls)
	require.Equal(t, filepath.Join(control, "a.png"), f.Samples[0].Control)
	require.Empty(t, f.Samples[1].Control)
}

// encode builds entries of the length of their sources.
func encode(text string) (cache.Embedding, error) {
	x, err := tensor.New(tensor.F32, len(text), 1)
	return cache.Embedding{Embeds: x, Mask: make([]int64, len(text))}, err
}

func encodeImage(image []byte) (tensor.Tensor, error) {
	return tensor.New(tensor.F32, 1, 1, len(image))
}

func TestCache(t *testing.T) {
	p := newPlace(t)
	p.images("data/a.png", "data/b.png", "data/c.png", "control/a.png", "control/b.png", "control/c.png")
	for _, name := range []string{"a", "b", "c"} {
		p.write("data/"+name+".txt", "caption of "+name)
	}
	o := Options{Control: filepath.Join(p.dir, "control"), Cache: filepath.Join(p.dir, "cache")}
	_, err := Read(t.Context(), filepath.Join(p.dir, "data"), o)
	require.ErrorIs(t, err, os.ErrNotExist)

	c, err := cache.Open(o.Cache, cache.Options{Text: cache.Recipe{Model: "text"}, Image: cache.Recipe{Model: "vae"}})
	require.NoError(t, err)
	samples := p.read(Options{Control: o.Control}).Samples
	_, err = c.Build(t.Context(), samples, cache.Encoders{Text: encode, Image: encodeImage}, cache.BuildOptions{})
	require.NoError(t, err)
	f := p.read(o)
	require.Empty(t, f.Problems)
	require.Equal(t, &Entries{Text: 4, Images: 3, Controls: 3}, f.Cache)

	p.write("data/a.txt", "another caption")
	require.NoError(t, os.Truncate(filepath.Join(o.Cache, "img_embs", "b.png.safetensors"), 40))
	require.NoError(t, os.Remove(filepath.Join(o.Cache, "img_embs_control", "c.png.safetensors")))
	require.NoError(t, os.MkdirAll(filepath.Join(o.Cache, "img_embs_control", "c.png.safetensors"), 0o777))
	require.NoError(t, os.Remove(filepath.Join(p.dir, "data", "c.png")))
	p.write("cache/img_embs/old.png.pt", "")
	f = p.read(o)
	lines := p.problems(f)
	lines[3], _, _ = strings.Cut(lines[3], ": found")
	require.Equal(t, []string{
		"orphan caption data/c.txt: expected an image c.png, .jpg, .jpeg or .webp",
		"orphan control control/c.png: expected an image data/c.png",
		"stale cache entry cache/text_embs/a.txt.safetensors: its source has changed",
		"corrupt cache entry cache/img_embs/b.png.safetensors: safetensors: header goes past the end of the file",
		"orphan cache entry cache/img_embs/c.png.safetensors: entry without a source",
		"orphan cache entry cache/img_embs/old.png.pt: entry without a source",
	}, lines)
	require.Equal(t, &Entries{Text: 3, Images: 1, Controls: 2}, f.Cache)
}

// An unreadable entry is a problem and does not end the check.
func TestUnreadableEntry(t *testing.T) {
	p := newPlace(t)
	p.images("data/a.png")
	p.write("data/a.txt", "caption")
	require.NoError(t, os.MkdirAll(filepath.Join(p.dir, "cache", "img_embs", "a.png.safetensors"), 0o777))
	f := p.read(Options{Cache: filepath.Join(p.dir, "cache")})
	require.Len(t, f.Problems, 1)
	require.Equal(t, UnreadableEntry, f.Problems[0].Kind)
	require.Contains(t, f.Problems[0].Detail, "not a regular file")
	require.Equal(t, &Entries{Missing: 1}, f.Cache)
}

// Entries written by Python are counted, and stale if that can be detected.
func TestUnkeyed(t *testing.T) {
	p := newPlace(t)
	p.images("data/a.png", "data/b.png")
	p.write("data/a.txt", "caption")
	later := p.write("data/b.txt", "caption")
	for _, name := range []string{"a", "b"} {
		path := p.write("cache/text_embs/"+name+".txt.safetensors", "")
		e, err := encode(name)
		require.NoError(t, err)
		mask, err := tensor.New(tensor.I64, 1)
		require.NoError(t, err)
		require.NoError(t, cache.SaveEmbeddings(path, map[string]tensor.Tensor{"prompt_embeds": e.Embeds, "prompt_embeds_mask": mask}))
	}
	when := time.Now().Add(time.Minute)
	require.NoError(t, os.Chtimes(later, when, when))
	f := p.read(Options{Cache: filepath.Join(p.dir, "cache")})
	require.Equal(t, []string{"stale cache entry cache/text_embs/b.txt.safetensors: its source is newer, and it has no key to tell more"}, p.problems(f))
	require.Equal(t, &Entries{Text: 1, Missing: 2, Unkeyed: 1}, f.Cache)
}

func TestReadErrors(t *testing.T) {
	p := newPlace(t)
	p.images("data/a.png")
	p.write("data/a.txt", "a")
	for _, c := range []struct {
		dir string
		o   Options
	}{
		{dir: "none"}, {dir: "data/a.txt"}, {dir: "data", o: Options{Control: "none"}}, {dir: "data", o: Options{Cache: "none"}}, {dir: "data", o: Options{Cache: "data/a.txt"}},
	} {
		join := func(name string) string {
			if name == "" {
				return ""
			}
			return filepath.Join(p.dir, name)
		}
		_, err := Read(t.Context(), join(c.dir), Options{Control: join(c.o.Control), Cache: join(c.o.Cache)})
		require.Error(t, err)
	}
	var tasks []string
	control := filepath.Join(p.dir, "data")
	f := p.read(Options{Control: control, Progress: func(task string, done, total int) {
		require.LessOrEqual(t, done, total)
		tasks = append(tasks, task)
	}})
	require.Empty(t, f.Problems)
	require.Equal(t, []string{"captions", "images", "control images"}, tasks)
	for i := range tasks {
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		_, err := Read(ctx, filepath.Join(p.dir, "data"), Options{Control: control, Cache: control, Progress: func(string, int, int) {
			if n++; n == i+1 {
				cancel()
			}
		}})
		if i == 1 || i == 0 || i == 2 {
			require.ErrorIs(t, err, context.Canceled)
		}
		cancel()
	}
}

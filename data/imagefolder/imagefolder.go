// Package imagefolder reads folders of images with captions, as diffusion
// models are fine-tuned on: the caption of 001.png is 001.txt beside it, and
// where a model edits images, what it starts from has the same name in another
// folder. It says what is wrong with such a folder before a run finds out.
package imagefolder

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/data/cache"
)

// extensions are those of images, in lower case; names may have any.
var extensions = []string{".png", ".jpg", ".jpeg", ".webp"}

// unsupported are those of images that other programs read.
var unsupported = []string{".bmp", ".gif", ".tif", ".tiff", ".avif", ".heic", ".jxl"}

// captionExtension is that of captions.
const captionExtension = ".txt"

// Kind names a kind of problem.
type Kind string

// The kinds of problems.
const (
	NoImages        Kind = "no_images"
	MissingCaption  Kind = "missing_caption"
	OrphanCaption   Kind = "orphan_caption"
	EmptyCaption    Kind = "empty_caption"
	BadCaption      Kind = "bad_caption" // not UTF-8
	DuplicateStem   Kind = "duplicate_stem"
	BadImage        Kind = "bad_image"
	UnknownImage    Kind = "unsupported_image"
	MissingControl  Kind = "missing_control"
	OrphanControl   Kind = "orphan_control"
	Unreadable      Kind = "unreadable"
	StaleEntry      Kind = "stale_cache_entry"
	CorruptEntry    Kind = "corrupt_cache_entry"
	OrphanEntry     Kind = "orphan_cache_entry"
	UnreadableEntry Kind = "unreadable_cache_entry"
)

// String is the kind in words.
func (k Kind) String() string { return strings.ReplaceAll(string(k), "_", " ") }

// Harmless reports whether the rest of a folder can be learned from in spite of a problem of
// the kind.
func (k Kind) Harmless() bool { return k == EmptyCaption || k == UnknownImage || k == OrphanControl }

// Problem is one thing that is wrong.
type Problem struct {
	Kind   Kind   `json:"kind"`
	File   string `json:"file"`
	Detail string `json:"detail"` // what was found and what was expected
}

// Options say what to look at besides the folder.
type Options struct {
	Control string // folder of the images to start from; empty for none
	Cache   string // folder of a cache to check; empty for none
	// Progress is called now and then with what is being done and how far that
	// is.
	Progress func(task string, done, total int)
}

// Folder is what was found.
type Folder struct {
	Dir      string `json:"dir"`
	Images   int    `json:"images"`
	Captions int    `json:"captions"`
	Pairs    int    `json:"pairs"` // images with a caption
	Others   int    `json:"others"`
	// Folders is the number of folders within it, which are left alone.
	Folders int `json:"folders,omitempty"`
	// Controls is the number of images in Options.Control.
	Controls int `json:"controls,omitempty"`
	// Cache counts the entries of Options.Cache.
	Cache    *Entries  `json:"cache,omitempty"`
	Problems []Problem `json:"problems"`

	// Samples are the images with what belongs to them, in the order of their
	// names, whatever else is wrong with them.
	Samples []cache.Sample `json:"-"`
}

// Notes say what is not learned from, or perhaps not as it was meant: harmless problems, and
// folders within this one.
func (f *Folder) Notes() (notes []string) {
	for _, p := range f.Problems {
		if p.Kind.Harmless() {
			notes = append(notes, fmt.Sprintf("%s: %v: %s", p.File, p.Kind, p.Detail))
		}
	}
	if f.Folders > 0 {
		notes = append(notes, fmt.Sprintf("%s: folders within it are not looked at, found %d", f.Dir, f.Folders))
	}
	return notes
}

// Entries count the entries of a cache.
type Entries struct {
	Text     int `json:"text"`
	Images   int `json:"images"`
	Controls int `json:"controls"`
	Missing  int `json:"missing"` // not built yet
	Unkeyed  int `json:"unkeyed"` // written by another program: they may be stale
}

// Read reads a folder and lists all that is wrong with it: first by kind, in
// the order of the constants, then by name. Folders within it are left alone,
// as are names that begin with a dot.
//
// It fails where a folder cannot be read, and when ctx ends.
func Read(ctx context.Context, dir string, o Options) (*Folder, error) {
	if o.Progress == nil {
		o.Progress = func(string, int, int) {}
	}
	r := &reading{options: o, Folder: Folder{Dir: dir, Problems: []Problem{}}}
	for _, step := range []func(context.Context) error{r.list, r.pair, r.readCaptions, r.readImages, r.readControls, r.checkCache} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(r.Problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(rank[a.Kind], rank[b.Kind]), cmp.Compare(a.File, b.File))
	})
	return &r.Folder, nil
}

// rank is the order of the kinds.
var rank = func() map[Kind]int {
	m := map[Kind]int{}
	for i, k := range []Kind{
		NoImages, MissingCaption, OrphanCaption, EmptyCaption, BadCaption, DuplicateStem, BadImage, UnknownImage,
		MissingControl, OrphanControl, Unreadable, StaleEntry, CorruptEntry, OrphanEntry, UnreadableEntry,
	} {
		m[k] = i
	}
	return m
}()

// reading is the state of one Read.
type reading struct {
	Folder
	options Options

	images, captions, rejected []string // names in the folder
	lone                       []string // captions without an image
}

func (r *reading) problem(kind Kind, file, format string, args ...any) {
	r.Problems = append(r.Problems, Problem{kind, file, fmt.Sprintf(format, args...)})
}

// list sorts the names of the folder by what they are.
func (r *reading) list(context.Context) error {
	entries, err := os.ReadDir(r.Dir)
	if err != nil {
		return fmt.Errorf("data: %w", err)
	}
	for _, e := range entries {
		name := e.Name()
		if e.IsDir() && !strings.HasPrefix(name, ".") {
			r.Folders++
		}
		switch extension := strings.ToLower(filepath.Ext(name)); {
		case strings.HasPrefix(name, "."):
		case slices.Contains(extensions, extension):
			r.images = append(r.images, name)
		case extension == captionExtension:
			r.captions = append(r.captions, name)
		case slices.Contains(unsupported, extension):
			r.rejected = append(r.rejected, name)
		default:
			r.Others++
		}
	}
	r.Images, r.Captions = len(r.images), len(r.captions)
	if r.Images == 0 {
		hint := ""
		if r.Folders > 0 {
			hint = "; folders within it are not looked at"
		}
		r.problem(NoImages, r.Dir, "expected files that end in %s%s", orList(extensions), hint)
	}
	return nil
}

func (r *reading) path(name string) string { return filepath.Join(r.Dir, name) }

// stem is the name that an image and its caption share.
func stem(name string) string { return strings.TrimSuffix(name, filepath.Ext(name)) }

// orList is "a, b or c".
func orList(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// readCaptions reads every caption.
func (r *reading) readCaptions(ctx context.Context) error {
	for i, name := range r.captions {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		r.options.Progress("captions", i+1, len(r.captions))
		path := r.path(name)
		if err := regular(path); err != nil {
			r.problem(Unreadable, path, "%v", err)
			continue
		}
		text, err := cache.ReadCaption(path)
		switch {
		case errors.Is(err, cache.ErrUTF8):
			r.problem(BadCaption, path, "%s", strings.TrimSuffix(strings.TrimPrefix(err.Error(), "cache: "+path+": "), ": "+cache.ErrUTF8.Error()))
		case err != nil:
			r.problem(Unreadable, path, "%v", cause(err))
		case text == "":
			r.problem(EmptyCaption, path, "found no text")
		case strings.TrimSpace(text) == "":
			r.problem(EmptyCaption, path, "found white space alone")
		}
	}
	return nil
}

// readImages reads the header of every image.
func (r *reading) readImages(ctx context.Context) error {
	for i, name := range r.images {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		r.options.Progress("images", i+1, len(r.images))
		r.readImage(r.path(name))
	}
	return nil
}

func (r *reading) readImage(path string) {
	if err := regular(path); err != nil {
		r.problem(Unreadable, path, "%v", err)
		return
	}
	f, err := os.Open(path)
	if err != nil {
		r.problem(Unreadable, path, "%v", cause(err))
		return
	}
	defer f.Close()
	var h Header
	info, err := f.Stat()
	if err == nil {
		h, err = ReadHeader(f, info.Size())
	}
	switch {
	case errors.Is(err, ErrImage):
		r.problem(BadImage, path, "%s", strings.TrimSuffix(strings.TrimPrefix(err.Error(), ErrImage.Error()+": "), ": "+ErrImage.Error()))
	case err != nil:
		r.problem(Unreadable, path, "%v", cause(err))
	case h.Animated:
		r.problem(BadImage, path, "found an animation, expected a single image")
	}
}

// regular keeps from opening what may block or have effects.
func regular(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return cause(err)
	case !info.Mode().IsRegular():
		return errors.New("not a regular file")
	}
	return nil
}

// cause is an error without the path, which the problem gives already.
func cause(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

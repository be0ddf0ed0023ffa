// Package imagefolder reads and validates folders of captioned images for training diffusion models. The caption of
// 001.png is 001.txt in the same folder. For editing models, the control image has the same name in another folder.
// [Read] reports all problems before a run starts.
package imagefolder

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/lorafuse/lorafuse/internal/data/cache"
	"github.com/lorafuse/lorafuse/internal/data/picture"
	"github.com/lorafuse/lorafuse/internal/fork"
)

// extensions are the file extensions of images, compared in lower case.
var extensions = []string{".png", ".jpg", ".jpeg", ".webp"}

// IsImage reports whether a file name ends like that of an image.
func IsImage(name string) bool {
	return slices.Contains(extensions, strings.ToLower(filepath.Ext(name)))
}

// unsupported are image extensions that other programs read.
var unsupported = []string{".bmp", ".gif", ".tif", ".tiff", ".avif", ".heic", ".jxl"}

// captionExtension is the file extension of captions.
const captionExtension = ".txt"

// Kind is a kind of problem.
type Kind string

// Kinds of problems.
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

// String returns the kind in words.
func (k Kind) String() string { return strings.ReplaceAll(string(k), "_", " ") }

// Harmless reports whether the rest of the folder can be used for training despite a problem of this kind.
func (k Kind) Harmless() bool { return k == EmptyCaption || k == UnknownImage || k == OrphanControl }

// Problem is a problem with a file.
type Problem struct {
	Kind   Kind   `json:"kind"`
	File   string `json:"file"`
	Detail string `json:"detail"` // found and expected
}

// Options configures Read.
type Options struct {
	Control string // folder of control images; empty for none
	Cache   string // folder of a cache to check; empty for none
	Decode  bool   // decode the pixels of images too, which takes milliseconds for each
	// Progress is called from time to time with the current task and its progress.
	Progress func(task string, done, total int)
}

// Folder is the result of Read.
type Folder struct {
	Dir      string `json:"dir"`
	Images   int    `json:"images"`
	Captions int    `json:"captions"`
	Pairs    int    `json:"pairs"` // images with a caption
	Others   int    `json:"others"`
	// Folders is the number of subfolders, which are ignored.
	Folders int `json:"folders,omitempty"`
	// Controls is the number of images in Options.Control.
	Controls int `json:"controls,omitempty"`
	// Cache counts the entries of Options.Cache.
	Cache    *Entries  `json:"cache,omitempty"`
	Problems []Problem `json:"problems"`

	// Samples are the images with their files, sorted by name. They include images with problems.
	Samples []cache.Sample `json:"-"`
}

// Notes returns a line for everything that is not used for training, or perhaps not as intended: harmless problems and
// subfolders.
func (f *Folder) Notes() (notes []string) {
	for _, p := range f.Problems {
		if p.Kind.Harmless() {
			notes = append(notes, p.String())
		}
	}
	if f.Folders > 0 {
		notes = append(notes, fmt.Sprintf("%s: folders within it are not looked at, found %d", f.Dir, f.Folders))
	}
	return notes
}

// Usable returns the samples without problems that matter, and those problems: of the others, of captions without an
// image, and of a folder without images.
func (f *Folder) Usable() (samples []cache.Sample, problems []Problem) {
	bad := map[string]bool{}
	for _, p := range f.Problems {
		if !p.Kind.Harmless() {
			problems, bad[p.File] = append(problems, p), true
		}
	}
	for _, s := range f.Samples {
		if !bad[s.Image] && !bad[s.Caption] && !bad[s.Control] {
			samples = append(samples, s)
		}
	}
	return samples, problems
}

// String describes the problem.
func (p Problem) String() string { return fmt.Sprintf("%s: %v: %s", p.File, p.Kind, p.Detail) }

// Entries counts the entries of a cache.
type Entries struct {
	Text     int `json:"text"`
	Images   int `json:"images"`
	Controls int `json:"controls"`
	Missing  int `json:"missing"` // not built yet
	Unkeyed  int `json:"unkeyed"` // written by another program, may be stale
}

// Read reads a folder and lists all problems, sorted by kind in the order of the constants and then by name. Subfolders
// and names that start with a dot are ignored.
//
// It fails if a folder cannot be read, and when ctx ends.
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

// rank maps kinds to their sort order.
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

// reading holds the state of one Read.
type reading struct {
	Folder
	options Options

	images, captions, rejected []string // names in the folder
	lone                       []string // captions without an image
}

func (r *reading) problem(kind Kind, file, format string, args ...any) {
	r.Problems = append(r.Problems, Problem{kind, file, fmt.Sprintf(format, args...)})
}

// list classifies the names in the folder.
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
		case IsImage(name):
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

// stem returns the name that an image and its caption share.
func stem(name string) string { return strings.TrimSuffix(name, filepath.Ext(name)) }

// orList joins words as "a, b or c".
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

// readImages reads every image of the folder.
func (r *reading) readImages(ctx context.Context) error {
	paths := make([]string, len(r.images))
	for i, name := range r.images {
		paths[i] = r.path(name)
	}
	return r.checkImages(ctx, "images", paths)
}

// checkImages reads the header of every image and, with Options.Decode, its pixels: one image per core at a time.
func (r *reading) checkImages(ctx context.Context, task string, paths []string) error {
	found := make([]*Problem, len(paths))
	var readers fork.Group
	var next, done int
	var mu sync.Mutex
	for range min(runtime.GOMAXPROCS(0), len(paths)) {
		readers.Go(func() {
			for ctx.Err() == nil {
				mu.Lock()
				i := next
				next++
				mu.Unlock()
				if i >= len(paths) {
					return
				}
				found[i] = r.checkImage(paths[i])
				mu.Lock()
				done++
				r.options.Progress(task, done, len(paths))
				mu.Unlock()
			}
		})
	}
	readers.Wait()
	for _, p := range found {
		if p != nil {
			r.Problems = append(r.Problems, *p)
		}
	}
	return context.Cause(ctx)
}

// checkImage returns the problem of an image file, or nil.
func (r *reading) checkImage(path string) *Problem {
	problem := func(kind Kind, detail string) *Problem { return &Problem{kind, path, detail} }
	if err := regular(path); err != nil {
		return problem(Unreadable, err.Error())
	}
	f, err := os.Open(path)
	if err != nil {
		return problem(Unreadable, cause(err).Error())
	}
	defer f.Close()
	var h Header
	info, err := f.Stat()
	if err == nil {
		h, err = ReadHeader(f, info.Size())
	}
	switch {
	case errors.Is(err, ErrImage):
		return problem(BadImage, strings.TrimSuffix(strings.TrimPrefix(err.Error(), ErrImage.Error()+": "), ": "+ErrImage.Error()))
	case err != nil:
		return problem(Unreadable, cause(err).Error())
	case h.Animated:
		return problem(BadImage, "found an animation, expected a single image")
	case !r.options.Decode:
		return nil
	}
	content, err := io.ReadAll(f)
	if err != nil {
		return problem(Unreadable, cause(err).Error())
	}
	if _, err := picture.Decode(content); err != nil {
		return problem(BadImage, strings.TrimPrefix(err.Error(), "picture: "))
	}
	return nil
}

// regular returns an error unless path is a regular file, since opening others may block or have side effects.
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

// cause returns the error without the path, which the problem already has.
func cause(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

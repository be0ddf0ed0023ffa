package imagefolder

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/data/cache"
)

// files lists the files with the same stem.
type files struct{ images, captions, rejected []string }

// pair matches images with captions.
func (r *reading) pair(context.Context) error {
	stems := map[string]*files{}
	at := func(name string) *files {
		f := stems[stem(name)]
		if f == nil {
			f = &files{}
			stems[stem(name)] = f
		}
		return f
	}
	folded := map[string]string{} // captions by lower-case stem
	for _, name := range r.images {
		at(name).images = append(at(name).images, name)
	}
	for _, name := range r.rejected {
		at(name).rejected = append(at(name).rejected, name)
	}
	for _, name := range r.captions {
		at(name).captions = append(at(name).captions, name)
		folded[strings.ToLower(stem(name))] = name
	}
	for _, s := range slices.Sorted(maps.Keys(stems)) {
		f := stems[s]
		r.duplicates(f.images, "image", s)
		r.duplicates(f.captions, "caption", s)
		switch {
		case len(f.images) == 0:
			r.withoutImage(s, f)
			continue
		case len(f.captions) == 0:
			hint := ""
			if other := folded[strings.ToLower(s)]; other != "" {
				hint = fmt.Sprintf("; %s differs in case", other)
			}
			for _, name := range f.images {
				r.problem(MissingCaption, r.path(name), "expected %s%s%s", s, captionExtension, hint)
				r.Samples = append(r.Samples, cache.Sample{Image: r.path(name)})
			}
		default:
			for _, name := range f.images {
				r.Pairs++
				r.Samples = append(r.Samples, cache.Sample{Image: r.path(name), Caption: r.path(f.captions[0])})
			}
		}
		r.Others += len(f.rejected)
	}
	slices.SortFunc(r.Samples, func(a, b cache.Sample) int { return cmp.Compare(a.Image, b.Image) })
	return nil
}

// duplicates reports names that differ only in their extension.
func (r *reading) duplicates(names []string, what, stem string) {
	for _, name := range names[min(1, len(names)):] {
		r.problem(DuplicateStem, r.path(name), "found %s, too, expected one %s %s", names[0], what, stem)
	}
}

// withoutImage reports captions, and unsupported images, that have no image.
func (r *reading) withoutImage(stem string, f *files) {
	r.lone = append(r.lone, f.captions...)
	switch {
	case len(f.rejected) == 0:
		for _, name := range f.captions {
			r.problem(OrphanCaption, r.path(name), "expected an image %s%s", stem, orList(extensions))
		}
	case len(f.captions) == 0:
		r.Others += len(f.rejected)
	default: // a supported image exists
		for _, name := range f.rejected {
			r.problem(UnknownImage, r.path(name), "expected %s", orList(extensions))
		}
	}
}

// readControls matches images with control images of the same name.
func (r *reading) readControls(ctx context.Context) error {
	dir := r.options.Control
	if dir == "" {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("data: %w", err)
	}
	here := map[string]bool{}
	stems := map[string]string{}
	for _, e := range entries {
		name := e.Name()
		if !strings.HasPrefix(name, ".") && IsImage(name) {
			here[name] = true
			stems[stem(name)] = name
			r.Controls++
		}
	}
	for i := range r.Samples {
		s := &r.Samples[i]
		name := filepath.Base(s.Image)
		path := filepath.Join(dir, name)
		if here[name] {
			s.Control = path
			delete(here, name)
			continue
		}
		hint := ""
		if other := stems[stem(name)]; other != "" {
			hint = fmt.Sprintf("; %s has another ending", other)
		}
		r.problem(MissingControl, s.Image, "expected %s%s", path, hint)
	}
	for name := range here {
		r.problem(OrphanControl, filepath.Join(dir, name), "expected an image %s", r.path(name))
	}
	var paths []string
	for _, e := range entries {
		if IsImage(e.Name()) && !strings.HasPrefix(e.Name(), ".") {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return r.checkImages(ctx, "control images", paths)
}

// entryKinds maps errors of the cache to kinds.
var entryKinds = []struct {
	err  error
	kind Kind
}{{cache.ErrStale, StaleEntry}, {cache.ErrCorrupt, CorruptEntry}, {cache.ErrOrphan, OrphanEntry}}

// checkCache compares the cache with the whole folder; images without a caption may have entries too.
func (r *reading) checkCache(ctx context.Context) error {
	dir := r.options.Cache
	if dir == "" {
		return nil
	}
	if _, err := os.ReadDir(dir); err != nil {
		return fmt.Errorf("data: %w", err)
	}
	c, err := cache.Open(dir, cache.Options{})
	if err != nil {
		return fmt.Errorf("data: %w", err)
	}
	samples := slices.Clone(r.Samples)
	for _, name := range r.lone {
		samples = append(samples, cache.Sample{Caption: r.path(name)})
	}
	report, err := c.Check(ctx, samples, func(done, total int) { r.options.Progress("cache", done, total) })
	if err != nil {
		return fmt.Errorf("data: %w", err)
	}
	r.Cache = &Entries{Text: report.Text, Images: report.Images, Controls: report.Controls, Missing: report.Missing, Unkeyed: report.Unkeyed}
	for _, f := range report.Findings {
		kind, detail := describe(f)
		r.problem(kind, f.Entry, "%s", detail)
	}
	return nil
}

// describe returns the kind and detail of a finding, without its path.
func describe(f cache.Finding) (Kind, string) {
	detail := strings.ReplaceAll(strings.TrimPrefix(f.Err.Error(), "cache: "), f.Entry+": ", "")
	for _, k := range entryKinds {
		if errors.Is(f.Err, k.err) {
			detail = strings.TrimPrefix(detail, k.err.Error()+": ")
			return k.kind, strings.TrimSuffix(detail, ": "+k.err.Error())
		}
	}
	return UnreadableEntry, detail
}

package diffusion

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/data/cache"
	"github.com/lorafuse/lorafuse/internal/data/imagefolder"
	"github.com/lorafuse/lorafuse/internal/data/picture"
)

// ErrCache is wrapped if a cache belongs to another model, or if its options ask for entries
// that the pipeline cannot compute.
var ErrCache = errors.New("wrong cache")

// CacheOptions configures a cache of text embeddings and latents. Options that change the
// entries are part of their recipes.
type CacheOptions struct {
	Side     int  // target area of images is about Side·Side pixels; zero means 1024
	Multiple int  // divisor of image sides; zero means that of the architecture
	Sample   bool // sample latents from the autoencoder's distribution instead of taking its mean
	Seed     uint64
	Tile     int // tile side for encoding larger images; zero means no tiling

	TextOnly, PicturesOnly bool // the other kind of entries is built elsewhere
	// Rebuild accepts a cache of another model and treats all of its entries as stale.
	Rebuild bool
	Workers int // goroutines that decode and resize images; zero means 1
	// Progress is called after each entry with the kind of entry, and the number of entries
	// done and in total.
	Progress func(task string, done, total int)
	// Truncated is called for each caption that exceeds the maximum length of a text
	// encoder. Calls do not overlap.
	Truncated func(caption string, t Truncation)
}

// Kinds of entries, as passed to Progress.
const (
	TextTask    = "text embeddings"
	PictureTask = "latents"
)

// BuildCache builds the missing and stale entries of samples in the cache at dir. It encodes
// captions first and closes the text encoders before it opens the autoencoder; it opens
// neither if there is nothing to do. If it fails or ctx ends, finished entries stay and the
// next call continues from them. Errors: ErrPart, ErrPipeline, ErrCache for a cache of
// another model, and errors of package cache, of image decoding and of the device.
func (p *Pipeline) BuildCache(ctx context.Context, dev backend.Device, dir string, samples []cache.Sample, o CacheOptions) (stats cache.Stats, err error) {
	made, err := p.CacheOptions(o)
	if err != nil {
		return stats, err
	}
	if i := slices.IndexFunc(samples, func(s cache.Sample) bool { return s.Control != "" }); i >= 0 {
		if t, class := p.transformer(); t != nil && !t.Space().Controls {
			return stats, fmt.Errorf("diffusion: %w: a control image, %s, and %s takes none", ErrCache, samples[i].Control, class)
		}
	}
	made.Corrupt = cache.Rebuild
	c, err := cache.Open(dir, made)
	if err != nil {
		return stats, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if !o.Rebuild {
		if path, other := c.Foreign(samples); other != "" {
			return stats, fmt.Errorf("diffusion: %w: %s was made with %s; make it again, or give another folder", ErrCache, path, other)
		}
	}
	if !o.PicturesOnly {
		if err := p.buildText(ctx, dev, c, samples, o, &stats); err != nil {
			return stats, err
		}
	}
	if !o.TextOnly {
		if err := p.buildPictures(ctx, dev, c, samples, o, &stats); err != nil {
			return stats, err
		}
	}
	return stats, nil
}

// building returns the build options for one kind of entries.
func (o CacheOptions) building(task string) cache.BuildOptions {
	b := cache.BuildOptions{Workers: o.Workers}
	if o.Progress != nil {
		b.Progress = func(p cache.Progress) { o.Progress(task, p.Done, p.Total) }
	}
	return b
}

func add(stats *cache.Stats, more cache.Stats) {
	stats.Entries += more.Entries
	stats.Built += more.Built
}

func (p *Pipeline) buildText(ctx context.Context, dev backend.Device, c *cache.Cache, samples []cache.Sample, o CacheOptions, stats *cache.Stats) error {
	l := &texts{pipeline: p, ctx: ctx, dev: dev, truncated: o.Truncated}
	defer l.close()
	e := cache.Encoders{Text: l.encode}
	if p.Edits() {
		e = cache.Encoders{TextWith: l.encodeWith}
	}
	more, err := c.Build(ctx, samples, e, o.building(TextTask))
	add(stats, more)
	return err
}

func (p *Pipeline) buildPictures(ctx context.Context, dev backend.Device, c *cache.Cache, samples []cache.Sample, o CacheOptions, stats *cache.Stats) error {
	_, sizes, err := p.pictureRecipe(o)
	if err != nil {
		return err
	}
	l := &latents{pipeline: p, ctx: ctx, dev: dev, sizes: sizes, options: o}
	more, err := c.Build(ctx, bySize(samples, sizes), cache.Encoders{Image: l.encode}, o.building(PictureTask))
	add(stats, more)
	return errors.Join(err, l.close())
}

// bySize returns samples sorted by the size to which their images are resized, because the
// autoencoder compiles one program per size. Unreadable images come first.
func bySize(samples []cache.Sample, of sizing) []cache.Sample {
	at := make(map[string]picture.Size, len(samples))
	for _, s := range samples {
		at[s.Image] = of.of(headerSize(s.Image))
	}
	sorted := slices.Clone(samples)
	slices.SortStableFunc(sorted, func(a, b cache.Sample) int {
		x, y := at[a.Image], at[b.Image]
		return cmp.Or(cmp.Compare(x.Width, y.Width), cmp.Compare(x.Height, y.Height))
	})
	return sorted
}

// headerSize returns the image size from the header of a file, or zero if it cannot be read.
func headerSize(path string) (s picture.Size) {
	f, err := os.Open(path)
	if err != nil {
		return s
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return s
	}
	h, err := imagefolder.ReadHeader(f, info.Size())
	if err != nil {
		return s
	}
	return picture.Size{Width: h.Width, Height: h.Height}
}

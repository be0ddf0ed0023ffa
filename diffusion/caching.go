package diffusion

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/data/cache"
	"github.com/lorafuse/lorafuse/data/imagefolder"
	"github.com/lorafuse/lorafuse/data/picture"
)

// ErrCache is wrapped where a cache is that of another model, or is asked for what a
// pipeline cannot make.
var ErrCache = errors.New("wrong cache")

// CacheOptions say how a cache of texts and pictures is made. What changes the entries is
// part of their recipes.
type CacheOptions struct {
	Side     int  // pictures are brought to about Side·Side pixels; 0: 1024
	Multiple int  // of which sides are multiples; 0: what the architecture takes
	Sample   bool // latents are drawn as the autoencoder says, not its means
	Seed     uint64
	Tile     int // side of the tiles in which larger pictures are encoded; 0: whole

	TextOnly, PicturesOnly bool // the rest is made elsewhere
	// Rebuild takes a cache of another model for one whose entries are all stale.
	Rebuild bool
	Workers int // that read and scale pictures at once; 0: 1
	// Progress is told after each entry which kind is made, and how many of it are done.
	Progress func(task string, done, total int)
	// Truncated is called for each caption that is encoded and longer than a text encoder
	// reads, one at a time.
	Truncated func(caption string, t Truncation)
}

// The kinds of entries, as Progress is told.
const (
	TextTask    = "text embeddings"
	PictureTask = "latents"
)

// BuildCache makes the entries of samples in the cache in dir that are missing or stale:
// those of texts first, whose encoders are closed before the autoencoder is opened. Nothing
// is opened where there is nothing to make. What is ready when it fails or ctx ends stays,
// and a next call goes on. Errors: ErrPart, ErrPipeline, ErrCache for a cache of another
// model, those of package cache, of pictures, and of the device.
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

// building are the options of one kind of entries.
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
	if way, err := p.captions(); err == nil && way.shows != nil {
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

// bySize are samples in the order of the sizes that their pictures are brought to: the
// autoencoder has a program for each. What cannot be read comes first.
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

// headerSize is the size that the first bytes of a picture give; nothing where they do not.
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

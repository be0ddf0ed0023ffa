package diffusion

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/data/cache"
	"github.com/lorafuse/lorafuse/data/imagefolder"
	"github.com/lorafuse/lorafuse/data/picture"
	"github.com/lorafuse/lorafuse/diffusion/dit"
	"github.com/lorafuse/lorafuse/diffusion/vae"
	"github.com/lorafuse/lorafuse/model"
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
}

// The kinds of entries, as Progress is told.
const (
	TextTask    = "text embeddings"
	PictureTask = "latents"
)

// defaultSide is that of pictures for all models that are trained here.
const defaultSide = 1024

// CacheOptions gives the options with which package cache opens the cache of a pipeline:
// its recipes name the encoders by what is in their files, and what o says of entries.
// Parts of the pipeline that are not needed (TextOnly, PicturesOnly) need not be there.
// Errors: ErrPart, ErrPipeline, picture.ErrSize, those of files.
func (p *Pipeline) CacheOptions(o CacheOptions) (cache.Options, error) {
	var made cache.Options
	if !o.PicturesOnly {
		r, err := p.textRecipe()
		if err != nil {
			return made, err
		}
		made.Text = r
	}
	if !o.TextOnly {
		r, _, err := p.pictureRecipe(o)
		if err != nil {
			return made, err
		}
		made.Image = r
	}
	return made, nil
}

// textRecipe is what embeddings are made with.
func (p *Pipeline) textRecipe() (cache.Recipe, error) {
	c, err := p.captions()
	if err == nil {
		err = p.checkText(c)
	}
	if err != nil {
		return cache.Recipe{}, err
	}
	names := []string{c.main.encoder, c.main.tokenizer}
	if c.second != nil {
		names = append(names, c.second.encoder, c.second.tokenizer)
	}
	id, err := p.fingerprint(names...)
	if err != nil {
		return cache.Recipe{}, err
	}
	return cache.Recipe{Model: id, Settings: map[string]string{
		"prompts": c.name, "max_sequence_length": strconv.Itoa(c.main.longest - c.drop),
	}}, nil
}

// pictureRecipe is what latents are made with, and the sizes of pictures.
func (p *Pipeline) pictureRecipe(o CacheOptions) (cache.Recipe, *picture.Buckets, error) {
	side, multiple, err := p.sizes(o)
	if err != nil {
		return cache.Recipe{}, nil, err
	}
	buckets, err := picture.NewBuckets(side, multiple)
	if err != nil {
		return cache.Recipe{}, nil, fmt.Errorf("diffusion: %w", err)
	}
	id, err := p.fingerprint(VAE)
	if err != nil {
		return cache.Recipe{}, nil, err
	}
	settings := map[string]string{
		"side": strconv.Itoa(side), "multiple": strconv.Itoa(multiple), "resize": "catmull-rom, cover", "latents": "mean",
	}
	if o.Sample {
		settings["latents"] = fmt.Sprintf("sample of seed %d", o.Seed)
	}
	if o.Tile > 0 {
		settings["tile"] = strconv.Itoa(o.Tile)
	}
	return cache.Recipe{Model: id, Settings: settings}, buckets, nil
}

// editMultiple is of which sides are multiples where pictures are edited, as in the
// reference.
const editMultiple = 32

// sizes are the side of pictures and the number of which sides are multiples. Errors:
// picture.ErrSize, ErrPart, ErrPipeline.
func (p *Pipeline) sizes(o CacheOptions) (side, multiple int, err error) {
	dir, err := p.Folder(VAE)
	if err != nil {
		return 0, 0, err
	}
	c, err := model.ReadConfig(dir)
	if err != nil {
		return 0, 0, err
	}
	auto, ok := c.Family.(vae.Autoencoder)
	if !ok {
		return 0, 0, fmt.Errorf("diffusion: %w: %s has a %s, expected an autoencoder", ErrPipeline, dir, c.Architecture)
	}
	patch := 2 // of all transformers but those that say otherwise
	if t, _ := p.transformer(); t != nil {
		patch = max(1, t.Space().Multiple)
	}
	least := max(auto.Space().Multiple, auto.Space().Pixels*patch)
	multiple = o.Multiple
	if multiple == 0 {
		if multiple = least; p.edits() {
			multiple = max(editMultiple, least)
		}
	}
	if multiple < 0 || multiple%least != 0 {
		return 0, 0, fmt.Errorf("diffusion: %w: sides that are multiples of %d, expected multiples of %d, which %s and its transformer take", picture.ErrSize, multiple, least, c.Architecture)
	}
	return cmp.Or(o.Side, defaultSide), multiple, nil
}

// transformer is what the pipeline's transformer is like, and its class; nil where that is
// not known here.
func (p *Pipeline) transformer() (dit.Transformer, string) {
	c, err := model.ReadConfig(p.Parts[Transformer].Dir)
	if err != nil {
		return nil, ""
	}
	t, _ := c.Family.(dit.Transformer)
	return t, c.Architecture
}

// edits reports whether the pipeline makes pictures of others.
func (p *Pipeline) edits() bool {
	return slices.Contains([]string{"QwenImageEditPipeline", "QwenImageEditPlusPipeline"}, p.Class)
}

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
	var mu sync.Mutex // one text at a time: each has all of the device
	var e *Encoder
	defer func() {
		if e != nil {
			e.Close()
		}
	}()
	encode := func(text string) (cache.Embedding, error) {
		mu.Lock()
		defer mu.Unlock()
		if e == nil {
			var err error
			if e, err = p.OpenEncoder(ctx, dev); err != nil {
				return cache.Embedding{}, err
			}
		}
		return e.embedding(ctx, text)
	}
	more, err := c.Build(ctx, samples, cache.Encoders{Text: encode}, o.building(TextTask))
	add(stats, more)
	return err
}

func (p *Pipeline) buildPictures(ctx context.Context, dev backend.Device, c *cache.Cache, samples []cache.Sample, o CacheOptions, stats *cache.Stats) error {
	_, buckets, err := p.pictureRecipe(o)
	if err != nil {
		return err
	}
	l := &latents{pipeline: p, ctx: ctx, dev: dev, buckets: buckets, options: o}
	more, err := c.Build(ctx, bySize(samples, buckets), cache.Encoders{Image: l.encode}, o.building(PictureTask))
	add(stats, more)
	return errors.Join(err, l.close())
}

// bySize are samples in the order of the sizes that their pictures are brought to: the
// autoencoder has a program for each. What cannot be read comes first.
func bySize(samples []cache.Sample, buckets *picture.Buckets) []cache.Sample {
	sizes := make(map[string]picture.Size, len(samples))
	for _, s := range samples {
		sizes[s.Image] = buckets.Of(headerSize(s.Image))
	}
	sorted := slices.Clone(samples)
	slices.SortStableFunc(sorted, func(a, b cache.Sample) int {
		x, y := sizes[a.Image], sizes[b.Image]
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

package train

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/lorafuse/lorafuse/internal/data/cache"
	"github.com/lorafuse/lorafuse/internal/data/imagefolder"
	"github.com/lorafuse/lorafuse/internal/diffusion"
	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
	"github.com/lorafuse/lorafuse/internal/diffusion/feed"
	"github.com/lorafuse/lorafuse/internal/diffusion/flow"
	"github.com/lorafuse/lorafuse/internal/model/hub"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tensor"
)

// ErrPictures is wrapped if an image folder is unusable for training.
var ErrPictures = errors.New("pictures that cannot be learned from")

// pictures is the training data of diffusion models.
type pictures struct {
	*Run
	feed    *feed.Feed
	scale   [sha256.Size]byte // of latents
	sampler *sampler          // nil without samples
}

// readPictures opens the transformer of the pipeline, and opens and checks the image cache.
func (r *Run) readPictures(ctx context.Context) error {
	p, err := r.openPipeline(ctx)
	if err != nil {
		return err
	}
	config, t, err := p.Config()
	if err != nil {
		return err
	}
	o, err := r.feedOptions(ctx, p, t)
	if err != nil {
		return err
	}
	m := &pictures{Run: r, scale: scaleDigest(o, t.Space())}
	if m.feed, err = feed.New(ctx, o); err != nil {
		if errors.Is(err, cache.ErrMissing) || errors.Is(err, cache.ErrStale) || errors.Is(err, cache.ErrCorrupt) {
			return fmt.Errorf("train: diffusion.cache: %w; lorafuse data cache builds it", err)
		}
		return fmt.Errorf("train: diffusion.cache: %w", err)
	}
	if n := m.feed.Unkeyed(); n > 0 {
		r.observer.note("note     %d of %d pictures have entries in the cache that another program has written: whether they are of the pictures and captions as they are now, nobody can know", n, len(o.Samples))
	}
	if m.sampler, err = m.newSampler(ctx, p, config); err != nil {
		return err
	}
	r.use(m)
	return r.openTransformer(p) // which may be a long download: all else was right
}

// openTransformer opens the transformer.
func (r *Run) openTransformer(p *diffusion.Pipeline) (err error) {
	if r.model, _, err = p.OpenTransformer(); err != nil {
		return err
	}
	if why := r.model.Source.Why; why != "" {
		r.observer.note("note     reading %s: %s", r.model.Source.Path, why)
	}
	if err := r.model.CheckTask(dit.FlowMatching); err != nil {
		return fmt.Errorf("train: task: %s: %w", r.cfg.Task, err)
	}
	return r.quantize()
}

// openPipeline opens the pipeline, or the file of a transformer. Files on the Hub are
// downloaded when they are read.
func (r *Run) openPipeline(ctx context.Context) (*diffusion.Pipeline, error) {
	own := diffusion.Single{File: r.cfg.Diffusion.Transformer, Config: r.cfg.Diffusion.TransformerConfig}
	p, err := diffusion.Find(ctx, r.cfg.Model, own, r.hubOptions())
	switch {
	case err != nil:
		return nil, fmt.Errorf("train: %w", err)
	case own.Config != "" && !p.IsSingle():
		return nil, errors.New("train: diffusion.transformer_config: found no transformer in a single file, expected one as model or diffusion.transformer")
	}
	p.Notify(func(text string) { r.observer.note("note     %s", text) })
	return p, nil
}

// feedOptions returns the options for the transformer's training inputs.
func (r *Run) feedOptions(ctx context.Context, p *diffusion.Pipeline, t dit.Transformer) (o feed.Options, err error) {
	c, d := r.cfg, r.cfg.Diffusion
	o = feed.Options{
		Model: t, Guidance: float32(d.Guidance), CaptionDropout: d.CaptionDropoutRate,
		BatchSize: c.BatchSize, Accumulation: c.GradientAccumulationSteps, Seed: c.Seed, Shuffle: c.Data.Shuffle, DropLast: c.Data.DropLast,
	}
	if o.Samples, err = r.samples(ctx); err != nil {
		return o, err
	}
	if o.Cache, err = cache.Open(c.CacheDir(), cache.Options{Unkeyed: cache.Accept}); err != nil {
		return o, err
	}
	levels, err := p.Schedule()
	if err != nil {
		return o, err
	}
	o.Table = levels.Table()
	if o.Timesteps, err = flow.NamedTimesteps(d.Timesteps); err != nil {
		return o, err
	}
	o.Timesteps.Mean, o.Timesteps.Std, o.Timesteps.ModeScale = d.LogitMean, d.LogitStd, d.ModeScale
	o.Timesteps.Scale, o.Timesteps.By = d.SigmoidScale, d.Shift
	if o.Weighting, err = flow.ParseWeighting(d.Weighting); err != nil {
		return o, err
	}
	if err := r.latents(ctx, &o, p, t.Space()); err != nil {
		return o, err
	}
	return o, r.ours(p, o.Samples)
}

// ours rejects a cache made by encoders of another pipeline. Encoders that are not
// present are not checked or downloaded.
func (r *Run) ours(p *diffusion.Pipeline, samples []cache.Sample) error {
	here := p.Here()
	for _, o := range []diffusion.CacheOptions{{TextOnly: true}, {PicturesOnly: true}} {
		made, err := here.CacheOptions(o)
		if err != nil || o.PicturesOnly && r.cfg.Diffusion.VAE == asTransformer {
			continue
		}
		c, err := cache.Open(r.cfg.CacheDir(), made)
		if err != nil {
			return err
		}
		if entry, other := c.Foreign(samples); other != "" {
			return fmt.Errorf("train: diffusion.cache: %w: %s was made with %s, expected the encoders of %s", diffusion.ErrCache, entry, other, p)
		}
	}
	return nil
}

// asTransformer is the diffusion.vae of latents that are normalised already.
const asTransformer = "none"

// latents sets up the conversion of cached latents to the transformer's latent space.
func (r *Run) latents(ctx context.Context, o *feed.Options, p *diffusion.Pipeline, space dit.Space) error {
	switch own := r.cfg.Diffusion.VAE; own {
	case asTransformer:
		return nil
	case "":
	default:
		files, err := hub.Open(ctx, own, r.hubOptions())
		if err != nil {
			return fmt.Errorf("train: diffusion.vae: %w", err)
		}
		p.Put(diffusion.VAE, files)
	}
	canvas, err := p.Canvas(space)
	if errors.Is(err, diffusion.ErrPart) {
		return fmt.Errorf("train: diffusion.vae: %w: expected a folder with the config.json of the autoencoder, or %s where latents of the cache are normalised already", err, asTransformer)
	}
	if err != nil {
		return fmt.Errorf("train: diffusion.vae: %w", err)
	}
	o.Scale, o.Fold = canvas, canvas.Fold()
	return nil
}

// scaleDigest returns a SHA-256 of the effect of the conversion of latents.
func scaleDigest(o feed.Options, space dit.Space) [sha256.Size]byte {
	if o.Scale == nil {
		return [sha256.Size]byte{}
	}
	h := sha256.New()
	for x := range 2 {
		z := dit.Latent{Channels: space.Channels / (o.Fold * o.Fold), Frames: 1, Height: o.Fold, Width: o.Fold}
		z.Values = slices.Repeat([]float32{float32(x)}, space.Channels)
		o.Scale.Normalise(z)
		h.Write(tensor.BytesOf(z.Values))
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// samples returns the samples of the image folder.
func (r *Run) samples(ctx context.Context) ([]cache.Sample, error) {
	d := r.cfg.Diffusion
	f, err := imagefolder.Read(ctx, d.Images, imagefolder.Options{Control: d.Controls, Progress: func(task string, done, total int) {
		if r.observer.Load != nil {
			r.observer.Load("reading "+task, int64(done), int64(total))
		}
	}})
	if err != nil {
		return nil, fmt.Errorf("train: diffusion.images: %w", err)
	}
	for _, p := range f.Problems {
		if !p.Kind.Harmless() {
			return nil, fmt.Errorf("train: diffusion.images: %w: %s: %v: %s", ErrPictures, p.File, p.Kind, p.Detail)
		}
	}
	for _, n := range f.Notes() {
		r.observer.note("note     %s", n)
	}
	return f.Samples, nil
}

// attention targets the default layers of the transformer if the configuration names no
// targets.
func (r *Run) attention(c *lora.Config) *lora.Config {
	if c.TargetModules.IsSet() || len(c.TargetParameters) > 0 {
		return c
	}
	c = c.Clone()
	c.TargetModules.Names = dit.Targets(r.model)
	return c
}

// rows implements material.
func (p *pictures) rows() (train, eval Rows) { return p.feed, nil }

// cut implements material.
func (p *pictures) cut(n int) (material, error) {
	f, err := p.feed.Recut(n)
	return &pictures{p.Run, f, p.scale, p.sampler}, err
}

// loss implements material.
func (p *pictures) loss() (Loss, error) { return FlowMatching{p.feed.Bounds()}.Loss(), nil }

// bind implements material.
func (p *pictures) bind(r *Run) {
	d := r.cfg.Diffusion
	digest := p.feed.Digest()
	r.bind("data.train", fmt.Sprintf("pictures %x", digest[:8]))
	r.bind("diffusion.vae", fmt.Sprintf("sha256 %x", p.scale[:8]))
	r.bind("diffusion.caption_dropout_rate", d.CaptionDropoutRate)
	r.bind("diffusion.timesteps", fmt.Sprintf("%+v", p.feed.Timesteps))
	r.bind("diffusion.weighting", d.Weighting)
	if p.feed.Model.Space().Guidance {
		r.bind("diffusion.guidance", d.Guidance)
	}
	table := sha256.Sum256(tensor.BytesOf(p.feed.Table.Sigmas))
	r.bind("scheduler_config.json", fmt.Sprintf("sha256 %x", table[:8]))
}

// begin implements material.
func (p *pictures) begin(context.Context, *loop) error { return nil }

// after implements material.
func (p *pictures) after(ctx context.Context, l *loop, step int) error { return p.draw(ctx, l, step) }

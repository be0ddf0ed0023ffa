// Package flowmatching has the training task that learns pictures with captions.
package flowmatching

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/data/cache"
	"github.com/lorafuse/lorafuse/internal/data/imagefolder"
	"github.com/lorafuse/lorafuse/internal/diffusion"
	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
	"github.com/lorafuse/lorafuse/internal/diffusion/feed"
	"github.com/lorafuse/lorafuse/internal/diffusion/flow"
	"github.com/lorafuse/lorafuse/internal/lora/dialects"
	"github.com/lorafuse/lorafuse/internal/model/hub"
	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/internal/train/trainer"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tensor"
	"github.com/lorafuse/lorafuse/train/config"
)

// ErrPictures is wrapped if an image folder is unusable for training.
var ErrPictures = errors.New("pictures that cannot be learned from")

func init() {
	train.Register(config.TaskDiffusion, train.Task{Open: open, Try: try, Card: train.Card{
		Pipeline: "text-to-image", Library: "diffusers", Python: `from diffusers import DiffusionPipeline
from peft import PeftModel

pipeline = DiffusionPipeline.from_pretrained({base})
pipeline.transformer = PeftModel.from_pretrained(pipeline.transformer, {adapter})
`}})
}

// try returns how to draw with an adapter.
func try(c *config.Config) train.Try {
	model, transformer := c.Model, c.Diffusion.Transformer
	if info, err := os.Stat(model); err == nil && !info.IsDir() {
		model, transformer = "path/to/pipeline", c.Model // which has the encoders
	}
	t := train.Try{Command: "draw", Model: []string{"--model", model}, Input: `--prompt "..." --output picture.png`}
	if transformer != "" {
		t.Model = append(t.Model, "--transformer", transformer)
	}
	if own := c.Diffusion.TransformerConfig; own != "" {
		t.Model = append(t.Model, "--transformer-config", own)
	}
	return t
}

// pictures are the rows of a run.
type pictures struct {
	*train.Setup
	cfg     *config.Config
	feed    *feed.Feed
	scale   [sha256.Size]byte // of latents
	sampler *sampler          // nil without samples

	settings map[string]string // see train.Material
}

// open opens a run on pictures: the transformer of a pipeline, and the cache of the pictures.
func open(ctx context.Context, s *train.Setup) (*train.Material, error) {
	m := &pictures{Setup: s, cfg: s.Config()}
	p, err := m.openPipeline(ctx)
	if err != nil {
		return nil, err
	}
	config, t, err := p.Config()
	if err != nil {
		return nil, err
	}
	o, err := m.feedOptions(ctx, p, t)
	if err != nil {
		return nil, err
	}
	m.scale = scaleDigest(o, t.Space())
	if m.feed, err = feed.New(ctx, o); err != nil {
		if errors.Is(err, cache.ErrMissing) || errors.Is(err, cache.ErrStale) || errors.Is(err, cache.ErrCorrupt) {
			return nil, fmt.Errorf("train: diffusion.cache: %w; lorafuse data cache builds it", err)
		}
		return nil, fmt.Errorf("train: diffusion.cache: %w", err)
	}
	if n := m.feed.Unkeyed(); n > 0 {
		s.Note("note     %d of %d pictures have entries in the cache that another program has written: whether they are of the pictures and captions as they are now, nobody can know", n, len(o.Samples))
	}
	if m.sampler, err = m.newSampler(ctx, p, config); err != nil {
		return nil, err
	}
	if err := m.openTransformer(p); err != nil { // which may be a long download: all else was right
		return nil, err
	}
	m.identify()
	return m.material(), nil
}

// material returns the material of the run.
func (p *pictures) material() *train.Material {
	m := &train.Material{
		Train: p.feed, Loss: Loss(p.feed.Bounds()), Settings: p.settings,
		Targets: p.attention, OpenAdapter: openAdapter, Export: p.export,
	}
	m.Cut = func(n int) (*train.Material, error) {
		c := *p
		var err error
		if c.feed, err = p.feed.Recut(n); err != nil {
			return nil, err
		}
		return c.material(), nil
	}
	if p.sampler != nil {
		m.Reserve, m.After = p.reserve, p.draw
	}
	return m
}

// Loss returns the loss of diffusion transformers: they predict the velocity from noise to
// image at a noisy sample. axes are the sizes of the axes of batches, which always have the
// planned number of samples.
func Loss(axes map[string]int) trainer.Loss {
	l := trainer.LossOf(dit.FlowMatching)
	l.Bounds = func(int) map[string]int { return axes }
	l.Smaller = "pictures of fewer pixels take less" // the number of tokens depends on the size of images
	return l
}

// openTransformer opens the transformer.
func (p *pictures) openTransformer(from *diffusion.Pipeline) error {
	m, _, err := from.OpenTransformer()
	if err != nil {
		return err
	}
	if line := m.Source.Note(); line != "" {
		p.Note("note     %s", line)
	}
	return p.UseModel(m, dit.FlowMatching)
}

// openAdapter opens an adapter of PEFT or of another tool.
func openAdapter(path string, target lora.Model) (*lora.Adapter, error) {
	return dialects.Open(path, target, dialects.Options{})
}

// lycorisFile is the file of an adapter in the names of LyCORIS.
const lycorisFile = "lycoris.safetensors"

// export writes the file that diffusers loads, or that of LyCORIS for LoHa and LoKr. Parts without a place in that format, such as
// modules that are trained whole, are only in PEFT's folder.
func (p *pictures) export(dir string, s *lora.State) error {
	c, tensors, err := s.Tensors(false)
	if err != nil {
		return err
	}
	m := p.Model()
	file, form := dialects.File, dialects.Diffusers
	if c.PeftType != lora.DefaultConfig().PeftType {
		file, form = lycorisFile, dialects.Lycoris
	}
	err = dialects.Write(filepath.Join(dir, file), form, lora.ModelOf(m.Config.ModelType, m.Modules()), c, tensors)
	if errors.Is(err, lora.ErrUnsupported) {
		return nil
	}
	return err
}

// openPipeline opens the pipeline, or the file of a transformer. Files on the Hub are
// downloaded when they are read.
func (p *pictures) openPipeline(ctx context.Context) (*diffusion.Pipeline, error) {
	own := diffusion.Single{File: p.cfg.Diffusion.Transformer, Config: p.cfg.Diffusion.TransformerConfig}
	pipe, err := diffusion.Find(ctx, p.cfg.Model, own, p.Hub())
	switch {
	case err != nil:
		return nil, fmt.Errorf("train: %w", err)
	case own.Config != "" && !pipe.IsSingle():
		return nil, errors.New("train: diffusion.transformer_config: found no transformer in a single file, expected one as model or diffusion.transformer")
	}
	pipe.Notify(func(text string) { p.Note("note     %s", text) })
	return pipe, nil
}

// feedOptions returns the options for the transformer's training inputs.
func (p *pictures) feedOptions(ctx context.Context, pipe *diffusion.Pipeline, t dit.Transformer) (o feed.Options, err error) {
	c, d := p.cfg, p.cfg.Diffusion
	o = feed.Options{
		Model: t, Guidance: float32(d.Guidance), CaptionDropout: d.CaptionDropoutRate,
		BatchSize: c.BatchSize, Accumulation: c.GradientAccumulationSteps, Seed: c.Seed, Shuffle: c.Data.Shuffle, DropLast: c.Data.DropLast,
	}
	if o.Samples, err = p.samples(ctx); err != nil {
		return o, err
	}
	if err = p.encode(ctx, pipe, o.Samples); err != nil {
		return o, err
	}
	if o.Cache, err = cache.Open(c.CacheDir(), cache.Options{Unkeyed: cache.Accept}); err != nil {
		return o, err
	}
	levels, err := pipe.Schedule()
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
	if err := p.latents(ctx, &o, pipe, t.Space()); err != nil {
		return o, err
	}
	return o, p.ours(pipe, o.Samples)
}

// encode builds the cache if the data of the run says so. If the pipeline has no text encoders,
// the embeddings of the captions must be in it already.
func (p *pictures) encode(ctx context.Context, pipe *diffusion.Pipeline, samples []cache.Sample) error {
	if !p.Data().Encode {
		return nil
	}
	dev, err := backend.Open(p.cfg.Backend, backend.Options{Threads: p.cfg.Threads})
	if err != nil {
		return err
	}
	defer dev.Close()
	_, err = pipe.BuildCache(ctx, dev, p.cfg.CacheDir(), samples, diffusion.CacheOptions{
		Side: p.Data().Side, Workers: runtime.NumCPU(), PicturesOnly: pipe.CheckText() != nil,
		Progress:  func(task string, done, total int) { p.Progress("encoding "+task, int64(done), int64(total)) },
		Truncated: func(caption string, t diffusion.Truncation) { p.Note("note     caption %q is %v", caption, t) },
	})
	return err
}

// ours rejects a cache made by encoders of another pipeline. Encoders that are not
// present are not checked or downloaded.
func (p *pictures) ours(pipe *diffusion.Pipeline, samples []cache.Sample) error {
	here := pipe.Here()
	for _, o := range []diffusion.CacheOptions{{TextOnly: true}, {PicturesOnly: true}} {
		made, err := here.CacheOptions(o)
		if err != nil || o.PicturesOnly && p.cfg.Diffusion.VAE == asTransformer {
			continue
		}
		c, err := cache.Open(p.cfg.CacheDir(), made)
		if err != nil {
			return err
		}
		if entry, other := c.Foreign(samples); other != "" {
			return fmt.Errorf("train: diffusion.cache: %w: %s was made with %s, expected the encoders of %s", diffusion.ErrCache, entry, other, pipe)
		}
	}
	return nil
}

// asTransformer is the diffusion.vae of latents that are normalised already.
const asTransformer = "none"

// latents sets up the conversion of cached latents to the transformer's latent space.
func (p *pictures) latents(ctx context.Context, o *feed.Options, pipe *diffusion.Pipeline, space dit.Space) error {
	switch own := p.cfg.Diffusion.VAE; own {
	case asTransformer:
		return nil
	case "":
	default:
		files, err := hub.Open(ctx, own, p.Hub())
		if err != nil {
			return fmt.Errorf("train: diffusion.vae: %w", err)
		}
		pipe.Put(diffusion.VAE, files)
	}
	canvas, err := pipe.Canvas(space)
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
func (p *pictures) samples(ctx context.Context) ([]cache.Sample, error) {
	d := p.cfg.Diffusion
	f, err := imagefolder.Read(ctx, d.Images, imagefolder.Options{Control: d.Controls, Decode: d.SkipBad, Progress: func(task string, done, total int) {
		p.Progress("reading "+task, int64(done), int64(total))
	}})
	if err != nil {
		return nil, fmt.Errorf("train: diffusion.images: %w", err)
	}
	samples, problems := f.Usable()
	if n := len(problems); n > 0 && (!d.SkipBad || len(samples) == 0) {
		more := ""
		if n > 1 {
			more = fmt.Sprintf("; %d more, which lorafuse data validate lists; diffusion.skip_bad: true leaves them out", n-1)
		}
		return nil, fmt.Errorf("train: diffusion.images: %w: %v%s", ErrPictures, problems[0], more)
	}
	for _, x := range problems {
		p.Note("left out %v", x)
	}
	for _, n := range f.Notes() {
		p.Note("note     %s", n)
	}
	return samples, nil
}

// attention targets the default layers of the transformer if the configuration names no
// targets.
func (p *pictures) attention(c *lora.Config) *lora.Config {
	if c.TargetModules.IsSet() || len(c.TargetParameters) > 0 {
		return c
	}
	c = c.Clone()
	c.TargetModules.Names = dit.Targets(p.Model())
	return c
}

// identify records the settings that affect results.
func (p *pictures) identify() {
	d, digest, table := p.cfg.Diffusion, p.feed.Digest(), sha256.Sum256(tensor.BytesOf(p.feed.Table.Sigmas))
	p.settings = map[string]string{
		"data.train":                     fmt.Sprintf("pictures %x", digest[:8]),
		"diffusion.vae":                  fmt.Sprintf("sha256 %x", p.scale[:8]),
		"diffusion.caption_dropout_rate": fmt.Sprint(d.CaptionDropoutRate),
		"diffusion.timesteps":            fmt.Sprintf("%+v", p.feed.Timesteps),
		"diffusion.weighting":            d.Weighting,
		"scheduler_config.json":          fmt.Sprintf("sha256 %x", table[:8]),
	}
	if p.feed.Model.Space().Guidance {
		p.settings["diffusion.guidance"] = fmt.Sprint(d.Guidance)
	}
}

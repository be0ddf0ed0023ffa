package lorafuse

import (
	"context"
	"errors"
	"fmt"
	"image"
	"sync"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/diffusion"
	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
	"github.com/lorafuse/lorafuse/internal/diffusion/vae"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/host"
	"github.com/lorafuse/lorafuse/internal/lora/dialects"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/model/hub"
	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/lora"
)

// Pipeline is an open diffusion pipeline. Its methods are safe for concurrent use; one call runs
// at a time.
type Pipeline struct {
	device   backend.Device
	pipeline *diffusion.Pipeline
	model    *model.Model // the transformer
	host     *host.Host
	painter  *diffusion.Painter
	canvas   *diffusion.Canvas

	mu     sync.Mutex
	closed bool
	slots  map[string]*engine.Slot // adapters by name; the empty name is the transformer alone
}

// OpenPipeline opens a pipeline of diffusers: a folder, or owner/name[@revision] on the Hugging
// Face Hub. The options ChatTemplate, MaxLength and MaxSeqs do not apply. Close frees the
// pipeline.
func OpenPipeline(ctx context.Context, name string, o Options) (_ *Pipeline, err error) {
	p := &Pipeline{slots: map[string]*engine.Slot{}}
	defer func() {
		if err != nil {
			err = fmt.Errorf("lorafuse: open %s: %w", name, errors.Join(err, p.Close()))
		}
	}()
	method, err := quant.ParseMethod(o.Quantize)
	if err != nil {
		return nil, fmt.Errorf("option Quantize: %w", err)
	}
	if p.device, err = o.open(); err != nil {
		return nil, err
	}
	if p.pipeline, err = diffusion.Find(ctx, name, diffusion.Single{}, hub.Options{Progress: o.Progress}); err != nil {
		return nil, err
	}
	schedule, err := p.pipeline.Schedule()
	if err != nil {
		return nil, err
	}
	var t dit.Transformer
	if p.model, t, err = p.pipeline.OpenTransformer(); err != nil {
		return nil, err
	}
	if p.canvas, err = p.pipeline.Canvas(t.Space()); err != nil {
		return nil, err
	}
	if err := p.model.Quantize(method, nil); err != nil {
		return nil, err
	}
	p.host = host.Open(p.device, p.model)
	if p.painter, err = diffusion.NewPainter(p.host, schedule, p.pipeline.Style(p.model.Config)); err != nil {
		return nil, err
	}
	p.slots[""], err = p.host.NewSlot(nil)
	return p, err
}

// Close frees the pipeline. Later calls return ErrClosed.
func (p *Pipeline) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	if p.host != nil {
		p.host.Close()
	}
	for _, s := range p.slots {
		s.Free()
	}
	var errs []error
	if p.model != nil {
		errs = append(errs, p.model.Close())
	}
	if p.device != nil {
		errs = append(errs, p.device.Close())
	}
	return errors.Join(errs...)
}

// LoadAdapter loads an adapter and registers it under a name for later calls of Draw. path is a
// folder written by PEFT or lorafuse, or a file of diffusers, kohya or ComfyUI. Loading under a
// name in use replaces the adapter.
func (p *Pipeline) LoadAdapter(ctx context.Context, name, path string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return ErrClosed
	}
	if err := lora.CheckName(name); err != nil {
		return fmt.Errorf("lorafuse: %w", err)
	}
	state, err := dialects.LoadState(path, p.model, lora.ModelOf(p.model.Config.ModelType, p.model.Modules()), lora.CheckOptions{})
	if err != nil {
		return fmt.Errorf("lorafuse: %w", err)
	}
	slot, err := p.host.NewSlot(state)
	if err != nil {
		return fmt.Errorf("lorafuse: %w", err)
	}
	if old := p.slots[name]; old != nil {
		old.Free()
	}
	p.slots[name] = slot
	return nil
}

// DrawParams configure [Pipeline.Draw]. The zero value uses the defaults of the pipeline.
type DrawParams struct {
	// Adapter is the name of a loaded adapter. Empty means the model alone.
	Adapter string
	// Seed selects the initial noise: equal seeds give equal images.
	Seed uint64
	// Steps from noise to image. Zero means the default of the pipeline.
	Steps int
	// Guidance is the strength of the prompt. Zero means the default of the pipeline.
	Guidance float64
	// Negative is the prompt that guidance leads away from. Empty means that of the pipeline.
	Negative string
	// Width and Height in pixels. Zero means 1024, or the size of Controls.
	Width, Height int
	// Controls are images to draw from, for models that edit images.
	Controls []image.Image
	// Embedding is a file with an encoded prompt, such as text_embs/….safetensors of a cache.
	// It replaces the prompt, and no text encoder is needed.
	Embedding string
}

// Draw generates the image of a prompt.
func (p *Pipeline) Draw(ctx context.Context, prompt string, d DrawParams) (image.Image, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, ErrClosed
	}
	m, err := p.draw(ctx, prompt, d)
	if err != nil {
		return nil, fmt.Errorf("lorafuse: draw: %w", err)
	}
	return m, nil
}

func (p *Pipeline) draw(ctx context.Context, prompt string, d DrawParams) (image.Image, error) {
	slot := p.slots[d.Adapter]
	if slot == nil {
		return nil, fmt.Errorf("adapter %q: %w", d.Adapter, lora.ErrNotFound)
	}
	if d.Steps < 0 {
		return nil, fmt.Errorf("%w: Steps: found %d, expected 0 or more", ErrOption, d.Steps)
	}
	controls, err := p.controls(d)
	if err != nil {
		return nil, err
	}
	what := diffusion.Drawing{Steps: d.Steps, Seed: d.Seed}
	if what.Width, what.Height, err = p.size(d, controls); err != nil {
		return nil, err
	}
	if d.Guidance != 0 {
		what.SetGuidance(p.painter.Space(), d.Guidance)
	}
	if err := p.encode(ctx, &what, prompt, controls, d); err != nil {
		return nil, err
	}
	if controls != nil {
		if err := p.paint(func() (err error) { what.Controls, err = controls.Latents(ctx, p.canvas); return err }); err != nil {
			return nil, err
		}
	}
	x, err := p.painter.Draw(ctx, slot, what)
	if err != nil {
		return nil, err
	}
	if p.pipeline.Has(diffusion.VAE) {
		p.painter.Close() // memory for the autoencoder
	}
	var picture vae.Picture
	if err := p.paint(func() (err error) { picture, err = p.canvas.Paint(ctx, x); return err }); err != nil {
		return nil, err
	}
	return diffusion.Image(picture), nil
}

// paint calls f while the autoencoder is on the device.
func (p *Pipeline) paint(f func() error) error {
	if err := p.canvas.Open(p.device, vae.Options{}); err != nil {
		return err
	}
	return errors.Join(f(), p.canvas.Close())
}

// controls fits the control images to the pipeline.
func (p *Pipeline) controls(d DrawParams) (*diffusion.Controls, error) {
	if len(d.Controls) == 0 {
		if p.pipeline.Edits() && d.Embedding == "" {
			return nil, fmt.Errorf("%w: Controls: a %s draws from images", ErrOption, p.pipeline.Class)
		}
		return nil, nil
	}
	if err := p.pipeline.CheckControls(); err != nil && d.Adapter == "" {
		return nil, err
	}
	return p.pipeline.Controls(p.canvas, 0, d.Controls...)
}

// size returns the size of the latent.
func (p *Pipeline) size(d DrawParams, c *diffusion.Controls) (width, height int, err error) {
	const usual = 1024
	width, height = d.Width, d.Height
	switch {
	case width != 0 || height != 0:
	case c != nil:
		width, height = c.Size.Width, c.Size.Height
	case p.pipeline.Has(diffusion.VAE):
		width, height = usual, usual
	default:
		return 0, 0, fmt.Errorf("%w: Width and Height are 0, and the model has no usual size", ErrOption)
	}
	return p.canvas.Latent(width, height)
}

// encode encodes the prompts. It frees the text encoders before it returns.
func (p *Pipeline) encode(ctx context.Context, what *diffusion.Drawing, prompt string, c *diffusion.Controls, d DrawParams) (err error) {
	if d.Embedding != "" {
		what.Prompt, err = diffusion.ReadPrompt(d.Embedding)
		if err == nil && what.Prompt.Features != p.painter.Space().Text {
			err = fmt.Errorf("%w: Embedding: %s has %d features per token, expected %d", ErrOption, d.Embedding, what.Prompt.Features, p.painter.Space().Text)
		}
		return err
	}
	negative := p.painter.Style.Negative
	if d.Negative != "" {
		negative = &d.Negative
	}
	switch {
	case !p.painter.Space().Guidance:
	case d.Negative != "":
		return fmt.Errorf("%w: Negative: a %s has no negative prompt", ErrOption, p.model.Config.Architecture)
	default:
		negative = nil
	}
	e, err := p.pipeline.OpenEncoder(ctx, p.device)
	if err != nil {
		return err
	}
	defer e.Close()
	if what.Prompt, err = c.Encode(ctx, e, prompt); err != nil {
		return err
	}
	if negative == nil || !p.painter.Style.Guided(*what) {
		return nil
	}
	away, err := c.Encode(ctx, e, *negative)
	what.Negative = &away
	return err
}

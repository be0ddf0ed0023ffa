package lorafuse

import (
	"context"
	"errors"
	"fmt"
	"image"
	"sync"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/diffusion"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/model/hub"
	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/lora"
)

// Pipeline is an open diffusion pipeline. Its methods are safe for concurrent use; one call runs
// at a time.
type Pipeline struct {
	device backend.Device

	mu        sync.Mutex
	closed    bool
	generator *diffusion.Generator
	slots     map[string]*engine.Slot // adapters by name; the empty name is the transformer alone
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
	found, err := diffusion.Find(ctx, name, diffusion.Single{}, hub.Options{Progress: o.Progress})
	if err != nil {
		return nil, err
	}
	if p.generator, err = diffusion.NewGenerator(p.device, found); err != nil {
		return nil, err
	}
	p.generator.Resident = true
	if err := p.generator.OpenTransformer(); err != nil {
		return nil, err
	}
	if err := p.generator.Start(method, nil); err != nil {
		return nil, err
	}
	p.slots[""], err = p.generator.Attach(nil)
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
	var errs []error
	if p.generator != nil {
		errs = append(errs, p.generator.Close())
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
	state, err := p.generator.LoadAdapter(path)
	if err != nil {
		return fmt.Errorf("lorafuse: %w", err)
	}
	slot, err := p.generator.Attach(state)
	if err != nil {
		return fmt.Errorf("lorafuse: %w", err)
	}
	if old := p.slots[name]; old != nil {
		p.generator.Detach(old)
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
	request := diffusion.Request{
		Prompts: []string{prompt}, Controls: d.Controls, Width: d.Width, Height: d.Height, Steps: d.Steps, Adapted: d.Adapter != "",
	}
	if d.Embedding != "" {
		request.Prompts, request.Embeddings = nil, []string{d.Embedding}
	}
	if d.Guidance != 0 {
		request.Guidance = &d.Guidance
	}
	if d.Negative != "" {
		request.Negative = &d.Negative
	}
	plan, err := p.generator.Plan(request)
	if err == nil {
		err = p.generator.Encode(ctx, plan, nil)
	}
	if _, ok := errors.AsType[*diffusion.OptionError](err); ok || errors.Is(err, diffusion.ErrDrawing) {
		return nil, fmt.Errorf("%w: %w", ErrOption, err)
	}
	if err != nil {
		return nil, err
	}
	what := plan.Drawing
	what.Prompt, what.Seed = plan.Prompts[0], d.Seed
	images, err := p.generator.Draw(ctx, []diffusion.Shot{{Slot: slot, Drawing: what}}, nil)
	if err != nil {
		return nil, err
	}
	return images[0], nil
}

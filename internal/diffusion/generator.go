package diffusion

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"image"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
	"github.com/lorafuse/lorafuse/internal/diffusion/flow"
	"github.com/lorafuse/lorafuse/internal/diffusion/vae"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/host"
	"github.com/lorafuse/lorafuse/internal/lora/dialects"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/lora"
)

// Generator generates images with a whole pipeline: it encodes prompts and control images, runs
// the transformer, and decodes latents. Its methods are called in the order of their
// declaration; Plan, Encode and Draw may be repeated if it is resident. It is not safe for
// concurrent use.
type Generator struct {
	// Resident keeps the transformer on the device, and the text encoders too if they use
	// little memory. Otherwise Encode and Draw leave nothing on the device, and Draw can be
	// called once.
	Resident bool
	VAE      vae.Options

	Model *model.Model // the transformer; nil until OpenTransformer
	Space dit.Space
	Style Style

	dev          backend.Device
	pipeline     *Pipeline
	architecture string // of the transformer
	schedule     *flow.Schedule
	canvas       *Canvas
	encoder      *Encoder // nil unless it is open
	host         *host.Host
	painter      *Painter
}

// Progress is called after each part of a task. Nil is not called.
type Progress func(task string, done, total int)

// Tasks that call a Progress.
const (
	EncodeTask = "encoding prompts"
	DrawTask   = "drawing"
	DecodeTask = "decoding"
)

func (f Progress) report(task string, done, total int) {
	if f != nil {
		f(task, done, total)
	}
}

// NewGenerator returns a generator for a pipeline on a device. It reads configurations only.
// Errors: errors of Pipeline.Config, Pipeline.Schedule and Pipeline.Canvas.
func NewGenerator(dev backend.Device, p *Pipeline) (*Generator, error) {
	c, t, err := p.Config()
	if err != nil {
		return nil, err
	}
	g := &Generator{Space: t.Space(), Style: p.Style(c), dev: dev, pipeline: p, architecture: c.Architecture}
	if g.Space.Guidance {
		g.Style.Negative = nil
	}
	if g.schedule, err = p.Schedule(); err != nil {
		return nil, err
	}
	g.canvas, err = p.Canvas(g.Space)
	return g, err
}

// OpenTransformer opens the model of the transformer. Errors: errors of
// Pipeline.OpenTransformer.
func (g *Generator) OpenTransformer() (err error) {
	g.Model, _, err = g.pipeline.OpenTransformer()
	return err
}

// LoadAdapter loads an adapter of the transformer in any format. Errors: errors of
// dialects.LoadState.
func (g *Generator) LoadAdapter(path string) (*lora.State, error) {
	return dialects.LoadState(path, g.Model, lora.ModelOf(g.Model.Config.ModelType, g.Model.Modules()), lora.CheckOptions{})
}

// Encode computes the prompts of a plan and its latents of control images. progress is called
// after each prompt. Errors: OptionError, and errors of Pipeline.OpenEncoder,
// Canvas.Fetch and the device.
func (g *Generator) Encode(ctx context.Context, p *Plan, progress Progress) error {
	if err := g.encodePrompts(ctx, p, progress); err != nil {
		return err
	}
	if err := g.canvas.Fetch(); err != nil || p.controls == nil {
		return err
	}
	err := g.canvas.With(g.dev, g.VAE, func() (err error) {
		p.Drawing.Controls, err = p.controls.Latents(ctx, g.canvas)
		return err
	})
	return option("control", err)
}

// Start quantizes the transformer and creates its host. progress may be nil. Errors: errors of
// model.Quantize.
func (g *Generator) Start(m quant.Method, progress func(done, total int64)) (err error) {
	if err := g.Model.Quantize(m, progress); err != nil {
		return err
	}
	g.host = host.Open(g.dev, g.Model)
	g.painter, err = NewPainter(g.host, g.schedule, g.Style)
	return err
}

// Attach returns a slot for an adapter, or for none, until Detach or Close.
func (g *Generator) Attach(state *lora.State) (*engine.Slot, error) { return g.host.Attach(state) }

// Detach frees a slot.
func (g *Generator) Detach(s *engine.Slot) { g.host.Detach(s) }

// Shot is a drawing with the adapter of a slot.
type Shot struct {
	Slot    *engine.Slot
	Drawing Drawing
}

// Draw generates the images of shots: all latents first, then the images. progress is
// called after each step and each image. Errors: errors of Painter.Draw and
// Canvas.Paint.
func (g *Generator) Draw(ctx context.Context, shots []Shot, progress Progress) ([]image.Image, error) {
	latents := make([]dit.Latent, len(shots))
	for i, s := range shots {
		s.Drawing.Each = func(step, steps int, _ []float32) error {
			progress.report(DrawTask, i*steps+step, len(shots)*steps)
			return nil
		}
		var err error
		if latents[i], err = g.draw(ctx, s); err != nil {
			return nil, err
		}
	}
	switch {
	case !g.Resident:
		g.host.Close()
	case g.canvas.dir != "":
		g.painter.Close() // memory for the autoencoder
	}
	return g.canvas.Images(ctx, g.dev, g.VAE, latents, func(done int) { progress.report(DecodeTask, done, len(shots)) })
}

// draw generates the latent of a shot. If the device has no memory left, it closes the text
// encoders and starts again.
func (g *Generator) draw(ctx context.Context, s Shot) (dit.Latent, error) {
	x, err := g.painter.Draw(ctx, s.Slot, s.Drawing)
	if errors.Is(err, backend.ErrOutOfMemory) && g.encoder != nil {
		g.closeEncoder()
		x, err = g.painter.Draw(ctx, s.Slot, s.Drawing)
	}
	return x, err
}

// Close frees everything but the device.
func (g *Generator) Close() error {
	g.closeEncoder()
	if g.host != nil {
		g.host.Close()
	}
	if g.Model != nil {
		return g.Model.Close()
	}
	return nil
}

// encodePrompts encodes the prompts of a plan, or reads stored embeddings.
func (g *Generator) encodePrompts(ctx context.Context, p *Plan, progress Progress) (err error) {
	r := &p.request
	for _, path := range r.Embeddings {
		x, err := g.readPrompt(path)
		if err != nil {
			return option("embedding", err)
		}
		p.Prompts = append(p.Prompts, x)
	}
	if r.NegativeEmbedding != "" {
		x, err := g.readPrompt(r.NegativeEmbedding)
		if err != nil {
			return option("negative-embedding", err)
		}
		p.Drawing.Negative, p.Negative = &x, r.NegativeEmbedding
	}
	if len(r.Prompts) == 0 {
		return nil
	}
	if g.encoder == nil {
		if g.encoder, err = g.pipeline.OpenEncoder(ctx, g.dev); err != nil {
			return err
		}
	}
	defer func() {
		if !g.Resident || g.encoder.bytes() > maxResident {
			g.closeEncoder()
		}
	}()
	for i, text := range r.Prompts {
		x, err := g.encode(ctx, p, "prompt", text)
		if err != nil {
			return err
		}
		p.Prompts = append(p.Prompts, x)
		progress.report(EncodeTask, i+1, len(r.Prompts))
	}
	negative := cmp.Or(r.Negative, g.Style.Negative)
	if negative == nil || p.Drawing.Negative != nil || !g.Style.Guided(p.Drawing) {
		return nil
	}
	x, err := g.encode(ctx, p, "negative", *negative)
	p.Drawing.Negative, p.Negative = &x, *negative
	return err
}

// encode encodes a prompt, and records whether it was truncated.
func (g *Generator) encode(ctx context.Context, p *Plan, name, text string) (dit.Prompt, error) {
	x, err := p.controls.Encode(ctx, g.encoder, text)
	if err != nil {
		return x, option(name, fmt.Errorf("%q: %w", text, err))
	}
	for _, t := range g.encoder.Truncations() {
		p.Truncated = append(p.Truncated, TruncatedPrompt{name, text, t})
	}
	return x, nil
}

// readPrompt reads an encoded prompt, which must be one for this transformer.
func (g *Generator) readPrompt(path string) (dit.Prompt, error) {
	p, err := ReadPrompt(path)
	if err == nil && p.Features != g.Space.Text {
		err = fmt.Errorf("%s: found %d features of a token, expected %d as the transformer has: is it that of another model?", path, p.Features, g.Space.Text)
	}
	return p, err
}

// maxResident is the maximum device memory of text encoders that stay open, in bytes: that of
// the programs that a host caches.
const maxResident = 1 << 30

// closeEncoder closes the text encoders if they are open.
func (g *Generator) closeEncoder() {
	if g.encoder != nil {
		g.encoder.Close()
		g.encoder = nil
	}
}

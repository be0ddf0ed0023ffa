package cli

import (
	"context"
	"fmt"
	"image"
	"time"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/diffusion"
	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
	"github.com/lorafuse/lorafuse/internal/diffusion/flow"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/host"
	"github.com/lorafuse/lorafuse/internal/lora/dialects"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/lora"
)

// drawing is the state of one run of `draw`: the opened parts of its pipeline.
type drawing struct {
	app       *app
	flags     *drawFlags
	dev       backend.Device
	pipeline  *diffusion.Pipeline
	model     *model.Model
	space     dit.Space
	style     diffusion.Style
	schedule  *flow.Schedule
	canvas    *diffusion.Canvas
	state     *lora.State         // nil without an adapter
	controls  *diffusion.Controls // nil without --control
	what      diffusion.Drawing
	prompts   []dit.Prompt
	truncated []truncatedPrompt
}

// openDrawing opens the models that the flags name and detects all errors before the first step.
func (a *app) openDrawing(ctx context.Context, f *drawFlags) (_ *drawing, err error) {
	d := &drawing{app: a, flags: f}
	defer func() {
		if err != nil {
			d.close()
		}
	}()
	if err := checkOutput(f.output); err != nil {
		return nil, fmt.Errorf("draw: --output: %w", err)
	}
	if d.dev, err = a.openDevice(&f.modelFlags, f.machine()); err != nil {
		return nil, err
	}
	if d.pipeline, err = a.openPipeline(ctx, "draw", f.model, f.transformer); err != nil {
		return nil, err
	}
	config, t, err := d.pipeline.Config()
	if err != nil {
		return nil, err
	}
	d.space, d.style = t.Space(), d.pipeline.Style(config)
	if err := d.plan(config.Architecture); err != nil {
		return nil, err
	}
	if d.model, _, err = d.pipeline.OpenTransformer(); err != nil {
		return nil, err
	}
	a.noteSource(d.model.Source)
	if f.adapter != "" {
		if d.state, err = d.adapter(); err != nil {
			return nil, err
		}
	}
	if err := d.read(ctx); err != nil {
		return nil, err
	}
	d.noteGuidance()
	if err := d.canvas.Fetch(); err != nil {
		return nil, err
	}
	return d, d.encodeControls(ctx)
}

// plan sets up the settings that all images of a transformer share, and checks that all required components are
// present.
func (d *drawing) plan(transformer string) (err error) {
	f := d.flags
	if d.schedule, err = d.pipeline.Schedule(); err != nil {
		return err
	}
	if len(f.prompts) > 0 {
		if err := d.pipeline.CheckText(); err != nil {
			return err
		}
	}
	if d.canvas, err = d.pipeline.Canvas(d.space); err != nil {
		return err
	}
	if err := d.readControls(); err != nil {
		return err
	}
	width, height, err := d.size()
	if err != nil {
		return err
	}
	if d.what.Width, d.what.Height, err = d.canvas.Latent(width, height); err != nil {
		return fmt.Errorf("--size: %w", err)
	}
	if err := d.canvas.CheckTiles(f.tiles()); err != nil {
		return fmt.Errorf("--vae-tile: %w", err)
	}
	if d.what.Steps = f.steps; f.steps == 0 {
		d.what.Steps = d.style.Steps
	}
	if d.space.Guidance {
		if f.given("negative") || f.negativeEmbedding != "" {
			return fmt.Errorf("draw: --negative: a %s is told its guidance, and not led away from a prompt", transformer)
		}
		d.style.Negative = nil
	}
	if f.given("guidance") {
		d.what.SetGuidance(d.space, f.guidance)
	}
	return nil
}

// adapter loads the adapter, at the strength that is asked for.
func (d *drawing) adapter() (*lora.State, error) {
	m := d.model
	state, err := dialects.LoadState(d.flags.adapter, m, lora.ModelOf(m.Config.ModelType, m.Modules()), lora.CheckOptions{})
	if err != nil {
		return nil, err
	}
	for i := range state.Placement.Targets {
		state.Placement.Targets[i].Scale *= d.flags.weight
	}
	return state, nil
}

// read encodes the prompts or reads stored embeddings. The encoders are closed before the transformer is loaded.
func (d *drawing) read(ctx context.Context) error {
	f := d.flags
	for _, path := range f.embeddings {
		p, err := d.encoded(path)
		if err != nil {
			return fmt.Errorf("--embedding: %w", err)
		}
		d.prompts = append(d.prompts, p)
	}
	if f.negativeEmbedding != "" {
		p, err := d.encoded(f.negativeEmbedding)
		if err != nil {
			return fmt.Errorf("--negative-embedding: %w", err)
		}
		d.what.Negative = &p
	}
	if len(f.prompts) == 0 {
		return nil
	}
	e, err := d.pipeline.OpenEncoder(ctx, d.dev)
	if err != nil {
		return err
	}
	defer e.Close()
	began := time.Now()
	for i, text := range f.prompts {
		p, err := d.controls.Encode(ctx, e, text)
		if err != nil {
			return fmt.Errorf("--prompt %q: %w", text, err)
		}
		d.prompts = append(d.prompts, p)
		d.noteTruncations("--prompt", text, e)
		d.app.steps("encoding prompts", i+1, len(f.prompts), began)
	}
	negative, ok := d.negative()
	if !ok {
		return nil
	}
	p, err := d.controls.Encode(ctx, e, negative)
	if err != nil {
		return fmt.Errorf("--negative %q: %w", negative, err)
	}
	d.noteTruncations("--negative", negative, e)
	d.what.Negative = &p
	return nil
}

// noteTruncations reports the part of the last encoded prompt that e truncated.
func (d *drawing) noteTruncations(flag, text string, e *diffusion.Encoder) {
	for _, t := range e.Truncations() {
		d.app.note("note     %s %q: %v", flag, firstRunes(text, 40), t)
		d.truncated = append(d.truncated, truncatedPrompt{text, t})
	}
}

// encoded reads an encoded prompt, which must be one for this transformer.
func (d *drawing) encoded(path string) (dit.Prompt, error) {
	p, err := diffusion.ReadPrompt(path)
	if err == nil && p.Features != d.space.Text {
		err = fmt.Errorf("%s: found %d features of a token, expected %d as the transformer has: is it that of another model?", path, p.Features, d.space.Text)
	}
	return p, err
}

// negative returns the negative prompt, if one takes effect.
func (d *drawing) negative() (string, bool) {
	switch {
	case d.what.Negative != nil || !d.style.Guided(d.what):
		return "", false
	case d.flags.given("negative"):
		return d.flags.negative, true
	case d.style.Negative != nil:
		return *d.style.Negative, true
	}
	return "", false
}

// noteGuidance warns about settings of negative prompt or guidance that have no effect.
func (d *drawing) noteGuidance() {
	f, guided := d.flags, d.style.Guided(d.what)
	switch {
	case d.space.Guidance:
	case !guided && (f.given("negative") || f.negativeEmbedding != ""):
		d.app.note("note     drawing without guidance: the negative prompt counts where --guidance is above %v", d.style.Guidance.None())
	case guided && d.what.Negative == nil && (f.given("guidance") || d.style.Negative != nil):
		d.app.note("note     drawing without guidance: it leads away from --negative or --negative-embedding, and there is none")
	}
}

// draw draws all pictures and writes the file.
func (d *drawing) draw(ctx context.Context) (*drawn, error) {
	began := time.Now()
	r := &drawn{Output: d.flags.output, recipe: d.recipe(), Truncated: d.truncated}
	latents, err := d.latents(ctx, r)
	if err != nil {
		return nil, err
	}
	rows, err := d.paint(ctx, latents)
	if err != nil {
		return nil, err
	}
	m := rows[0][0]
	if len(rows) > 1 || len(rows[0]) > 1 {
		m = diffusion.Grid(rows)
	}
	r.Seconds = time.Since(began).Seconds()
	r.Width, r.Height = m.Bounds().Dx(), m.Bounds().Dy()
	return r, diffusion.WritePNG(d.flags.output, m, r.texts()...)
}

// latents generates a row of latents for each prompt and records their settings.
func (d *drawing) latents(ctx context.Context, r *drawn) (rows [][]dit.Latent, err error) {
	if err := d.model.Quantize(d.flags.quantize, d.app.quantizing()); err != nil {
		return nil, err
	}
	for _, line := range d.model.Quantization().Lines() {
		d.app.note("%s", line)
	}
	h := host.Open(d.dev, d.model)
	defer h.Close()
	painter, err := diffusion.NewPainter(h, d.schedule, d.style)
	if err != nil {
		return nil, err
	}
	slots, err := d.slots(h)
	if err != nil {
		return nil, err
	}
	defer func() {
		painter.Close()
		for _, s := range slots {
			s.Free()
		}
	}()
	all := len(d.prompts) * len(d.flags.numbers) * len(slots)
	began := time.Now()
	for y, prompt := range d.prompts {
		var row []dit.Latent
		for _, seed := range d.flags.numbers {
			for _, slot := range slots {
				what, done := d.what, len(r.Pictures)
				what.Prompt, what.Seed = prompt, seed
				what.Each = func(step, steps int, _ []float32) error {
					d.app.steps("drawing", done*steps+step, all*steps, began)
					return nil
				}
				x, err := painter.Draw(ctx, slot, what)
				if err != nil {
					return nil, err
				}
				p := drawnPicture{Prompt: d.name(y), Seed: seed, Row: y, Column: len(row)}
				if slot.State() != nil {
					p.Adapter = d.flags.adapter
				}
				r.Pictures = append(r.Pictures, p)
				row = append(row, x)
			}
		}
		rows = append(rows, row)
	}
	d.app.loaded(d.dev)
	return rows, nil
}

// name returns the label of a row.
func (d *drawing) name(row int) string {
	if len(d.flags.prompts) > 0 {
		return d.flags.prompts[row]
	}
	return d.flags.embeddings[row]
}

// slots returns the adapter slots for each image.
func (d *drawing) slots(h *host.Host) (slots []*engine.Slot, err error) {
	states := []*lora.State{d.state}
	if d.flags.before {
		states = []*lora.State{nil, d.state}
	}
	for _, state := range states {
		s, err := h.NewSlot(state)
		if err != nil {
			return nil, err
		}
		slots = append(slots, s)
	}
	return slots, nil
}

// paint makes pictures of latents, once the transformer is off the device.
func (d *drawing) paint(ctx context.Context, latents [][]dit.Latent) (rows [][]image.Image, err error) {
	if err := d.canvas.Open(d.dev, d.flags.tiles()); err != nil {
		return nil, err
	}
	defer func() { _ = d.canvas.Close() }()
	began, done := time.Now(), 0
	for _, row := range latents {
		var images []image.Image
		for _, x := range row {
			p, err := d.canvas.Paint(ctx, x)
			if err != nil {
				return nil, err
			}
			images = append(images, diffusion.Image(p))
			done++
			d.app.steps("decoding", done, len(latents)*len(row), began)
		}
		rows = append(rows, images)
	}
	return rows, nil
}

func (d *drawing) close() {
	if d.model != nil {
		d.model.Close()
	}
	if d.dev != nil {
		d.dev.Close()
	}
}

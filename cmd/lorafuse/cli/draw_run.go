package cli

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"os"
	"slices"
	"time"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/diffusion"
	"github.com/lorafuse/lorafuse/internal/diffusion/vae"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/ranks"
	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/lora"
)

// drawing is the state of one run of `draw`.
type drawing struct {
	app       *app
	flags     *drawFlags
	dev       backend.Device
	generator *diffusion.Generator
	plan      *diffusion.Plan
	state     *lora.State // nil without an adapter
}

// openDrawing opens the models that the flags name and detects all errors before the first step.
func (a *app) openDrawing(ctx context.Context, f *drawFlags) (_ *drawing, err error) {
	d := &drawing{app: a, flags: f}
	defer func() {
		if err != nil {
			d.close()
			err = inDrawFlags(err)
		}
	}()
	if a.leads() {
		if err := checkOutput(f.output); err != nil {
			return nil, fmt.Errorf("draw: --output: %w", err)
		}
	}
	devices, err := a.openDevices(&f.modelFlags, f.machine())
	if err != nil {
		return nil, err
	}
	d.dev = devices[0]
	p, err := a.openPipeline(ctx, "draw", f.model, f.transformer)
	if err != nil {
		return nil, err
	}
	request, err := f.request()
	if err != nil {
		return nil, err
	}
	if d.generator, err = diffusion.NewGenerator(d.dev, p); err != nil {
		return nil, err
	}
	d.generator.VAE = vae.Options{Tile: f.tile}
	if d.plan, err = d.generator.Plan(request); err != nil {
		return nil, err
	}
	if err = d.generator.OpenTransformer(); err != nil {
		return nil, err
	}
	a.noteSource(d.generator.Model.Source)
	if f.adapter != "" {
		if d.state, err = d.generator.LoadAdapter(f.adapter); err != nil {
			return nil, err
		}
		for i := range d.state.Placement.Targets {
			d.state.Placement.Targets[i].Scale *= f.weight
		}
	}
	if err = d.generator.Encode(ctx, d.plan, a.tasks()); err != nil {
		return nil, err
	}
	d.noteText()
	return d, nil
}

// request returns the settings of the flags, with the control images.
func (f *drawFlags) request() (diffusion.Request, error) {
	r := diffusion.Request{
		Prompts: f.prompts, Embeddings: f.embeddings, NegativeEmbedding: f.negativeEmbedding,
		ControlSide: f.controlSide, Steps: f.steps, Adapted: f.adapter != "",
	}
	if f.given("negative") {
		r.Negative = &f.negative
	}
	if f.given("guidance") {
		r.Guidance = &f.guidance
	}
	if f.given("size") {
		r.Width, r.Height = f.width, f.height
	}
	for _, path := range f.controls {
		m, err := diffusion.ReadImage(path)
		if err != nil {
			return r, fmt.Errorf("--control: %w", err)
		}
		r.Controls = append(r.Controls, m)
	}
	return r, nil
}

// inDrawFlags rewords an error about an option in terms of the flags.
func inDrawFlags(err error) error {
	var wrong *diffusion.OptionError
	switch {
	case !errors.As(err, &wrong):
		return err
	case wrong.Missing:
		return fmt.Errorf("draw: --%w", wrong)
	}
	return fmt.Errorf("--%w", wrong)
}

// noteText reports truncated prompts, and settings of negative prompt or guidance that have no effect.
func (d *drawing) noteText() {
	for _, t := range d.plan.Truncated {
		d.app.note("note     --%s %q: %v", t.Option, firstRunes(t.Prompt, 40), t.Truncation)
	}
	f, style, what := d.flags, d.generator.Style, d.plan.Drawing
	switch guided := style.Guided(what); {
	case d.generator.Space.Guidance:
	case !guided && (f.given("negative") || f.negativeEmbedding != ""):
		d.app.note("note     drawing without guidance: the negative prompt counts where --guidance is above %v", style.Guidance.None())
	case guided && what.Negative == nil && (f.given("guidance") || style.Negative != nil):
		d.app.note("note     drawing without guidance: it leads away from --negative or --negative-embedding, and there is none")
	}
}

// draw draws all images, which ranks share, and writes the file on rank 0: a row per prompt, and a column per seed and
// adapter.
func (d *drawing) draw(ctx context.Context, g *ranks.Group) (*drawn, error) {
	began := time.Now()
	r := &drawn{Output: d.flags.output, recipe: d.recipe(), Truncated: d.plan.Truncated}
	var shots []diffusion.Shot
	if err := g.Do(ctx, func(context.Context) (err error) {
		shots, err = d.shots(r)
		return err
	}); err != nil {
		return nil, err
	}
	images := make([]image.Image, len(shots))
	parts := min(g.Size(), len(shots))
	if err := ranks.Collect(ctx, g, ranks.Numbers(parts), func(ctx context.Context, part int, _ []byte) ([]byte, error) {
		var own []diffusion.Shot
		for i := part; i < len(shots); i += parts {
			own = append(own, shots[i])
		}
		drawn, err := d.generator.Draw(ctx, own, d.progress())
		if err != nil {
			return nil, err
		}
		var encoded []encodedImage
		for _, m := range drawn {
			encoded = append(encoded, encodeImage(m.(*image.NRGBA)))
		}
		return json.Marshal(encoded)
	}, func(part int, result []byte) error {
		var drawn []encodedImage
		if err := json.Unmarshal(result, &drawn); err != nil {
			return err
		}
		for i, m := range drawn {
			images[part+i*parts] = m.image()
		}
		return nil
	}); err != nil || !g.Leads() {
		return nil, err
	}
	m := images[0]
	if len(images) > 1 {
		m = diffusion.Grid(slices.Collect(slices.Chunk(images, len(images)/len(d.plan.Prompts))))
	}
	r.Seconds = time.Since(began).Seconds()
	r.Width, r.Height = m.Bounds().Dx(), m.Bounds().Dy()
	return r, diffusion.WritePNG(d.flags.output, m, r.texts()...)
}

// encodedImage is an image for another rank.
type encodedImage struct {
	Width  int    `json:"width"`
	Height int    `json:"height"`
	Pixels []byte `json:"pixels"` // of an image.NRGBA
}

func encodeImage(m *image.NRGBA) encodedImage {
	return encodedImage{m.Rect.Dx(), m.Rect.Dy(), m.Pix}
}

func (e encodedImage) image() image.Image {
	return &image.NRGBA{Pix: e.Pixels, Stride: 4 * e.Width, Rect: image.Rect(0, 0, e.Width, e.Height)}
}

// shots prepares the transformer. It returns the images to draw, and describes them in r.
func (d *drawing) shots(r *drawn) (shots []diffusion.Shot, err error) {
	if err := d.generator.Start(d.flags.quantize, d.app.quantizing()); err != nil {
		return nil, err
	}
	for _, line := range d.generator.Model.Quantization().Lines() {
		d.app.note("%s", line)
	}
	states := []*lora.State{d.state}
	if d.flags.before {
		states = []*lora.State{nil, d.state}
	}
	var slots []*engine.Slot
	for _, state := range states {
		slot, err := d.generator.Attach(state)
		if err != nil {
			return nil, err
		}
		slots = append(slots, slot)
	}
	for y, prompt := range d.plan.Prompts {
		column := 0
		for _, seed := range d.flags.numbers {
			for _, slot := range slots {
				what := d.plan.Drawing
				what.Prompt, what.Seed = prompt, seed
				shots = append(shots, diffusion.Shot{Slot: slot, Drawing: what})
				p := drawnPicture{Prompt: slices.Concat(d.flags.prompts, d.flags.embeddings)[y], Seed: seed, Row: y, Column: column}
				if slot.State() != nil {
					p.Adapter = d.flags.adapter
				}
				r.Pictures = append(r.Pictures, p)
				column++
			}
		}
	}
	return shots, nil
}

// identity returns what the images depend on in files.
func (d *drawing) identity() (map[string]string, error) {
	weights, err := train.WeightsIdentity(d.generator.Model)
	if err != nil {
		return nil, err
	}
	values := map[string]string{"weights": weights}
	if d.state != nil {
		values["adapter"] = train.HashOf(d.state)
	}
	f := d.flags
	h := sha256.New()
	for _, path := range slices.Concat(f.embeddings, f.controls, []string{f.negativeEmbedding}) {
		if path == "" {
			continue
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(h, "%d\n", len(raw))
		h.Write(raw)
	}
	values["--embedding, --negative-embedding or --control"] = fmt.Sprintf("sha256 %x", h.Sum(nil)[:8])
	return values, nil
}

// progress returns a function that shows the progress of drawing and decoding.
func (d *drawing) progress() func(task string, done, total int) {
	steps := d.app.tasks()
	return func(task string, done, total int) {
		steps(task, done, total)
		if task == diffusion.DrawTask && done == total {
			d.app.loaded(d.dev)
		}
	}
}

func (d *drawing) close() {
	if d.generator != nil {
		_ = d.generator.Close()
	}
	if d.dev != nil {
		d.dev.Close()
	}
}

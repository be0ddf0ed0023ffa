package diffusion

import (
	"cmp"
	"errors"
	"fmt"
	"image"

	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
)

// Request asks for images that differ in prompt, seed and adapter only. Zero values mean the
// defaults of the pipeline.
type Request struct {
	Prompts    []string
	Embeddings []string // files of encoded prompts, instead of Prompts
	// Negative is the prompt that guidance leads away from. NegativeEmbedding is a file of it.
	Negative          *string
	NegativeEmbedding string
	Controls          []image.Image
	ControlSide       int // see Pipeline.Controls
	Width, Height     int // in pixels
	Steps             int
	Guidance          *float64 // strength of the prompt
	// Adapted reports that images are drawn with an adapter, which may have learned to read
	// control images.
	Adapted bool
}

// Plan is a checked request. [Generator.Encode] adds the prompts.
type Plan struct {
	// Drawing holds the parameters that all images share.
	Drawing   Drawing
	Prompts   []dit.Prompt
	Negative  string // the negative prompt in effect, or the file of its embedding
	Truncated []TruncatedPrompt
	// Guidance is the guidance embedding of a distilled transformer, or the scale of
	// classifier-free guidance.
	Guidance float64

	request  Request
	controls *Controls // nil without control images
}

// TruncatedPrompt is a prompt of which a text encoder did not read the end.
type TruncatedPrompt struct {
	Option string `json:"-"` // prompt or negative
	Prompt string `json:"prompt"`
	Truncation
}

// OptionError reports an unsuitable option of a request. Options have the names of the flags of
// lorafuse draw.
type OptionError struct {
	Option  string
	Missing bool // the option is required
	Err     error
}

// Error returns the name of the option and the reason.
func (e *OptionError) Error() string {
	if e.Missing {
		return fmt.Sprintf("%s is missing: %v", e.Option, e.Err)
	}
	return fmt.Sprintf("%s: %v", e.Option, e.Err)
}

// Unwrap returns the reason.
func (e *OptionError) Unwrap() error { return e.Err }

// option returns err as an error about an option, or nil.
func option(name string, err error) error {
	if err == nil {
		return nil
	}
	return &OptionError{Option: name, Err: err}
}

// Plan checks a request before any weights are loaded. Errors: OptionError, ErrDrawing, and
// errors of Pipeline.CheckText.
func (g *Generator) Plan(r Request) (*Plan, error) {
	p := &Plan{request: r, Drawing: Drawing{Steps: cmp.Or(r.Steps, g.Style.Steps)}, Guidance: g.Style.Scale}
	if len(r.Prompts) > 0 {
		if err := g.pipeline.CheckText(); err != nil {
			return nil, err
		}
	}
	if err := g.fitControls(p); err != nil {
		return nil, err
	}
	width, height, err := g.size(p)
	if err != nil {
		return nil, err
	}
	if p.Drawing.Width, p.Drawing.Height, err = g.canvas.Latent(width, height); err != nil {
		return nil, option("size", err)
	}
	if err := g.canvas.CheckTiles(g.VAE); err != nil {
		return nil, option("vae-tile", err)
	}
	switch {
	case g.Space.Guidance && (r.Negative != nil || r.NegativeEmbedding != ""):
		return nil, option("negative", fmt.Errorf("a %s is told its guidance, and not led away from a prompt", g.architecture))
	case r.Negative != nil && len(r.Prompts) == 0:
		return nil, option("negative", errors.New("found a text with an encoded prompt, expected an encoded one or none"))
	case g.Space.Guidance:
		p.Guidance = g.Style.Told
	}
	if r.Guidance != nil {
		p.Guidance = *r.Guidance
		p.Drawing.SetGuidance(g.Space, *r.Guidance)
	}
	settled := p.Drawing
	return p, settled.settle(&g.Style, g.Space)
}

// Size returns the size of the images of a plan in pixels.
func (g *Generator) Size(p *Plan) (width, height int) {
	return p.Drawing.Width * g.canvas.Pixels, p.Drawing.Height * g.canvas.Pixels
}

// fitControls resizes the control images for the pipeline.
func (g *Generator) fitControls(p *Plan) (err error) {
	r := &p.request
	if len(r.Controls) == 0 {
		if g.pipeline.Edits() && len(r.Prompts) > 0 {
			return &OptionError{"control", true, fmt.Errorf("a %s draws from pictures", g.pipeline.Class)}
		}
		return nil
	}
	if err := g.pipeline.CheckControls(); err != nil {
		if !r.Adapted {
			return option("control", fmt.Errorf("%w, or an adapter that was trained with controls", err))
		}
		g.pipeline.notes.add(fmt.Sprintf("a %s takes no control image by itself: the adapter must have been trained with controls", g.pipeline.Class))
	}
	p.controls, err = g.pipeline.Controls(g.canvas, r.ControlSide, r.Controls...)
	return option("control", err)
}

// size returns the requested or default size of the images in pixels.
func (g *Generator) size(p *Plan) (width, height int, err error) {
	switch r := &p.request; {
	case r.Width != 0 || r.Height != 0:
		return r.Width, r.Height, nil
	case p.controls != nil:
		return p.controls.Size.Width, p.controls.Size.Height, nil
	case !g.pipeline.Has(VAE):
		return 0, 0, &OptionError{"size", true, fmt.Errorf("the model draws pixels, of any size that is a multiple of %d", g.canvas.Multiple)}
	}
	return defaultSide, defaultSide, nil
}

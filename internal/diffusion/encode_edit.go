package diffusion

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/data/picture"
	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
)

// Processor is the part of a pipeline that configures image preprocessing for the text
// encoder.
const Processor = "processor"

// shows defines how images are presented to a text encoder.
type shows struct {
	area     int  // in pixels, before rounding to whole patches
	numbered bool // prompts name them Picture 1 and so on; several are allowed
	most     int  // maximum number of image tokens, of all images together

	before, token, after string // of an image in a prompt, where token repeats
}

// eyes is the vision tower of a text encoder, with its preprocessing.
type eyes struct {
	shows
	model model.Sighted
	spec  engine.Spec
	batch data.Batch

	least, largest  int // pixels per image
	mean, deviation [3]float32
}

const featuresResult = "features"

// openEyes loads the vision tower of a text encoder to the device.
func (t *textModel) openEyes(ctx context.Context, p *Pipeline, s shows) (*eyes, error) {
	e := &eyes{shows: s}
	var ok bool
	if e.model, ok = t.model.Config.Family.(model.Sighted); !ok || e.model.Tower() == nil {
		return nil, fmt.Errorf("diffusion: %w: %s is a %s without vision_config, expected one that sees pictures", ErrPipeline, t.model.Dir, t.model.Config.Architecture)
	}
	if err := e.readProcessor(p); err != nil {
		return nil, err
	}
	e.spec = engine.Spec{Name: "features", Bounds: map[string]int{model.Places: s.most}, Build: func(b *nn.Builder, g *graph.Program) {
		g.Result(featuresResult, e.model.Look(t.model.Config, b))
	}}
	if _, err := t.host.Program(ctx, t.slot, e.spec); err != nil {
		return nil, fmt.Errorf("diffusion: %s: %w", t.model.Dir, err)
	}
	return e, nil
}

// processorFile configures image preprocessing. Without it the values of CLIP apply.
const processorFile = "preprocessor_config.json"

func (e *eyes) readProcessor(p *Pipeline) error {
	e.least, e.largest = 56*56, 28*28*1280
	mean, deviation := []float64{0.48145466, 0.4578275, 0.40821073}, []float64{0.26862954, 0.26130258, 0.27577711}
	if p.Has(Processor) {
		dir, err := p.Folder(Processor)
		if err != nil {
			return err
		}
		path := filepath.Join(dir, processorFile)
		raw, err := os.ReadFile(path)
		if err == nil {
			err = e.parseProcessor(raw, &mean, &deviation)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("diffusion: %w: %s: %w", ErrPipeline, path, err)
		}
	}
	for i := range 3 {
		e.mean[i], e.deviation[i] = float32(255*mean[i]), float32(255*deviation[i])
	}
	return nil
}

func (e *eyes) parseProcessor(raw []byte, mean, deviation *[]float64) error {
	var c struct {
		Mean      []float64 `json:"image_mean"`
		Deviation []float64 `json:"image_std"`
		Least     int       `json:"min_pixels"`
		Largest   int       `json:"max_pixels"`
		Size      struct {
			Least   int `json:"shortest_edge"`
			Largest int `json:"longest_edge"`
		} `json:"size"`
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return err
	}
	for _, n := range []struct{ to, from *int }{{&e.least, &c.Size.Least}, {&e.least, &c.Least}, {&e.largest, &c.Size.Largest}, {&e.largest, &c.Largest}} {
		if *n.from > 0 {
			*n.to = *n.from
		}
	}
	for _, n := range []struct{ to, from *[]float64 }{{mean, &c.Mean}, {deviation, &c.Deviation}} {
		switch len(*n.from) {
		case 3:
			*n.to = *n.from
		case 0:
		default:
			return fmt.Errorf("image_mean, image_std: found %d and %d numbers, expected 3", len(c.Mean), len(c.Deviation))
		}
	}
	return nil
}

// see returns the features of an image.
func (e *eyes) see(ctx context.Context, t *textModel, img image.Image) (model.Seen, error) {
	tower := e.model.Tower()
	first := around(e.area, picture.SizeOf(img), editMultiple)
	size := e.whole(first, tower.Patch*tower.Merge)
	pixels := picture.Values(picture.Bicubic.Scale(picture.Lanczos.Scale(img, first), size), e.mean, e.deviation)
	rows, columns := size.Height/tower.Patch, size.Width/tower.Patch
	n := rows * columns / (tower.Merge * tower.Merge)
	if n > e.most {
		return model.Seen{}, fmt.Errorf("%w: a picture of %v, which are %d places, expected %d at most", ErrPrompt, size, n, e.most)
	}
	order, err := tower.Arrays(&e.batch, tower.Patches(pixels, size.Height, size.Width), rows, columns)
	if err != nil {
		return model.Seen{}, err
	}
	results, err := t.host.Compute(ctx, t.slot, e.spec, &e.batch, 1)
	if err != nil {
		return model.Seen{}, err
	}
	moved, err := results.Get(ctx, featuresResult)
	if err != nil {
		return model.Seen{}, err
	}
	seen := model.Seen{Places: n, Features: make([]float32, len(moved))}
	for i, place := range order {
		copy(seen.Features[place*tower.Out:(place+1)*tower.Out], moved[i*tower.Out:])
	}
	return seen, nil
}

// around returns a size of about the given area and the aspect ratio of s, with sides that
// are multiples of multiple.
func around(area int, s picture.Size, multiple int) picture.Size {
	ratio := float64(s.Width) / float64(s.Height)
	width := math.Sqrt(float64(area) * ratio)
	side := func(x float64) int { return max(1, int(math.RoundToEven(x/float64(multiple)))) * multiple }
	return picture.Size{Width: side(width), Height: side(width / ratio)}
}

// whole returns the size nearest to s whose sides are multiples of place and whose area is
// within the limits of the tower.
func (e *eyes) whole(s picture.Size, place int) picture.Size {
	w, h, p := float64(s.Width), float64(s.Height), float64(place)
	x, y := math.RoundToEven(w/p)*p, math.RoundToEven(h/p)*p
	switch {
	case x*y > float64(e.largest):
		beta := math.Sqrt(w * h / float64(e.largest))
		x, y = max(p, math.Floor(w/beta/p)*p), max(p, math.Floor(h/beta/p)*p)
	case x*y < float64(e.least):
		beta := math.Sqrt(float64(e.least) / (w * h))
		x, y = math.Ceil(w*beta/p)*p, math.Ceil(h*beta/p)*p
	}
	return picture.Size{Width: int(x), Height: int(y)}
}

// Sees reports whether prompts are encoded together with images.
func (e *Encoder) Sees() bool { return e.shows != nil }

// edit encodes a prompt together with the images that are edited.
func (e *Encoder) edit(ctx context.Context, text string, pictures []image.Image) (dit.Prompt, error) {
	switch {
	case len(pictures) == 0:
		return dit.Prompt{}, fmt.Errorf("%w: the text encoder reads the images that are edited with each prompt, found none", ErrPrompt)
	case len(pictures) > 1 && !e.shows.numbered:
		return dit.Prompt{}, fmt.Errorf("%w: %d pictures, expected one", ErrPrompt, len(pictures))
	}
	var names strings.Builder
	var all []model.Seen
	places := 0
	for i, img := range pictures {
		seen, err := e.eyes.see(ctx, e.main, img)
		if err != nil {
			return dit.Prompt{}, err
		}
		all = append(all, seen)
		if places += seen.Places; places > e.shows.most {
			return dit.Prompt{}, fmt.Errorf("%w: %d pictures of %d places and more, expected %d at most", ErrPrompt, len(pictures), places, e.shows.most)
		}
		if e.shows.numbered {
			fmt.Fprintf(&names, "Picture %d: ", i+1)
		}
		names.WriteString(e.shows.before + strings.Repeat(e.shows.token, seen.Places) + e.shows.after)
	}
	ids, err := e.main.words.Encode(strings.Replace(e.template, "{}", names.String()+text, 1), true)
	if err != nil {
		return dit.Prompt{}, err
	}
	if len(ids) > e.main.longest {
		return dit.Prompt{}, fmt.Errorf("%w: it has %d tokens with its pictures, expected %d at most", ErrPrompt, len(ids), e.main.longest)
	}
	if err := e.eyes.model.Feed(&e.main.batch, ids, all); err != nil {
		return dit.Prompt{}, err
	}
	states, err := e.main.run(ctx, len(ids))
	if err != nil {
		return dit.Prompt{}, err
	}
	return e.prompt(states, len(ids)), nil
}

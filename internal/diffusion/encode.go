package diffusion

import (
	"context"
	"errors"
	"fmt"
	"image"
	"strings"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
)

// ErrPrompt is wrapped if a text encoder cannot encode a prompt.
var ErrPrompt = errors.New("wrong prompt")

// Encoder encodes prompts for the transformer of a pipeline with the pipeline's text encoders
// on a device. It is not safe for concurrent use.
type Encoder struct {
	captions
	main   *textModel
	second *textModel
	eyes   *eyes // nil if the text encoder reads no images
}

// OpenEncoder loads the text encoders. They use host and device memory until the Encoder is
// closed. Errors: ErrPart, ErrPipeline, and errors of model.Open, package tokenizer and the
// device.
func (p *Pipeline) OpenEncoder(ctx context.Context, dev backend.Device) (_ *Encoder, err error) {
	c, err := p.captions()
	if err != nil {
		return nil, err
	}
	e := &Encoder{captions: c}
	if err := p.checkText(c); err != nil {
		return nil, err
	}
	if e.main, err = openText(ctx, dev, p, c.main, c.shows); err != nil {
		return nil, err
	}
	if c.shows != nil {
		if e.eyes, err = e.main.openEyes(ctx, p, *c.shows); err != nil {
			e.Close()
			return nil, err
		}
	}
	if c.second != nil {
		if e.second, err = openText(ctx, dev, p, *c.second, nil); err != nil {
			e.Close()
			return nil, err
		}
	}
	return e, nil
}

// CheckText checks that all parts for encoding captions exist, before long work begins.
// Errors: ErrPart, ErrPipeline.
func (p *Pipeline) CheckText() error {
	c, err := p.captions()
	if err != nil {
		return err
	}
	return p.checkText(c)
}

func (p *Pipeline) checkText(c captions) error {
	for _, name := range c.parts() {
		if _, err := p.Folder(name); err != nil {
			return err
		}
	}
	return nil
}

// parts returns the parts that encode captions.
func (c captions) parts() []string {
	names := []string{c.main.encoder, c.main.tokenizer}
	if c.second != nil {
		names = append(names, c.second.encoder, c.second.tokenizer)
	}
	return names
}

// DType returns the dtype of the text encoder's weights as config.json names it. Reference
// trainers store embeddings in this dtype.
func (e *Encoder) DType() string { return e.main.model.Config.DType }

// Encode encodes a prompt as the pipeline does: it inserts the prompt into the template,
// truncates or pads it, and drops the states of the template. [Encoder.Truncations] lists the
// text that was cut off. pictures are the images that are edited, if the text encoder reads
// them ([Encoder.Sees]). Errors: ErrPrompt, tokenizer.ErrInvalidUTF8, and errors of the
// device.
func (e *Encoder) Encode(ctx context.Context, text string, pictures ...image.Image) (p dit.Prompt, err error) {
	e.forgetTruncations()
	switch {
	case e.shows != nil:
		p, err = e.edit(ctx, text, pictures)
	case len(pictures) > 0:
		err = fmt.Errorf("%w: %d pictures, and the text encoder sees none", ErrPrompt, len(pictures))
	default:
		p, err = e.encode(ctx, text)
	}
	if err != nil {
		return dit.Prompt{}, fmt.Errorf("diffusion: %w", err)
	}
	return p, nil
}

// bytes returns the device memory of the text encoders, without weights that are used in place.
func (e *Encoder) bytes() (n int64) {
	for _, t := range []*textModel{e.main, e.second} {
		if t == nil {
			continue
		}
		if n += t.host.Cached(); !t.host.Info().Unified {
			n += int64(t.host.Bytes())
		}
	}
	return n
}

// Close frees the text encoders' memory. Closing twice does nothing.
func (e *Encoder) Close() {
	for _, t := range []*textModel{e.main, e.second} {
		if t != nil {
			t.close()
		}
	}
}

// encode encodes a prompt without images.
func (e *Encoder) encode(ctx context.Context, text string) (dit.Prompt, error) {
	if e.clean != nil {
		text = e.clean(text)
	}
	full, err := e.full(text)
	if err != nil {
		return dit.Prompt{}, err
	}
	ids, err := e.main.ids(full, text)
	if err != nil {
		return dit.Prompt{}, err
	}
	real := len(ids)
	if e.main.pad {
		if ids, err = e.main.padded(ids); err != nil {
			return dit.Prompt{}, err
		}
		if !e.main.masked {
			real = len(ids)
		}
	}
	if len(ids) <= e.drop {
		return dit.Prompt{}, fmt.Errorf("%w: it has %d tokens with the template, expected more than the %d that are dropped", ErrPrompt, len(ids), e.drop)
	}
	states, err := e.main.encode(ctx, ids, real)
	if err != nil {
		return dit.Prompt{}, err
	}
	p := e.prompt(states, len(ids))
	if e.second != nil {
		p.Pooled, err = e.pooled(ctx, text)
	}
	return p, err
}

// full returns a prompt in its template or chat template, truncated by cut.
func (e *Encoder) full(text string) (full string, err error) {
	switch {
	case e.main.chat:
		full, err = e.main.asked(text)
	case e.template != "":
		full = strings.Replace(e.template, "{}", text, 1)
	default:
		full = text
	}
	if err == nil && e.cut != nil {
		full, err = e.cut(e.main, full, text)
	}
	return full, err
}

// prompt returns the hidden states [tokens, features] of a prompt without those to drop.
func (e *Encoder) prompt(states []float32, tokens int) dit.Prompt {
	features := len(states) / tokens
	return dit.Prompt{Features: features, Values: states[e.drop*features:]}
}

// pooled returns the pooled embedding of a prompt.
func (e *Encoder) pooled(ctx context.Context, text string) ([]float32, error) {
	ids, err := e.second.ids(text, text)
	if err == nil {
		ids, err = e.second.padded(ids)
	}
	if err != nil {
		return nil, err
	}
	return e.second.pool(ctx, ids)
}

package diffusion

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// encodeFunc encodes a prompt.
type encodeFunc func(e *Encoder, ctx context.Context, text string) (dit.Prompt, error)

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
	names := []string{c.main.encoder, c.main.tokenizer}
	if c.second != nil {
		names = append(names, c.second.encoder, c.second.tokenizer)
	}
	for _, name := range names {
		if _, err := p.Folder(name); err != nil {
			return err
		}
	}
	return nil
}

// DType returns the dtype of the text encoder's weights as config.json names it. Reference
// trainers store embeddings in this dtype.
func (e *Encoder) DType() string { return e.main.model.Config.DType }

// Encode encodes a prompt as the pipeline does: it inserts the prompt into the template,
// truncates or pads it, and drops the states of the template. [Encoder.Truncations] lists the
// text that was cut off. Errors: ErrPrompt, tokenizer.ErrInvalidUTF8, and errors of the
// device.
func (e *Encoder) Encode(ctx context.Context, text string) (dit.Prompt, error) {
	e.forgetTruncations()
	prompt, err := e.read(e, ctx, text)
	if err != nil {
		return dit.Prompt{}, fmt.Errorf("diffusion: %w", err)
	}
	return prompt, nil
}

// Close frees the text encoders' memory. Closing twice does nothing.
func (e *Encoder) Close() {
	for _, t := range []*textModel{e.main, e.second} {
		if t != nil {
			t.close()
		}
	}
}

// prompt wraps hidden states [tokens, features] as a prompt.
func prompt(states []float32, tokens int) dit.Prompt {
	return dit.Prompt{Features: len(states) / tokens, Values: states}
}

// behind encodes ids and drops the states of the tokens before the prompt.
func (e *Encoder) behind(ctx context.Context, ids []int32) (dit.Prompt, error) {
	if len(ids) <= e.drop {
		return dit.Prompt{}, fmt.Errorf("%w: it has %d tokens with the template, expected more than the %d that are dropped", ErrPrompt, len(ids), e.drop)
	}
	states, err := e.main.encode(ctx, ids, len(ids))
	if err != nil {
		return dit.Prompt{}, err
	}
	features := len(states) / len(ids)
	return prompt(states[e.drop*features:], len(ids)-e.drop), nil
}

// qwen encodes a prompt as Qwen-Image does: it returns the states of the prompt without its
// template.
func (e *Encoder) qwen(ctx context.Context, text string) (dit.Prompt, error) {
	ids, err := e.main.ids(strings.Replace(qwenTemplate, "{}", text, 1), text)
	if err != nil {
		return dit.Prompt{}, err
	}
	return e.behind(ctx, ids)
}

// kandinsky encodes a prompt as Kandinsky 5 does: like Qwen-Image with another template, plus
// CLIP's pooled embedding.
func (e *Encoder) kandinsky(ctx context.Context, text string) (dit.Prompt, error) {
	text = cleaned(text)
	full, err := e.cutKandinsky(strings.Replace(kandinskyTemplate, "{}", text, 1), text)
	if err != nil {
		return dit.Prompt{}, err
	}
	ids, err := e.main.ids(full, text)
	if err != nil {
		return dit.Prompt{}, err
	}
	p, err := e.behind(ctx, ids)
	if err != nil {
		return dit.Prompt{}, err
	}
	p.Pooled, err = e.whole(ctx, text)
	return p, err
}

// cutKandinsky truncates a long prompt by characters as diffusers does: it counts the excess
// tokens from the end of the template, and removes as many characters as these decode to.
func (e *Encoder) cutKandinsky(full, text string) (string, error) {
	words, longest := e.main.words, e.main.longest
	ids, err := words.Encode(full, true)
	if err != nil || len(ids) <= longest {
		return full, err
	}
	removed, err := words.Decode(ids[longest-2:max(len(ids)-2, longest-2)], false)
	if err != nil {
		return "", err
	}
	runes := []rune(full)
	kept := max(0, len(runes)-len([]rune(removed)))
	e.main.recordTruncation(full, text, string(runes[kept:]), len(ids))
	return string(runes[:kept]), nil
}

// flux encodes a prompt as FLUX.1 does: the T5 states of the prompt padded to the maximum
// length, including the padding, plus CLIP's pooled embedding.
func (e *Encoder) flux(ctx context.Context, text string) (dit.Prompt, error) {
	ids, err := e.main.ids(text, text)
	if err == nil {
		ids, err = e.main.padded(ids)
	}
	if err != nil {
		return dit.Prompt{}, err
	}
	states, err := e.main.encode(ctx, ids, len(ids))
	if err != nil {
		return dit.Prompt{}, err
	}
	p := prompt(states, len(ids))
	p.Pooled, err = e.whole(ctx, text)
	return p, err
}

// whole returns CLIP's pooled embedding of a prompt.
func (e *Encoder) whole(ctx context.Context, text string) ([]float32, error) {
	ids, err := e.second.ids(text, text)
	if err == nil {
		ids, err = e.second.padded(ids)
	}
	if err != nil {
		return nil, err
	}
	return e.second.pool(ctx, ids)
}

// klein encodes a prompt as FLUX.2 klein does: hidden states of three layers, padded to the
// maximum length. Padding tokens attend to the prompt, but not to each other.
func (e *Encoder) klein(ctx context.Context, text string) (dit.Prompt, error) {
	real, err := e.chatIDs(text, false)
	if err != nil {
		return dit.Prompt{}, err
	}
	ids, err := e.main.padded(real)
	if err != nil {
		return dit.Prompt{}, err
	}
	states, err := e.main.encode(ctx, ids, len(real))
	if err != nil {
		return dit.Prompt{}, err
	}
	return prompt(states, len(ids)), nil
}

// zImage encodes a prompt as Z-Image does: the hidden states before the last layer.
func (e *Encoder) zImage(ctx context.Context, text string) (dit.Prompt, error) {
	ids, err := e.chatIDs(text, true)
	if err != nil {
		return dit.Prompt{}, err
	}
	return e.behind(ctx, ids)
}

// chatIDs returns the tokens of a prompt as a user message.
func (e *Encoder) chatIDs(text string, thinking bool) ([]int32, error) {
	full, err := e.main.asked(text, thinking)
	if err != nil {
		return nil, err
	}
	ids, err := e.main.ids(full, text)
	return slices.Clip(ids), err
}

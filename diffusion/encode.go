package diffusion

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/diffusion/dit"
)

// ErrPrompt is wrapped where a text is none that an encoder can read.
var ErrPrompt = errors.New("wrong prompt")

// Encoder makes of texts what the transformer of a pipeline reads, with the pipeline's
// text encoders on a device. It is not safe for concurrent use.
type Encoder struct {
	captions
	main   *textModel
	second *textModel
	eyes   *eyes // nil where no pictures are seen
}

// encodeFunc encodes a text.
type encodeFunc func(e *Encoder, ctx context.Context, text string) (dit.Prompt, error)

// OpenEncoder opens the text encoders. They take memory, on the device too, until the
// Encoder is closed. Errors: ErrPart, ErrPipeline, those of model.Open, of package
// tokenizer and of the device.
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

// CheckText looks whether all parts that read captions are there, before minutes go by.
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

// DType is the element type of the weights of the text encoder, as config.json calls it:
// the one in which reference trainers keep embeddings.
func (e *Encoder) DType() string { return e.main.model.Config.DType }

// Encode encodes a text, as its pipeline does: into a template, cut or filled up to a
// length, and without the states of the template. [Encoder.Truncations] lists what was cut off.
// Errors: ErrPrompt,
// tokenizer.ErrInvalidUTF8, and those of the device.
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

// prompt is what the states of the tokens of a text make, [tokens, features].
func prompt(states []float32, tokens int) dit.Prompt {
	return dit.Prompt{Features: len(states) / tokens, Values: states}
}

// behind encodes ids, and drops the states of those that come before the text.
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

// qwen is how Qwen-Image reads a text: the states of the text alone.
func (e *Encoder) qwen(ctx context.Context, text string) (dit.Prompt, error) {
	ids, err := e.main.ids(strings.Replace(qwenTemplate, "{}", text, 1), text)
	if err != nil {
		return dit.Prompt{}, err
	}
	return e.behind(ctx, ids)
}

// kandinsky is how Kandinsky 5 reads a text: as Qwen-Image, in another template, and the
// vector that CLIP has of it.
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

// cutKandinsky takes as many characters off the end of a text that is too long as diffusers
// does: those of the tokens that are too many, counted from the end of the template.
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

// flux is how FLUX.1 reads a text: the states of as many tokens as there is room for,
// padding among them, and the vector that CLIP has of it.
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

// whole is the vector that CLIP has of a text.
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

// klein is how FLUX.2 klein reads a text: three layers of the states of as many tokens as
// there is room for; those of padding see the text, and not each other.
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

// zImage is how Z-Image reads a text: the state before the last layer.
func (e *Encoder) zImage(ctx context.Context, text string) (dit.Prompt, error) {
	ids, err := e.chatIDs(text, true)
	if err != nil {
		return dit.Prompt{}, err
	}
	return e.behind(ctx, ids)
}

// chatIDs are the tokens of a text as a user's message.
func (e *Encoder) chatIDs(text string, thinking bool) ([]int32, error) {
	full, err := e.main.asked(text, thinking)
	if err != nil {
		return nil, err
	}
	ids, err := e.main.ids(full, text)
	return slices.Clip(ids), err
}

package diffusion

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/host"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/tensor"
	"github.com/lorafuse/lorafuse/tokenizer"
	"github.com/lorafuse/lorafuse/tokenizer/chat"
)

// reading configures a text encoder and selects its output.
type reading struct {
	encoder, tokenizer string // parts of the pipeline
	longest            int    // maximum number of tokens
	// layers lists the hidden states to return, concatenated along features. Negative
	// numbers count from the end. Empty means the pooled output (model.Pooler).
	layers         []int
	chat, thinking bool // apply the chat template, with thinking enabled
	pad            bool // to the maximum number of tokens
	masked         bool // tokens attend to no padding
}

// textModel is a text encoder on a device, with its tokenizer.
type textModel struct {
	reading
	model    *model.Model
	words    *tokenizer.Tokenizer
	template *chat.Template
	host     *host.Host
	slot     *engine.Slot
	spec     engine.Spec
	batch    data.Batch

	truncated *Truncation // of the last prompt; nil if it was not truncated
}

// openText loads a text encoder to the device. Errors: ErrPart, ErrPipeline, and errors of
// the model, the tokenizer and the device.
func openText(ctx context.Context, dev backend.Device, p *Pipeline, r reading, s *shows) (_ *textModel, err error) {
	dir, err := p.Weights(r.encoder)
	if err != nil {
		return nil, err
	}
	t := &textModel{reading: r}
	defer func() {
		if err != nil {
			t.close()
		}
	}()
	if t.words, t.template, err = p.openTokenizer(r); err != nil {
		return nil, err
	}
	part := model.Body
	if r.layers == nil { // the pooled output may need a head
		part = model.AsSaved
	}
	if t.model, err = model.OpenAs(dir, part); err != nil {
		return nil, err
	}
	p.notes.add(t.model.UnreadLine(model.VisionTower)) // eyes may read it
	if r.layers == nil {
		if _, ok := t.model.Config.Family.(model.Pooling); !ok {
			return nil, fmt.Errorf("diffusion: %w: %s is a %s, expected CLIPTextModel, whose pooled output is read", ErrPipeline, dir, t.model.Config.Architecture)
		}
	}
	if most := t.model.Config.MaxLength(); most < t.longest {
		t.longest = most
	}
	if err := t.compile(ctx, dev, s); err != nil {
		return nil, fmt.Errorf("diffusion: %s: %w", dir, err)
	}
	return t, nil
}

// openTokenizer loads the tokenizer of a text encoder and its chat template.
func (p *Pipeline) openTokenizer(r reading) (*tokenizer.Tokenizer, *chat.Template, error) {
	dir, err := p.Folder(r.tokenizer)
	if err != nil {
		return nil, nil, err
	}
	words, err := tokenizer.Load(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("diffusion: %w", err)
	}
	if !r.chat {
		return words, nil, nil
	}
	template, err := chat.Load(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("diffusion: %w", err)
	}
	return words, template, nil
}

func result(i int) string { return fmt.Sprintf("states.%d", i) }

// compile compiles the program for the longest prompt and the images of s.
func (t *textModel) compile(ctx context.Context, dev backend.Device, s *shows) error {
	t.host = host.Open(dev, t.model)
	bounds := map[string]int{nn.Tokens: t.longest, nn.Documents: 1}
	build := t.model.Build
	if s != nil {
		q, ok := t.model.Config.Family.(model.Sighted)
		if !ok {
			return fmt.Errorf("%w: found a %s, expected a text encoder that sees pictures", ErrPipeline, t.model.Config.Architecture)
		}
		bounds[model.SeenPlaces] = s.most
		build = func(b *nn.Builder) model.Outputs { return q.Read(t.model.Config, b) }
	}
	var err error
	if t.slot, err = t.host.NewSlot(nil); err != nil {
		return err
	}
	var failed error
	t.spec = engine.Spec{Name: "states", Bounds: bounds, Build: func(b *nn.Builder, p *graph.Program) {
		var states []graph.Tensor
		states, failed = t.states(b, build(b))
		for i, x := range states {
			p.Result(result(i), x)
		}
	}}
	_, err = t.host.Program(ctx, t.slot, t.spec)
	return errors.Join(failed, err)
}

// states returns the selected hidden states, or the pooled output.
func (t *textModel) states(b *nn.Builder, out model.Outputs) ([]graph.Tensor, error) {
	if t.layers == nil {
		at := b.Input(nn.ReadToken, tensor.I32, b.Axis(nn.Documents))
		return []graph.Tensor{out.Output(b, model.Pooler).Gather(at)}, nil
	}
	var states []graph.Tensor
	for _, layer := range t.layers {
		i := layer
		if i < 0 {
			i += len(out.Hidden)
		}
		if i < 0 || i >= len(out.Hidden) {
			return nil, fmt.Errorf("%w: found a text encoder of %d layers, expected one with hidden state %d", ErrPipeline, len(out.Hidden)-1, layer)
		}
		states = append(states, out.Hidden[i])
	}
	return states, nil
}

// encode returns the states of the tokens, [tokens, features], with the selected layers
// concatenated along features. Tokens from index real on are padding and masked out.
func (t *textModel) encode(ctx context.Context, ids []int32, real int) ([]float32, error) {
	t.batch.Reset()
	t.batch.Add(ids, nil)
	for _, hi := range [][]int32{t.batch.KeyEnd(), t.batch.End()} {
		for i := range hi {
			hi[i] = min(hi[i], int32(real))
		}
	}
	return t.run(ctx, len(ids))
}

// run returns the states of the batch, which has the given number of tokens.
func (t *textModel) run(ctx context.Context, tokens int) ([]float32, error) {
	results, err := t.host.Compute(ctx, t.slot, t.spec, &t.batch, tokens)
	if err != nil {
		return nil, err
	}
	var all []float32
	n := len(t.layers)
	for i := range n {
		rows, err := results.Get(ctx, result(i))
		if err != nil {
			return nil, err
		}
		if i == 0 {
			all = make([]float32, n*len(rows))
		}
		size := len(rows) / tokens
		for row := range tokens {
			copy(all[(row*n+i)*size:], rows[row*size:(row+1)*size])
		}
	}
	return all, nil
}

// pool returns the pooled output for a prompt.
func (t *textModel) pool(ctx context.Context, ids []int32) ([]float32, error) {
	at := t.model.Config.Family.(model.Pooling).PoolAt(ids)
	t.batch.Reset()
	t.batch.Add(ids[:at+1], nil) // attention is causal
	t.batch.SetInt(nn.ReadToken, int32(at))
	results, err := t.host.Compute(ctx, t.slot, t.spec, &t.batch, at+1)
	if err != nil {
		return nil, err
	}
	return results.Get(ctx, result(0))
}

// ids returns the tokens of full, which is text in its template, truncated to the maximum
// length.
func (t *textModel) ids(full, text string) ([]int32, error) {
	ids, cut, err := t.words.EncodeWithin(full, t.longest)
	if err != nil {
		return nil, err
	}
	if cut {
		all, err := t.words.Encode(full, false)
		if err != nil {
			return nil, err
		}
		specials := t.words.NumSpecialTokens()
		end, err := t.words.Decode(all[max(0, t.longest-specials):], false)
		if err != nil {
			return nil, err
		}
		t.recordTruncation(full, text, end, len(all)+specials)
	}
	vocabulary := t.model.Config.VocabSize
	if i := slices.IndexFunc(ids, func(id int32) bool { return id < 0 || int(id) >= vocabulary }); i >= 0 {
		return nil, fmt.Errorf("%w: %s gives the token %d, and %s has %d", ErrPipeline, t.tokenizer, ids[i], t.encoder, vocabulary)
	}
	return ids, nil
}

// padded returns ids padded to the maximum length.
func (t *textModel) padded(ids []int32) ([]int32, error) {
	pad, ok := t.words.PAD()
	if !ok {
		return nil, fmt.Errorf("%w: %s has no token of padding, which texts are filled up with", ErrPipeline, t.tokenizer)
	}
	ids = slices.Clone(ids)
	for len(ids) < t.longest {
		ids = append(ids, pad)
	}
	return ids, nil
}

// asked renders a text as a user message in the chat template.
func (t *textModel) asked(text string) (string, error) {
	return t.template.Render([]chat.Message{{Role: "user", Content: text}}, chat.Options{
		AddGenerationPrompt: true, Extra: map[string]any{"enable_thinking": t.thinking},
	})
}

// close frees the encoder's weights and device memory.
func (t *textModel) close() {
	if t.host != nil {
		t.host.Close()
	}
	if t.slot != nil {
		t.slot.Free()
	}
	if t.model != nil {
		_ = t.model.Close()
	}
	*t = textModel{}
}

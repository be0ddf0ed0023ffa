package diffusion

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/data"
	"github.com/lorafuse/lorafuse/engine"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/host"
	"github.com/lorafuse/lorafuse/model"
	"github.com/lorafuse/lorafuse/nn"
	"github.com/lorafuse/lorafuse/tensor"
	"github.com/lorafuse/lorafuse/tokenizer"
	"github.com/lorafuse/lorafuse/tokenizer/chat"
)

// reading says what is read of a text encoder.
type reading struct {
	encoder, tokenizer string // parts of the pipeline
	longest            int    // tokens that it is given at most
	// layers are the hidden states that are read, side by side: numbers of layers, or
	// from the end where they are negative. None: the output model.Pooler at its token.
	layers []int
	chat   bool // texts are put into the chat template
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

	truncated *Truncation // of the last text; nil if it was read whole
}

// openText opens a text encoder and brings it to the device. Errors: ErrPart, ErrPipeline,
// those of the model, of the tokenizer and of the device.
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
	if r.layers == nil { // the pooled output may be that of a head
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

// openTokenizer opens the tokenizer that goes with a text encoder, and its chat template.
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

// compile makes the program, which has room for the longest text and the pictures that s
// shows.
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

// states are what is read: hidden states, or the pooled one.
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

// encode gives the states of the tokens of a text, [tokens, features], those of layers
// side by side. Tokens from number real on are padding, which nothing sees.
func (t *textModel) encode(ctx context.Context, ids []int32, real int) ([]float32, error) {
	t.batch.Reset()
	t.batch.Add(ids, nil)
	for _, hi := range [][]int32{t.batch.Hi(), t.batch.End()} {
		for i := range hi {
			hi[i] = min(hi[i], int32(real))
		}
	}
	return t.run(ctx, len(ids))
}

// run gives the states of the batch, which has so many tokens.
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

// pool gives the pooled output of a text.
func (t *textModel) pool(ctx context.Context, ids []int32) ([]float32, error) {
	at := t.model.Config.Family.(model.Pooling).PoolAt(ids)
	t.batch.Reset()
	t.batch.Add(ids[:at+1], nil) // it sees nothing of what comes behind
	t.batch.SetInt(nn.ReadToken, int32(at))
	results, err := t.host.Compute(ctx, t.slot, t.spec, &t.batch, at+1)
	if err != nil {
		return nil, err
	}
	return results.Get(ctx, result(0))
}

// ids returns the tokens of full, which is text in its template, cut to what is read at most.
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
		specials := t.words.Specials()
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

// padded are ids with padding up to the longest text.
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

// asked is a text as a user's message in the chat template, with a switch of the template.
func (t *textModel) asked(text string, thinking bool) (string, error) {
	return t.template.Render([]chat.Message{{Role: "user", Content: text}}, chat.Options{
		AddGenerationPrompt: true, Extra: map[string]any{"enable_thinking": thinking},
	})
}

// close frees what the encoder has on the device, and its weights.
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

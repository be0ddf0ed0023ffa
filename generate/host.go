package generate

import (
	"context"
	"fmt"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/graph/exec"
	"github.com/lorafuse/lorafuse/ir"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/model"
	"github.com/lorafuse/lorafuse/nn"
	"github.com/lorafuse/lorafuse/tensor"
)

// lastParam is the number of the token whose logits a run gives, i32 [1], and
// logitsResult is where they are, f32 [1, vocab].
const (
	lastParam    = "input.last"
	logitsResult = "logits"
)

// host is a model, with or without an adapter, on a device: one store that
// all executables share.
type host struct {
	dev     backend.Device
	model   *model.Model
	state   *lora.State
	adapter nn.Adapter
	store   *nn.Store

	prepared bool // what the adapter's parameters alone decide is in the store
}

func newHost(dev backend.Device, m *model.Model, s *lora.State) (*host, error) {
	h := &host{dev: dev, model: m, state: s, store: nn.NewStore(dev)}
	if s != nil {
		j, err := s.Injection()
		if err != nil {
			return nil, err
		}
		h.adapter = j
	}
	return h, nil
}

// program is a graph under construction, and what it makes of the model.
type program struct {
	*graph.Program
	b   *nn.Builder
	out model.Outputs
}

// begin builds the model for runs of at most max tokens; cache may be nil.
func (h *host) begin(max int, cache *nn.Cache) *program {
	g := graph.New()
	b := nn.NewBuilder(g, h.model, nn.Options{Adapter: h.adapter, Cache: cache, Prepare: true})
	out := h.model.Build(b, nn.NewInputs(g, max))
	return &program{g.Program(), b, out}
}

// last is the logits of the one token that [lastParam] names, so that those of
// all the others are never computed.
func (p *program) last() graph.Tensor {
	return p.out.Head.Rows(p.b.G.Param(lastParam, tensor.I32, ir.Static(1))).Logits()
}

// compile compiles p and brings what it reads to the device. Arguments whose
// name is in tables come from there instead of from the host's store.
func (h *host) compile(ctx context.Context, p *program, tables *tables) (*exec.Executable, error) {
	if err := h.prepare(ctx, p.b); err != nil {
		return nil, err
	}
	e, err := p.Compile(h.dev)
	if err != nil {
		return nil, err
	}
	if err = h.fill(ctx, e, p.b); err == nil {
		err = h.bind(e, tables)
	}
	if err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

// fill brings the weights, constants and trained tensors that e reads to the
// device, those that are not there yet.
func (h *host) fill(ctx context.Context, e *exec.Executable, b *nn.Builder) error {
	var frozen []string
	for _, name := range b.Used() {
		if e.Uses(name) {
			frozen = append(frozen, name)
		}
	}
	if err := h.store.Import(ctx, h.model, frozen); err != nil {
		return err
	}
	for name, t := range b.Constants() {
		if e.Uses(name) && h.store.Buffer(name) == nil {
			if err := h.store.Set(ctx, name, t.Data); err != nil {
				return err
			}
		}
	}
	for _, t := range b.Trained() {
		if !e.Uses(t.Name) || h.store.Buffer(t.Name) != nil {
			continue
		}
		values, want := h.state.Values[t.Name], 1
		for _, d := range t.Shape {
			want *= d
		}
		if len(values) != want {
			return fmt.Errorf("generate: the adapter's state has %d elements for %q, expected %d", len(values), t.Name, want)
		}
		if err := h.store.SetFloat32s(ctx, t.Name, values); err != nil {
			return err
		}
	}
	return nil
}

func (h *host) bind(e *exec.Executable, tables *tables) error {
	dims := e.Program().MaxDims()
	for _, a := range e.Program().Args {
		store := h.store
		if tables.has(a.Name) {
			store = tables.store
		}
		buf, err := store.Alloc(a.Name, a.Type.Bytes(dims))
		if err != nil {
			return err
		}
		if err := e.Bind(a.Name, buf); err != nil {
			return err
		}
	}
	return nil
}

// checkTokens finds ids that the model has no embedding for.
func (h *host) checkTokens(ids []int32) error {
	for i, id := range ids {
		if id < 0 || int(id) >= h.model.Config.VocabSize {
			return fmt.Errorf("generate: %w: id %d at position %d, the model's vocabulary has %d", ErrToken, id, i, h.model.Config.VocabSize)
		}
	}
	return nil
}

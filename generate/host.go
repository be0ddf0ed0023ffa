package generate

import (
	"context"
	"fmt"
	"reflect"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/graph/exec"
	"github.com/lorafuse/lorafuse/ir"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/model"
	"github.com/lorafuse/lorafuse/nn"
	"github.com/lorafuse/lorafuse/tensor"
)

// lastInput is the number of the token whose logits a run gives, i32 [1], and
// logitsResult is where they are, f32 [1, vocab].
const (
	lastInput    = "last"
	logitsResult = "logits"
)

// host is a model, with or without an adapter, on a device: stores that all
// executables share.
type host struct {
	dev   backend.Device
	model *model.Model
	store *nn.Store // weights, inputs and results
	tuned *tuning
}

// tuning is an adapter on a device, or none: its part in graphs, and its tensors
// apart from those of the model, so that another one can take its place.
type tuning struct {
	state   *lora.State
	adapter nn.Adapter
	store   *nn.Store

	prepared bool // what the adapter's parameters alone decide is in the store
}

func newHost(dev backend.Device, m *model.Model, s *lora.State) (*host, error) {
	h := &host{dev: dev, model: m, store: nn.NewStore(dev)}
	var err error
	h.tuned, err = h.tune(s)
	return h, err
}

// tune makes the part of an adapter, of which nothing is on the device yet.
func (h *host) tune(s *lora.State) (*tuning, error) {
	t := &tuning{state: s, store: nn.NewStore(h.dev)}
	if s == nil {
		return t, nil
	}
	j, err := s.Injection()
	if err != nil {
		return nil, err
	}
	t.adapter = j
	return t, nil
}

// retune puts another adapter in the place of the one that is there.
func (h *host) retune(t *tuning) {
	h.tuned.store.Free()
	h.tuned = t
}

func (h *host) free() {
	h.store.Free()
	h.tuned.store.Free()
}

// program is a graph under construction, and what it makes of the model.
type program struct {
	*graph.Program
	b   *nn.Builder
	out model.Outputs
}

// begin builds the model for runs of at most max tokens; cache may be nil.
func (h *host) begin(max int, cache *nn.Cache, t *tuning) *program {
	g := graph.New()
	b := nn.NewBuilder(g, h.model, nn.Options{Bounds: map[string]int{nn.Tokens: max}, Adapter: t.adapter, Cache: cache, Prepare: true})
	return &program{g.Program(), b, h.model.Build(b)}
}

// last is the logits of the one token that [lastInput] names, so that those of
// all the others are never computed.
func (p *program) last() graph.Tensor {
	return p.out.Logits(p.b, p.b.Input(lastInput, tensor.I32, ir.Static(1)))
}

// compile compiles p, brings what it reads to the device and binds it.
func (h *host) compile(ctx context.Context, p *program, tables *tables) (*exec.Executable, error) {
	e, err := h.load(ctx, p, h.tuned, nil)
	if err != nil {
		return nil, err
	}
	if err := h.bind(e, tables, h.tuned); err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

// load compiles p, which was built with t, and brings what it reads to the
// device. Where old, if there is one, is the same program, it stays.
func (h *host) load(ctx context.Context, p *program, t *tuning, old *exec.Executable) (*exec.Executable, error) {
	if err := h.prepare(ctx, p.b, t); err != nil {
		return nil, err
	}
	planned, err := p.Plan(h.dev.Supports)
	if err != nil {
		return nil, err
	}
	if err := h.affordable(planned); err != nil {
		return nil, err
	}
	e := old
	if old == nil || !reflect.DeepEqual(planned, old.Program()) {
		if e, err = exec.Load(planned, h.dev); err != nil {
			return nil, err
		}
	}
	if err := h.fill(ctx, e, p.b, t); err != nil {
		if e != old {
			e.Close()
		}
		return nil, err
	}
	return e, nil
}

// affordable refuses a program that has more to write than the device has
// memory, before any of it is allocated.
func (h *host) affordable(p *ir.Program) error {
	need := int64(p.Arena)
	dims := p.MaxDims()
	for _, a := range p.Args {
		if a.Written {
			need += int64(a.Type.Bytes(dims))
		}
	}
	if d, ok := h.dev.(backend.Scratcher); ok {
		scratch, err := d.Scratch(p)
		if err != nil {
			return err
		}
		need += scratch
	}
	if have := h.dev.Info().Memory; have > 0 && need > have {
		return fmt.Errorf("generate: %w: a run takes %d MiB for what it computes and keeps, the device has %d MiB; fewer tokens take less", backend.ErrOutOfMemory, need>>20, have>>20)
	}
	return nil
}

// fill brings the weights that e reads to the device, and the constants and
// trained tensors of its adapter, those that are not there yet.
func (h *host) fill(ctx context.Context, e *exec.Executable, b *nn.Builder, adapter *tuning) error {
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
		if e.Uses(name) && adapter.store.Buffer(name) == nil {
			if err := adapter.store.Set(ctx, name, t.Data); err != nil {
				return err
			}
		}
	}
	for _, t := range b.Trained() {
		if !e.Uses(t.Name) || adapter.store.Buffer(t.Name) != nil {
			continue
		}
		values, want := adapter.state.Values[t.Name], 1
		for _, d := range t.Shape {
			want *= d
		}
		if len(values) != want {
			return fmt.Errorf("generate: the adapter's state has %d elements for %q, expected %d", len(values), t.Name, want)
		}
		if err := adapter.store.SetFloat32s(ctx, t.Name, values); err != nil {
			return err
		}
	}
	return nil
}

// bind gives e its arguments: those of the adapter, those whose name is in
// tables, and the host's own.
func (h *host) bind(e *exec.Executable, tables *tables, t *tuning) error {
	dims := e.Program().MaxDims()
	for _, a := range e.Program().Args {
		store := h.store
		switch {
		case tables.has(a.Name):
			store = tables.store
		case t.store.Buffer(a.Name) != nil:
			store = t.store
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

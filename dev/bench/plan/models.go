package plan

import (
	"fmt"
	"slices"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/gpu"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/diffusion/dit"
	"github.com/lorafuse/lorafuse/internal/diffusion/vae"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/host"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/internal/serve/batching"
	"github.com/lorafuse/lorafuse/internal/train/task/flowmatching"
	"github.com/lorafuse/lorafuse/internal/train/trainer"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tensor"
)

// Options are the sizes of runs of a model.
type Options struct {
	Tokens  int // of a training step
	Context int // tokens of each sequence
	Rank    int // of adapters, on all linear layers except the head
}

// Adapters, sequences and jobs of the programs.
const (
	adapters = 16
	jobs     = 8
	pageRows = 16   // rows of a page of the KV cache
	side     = 1024 // pixels of an image
	prompt   = 512  // tokens of the prompt of an image
)

// List returns the programs of a model: what serving, generating and training run. m must stay open while they are
// planned. Errors: ErrUnknown for a model that is neither a text generator, a diffusion transformer nor an autoencoder.
func List(m *model.Model, o Options) ([]Program, error) {
	for _, n := range []struct {
		name        string
		found, most int
	}{{"tokens", o.Tokens, 1 << 20}, {"context", o.Context, 1 << 20}, {"rank", o.Rank, 256}} {
		if n.found < 1 || n.found > n.most {
			return nil, fmt.Errorf("plan: %s: found %d, expected 1 to %d", n.name, n.found, n.most)
		}
	}
	x := &programs{m, o, map[float64]*lora.State{}}
	switch f := m.Config.Family.(type) {
	case dit.Transformer:
		space := f.Space()
		pixels := 16 / space.Multiple // of a latent row; a token has 16 by 16
		axes := f.Bounds(1, dit.Sample{
			Latent: dit.Latent{Channels: space.Channels, Frames: 1, Height: side / pixels, Width: side / pixels},
			Prompt: dit.Prompt{Features: space.Text, Mask: make([]bool, prompt)},
		})
		return []Program{x.step(fmt.Sprintf("training step, %d² pixels", side), flowmatching.Loss(axes), 0)}, nil
	case vae.Autoencoder:
		return []Program{x.code("encode", f, "moments"), x.code("decode", f, "decoded")}, nil
	}
	if m.CheckTask(model.NextToken) != nil {
		return nil, fmt.Errorf("plan: %w: %s is of type %q, expected a text generator, a diffusion transformer or an autoencoder", ErrUnknown, m.Dir, m.Config.ModelType)
	}
	loss := trainer.LossOf(model.NextToken)
	return []Program{
		x.serve(1, 0), x.serve(32, 0), x.serve(64, 0), x.serve(64, adapters),
		x.decode("decode step", bare), x.decode("decode step, adapter", x.adapted(0)),
		x.step(fmt.Sprintf("training step, %s tokens", grouped(o.Tokens)), loss, 0), x.step(fmt.Sprintf("training step, %s tokens, dropout 0.1", grouped(o.Tokens)), loss, 0.1),
		x.fuse(), x.update(trainer.AdamW), x.update(trainer.AdamW8bit), x.take(),
	}, nil
}

type programs struct {
	m *model.Model
	Options
	states map[float64]*lora.State // by dropout; values do not matter
}

// program plans with the slot that hold returns, and a cache of rows.
func (x *programs) program(name string, dims map[string]int, rows int, hold func(*host.Host, backend.Info) (*engine.Slot, error), spec engine.Spec) Program {
	return Program{name, func(dev backend.Device) (*ir.Program, error) {
		h := host.Open(dev, x.m)
		defer h.Close()
		s, err := hold(h, dev.Info())
		if err != nil {
			return nil, err
		}
		spec := spec
		if rows > 0 {
			spec.Cache = h.NewCache(rows)
		}
		d, err := h.Plan(s, spec)
		if err != nil {
			return nil, err
		}
		return d.Program, nil
	}, dims}
}

// bare holds no adapter.
func bare(h *host.Host, _ backend.Info) (*engine.Slot, error) { return h.NewSlot(nil) }

// adapted holds an adapter.
func (x *programs) adapted(dropout float64) func(*host.Host, backend.Info) (*engine.Slot, error) {
	return func(h *host.Host, _ backend.Info) (*engine.Slot, error) {
		s, err := x.state(dropout)
		if err != nil {
			return nil, err
		}
		return h.NewSlot(s)
	}
}

func (x *programs) state(dropout float64) (*lora.State, error) {
	if s := x.states[dropout]; s != nil {
		return s, nil
	}
	c := lora.DefaultConfig()
	c.R, c.LoraAlpha, c.LoraDropout = x.Rank, float64(x.Rank), dropout
	c.TargetModules = lora.ModuleSet{Pattern: lora.AllLinear}
	p, err := lora.NewPlacement(c, lora.ModelOf(x.m.Config.ModelType, x.m.Modules()))
	if err != nil {
		return nil, err
	}
	x.states[dropout], err = p.InitialState(x.m, 0)
	return x.states[dropout], err
}

// serve returns one decode step of sequences with a paged cache, as package batching runs it by default.
func (x *programs) serve(sequences, adapters int) Program {
	const read = "read"
	name, hold := fmt.Sprintf("served step, %d × %s tokens", sequences, grouped(x.Context)), bare
	if adapters > 0 {
		name += fmt.Sprintf(", %d adapters", adapters)
		hold = func(h *host.Host, info backend.Info) (*engine.Slot, error) {
			d := batching.FactorDType(backend.Info{GPU: true, Precision: info.Precision})
			sizes := slices.Repeat([]lora.FactorType{{Rank: x.Rank, A: d, B: d}}, adapters)
			return h.NewOpenMultiAdapter(engine.Positions{Sizes: sizes}, make([]*engine.Slot, adapters)...), nil
		}
	}
	pages := sequences * ((x.Context + pageRows - 1) / pageRows)
	rows := max(32, sequences) * max(2048, x.Context)
	candidates := batching.Candidates(backend.Info{GPU: true}, gpu.Supports, x.m.Config.VocabSize)
	return x.program(name, map[string]int{nn.Tokens: sequences, nn.Pages: pages, read: sequences}, rows, hold, engine.Spec{
		Bounds: map[string]int{nn.Tokens: max(256, sequences), nn.Pages: 2 * rows / pageRows, read: sequences + 32}, Page: pageRows,
		Build: batching.Build(x.m, candidates),
	})
}

// decode returns the step of package generate for one token.
func (x *programs) decode(name string, hold func(*host.Host, backend.Info) (*engine.Slot, error)) Program {
	return x.program(name, nil, x.Context, hold, engine.Spec{Bounds: map[string]int{nn.Tokens: 1}, Build: func(b *nn.Builder, p *graph.Program) {
		p.Result("logits", x.m.Build(b).Logits(b, b.Input("last", tensor.I32, ir.Static(1))))
	}})
}

// code returns the encoder or the decoder of an autoencoder for an image, without tiles.
func (x *programs) code(name string, f vae.Autoencoder, output string) Program {
	n := side / f.Space().Pixels
	return x.program(fmt.Sprintf("%s, %d² pixels", name, side), nil, 0, bare, engine.Spec{Bounds: map[string]int{vae.Rows: n, vae.Columns: n}, FixedSizes: true, Build: func(b *nn.Builder, p *graph.Program) {
		p.Result(output, x.m.Build(b).Output(b, output))
	}})
}

// step returns the forward and backward pass of package train.
func (x *programs) step(name string, loss trainer.Loss, dropout float64) Program {
	return x.program(name, nil, 0, x.adapted(dropout), loss.Training(x.Tokens).Spec(x.m))
}

// fuse returns one pass of several training jobs.
func (x *programs) fuse() Program {
	return x.program(fmt.Sprintf("training step, %s tokens of %d jobs", grouped(x.Tokens), jobs), nil, 0, func(h *host.Host, info backend.Info) (*engine.Slot, error) {
		s, err := x.adapted(0)(h, info)
		if err != nil {
			return nil, err
		}
		return h.NewMultiAdapter(slices.Repeat([]*engine.Slot{s}, jobs)...), nil
	}, trainer.MultiAdapterPass(x.Tokens).Spec(x.m))
}

// update returns the optimizer step of package trainer, with clipping.
func (x *programs) update(optimizer trainer.Optimizer) Program {
	return x.trained("optimizer step, "+string(optimizer), optimizer, func(p *trainer.Plan) engine.Spec {
		return p.Step(trainer.Adam{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8})
	})
}

// take returns the program that reads the gradients of a micro-batch for the other ranks of a run.
func (x *programs) take() Program {
	return x.trained("gradients for other ranks", trainer.AdamW, (*trainer.Plan).Take)
}

// trained returns a program over all trained parameters and their gradients.
func (x *programs) trained(name string, optimizer trainer.Optimizer, spec func(*trainer.Plan) engine.Spec) Program {
	return Program{name, func(dev backend.Device) (*ir.Program, error) {
		s, err := x.state(0)
		if err != nil {
			return nil, err
		}
		p := trainer.Plan{Optimizer: optimizer, Sums: trainer.LossOf(model.NextToken).Totals()}
		for _, t := range s.Placement.Tensors() {
			p.Trained = append(p.Trained, nn.Trained{Name: t.Key, Param: engine.SlotPrefix + t.Key, DType: tensor.F32, Shape: t.Shape})
		}
		return x.program(name, nil, 0, x.adapted(0), spec(&p)).Plan(dev)
	}, nil}
}

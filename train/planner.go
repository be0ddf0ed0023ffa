package train

import (
	"runtime"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/ir"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/model"
	"github.com/lorafuse/lorafuse/nn"
	"github.com/lorafuse/lorafuse/tensor"
)

// Planner tells what training steps would take on a device. It allocates
// nothing there; of what a device may pack, the last plan counts.
type Planner struct {
	dev     backend.Device
	model   *model.Model
	state   *lora.State
	adapter nn.Adapter

	weights, quantized, process int64
}

// processStep is what Memory.Process is rounded up to, so that a resumed run
// finds the plan that it had.
const processStep = 16 << 20

// NewPlanner plans steps of a model with an adapter.
func NewPlanner(dev backend.Device, m *model.Model, s *lora.State) (*Planner, error) {
	adapter, err := s.Injection()
	if err != nil {
		return nil, err
	}
	p := &Planner{dev: dev, model: m, state: s, adapter: adapter}
	for _, name := range m.Used() {
		switch w, err := m.Weight(name); {
		case err != nil:
		case w.Fill != nil:
			p.quantized += int64(w.Size())
		default:
			p.weights += int64(w.Size())
		}
	}
	var now runtime.MemStats
	runtime.ReadMemStats(&now)
	p.process = (int64(now.Sys-now.HeapReleased)/processStep + 1) * processStep
	return p, nil
}

// Layers is how many layers activation checkpointing can recompute.
func (p *Planner) Layers() (int, error) {
	e := p.engine(EngineOptions{MaxTokens: 1})
	_, err := e.planMicro(p.adapter, &programs{})
	return e.layers, err
}

// Memory is what steps with these options take.
func (p *Planner) Memory(o EngineOptions) (Memory, error) {
	e := p.engine(o)
	programs, constants, err := e.plan(p.adapter)
	if err != nil {
		return Memory{}, err
	}
	return p.measure(o, e.trained, programs, constants)
}

// engine is one that plans and does nothing else.
func (p *Planner) engine(o EngineOptions) *Engine {
	return &Engine{opts: o, dev: p.dev, model: p.model, state: p.state}
}

func (p *Planner) measure(o EngineOptions, trained []nn.Trained, ps programs, constants map[string]*tensor.Tensor) (Memory, error) {
	m := Memory{InPlace: p.dev.Info().Backend == "cpu", Weights: p.weights, Quantized: p.quantized, Process: p.process}
	for _, t := range trained {
		m.hold(int64(product(t.Shape)))
	}
	for _, c := range constants {
		m.Constants += int64(len(c.Data))
	}
	var used []*ir.Program
	for _, x := range []struct {
		program *ir.Program
		dst     *int64
	}{{ps.micro, &m.Activations}, {ps.update, &m.Update}, {ps.eval, &m.Evaluation}, {ps.prepare, &m.Update}} {
		if x.program != nil {
			*x.dst += int64(x.program.Arena)
			used = append(used, x.program)
		}
	}
	if ps.prepare != nil {
		for _, a := range ps.prepare.Args {
			if a.Written {
				m.Constants += int64(a.Type.Bytes(ps.prepare.MaxDims()))
			}
		}
	}
	var err error
	if d, ok := p.dev.(backend.Scratcher); ok {
		if m.Scratch, err = d.Scratch(used...); err != nil {
			return m, err
		}
	}
	if d, ok := p.dev.(backend.Packer); ok {
		limit := d.SetPack(o.Pack, o.PackLimit)
		if m.Packed, err = d.PackedBytes(o.Pack, used...); err == nil {
			m.Packed = min(m.Packed, limit)
		}
	}
	return m, err
}

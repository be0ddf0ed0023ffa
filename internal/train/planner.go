package train

import (
	"runtime"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/host"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/train/trainer"
	"github.com/lorafuse/lorafuse/lora"
)

// Planner predicts the memory of training steps on a device, without allocating any.
// The device packs weights as the last plan specifies.
type Planner struct {
	host  *host.Host
	base  *Base // owner of the host; nil if the planner owns it
	slot  *engine.Slot
	bare  *engine.Slot // without an adapter, for the reference
	model *model.Model
	state *lora.State

	weights, quantized, process int64
}

// processStep is the multiple to which Memory.Process is rounded up, so that a resumed
// run chooses the same plan.
const processStep = 16 << 20

// NewPlanner plans steps of a model with an adapter.
func NewPlanner(dev backend.Device, m *model.Model, s *lora.State) (*Planner, error) {
	return newPlanner(host.Open(dev, m), nil, s)
}

// planner plans steps on the base.
func (b *Base) planner(s *lora.State) (*Planner, error) { return newPlanner(b.host, b, s) }

func newPlanner(h *host.Host, b *Base, s *lora.State) (*Planner, error) {
	slot, err := h.NewSlot(s)
	if err != nil {
		return nil, err
	}
	p := &Planner{host: h, base: b, slot: slot, model: h.Model(), state: s}
	for _, name := range p.model.Used() {
		switch w, err := h.Params().Weight(name); {
		case err != nil:
		case w.Fill != nil:
			p.quantized += int64(w.Size())
		default:
			p.weights += int64(w.Size())
		}
	}
	p.process = (processMemory()/processStep + 1) * processStep
	return p, nil
}

// processMemory returns the bytes that the process has from the system. Tests fix it.
var processMemory = func() int64 {
	var now runtime.MemStats
	runtime.ReadMemStats(&now)
	return int64(now.Sys - now.HeapReleased)
}

// Layers returns the number of layers that activation checkpointing can recompute in
// steps of a loss.
func (p *Planner) Layers(l trainer.Loss) (int, error) {
	d, err := p.planLoss(EngineOptions{MaxTokens: 1, Loss: l})
	if err != nil {
		return 0, err
	}
	return d.Segments, nil
}

// Memory returns the memory plan of steps with these options.
func (p *Planner) Memory(o EngineOptions) (Memory, error) {
	o = o.withDefaults()
	plan, err := p.plan(o)
	if err != nil {
		return Memory{}, err
	}
	return measure([]*Engine{{opts: o, planner: p, plan: plan}}, nil)
}

// common returns the memory of the model itself, without training.
func (p *Planner) common() Memory {
	return Memory{InPlace: p.host.Info().Unified, Weights: p.weights, Quantized: p.quantized, Process: p.process}
}

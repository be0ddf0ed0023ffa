package train

import (
	"fmt"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/bytesize"
	"github.com/lorafuse/lorafuse/internal/train/trainer"
	"github.com/lorafuse/lorafuse/lora"
)

// adapter returns the initial adapter state of the run.
func (r *Run) adapter() (*lora.State, error) {
	c := r.cfg
	target := lora.ModelOf(r.model.Config.ModelType, r.model.Modules())
	if c.InitAdapter == "" {
		adapter := c.Adapter.LoRA()
		adapter.BaseModelNameOrPath = new(c.Model)
		if targets := r.material.Targets; targets != nil {
			adapter = targets(adapter)
		}
		if r.model.Config.IsWrapped() && !adapter.ExcludeModules.IsSet() {
			adapter = adapter.Clone()
			adapter.ExcludeModules.Pattern = lora.VisionModules
		}
		p, err := lora.NewPlacement(adapter, target)
		if err != nil {
			return nil, err
		}
		if err := p.CheckUsed(); err != nil {
			return nil, err
		}
		r.warn(p.Warnings)
		if err := r.affordable(p); err != nil {
			return nil, err
		}
		return p.InitialState(r.model, c.Seed)
	}
	a, err := r.openAdapter(target)
	if err != nil {
		return nil, err
	}
	defer a.Close()
	l := a.Config
	if c.Given("adapter.lora_dropout") {
		l.LoraDropout = c.Adapter.LoraDropout
	}
	l.BaseModelNameOrPath = new(c.Model)
	if l.TaskType != nil {
		l.TaskType = &c.Adapter.TaskType
	}
	p, err := lora.NewPlacement(l, target.SpelledAs(a.Names()))
	if err != nil {
		return nil, err
	}
	report := a.Check(p, lora.CheckOptions{AllowZeroB: true})
	if err := report.Err(); err != nil {
		return nil, err
	}
	if err := p.CheckComplete(r.model.Fresh()); err != nil {
		return nil, fmt.Errorf("train: init_adapter %s: %w", c.InitAdapter, err)
	}
	for _, t := range p.Targets {
		if t.SharesWith != "" {
			return nil, fmt.Errorf("train: init_adapter %s: %w: ensure_weight_tying: %q and %q share one adapter, which can be used but not trained", c.InitAdapter, lora.ErrUnsupported, t.Name, t.SharesWith)
		}
	}
	r.warn(report.Warnings)
	if err := r.affordable(p); err != nil {
		return nil, err
	}
	return p.StateOf(a, r.model)
}

// affordable rejects an adapter whose values, gradients and moments alone exceed the
// memory, before any of it is allocated. Other shortages are found when the steps are
// planned, which needs the adapter.
func (r *Run) affordable(p *lora.Placement) error {
	shares := map[string]bool{}
	for _, t := range p.Targets {
		shares[t.Name] = t.SharesWith != ""
	}
	for _, s := range p.Saved {
		shares[s.Name] = s.SharesWith != ""
	}
	var m Memory
	for _, t := range p.Tensors() {
		if t.Role != lora.RoleBase && !shares[t.Module] {
			m.hold(t.Shape, trainer.Optimizer(r.cfg.Optimizer))
		}
	}
	have, what := int64(r.cfg.MemoryLimit), "memory_limit is"
	if have == 0 {
		have, what = r.dev.Info().Memory, "the device has"
	}
	if need := m.Adapter + m.Optimizer; have > 0 && need > have {
		return fmt.Errorf("train: %w: the adapter and its optimizer alone take %s, %s %s; a smaller r or fewer target_modules need less",
			backend.ErrOutOfMemory, bytesize.Binary(need), what, bytesize.Binary(have))
	}
	return nil
}

func (r *Run) warn(warnings []string) {
	for _, w := range warnings {
		r.observer.note("note     %s", w)
	}
}

package train

import (
	"fmt"
	"strings"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// Memory is the plan of a training run, in bytes.
type Memory struct {
	Weights     int64 `json:"weights_bytes"`     // of the model, used in place where they are mapped
	Adapter     int64 `json:"adapter_bytes"`     // trained parameters
	Optimizer   int64 `json:"optimizer_bytes"`   // gradients and moments
	Activations int64 `json:"activations_bytes"` // arena of a micro-batch
	Update      int64 `json:"update_bytes"`      // arena of the optimizer step
	Evaluation  int64 `json:"evaluation_bytes"`  // arena of an evaluation batch
	Constants   int64 `json:"constants_bytes"`   // inputs and fixed numbers
	// InPlace says that the weights cost no memory of their own.
	InPlace bool `json:"weights_in_place"`
}

// Total is what the run needs beside weights that are used in place.
func (m Memory) Total() int64 {
	n := m.Adapter + m.Optimizer + m.Activations + m.Update + m.Evaluation + m.Constants
	if !m.InPlace {
		n += m.Weights
	}
	return n
}

// String is the plan in one line.
func (m Memory) String() string {
	mapped := ""
	if m.InPlace {
		mapped = " mapped"
	}
	parts := []string{
		"weights " + Size(m.Weights) + mapped, "adapter " + Size(m.Adapter), "optimizer " + Size(m.Optimizer),
		"activations " + Size(m.Activations), "update " + Size(m.Update),
	}
	if m.Evaluation > 0 {
		parts = append(parts, "evaluation "+Size(m.Evaluation))
	}
	return fmt.Sprintf("%s (%s)", Size(m.Total()), strings.Join(parts, ", "))
}

// Size writes a number of bytes with a unit.
func Size(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
}

func (e *Engine) measure(programs [3]*ir.Program, constants map[string]*tensor.Tensor) Memory {
	m := Memory{InPlace: e.dev.Info().Backend == "cpu"}
	for _, name := range e.model.Used() {
		if w, err := e.model.Weight(name); err == nil {
			m.Weights += int64(len(w.Source.Bytes))
		}
	}
	for _, t := range e.trained {
		n := int64(product(t.Shape)) * 4
		m.Adapter += n
		m.Optimizer += 3 * n
	}
	for _, c := range constants {
		m.Constants += int64(len(c.Data))
	}
	for i, dst := range []*int64{&m.Activations, &m.Update, &m.Evaluation} {
		if programs[i] != nil {
			*dst = int64(programs[i].Arena)
		}
	}
	return m
}

// Memory is the engine's plan.
func (e *Engine) Memory() Memory { return e.memory }

// check refuses a plan that does not fit.
func (m Memory) check(dev backend.Device, limit int64) error {
	have, what := limit, "memory_limit is"
	if have == 0 {
		have, what = dev.Info().Memory, "the device has"
	}
	if have > 0 && m.Total() > have {
		return fmt.Errorf("train: %w: the plan needs %v, %s %s; a smaller batch_size or max_length or activation_checkpointing: true needs less",
			backend.ErrOutOfMemory, m, what, Size(have))
	}
	return nil
}

package train

import (
	"fmt"
	"strings"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/bytesize"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/host"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/train/trainer"
)

// Memory is the plan of a training run, in bytes.
type Memory struct {
	Weights   int64 `json:"weights_bytes"`   // of the model, which may be memory-mapped
	Quantized int64 `json:"quantized_bytes"` // of the model, in memory of their own
	Adapter   int64 `json:"adapter_bytes"`   // trained parameters
	Optimizer int64 `json:"optimizer_bytes"` // gradients and moments
	// Arena is the working memory of the programs, which use it one at a time. It is as
	// large as the largest of the next three, plus the values derived from the adapter.
	Arena       int64 `json:"arena_bytes"`
	Activations int64 `json:"activations_bytes"`        // of a micro-batch
	Update      int64 `json:"update_bytes"`             // of the optimizer step
	Evaluation  int64 `json:"evaluation_bytes"`         // of an evaluation batch
	Scratch     int64 `json:"scratch_bytes"`            // packed weights and temporary values of the device
	Constants   int64 `json:"constants_bytes"`          // inputs and fixed numbers
	Packed      int64 `json:"packed_bytes"`             // copies of weights, see the key pack
	Saving      int64 `json:"saving_bytes"`             // copies while a checkpoint is written
	Exchange    int64 `json:"exchange_bytes,omitempty"` // the gradients for other ranks; on a host also those sent and received
	// Samples is the memory for sampling between steps: first the model's programs,
	// then an autoencoder. It is not in use while a checkpoint is written.
	Samples int64 `json:"samples_bytes"`
	// Process is the memory of the process at planning time (the data set, the
	// tokenizer, the initial adapter), rounded up to 16 MiB.
	Process int64 `json:"process_bytes"`
	// InPlace reports that the weights need no memory of their own, since they are used
	// in the page cache, which the system may reclaim.
	InPlace bool `json:"weights_in_place"`
}

// hold adds a trained parameter.
func (m *Memory) hold(shape []int, o trainer.Optimizer) {
	values, moments := 4*int64(ir.ShapeOf(shape...).Elements(nil)), o.Bytes(shape)
	m.Adapter += values
	m.Optimizer += values + moments // with the gradient
	m.Saving += moments + values    // with the bytes of the adapter's file
}

// add adds an adapter and the programs that train it; the programs in own are not
// shared.
func (m *Memory) add(p plan, own []*engine.Draft, o trainer.Optimizer) {
	var a Memory
	for _, t := range p.micro.Trained {
		a.hold(t.Shape, o)
	}
	m.Adapter, m.Optimizer, m.Saving = m.Adapter+a.Adapter, m.Optimizer+a.Optimizer, max(m.Saving, a.Saving)
	constants := p.micro.Constants()
	if p.eval != nil {
		constants = max(constants, p.eval.Constants()) // it makes more of parameters
	}
	m.Constants += constants
	if p.take != nil {
		m.Exchange = 4 * int64(p.step.Elements())
		if m.InPlace {
			m.Exchange *= 3
		}
	}
	for _, d := range own {
		turn := &m.Evaluation
		switch d {
		case p.micro:
			turn = &m.Activations
		case p.update, p.take:
			turn = &m.Update
		}
		*turn = max(*turn, int64(d.Program.Arena))
	}
}

// need adds the memory of programs that share a host.
func (m *Memory) need(h *host.Host, drafts []*engine.Draft) error {
	need, err := h.Need(drafts...)
	m.Arena, m.Scratch = need.Arena+need.Precompute, need.Scratch
	return err
}

// Total returns the memory that the run allocates, excluding weights that are used in
// place and the present memory of the process.
func (m Memory) Total() int64 {
	n := m.Quantized + m.Adapter + m.Optimizer + m.Arena + m.Scratch + m.Constants + m.Packed + m.Exchange + max(m.Saving, m.Samples)
	if m.InPlace {
		return n
	}
	return n + m.Weights
}

// Resident returns the peak resident memory of the process, including pages of the
// weights' files, since every step reads them all. For a device with its own memory, it
// returns the device memory only.
func (m Memory) Resident() int64 {
	if !m.InPlace {
		return m.Total()
	}
	return m.Total() + m.Weights + m.Process
}

// String formats the plan as one line.
func (m Memory) String() string {
	mapped := ""
	if m.InPlace {
		mapped = " mapped"
	}
	parts := []string{"weights " + bytesize.Binary(m.Weights) + mapped}
	if m.Quantized > 0 {
		parts = append(parts, "quantized "+bytesize.Binary(m.Quantized))
	}
	parts = append(parts,
		"adapter "+bytesize.Binary(m.Adapter), "optimizer "+bytesize.Binary(m.Optimizer),
		"arena "+bytesize.Binary(m.Arena)+" for "+strings.Join(m.turns(), " or "))
	if m.Scratch > 0 {
		parts = append(parts, "scratch "+bytesize.Binary(m.Scratch))
	}
	if m.Packed > 0 {
		parts = append(parts, "packed "+bytesize.Binary(m.Packed))
	}
	if m.Exchange > 0 {
		parts = append(parts, "exchange "+bytesize.Binary(m.Exchange))
	}
	if m.Samples > 0 {
		parts = append(parts, "samples "+bytesize.Binary(m.Samples))
	}
	text := fmt.Sprintf("%s (%s)", bytesize.Binary(m.Total()), strings.Join(parts, ", "))
	if m.InPlace {
		text += fmt.Sprintf(", %s with the weights and the %s of the process", bytesize.Binary(m.Resident()), bytesize.Binary(m.Process))
	}
	return text
}

// turns lists the memory of the programs that share the arena.
func (m Memory) turns() []string {
	turns := []string{"activations " + bytesize.Binary(m.Activations), "update " + bytesize.Binary(m.Update)}
	if m.Evaluation > 0 {
		turns = append(turns, "evaluation "+bytesize.Binary(m.Evaluation))
	}
	return turns
}

// Memory returns the engine's memory plan.
func (e *Engine) Memory() Memory { return e.memory }

// check refuses a plan that does not fit.
func (m Memory) check(dev backend.Info, limit int64) error {
	have, what := limit, "memory_limit is"
	if have == 0 {
		have, what = dev.Memory, "the device has"
	}
	if have > 0 && m.Total() > have {
		return fmt.Errorf("train: %w: the plan needs %v, %s %s; a smaller batch_size or max_length or activation_checkpointing: true needs less",
			backend.ErrOutOfMemory, m, what, bytesize.Binary(have))
	}
	return nil
}

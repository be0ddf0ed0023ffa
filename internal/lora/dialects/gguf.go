package dialects

import (
	"fmt"
	"io"

	"github.com/lorafuse/lorafuse/internal/gguf"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/model/llamacpp"
	"github.com/lorafuse/lorafuse/lora"
)

// GGUF is the form of adapters of llama.cpp: BLOCK.lora_a [rank, in] and BLOCK.lora_b
// [out, rank], with one alpha for the whole file. [WriteGGUF] writes it.
const GGUF Form = "gguf"

// WriteGGUF writes an adapter of a language model for llama.cpp. Layers have the strength
// that they have in PEFT: where alpha/rank differs, by rank patterns or rsLoRA, the factor
// is in B. It returns the number of layers.
//
// llama.cpp only adds products B·A to linear layers. Everything else (DoRA, biases, saved
// modules, trained tokens, embeddings, experts, a changed base) is rejected by name with
// lora.ErrUnsupported, and a model that llama.cpp does not compute with
// llamacpp.ErrUnsupported.
func WriteGGUF(path string, m *model.Model, a *lora.Adapter, p *lora.Placement) (int, error) {
	fail := func(err error) (int, error) { return 0, fmt.Errorf("lora: adapter %s: %w", a.Dir, err) }
	d, err := llamacpp.Describe(m)
	if err != nil {
		return fail(err)
	}
	if err := p.CheckPlain("GGUF adapters"); err != nil {
		return fail(err)
	}
	alpha := float32(1)
	if len(p.Targets) > 0 {
		alpha = float32(p.Targets[0].Scale * float64(p.Targets[0].Rank))
	}
	var entries []gguf.Entry
	for _, t := range p.Targets {
		w, err := a.Weights(t)
		if err != nil {
			return fail(err)
		}
		parts, err := d.Parts(t.Name + ".weight")
		if err != nil {
			return fail(err)
		}
		b := w[lora.RoleB]
		if want := float64(alpha) / float64(t.Rank); t.Scale != want {
			for i := range b {
				b[i] = float32(float64(b[i]) * (t.Scale / want))
			}
		}
		for _, x := range parts {
			shape := []int{t.Out, t.Rank}
			entries = append(entries,
				floatEntry(x.Name+".lora_a", w[lora.RoleA], []int{t.Rank, t.In}),
				floatEntry(x.Name+".lora_b", x.Apply(b, shape), x.Shape(shape)))
		}
	}
	keys := []gguf.KeyValue{
		{Key: "general.architecture", Value: d.Architecture},
		{Key: "general.type", Value: "adapter"},
		{Key: "general.file_type", Value: uint32(0)},
		{Key: "adapter.type", Value: "lora"},
		{Key: "adapter.lora.alpha", Value: alpha},
	}
	if err := gguf.Write(path, keys, entries); err != nil {
		return fail(err)
	}
	return len(p.Targets), nil
}

// floatEntry returns a tensor of float32 elements.
func floatEntry(name string, values []float32, shape []int) gguf.Entry {
	return gguf.Entry{Name: name, Type: gguf.F32, Shape: shape, Write: func(w io.Writer) error {
		data := make([]byte, 4*len(values))
		if err := gguf.Quantize(data, values, gguf.F32); err != nil {
			return err
		}
		_, err := w.Write(data)
		return err
	}}
}

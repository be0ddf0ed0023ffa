package lora

import (
	"fmt"
	"strings"
)

// Model describes a model to the targeting rules.
type Model struct {
	// Type is the model_type of config.json ("llama"). It determines the targets of a
	// configuration without target_modules.
	Type string
	// Modules lists all modules with parameters, in the order in which the model
	// computes or lists them. It includes an output head that shares the weight of the
	// embedding.
	Modules []Module
}

// Module is one module of a model that holds parameters of its own.
type Module struct {
	// Name is the full name in the Hugging Face model, such as
	// "model.layers.0.self_attn.q_proj".
	Name string
	Kind Kind
	// In and Out are the sizes of input and output. An embedding has In rows
	// (the vocabulary) of Out columns; a norm has In = Out.
	In, Out int
	Bias    bool
	// InputEmbedding and OutputEmbedding mark the ends of a language model:
	// get_input_embeddings and get_output_embeddings in transformers.
	InputEmbedding, OutputEmbedding bool
	// TiedTo is the name of the module whose weight this one shares, if any.
	TiedTo string
	// Count is the number of matrices in a Parameter or of rows in a Norm, and Parts are the weights in the
	// model's files whose concatenated rows form it. A Parameter has its name in
	// transformers, such as "model.layers.0.mlp.experts.gate_up_proj".
	Count int
	Parts []string
	// Transposed reports that a Parameter is stored as [in, out], or as a stack of such matrices.
	Transposed bool

	spelled string // the name in adapter files, if it may differ; see SpelledAs
}

// Kind is the type of a module, which determines its computation and the layout of its
// weight.
type Kind uint8

// The kinds of modules. Only Linear, Embedding and Conv1D can be targeted by
// target_modules, and a Parameter by target_parameters.
const (
	Other     Kind = iota // has unknown parameters
	Linear                // weight [out, in]
	Embedding             // weight [in, out]: a row per token
	Conv1D                // weight [in, out]: the linear layer of GPT-2
	Norm                  // weight [out], or a row for each of Count heads
	Parameter             // a parameter rather than a module: [out, in], or a stack of such matrices
)

// String returns the name of the kind in messages.
func (k Kind) String() string {
	switch k {
	case Linear:
		return "linear layer"
	case Embedding:
		return "embedding"
	case Conv1D:
		return "Conv1D layer"
	case Norm:
		return "norm"
	case Parameter:
		return "parameter"
	}
	return "module"
}

// WeightShape returns the shape of the weight in the model's file.
func (m Module) WeightShape() []int {
	switch m.Kind {
	case Linear:
		return []int{m.Out, m.In}
	case Embedding, Conv1D:
		return []int{m.In, m.Out}
	case Norm:
		if m.Count > 1 {
			return []int{m.Count, m.Out}
		}
		return []int{m.Out}
	case Parameter:
		shape := []int{m.Out, m.In}
		if m.Transposed {
			shape = []int{m.In, m.Out}
		}
		if m.Count > 1 {
			return append([]int{m.Count}, shape...)
		}
		return shape
	}
	return nil
}

// matrices returns the number of matrices stacked in the weight.
func (m Module) matrices() int { return max(1, m.Count) }

// holder returns the name of the module that holds a Parameter.
func (m Module) holder() string { return m.Name[:max(0, strings.LastIndexByte(m.Name, '.'))] }

// base returns the last part of the name.
func (m Module) base() string { return m.Name[strings.LastIndexByte(m.Name, '.')+1:] }

// check returns an error if m is invalid.
func (m Module) check() error {
	if m.Name == "" {
		return fmt.Errorf("lora: a module of the model has no name")
	}
	if m.Kind != Other && (m.Out <= 0 || m.In <= 0 && m.Kind != Norm) {
		return fmt.Errorf("lora: module %q: sizes in %d, out %d: %w", m.Name, m.In, m.Out, ErrShape)
	}
	return nil
}

// parents returns the names of all modules that contain others: each prefix of a name
// that ends before a dot.
func parents(modules []Module) []string {
	var names []string
	seen := map[string]bool{}
	for _, m := range modules {
		for i, c := range m.Name {
			if c == '.' && !seen[m.Name[:i]] {
				seen[m.Name[:i]] = true
				names = append(names, m.Name[:i])
			}
		}
	}
	return names
}

// hasSuffix reports whether name is suffix or ends in a dot and suffix.
func hasSuffix(name, suffix string) bool {
	rest, ok := strings.CutSuffix(name, suffix)
	return ok && (rest == "" || strings.HasSuffix(rest, "."))
}

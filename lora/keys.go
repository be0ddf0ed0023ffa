package lora

import (
	"slices"
	"strings"
)

// keyPrefix is the prefix that PEFT's wrappers add to the name of every module.
const keyPrefix = "base_model.model."

// Role is the part that a tensor of an adapter plays.
type Role string

// The roles of tensors that are not of a method's, with the shapes in the file.
const (
	RoleBase   Role = "base weight"  // the base weight or bias of a targeted embedding or head
	RoleSaved  Role = "saved module" // weight or bias of a module that is saved whole
	RoleBias   Role = "bias"         // a trained bias of the base model [out]
	RoleTokens Role = "tokens"       // trainable_tokens_delta [tokens, columns]: the rows themselves
)

// TensorSpec describes one tensor of an adapter file.
type TensorSpec struct {
	Key    string // in the file
	Module string // full name in the model
	// Param is "weight" or "bias" for RoleBase, RoleSaved and RoleBias: the
	// parameter of the module.
	Param string
	Role  Role
	Shape []int
	// Optional marks base weights: PEFT saves them with an adapter on the
	// embedding, and does not miss them.
	Optional bool
}

// Tensors lists the tensors of an adapter file in the order of the placement. The
// keys are PEFT's.
func (p *Placement) Tensors() []TensorSpec {
	var specs []TensorSpec
	for _, t := range p.Targets {
		specs = append(specs, t.Tensors()...)
	}
	for _, s := range p.shared {
		specs = append(specs, s.TensorSpec)
	}
	for _, m := range p.base {
		specs = appendParams(specs, m, ".base_layer.", RoleBase)
	}
	for _, m := range p.Biases {
		infix := "."
		if _, ok := p.Target(m.Name); ok {
			infix = ".base_layer."
		}
		key := keyPrefix + m.inFiles() + infix + "bias"
		bias := TensorSpec{Key: key, Module: m.Name, Param: "bias", Role: RoleBias, Shape: []int{m.Out}}
		if i := slices.IndexFunc(specs, func(s TensorSpec) bool { return s.Key == key }); i >= 0 {
			specs[i] = bias // trained, not just saved
			continue
		}
		specs = append(specs, bias)
	}
	for _, m := range p.Saved {
		specs = appendParams(specs, m.Module, ".", RoleSaved)
	}
	for _, t := range p.Tokens {
		specs = append(specs, TensorSpec{Key: t.key(), Module: t.Name, Role: RoleTokens, Shape: []int{len(t.Tokens), t.columns()}})
	}
	return specs
}

// copyOfBias reports whether a tensor is a redundant copy of the bias of a module that
// is saved whole. With trained biases, PEFT also writes this bias under its in-memory
// name and that of the original module; loading reads neither copy.
func copyOfBias(key string, expected map[string]TensorSpec) bool {
	for _, wrapper := range []string{".modules_to_save.", ".original_module."} {
		module, rest, ok := strings.Cut(key, wrapper)
		_, unnamed, _ := strings.Cut(rest, ".") // without the name of the adapter
		for _, param := range []string{rest, unnamed} {
			if s := expected[module+"."+param]; ok && s.Role == RoleSaved && s.Param == "bias" {
				return true
			}
		}
	}
	return false
}

// Key returns the key of a tensor of this target in an adapter file, or nothing if the method
// has no tensor with that role.
func (t Target) Key(role Role) string {
	for _, p := range t.adapter().parts() {
		if p.role == role {
			return t.key(p)
		}
	}
	return ""
}

func (t Target) key(p part) string {
	switch {
	case t.Kind == Parameter:
		return keyPrefix + Module{Name: t.inFiles()}.holder() + strings.Repeat(".base_layer", t.around) + p.end
	case t.Kind == Embedding && p.ofEmbedding != "":
		return keyPrefix + t.inFiles() + p.ofEmbedding
	}
	return keyPrefix + t.inFiles() + p.end
}

// Tensors lists the tensors of this target in an adapter file.
func (t Target) Tensors() []TensorSpec {
	var specs []TensorSpec
	for _, p := range t.adapter().parts() {
		if shape := t.adapter().shape(t, p.role); shape != nil {
			specs = append(specs, TensorSpec{Key: t.key(p), Module: t.Name, Role: p.role, Shape: shape})
		}
	}
	return specs
}

// columns returns the row length of an embedding or a head.
func (m Module) columns() int {
	if m.Kind == Embedding {
		return m.Out
	}
	return m.In
}

// appendParams adds the parameters of a module.
func appendParams(specs []TensorSpec, m Module, infix string, role Role) []TensorSpec {
	add := func(param string, shape []int) {
		specs = append(specs, TensorSpec{
			Key: keyPrefix + m.inFiles() + infix + param, Module: m.Name, Param: param,
			Role: role, Shape: shape, Optional: role == RoleBase,
		})
	}
	add("weight", m.WeightShape())
	if m.Bias {
		add("bias", []int{m.Out})
	}
	return specs
}

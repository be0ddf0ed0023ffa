package lora

import (
	"slices"
	"strings"
)

// keyPrefix is the prefix that PEFT's wrappers add to the name of every module.
const keyPrefix = "base_model.model."

// Role is the part that a tensor of an adapter plays.
type Role uint8

// The roles, with the shapes in the file.
const (
	RoleA         Role = iota // lora_A [rank, in]; lora_embedding_A [rank, vocabulary]; of a stack [matrices·rank, in]
	RoleB                     // lora_B [out, rank]; lora_embedding_B [columns, rank]; of a stack [out, rank·matrices]
	RoleBBias                 // lora_B.bias [out]
	RoleMagnitude             // lora_magnitude_vector [out] of DoRA; [columns] on an embedding
	RoleBase                  // the base weight or bias of a targeted embedding or head
	RoleSaved                 // weight or bias of a module that is saved whole
	RoleBias                  // a trained bias of the base model [out]
	RoleTokens                // trainable_tokens_delta [tokens, columns]: the rows themselves
)

// String returns the name of the role in messages.
func (r Role) String() string {
	return [...]string{"A", "B", "bias of B", "magnitude", "base weight", "saved module", "bias", "tokens"}[r]
}

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
		specs = append(specs, t.tensors()...)
	}
	for _, m := range p.base {
		specs = appendParams(specs, m, ".base_layer.", RoleBase)
	}
	for _, m := range p.Biases {
		infix := "."
		if _, ok := p.Target(m.Name); ok {
			infix = ".base_layer."
		}
		key := keyPrefix + m.Name + infix + "bias"
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
		specs = append(specs, TensorSpec{
			Key:    keyPrefix + t.Name + ".token_adapter.trainable_tokens_delta",
			Module: t.Name, Role: RoleTokens, Shape: []int{len(t.Tokens), t.columns()},
		})
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

// Key returns the key of a tensor of this target in an adapter file. The role is RoleA,
// RoleB, RoleBBias or RoleMagnitude.
func (t Target) Key(role Role) string {
	key := keyPrefix + t.Name
	switch t.Kind {
	case Parameter:
		key = keyPrefix + t.holder() + strings.Repeat(".base_layer", t.around)
	case Embedding:
		switch role {
		case RoleA:
			return key + ".lora_embedding_A"
		case RoleB:
			return key + ".lora_embedding_B"
		}
	}
	switch role {
	case RoleA:
		return key + ".lora_A.weight"
	case RoleB:
		return key + ".lora_B.weight"
	case RoleBBias:
		return key + ".lora_B.bias"
	case RoleMagnitude:
		return key + ".lora_magnitude_vector"
	}
	return ""
}

func (t Target) tensors() []TensorSpec {
	spec := func(role Role, shape ...int) TensorSpec {
		return TensorSpec{Key: t.Key(role), Module: t.Name, Role: role, Shape: shape}
	}
	ranks := t.matrices() * t.Rank
	specs := []TensorSpec{spec(RoleA, ranks, t.In), spec(RoleB, t.Out, ranks)}
	if t.LoraBias {
		specs = append(specs, spec(RoleBBias, t.Out))
	}
	if t.DoRA {
		specs = append(specs, spec(RoleMagnitude, t.Out))
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
			Key: keyPrefix + m.Name + infix + param, Module: m.Name, Param: param,
			Role: role, Shape: shape, Optional: role == RoleBase,
		})
	}
	add("weight", m.WeightShape())
	if m.Bias {
		add("bias", []int{m.Out})
	}
	return specs
}

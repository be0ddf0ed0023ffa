package lora

import (
	"errors"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/tensor"
)

// methods lists the PEFT methods that this package computes. If several methods of one peft_type
// are selected by a configuration, the first counts.
var methods = []method{dora{}, plainLoRA{}}

// method is a PEFT method of adapting modules, such as LoRA or DoRA. Each method is one file with its
// settings, tensors and formulas, and an entry in methods. All other code treats the adapters of
// all methods alike. A method embeds baseMethod for the hooks that it does not need.
type method interface {
	// name returns the name of the method in messages.
	name() string
	// peftType returns the value of peft_type in adapter_config.json.
	peftType() string
	// keys returns the method's keys of adapter_config.json in addition to commonKeys and to the keys
	// of other methods of its peft_type.
	keys() []field
	// settings returns the default values of keys without a field of Config, or nil.
	settings() settings
	// selected reports whether a configuration of the method's peft_type asks for it.
	selected(c *Config) bool
	// validate returns an error if settings contradict each other or are not supported.
	validate(c *Config) error

	// accept returns an error if the method cannot adapt a module.
	accept(c *Config, m Module) error
	// scale returns the factor of the adapter's contribution to a target.
	scale(c *Config, t Target) float64
	// parts lists the tensors that a target may have.
	parts() []part
	// shape returns the shape of one of the parts, or nil if the target does not have it.
	shape(t Target, r Role) []int

	// shared lists the frozen tensors that all targets read.
	shared(p *Placement) []sharedTensor

	// needsBase reports whether initialize reads the weight of the module.
	needsBase(t Target) bool
	// initialize sets the tensors w, which are zero, to their values before training.
	initialize(t Target, w Weights, seed uint64, base []float32) error
	// constants returns the fixed tensors that graphs of a target read, by name. weight returns
	// the weight that the module computes with.
	constants(t Target, weight func() ([]float32, error)) (map[string]*tensor.Tensor, error)

	// terms returns the terms of a linear layer. ok is false if the layer cannot be written so; then
	// linear computes it.
	terms(l layer) (x terms, ok bool)
	// linear returns the output of a linear layer without terms.
	linear(l layer) graph.Tensor
	// embedding returns the rows ids of an embedding.
	embedding(l layer, ids graph.Tensor) graph.Tensor
	// stack returns ys, the products of l.x and the matrices selected by index, plus the
	// adapter's contribution.
	stack(l layer, index graph.Tensor, ys []graph.Tensor) []graph.Tensor

	// merge changes the weight of a module to include the adapter w.
	merge(t Target, weight []float32, w Weights)
	// mergeBias returns a function that changes the bias of a module likewise, or nil if the bias
	// stays. It fails if the adapter has a bias but the module has none.
	mergeBias(t Target) (func(bias []float32, w Weights) error, error)
	// additive reports whether the adapter is Scale·B·A, added to the weight, and A and B are used
	// in no other way.
	additive() bool
}

// part is a tensor that a method adds to modules.
type part struct {
	role Role
	end  string // of the key, after the name of the module
	// ofEmbedding is the end of the key if the module is an embedding and the end differs.
	ofEmbedding string
	// factor says that the adapter has no effect if the tensor is all zero.
	factor bool
	// set changes a configuration so that its targets have the tensor. Nil if they always do.
	set func(*Config)
}

// sharedTensor is a frozen tensor of an adapter. Its Role is RoleBase and its Param "weight", as if it
// were the weight of a module. Graphs read it as the constant basePrefix+Module+".weight", and merge
// finds it under the role Module.
type sharedTensor struct {
	TensorSpec
	draw func(seed uint64) []float32 // returns the values before training
}

// settings holds the values of keys that only one method has.
type settings interface{ clone() settings }

// baseMethod implements the hooks of a method that adapts only linear layers, always the same way.
type baseMethod struct{}

func (baseMethod) settings() settings               { return nil }
func (baseMethod) selected(*Config) bool            { return true }
func (baseMethod) validate(*Config) error           { return nil }
func (baseMethod) scale(*Config, Target) float64    { return 1 }
func (baseMethod) shared(*Placement) []sharedTensor { return nil }
func (baseMethod) needsBase(Target) bool            { return false }
func (baseMethod) additive() bool                   { return false }

func (baseMethod) accept(_ *Config, m Module) error {
	if m.Kind != Linear {
		return unsupported("target_modules", "it matches %s; linear layers can be targeted", describeModule(m.Name, m.Kind))
	}
	return nil
}

func (baseMethod) constants(Target, func() ([]float32, error)) (map[string]*tensor.Tensor, error) {
	return nil, nil
}

func (baseMethod) linear(l layer) graph.Tensor { return l.b.G.Fail(errNoFormula) }

func (baseMethod) embedding(l layer, _ graph.Tensor) graph.Tensor { return l.b.G.Fail(errNoFormula) }

func (baseMethod) stack(l layer, _ graph.Tensor, ys []graph.Tensor) []graph.Tensor {
	l.b.G.Fail(errNoFormula)
	return ys
}

func (baseMethod) mergeBias(Target) (func([]float32, Weights) error, error) { return nil, nil }

var errNoFormula = errors.New("lora: the method has no formula for a module that it accepts")

// method returns the method that c asks for: LoRA if its peft_type is unknown.
func (c *Config) method() method {
	for _, m := range methods {
		if m.peftType() == c.PeftType && m.selected(c) {
			return m
		}
	}
	return plainLoRA{}
}

// Method returns the name of the PEFT method: MethodLoRA, or the name of its variant, such as "DoRA".
func (c *Config) Method() string { return c.method().name() }

// Method returns the name of the PEFT method that adapts the target, as [Config.Method] does.
func (t Target) Method() string { return t.adapter().name() }

// adapter returns the method of t. The zero Target is one of LoRA.
func (t Target) adapter() method {
	if t.method == nil {
		return plainLoRA{}
	}
	return t.method
}

// Setting is a key of adapter_config.json and its value in the file.
type Setting struct {
	Key   string
	Value any
}

// VariantSettings returns the settings that select and configure variants of LoRA, or the
// settings of another method.
func (c *Config) VariantSettings() []Setting {
	var all []Setting
	for _, m := range methods {
		if m.peftType() != c.PeftType || m.name() == MethodLoRA {
			continue
		}
		for _, f := range m.keys() {
			all = append(all, Setting{f.key, encode(f.at(c))})
		}
	}
	return all
}

// knownType reports whether a method has that peft_type.
func knownType(peftType string) bool {
	return slices.ContainsFunc(methods, func(m method) bool { return m.peftType() == peftType })
}

// peftTypes lists the values of peft_type that have a method.
func peftTypes() []string {
	var all []string
	for _, m := range methods {
		all = append(all, m.peftType())
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// keysOf returns all keys of the configurations of a peft_type, sorted.
func keysOf(peftType string) []field {
	if !knownType(peftType) {
		peftType = plainLoRA{}.peftType()
	}
	keys := slices.Clone(commonKeys)
	for _, m := range methods {
		if m.peftType() == peftType {
			keys = append(keys, m.keys()...)
		}
	}
	slices.SortFunc(keys, func(a, b field) int { return strings.Compare(a.key, b.key) })
	return keys
}

// KeySuffix is the end of the key of a tensor in an adapter file, such as "lora_A.weight", after
// the name of a linear layer.
type KeySuffix struct {
	Role Role
	Text string // after the name of the module
	// Set changes a configuration so that its targets have the tensor. Nil if they always do.
	Set func(*Config)
}

// KeySuffixes lists the key suffixes of LoRA and its variants, for programs that convert adapters
// from or to other formats.
func KeySuffixes() []KeySuffix {
	var all []KeySuffix
	for _, m := range methods {
		if m.peftType() != (plainLoRA{}).peftType() {
			continue
		}
		for _, p := range m.parts() {
			if !slices.ContainsFunc(all, func(e KeySuffix) bool { return e.Role == p.role }) {
				all = append(all, KeySuffix{p.role, p.end, p.set})
			}
		}
	}
	return all
}

// layer is an adapted module in a graph.
type layer struct {
	b          *nn.Builder
	j          *Injection
	t          Target
	m          nn.Module
	x, w, bias graph.Tensor // input, weight, and bias or the zero Tensor
}

// param returns a tensor of the adapter, in the element type in which it is kept.
func (l layer) param(r Role) graph.Tensor {
	key, shape := l.t.Key(r), l.t.adapter().shape(l.t, r)
	if d, ok := l.j.types[key]; ok {
		return l.b.TrainedAs(d, key, shape...)
	}
	return l.b.Train(key, shape...)
}

// constant returns a fixed tensor of the adapter by its name.
func (l layer) constant(name string) graph.Tensor { return l.b.Constant(name, l.j.constants[name]) }

// drops reports whether the layer drops inputs of the adapter.
func (l layer) drops() bool { return l.b.Training() && l.t.Dropout > 0 }

// dropout returns the arguments of a dropout of the adapter's input.
func (l layer) dropout() (key graph.Tensor, attr ir.DropoutAttr) {
	attr.Stream = nn.Stream(l.m.Name)
	if l.drops() {
		attr.P, key = l.t.Dropout, l.b.Key()
	}
	return key, attr
}

// terms returns the terms of a linear layer, see [method].
func (l layer) terms() (x terms, ok bool) {
	if x, ok = l.t.adapter().terms(l); l.drops() {
		x.drop = l.t.Dropout
	}
	return x, ok
}

// terms describe a linear layer with an adapter:
//
//	y = gain∘(x Wᵀ + scale·drop(x) downᵀ upᵀ) + bias + shift
//
// A batch whose rows use several adapters needs nothing else of an adapter.
type terms struct {
	down, up graph.Tensor // [k, in], [out, k]
	scale    float64
	gain     func() graph.Tensor // returns [out]; nil means 1
	shift    func() graph.Tensor // returns [out]; nil means 0
	drop     float64             // probability of dropout, set by [layer.terms]
}

// sum returns the output of the layer with terms x.
func (l layer) sum(x terms) graph.Tensor {
	var gain graph.Tensor
	first := l.bias
	if x.gain != nil {
		gain, first = x.gain(), graph.Tensor{}
	}
	key, drop := l.dropout()
	y := l.x.LoRA(l.w, first, l.x.LoRADown(x.down, key, drop), x.up, x.scale)
	if x.gain != nil {
		if y = y.Mul(gain); l.bias.Valid() {
			y = y.Add(l.bias.Cast(tensor.F32))
		}
	}
	if x.shift != nil {
		y = y.Add(x.shift())
	}
	return y
}

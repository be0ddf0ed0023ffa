package lora

import (
	"fmt"
	"maps"
	"sync"

	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/tensor"
	"github.com/lorafuse/lorafuse/tokenizer/chat"
)

// State is an adapter in host memory, to be trained, resumed and saved.
type State struct {
	Placement *Placement
	// Values are the trained tensors, f32, under their keys.
	Values map[string][]float32
	// Base holds replacements of checkpoint weights, by module: residuals of PiSSA and
	// OLoRA, and base weights saved with an adapter.
	Base map[string]*tensor.Tensor

	weights nn.Weights
	types   map[string]tensor.DType // see KeepTypes
	// Template is the chat template in the folder of an adapter that a [Registry] has
	// loaded, or nil.
	Template *chat.Template

	adapter  *Adapter           // keeps the file mapped, since Base may refer to it
	initial  map[string]Weights // of targets whose base is a residual
	prepared *prepared          // shared by copies with other values
}

// prepared keeps the injection of a state. It does not depend on the trained values, and some
// methods read all base weights for it.
type prepared struct {
	mu        sync.Mutex
	injection *Injection // nil before the first call
}

// InitialState returns the initial state for training: see [Target.Initialize]. Modules that
// are saved whole, biases and tokens start with their values in w.
func (p *Placement) InitialState(w nn.Weights, seed uint64) (*State, error) {
	s := p.newState(w)
	for _, t := range p.Targets {
		first, err := s.start(t, seed)
		if err != nil {
			return nil, err
		}
		for _, x := range t.Tensors() {
			s.Values[x.Key] = first[x.Role]
		}
	}
	for _, x := range p.shared {
		t, err := float32Tensor(x.draw(seed), x.Shape...)
		if err != nil {
			return nil, err
		}
		s.Base[x.Module] = &t
	}
	for _, x := range p.Tensors() {
		var err error
		switch x.Role {
		case RoleSaved, RoleBias:
			s.Values[x.Key], err = p.checkpoint(w, x.Module, x.Param)
		case RoleTokens:
			err = s.startTokens(x)
		}
		if err != nil {
			return nil, err
		}
	}
	s.share()
	return s, nil
}

// StateOf returns the state of an adapter, which must have passed [Adapter.Check] with
// p.
func (p *Placement) StateOf(a *Adapter, w nn.Weights) (*State, error) {
	s := p.newState(w)
	s.adapter = a
	for _, t := range p.Targets {
		if t.MutatesBase() {
			if _, err := s.start(t, 0); err != nil {
				return nil, err
			}
		}
	}
	for _, x := range append(p.embeddingBases(), p.Tensors()...) {
		v, ok := a.Tensor(x.Key)
		switch {
		case !ok && (x.Optional || x.Role == RoleBase):
		case x.Role == RoleBase && x.Param == "weight":
			s.Base[x.Module] = &v
		case x.Role == RoleBase:
		default:
			values, err := a.Float32s(x.Key)
			if err != nil {
				return nil, err
			}
			s.Values[x.Key] = values
		}
	}
	s.share()
	return s, nil
}

// WithValues returns a copy of s with other trained values, such as a step of training.
// values has one slice of the matching length for each of [Placement.Tensors] except
// base weights; the new state keeps the slices and shares the rest with s. Errors:
// ErrShape.
func (s *State) WithValues(values map[string][]float32) (*State, error) {
	out := *s
	out.Values = values
	for _, x := range s.Placement.Tensors() {
		if x.Role == RoleBase {
			continue
		}
		if found, ok := values[x.Key]; len(found) != elements(x.Shape) && (ok || !x.Optional) {
			return nil, fmt.Errorf("lora: %q: %w: found %d values, expected %v", x.Key, ErrShape, len(found), x.Shape)
		}
	}
	out.share()
	return &out, nil
}

// share lets saved modules that are one parameter have one memory.
func (s *State) share() {
	key := func(m Module) string { return keyPrefix + m.inFiles() + ".weight" }
	for _, m := range s.Placement.Saved {
		for _, first := range s.Placement.Saved {
			if first.Name == m.SharesWith {
				s.Values[key(m.Module)] = s.Values[key(first.Module)]
			}
		}
	}
}

// Tensors returns the arguments of [Save]. An adapter initialized by PiSSA or OLoRA is
// converted to one for the unchanged base if possible (see [Target.Plain]), which every
// program reads correctly; with raw it is not converted.
func (s *State) Tensors(raw bool) (*Config, []Tensor, error) {
	c, plain := s.Placement.Config(), false
	if !raw && s.Converts() {
		p, err := c.Plain()
		if err != nil {
			return nil, nil, err
		}
		c, plain = p, true
	}
	var out []Tensor
	for _, x := range s.Placement.Tensors() {
		if x.Role == RoleBase {
			t, err := s.baseTensor(x)
			if err != nil {
				return nil, nil, err
			}
			out = append(out, t)
			continue
		}
		values, shape := s.Values[x.Key], x.Shape
		if first := s.initial[x.Module]; plain && first != nil && (x.Role == RoleA || x.Role == RoleB) {
			t, _ := s.Placement.Target(x.Module)
			both, err := t.Plain(Weights{RoleA: s.Values[t.Key(RoleA)], RoleB: s.Values[t.Key(RoleB)]}, first)
			if err != nil {
				return nil, nil, err
			}
			values, shape = both[x.Role], []int{2 * t.Rank, t.In}
			if x.Role == RoleB {
				shape = []int{t.Out, 2 * t.Rank}
			}
		}
		t, err := float32Tensor(values, shape...)
		if err != nil {
			return nil, nil, fmt.Errorf("lora: tensor %q: %w", x.Key, err)
		}
		out = append(out, Tensor{x.Key, t})
	}
	return c, out, nil
}

// Save writes the adapter folder; see [Save] and [State.Tensors].
func (s *State) Save(dir string, raw bool) error {
	c, tensors, err := s.Tensors(raw)
	if err != nil {
		return err
	}
	return Save(dir, c, tensors)
}

// KeepTypes makes graphs read the factors of a in the element type of the file if that
// is narrower than f32. s must have been loaded from a. The numbers are the same, with
// half the bytes in each pass. It must not be used for training, which requires f32.
func (s *State) KeepTypes(a *Adapter) {
	s.types = map[string]tensor.DType{}
	for _, t := range s.Placement.Targets {
		if t.Kind != Linear && t.Kind != Conv1D || !t.adapter().additive() { // else they are used in more than products
			continue
		}
		for _, key := range []string{t.Key(RoleA), t.Key(RoleB)} {
			if v, ok := a.Tensor(key); ok && (v.DType == tensor.BF16 || v.DType == tensor.F16) {
				s.types[key] = v.DType
			}
		}
	}
}

// RoundFactors returns a copy of the state of a plain adapter whose factors graphs read rounded to type d; see
// [Injection.FactorTypes]. For other adapters it returns s. The copy shares the values. It must not be used
// for training, which requires f32.
func (s *State) RoundFactors(d tensor.DType) (*State, error) {
	j, err := s.Injection()
	if err != nil || j.FactorTypes() == nil {
		return s, err
	}
	rounded := *s
	rounded.types, rounded.prepared = map[string]tensor.DType{}, &prepared{}
	for _, t := range s.Placement.Targets {
		rounded.types[t.Key(RoleA)], rounded.types[t.Key(RoleB)] = d, d
	}
	return &rounded, nil
}

// Value returns the trained tensor with that key as graphs read it, and whether it
// exists.
func (s *State) Value(key string) (t tensor.Tensor, ok bool, err error) {
	values, ok := s.Values[key]
	if !ok {
		return t, false, nil
	}
	t = tensor.Tensor{DType: tensor.F32, Shape: []int{len(values)}, Data: tensor.BytesOf(values)}
	if d, narrow := s.types[key]; narrow {
		t, err = t.Convert(d)
	}
	return t, true, err
}

// Injection returns the state as an adapter for graphs. Placement and Base must not change
// afterwards.
func (s *State) Injection() (*Injection, error) {
	s.prepared.mu.Lock()
	defer s.prepared.mu.Unlock()
	if j := s.prepared.injection; j != nil {
		return j, nil
	}
	j, err := NewInjection(s.Placement, s.weights, s.Base)
	if err == nil {
		j.types = s.types
		s.prepared.injection = j
	}
	return j, err
}

// Params returns the number of trained numbers.
func (s *State) Params() int {
	n := 0
	for v := range maps.Values(s.Values) {
		n += len(v)
	}
	return n
}

func (p *Placement) newState(w nn.Weights) *State {
	return &State{Placement: p, Values: map[string][]float32{}, Base: map[string]*tensor.Tensor{}, weights: w, initial: map[string]Weights{}, prepared: &prepared{}}
}

// start initializes one target. If the method moves a part of the base into the
// adapter, the base becomes the residual.
func (s *State) start(t Target, seed uint64) (Weights, error) {
	var base []float32
	if t.NeedsBase() {
		var err error
		if base, err = BaseWeight(t.Module, s.weights, nil); err != nil {
			return nil, err
		}
	}
	first, err := t.Initialize(seed, base)
	if err != nil || !t.MutatesBase() {
		return first, err
	}
	w, err := s.weights.Weight(stored(t.Module) + ".weight")
	if err != nil {
		return nil, fmt.Errorf("lora: %w", err)
	}
	if w.DType.Quantized() || w.DType == tensor.F8E4M3 {
		return nil, fmt.Errorf("lora: %w: the adapter begins by taking a part out of the weight of %q, which is quantised; leave the model unquantised, or convert the adapter to a plain one", ErrUnsupported, t.Name)
	}
	if err := t.Residual(base, first, w.DType); err != nil {
		return nil, err
	}
	residual, err := float32Tensor(base, w.Shape...)
	if err == nil {
		residual, err = residual.Convert(w.DType)
	}
	if err != nil {
		return nil, fmt.Errorf("lora: residual of %q: %w", t.Name, err)
	}
	s.Base[t.Name] = &residual
	s.initial[t.Name] = first.clone()
	return first, nil
}

// parameter returns a parameter of a module, in place in the checkpoint.
func (p *Placement) parameter(w nn.Weights, module, param string) (tensor.Tensor, error) {
	name := module
	for _, m := range p.modules {
		if m.Name == module && param == "weight" {
			name = stored(m)
		}
	}
	x, err := w.Weight(name + "." + param)
	if err != nil {
		return tensor.Tensor{}, fmt.Errorf("lora: %w", err)
	}
	if x.Fill == nil && !x.DType.Quantized() {
		return tensor.Tensor{DType: x.DType, Shape: x.Shape, Data: x.Source.Bytes}, nil
	}
	values, err := x.Float32s()
	if err != nil {
		return tensor.Tensor{}, fmt.Errorf("lora: %s.%s: %w", name, param, err)
	}
	return float32Tensor(values, x.Shape...)
}

// checkpoint returns a parameter of a module from the checkpoint as f32.
func (p *Placement) checkpoint(w nn.Weights, module, param string) ([]float32, error) {
	t, err := p.parameter(w, module, param)
	if err != nil {
		return nil, err
	}
	return t.Float32s()
}

func (s *State) baseTensor(x TensorSpec) (Tensor, error) {
	if t := s.Base[x.Module]; t != nil && x.Param == "weight" {
		return Tensor{x.Key, *t}, nil
	}
	t, err := s.Placement.parameter(s.weights, x.Module, x.Param)
	return Tensor{x.Key, t}, err
}

// Converts reports whether [State.Tensors] and [State.Save] convert the adapter to plain LoRA if
// raw is false. This is so for adapters initialized by PiSSA or OLoRA whose targets can all be
// converted.
func (s *State) Converts() bool { return len(s.initial) > 0 && s.convertible() }

// convertible reports whether all targets can be converted to plain ones.
func (s *State) convertible() bool {
	if _, err := s.Placement.config.Plain(); err != nil {
		return false
	}
	for _, t := range s.Placement.Targets {
		if !t.adapter().additive() || t.MutatesBase() && t.r > t.Rank || t.Kind == Embedding {
			return false
		}
	}
	return true
}

// stored returns the name of the module whose weight m reads.
func stored(m Module) string {
	if m.TiedTo != "" {
		return m.TiedTo
	}
	return m.Name
}

// LoadState opens the adapter in dir for a model and checks it completely, for
// generation, evaluation or a merge. Errors: those of [Load], [NewPlacement] and
// [Adapter.Check].
func LoadState(dir string, w nn.Weights, modelType string, modules []nn.Module) (*State, error) {
	a, err := Load(dir)
	if err != nil {
		return nil, err
	}
	defer a.Close()
	s, _, err := a.state(w, modelType, modules, CheckOptions{})
	return s, err
}

// Place places the adapter in a model, and checks it completely: it must fit, have an effect, and
// have the parameters in fresh, which the model initializes randomly. Errors: those of
// [NewPlacement], [Adapter.Check] and [Placement.CheckComplete].
func (a *Adapter) Place(m Model, fresh []string, o CheckOptions) (*Placement, *Report, error) {
	p, err := NewPlacement(a.Config, m.SpelledAs(a.names))
	if err != nil {
		return nil, nil, fmt.Errorf("lora: adapter %s: %w", a.Dir, err)
	}
	report := a.Check(p, o)
	if err := report.Err(); err != nil {
		return nil, nil, err
	}
	if err := p.CheckComplete(fresh); err != nil {
		return nil, nil, fmt.Errorf("adapter %s: %w", a.Dir, err)
	}
	return p, report, nil
}

// state checks the whole adapter against a model and returns its state.
func (a *Adapter) state(w nn.Weights, modelType string, modules []nn.Module, o CheckOptions) (*State, *Report, error) {
	var fresh []string
	if head, ok := w.(interface{ Fresh() []string }); ok {
		fresh = head.Fresh()
	}
	p, report, err := a.Place(ModelOf(modelType, modules), fresh, o)
	if err != nil {
		return nil, nil, err
	}
	s, err := p.StateOf(a, w)
	if err != nil {
		return nil, nil, err
	}
	s.KeepTypes(a)
	return s, report, nil
}

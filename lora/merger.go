package lora

import (
	"fmt"
	"slices"

	"github.com/lorafuse/lorafuse/tensor"
)

// Merger merges an adapter into the weights of a model, one tensor at a time. A caller
// that streams a model through it needs memory for only one tensor.
type Merger struct {
	adapter   *Adapter
	placement *Placement
	edits     map[string][]edit // by the name of the parameter in the model
	done      map[string]bool
	recent    [2]recent // the two stacks of a layer, whose parts alternate
}

// edit changes one parameter, given as float32 in the layout of the model.
type edit func(values []float32, d tensor.DType) error

// NewMerger prepares a merge. a must have passed Check with p. It fails with
// ErrUnsupported if B has a bias but the module has no bias to add it to.
func NewMerger(a *Adapter, p *Placement) (*Merger, error) {
	m := &Merger{adapter: a, placement: p, edits: map[string][]edit{}, done: map[string]bool{}}
	for _, s := range append(p.embeddingBases(), p.Tensors()...) {
		switch s.Role {
		case RoleBase, RoleSaved, RoleBias:
			if _, ok := a.Tensor(s.Key); ok && !p.isShared(s.Module) {
				m.replace(s)
			}
		}
	}
	m.shareBases()
	for _, t := range p.Targets {
		if t.Kind == Parameter {
			if err := m.addParts(t); err != nil {
				return nil, err
			}
			continue
		}
		m.add(t.Name+".weight", func(w []float32, d tensor.DType) error { return m.mergeTarget(t, w, d) })
		bias, err := t.adapter().mergeBias(t)
		if err != nil {
			return nil, err
		}
		if bias == nil {
			continue
		}
		m.add(t.Name+".bias", func(b []float32, _ tensor.DType) error {
			w, err := a.Weights(t)
			if err != nil {
				return err
			}
			return bias(b, w)
		})
	}
	m.addTokens()
	return m, nil
}

// Changes reports whether the merge changes a parameter, such as
// "model.layers.0.self_attn.q_proj.weight".
func (m *Merger) Changes(name string) bool { return len(m.edits[name]) > 0 }

// Merge applies the adapter to one parameter in place and reports whether it
// changed it. values are its elements in the layout of the model's file, d the
// type in which the model holds them. Each parameter may be merged once: after
// an error its values are not to be used.
func (m *Merger) Merge(name string, values []float32, d tensor.DType) (bool, error) {
	if m.done[name] {
		return false, fmt.Errorf("lora: merge %s: it has been merged already", name)
	}
	for _, e := range m.edits[name] {
		if err := e(values, d); err != nil {
			return false, fmt.Errorf("merge %s: %w", name, err)
		}
	}
	m.done[name] = true
	return m.Changes(name), nil
}

// Remaining returns the sorted names of the parameters that are still to be merged. It is
// empty after a complete pass over the model.
func (m *Merger) Remaining() []string {
	var names []string
	for name := range m.edits {
		if !m.done[name] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Untied returns the weights that must be added to the base model's. Each shares its
// values with another weight of the base model, and differs from it after the merge.
// The model's config.json must then say tie_word_embeddings: false.
func (m *Merger) Untied() []Untied {
	var all []Untied
	for _, module := range m.placement.modules {
		if module.TiedTo == "" {
			continue
		}
		u := Untied{module.Name + ".weight", module.TiedTo + ".weight"}
		if (m.Changes(u.Name) || m.Changes(u.From)) && !m.sameEdits(module) {
			all = append(all, u)
		}
	}
	return all
}

// Untied is a weight that a merge separates from the one it is tied to.
type Untied struct {
	Name string // name of the new parameter, whose initial values are those of From
	From string // its base in the model's file, unmerged
}

// sameEdits reports whether a tied module and its source change alike:
// ensure_weight_tying is set, the same rows of tokens are trained, or the base of both
// is replaced.
func (m *Merger) sameEdits(tied Module) bool {
	if t, ok := m.placement.Target(tied.Name); ok && t.SharesWith == tied.TiedTo {
		return t.adapter().additive() // else the method may treat rows here as columns there
	}
	for _, s := range m.placement.Saved {
		if s.Name == tied.Name && s.SharesWith == tied.TiedTo {
			return true
		}
	}
	for _, name := range []string{tied.Name, tied.TiedTo} {
		if _, ok := m.placement.Target(name); ok || m.placement.isSaved(name) {
			return false
		}
	}
	for _, t := range m.placement.Tokens {
		follows := slices.ContainsFunc(t.Tied, func(f Module) bool { return f.Name == tied.Name })
		if t.Name == tied.Name || t.Name == tied.TiedTo && !follows {
			return false
		}
	}
	return true
}

func (p *Placement) isShared(module string) bool {
	return slices.ContainsFunc(p.shared, func(s sharedTensor) bool { return s.Module == module })
}

func (m *Merger) add(name string, e edit) { m.edits[name] = append(m.edits[name], e) }

// replace sets a parameter to a tensor of the adapter.
func (m *Merger) replace(s TensorSpec) {
	m.add(s.Module+"."+s.Param, m.replacement(s.Key))
}

func (m *Merger) replacement(key string) edit {
	return func(values []float32, _ tensor.DType) error {
		v, err := m.adapter.Float32s(key)
		if err != nil {
			return err
		}
		if len(v) != len(values) {
			return fmt.Errorf("lora: tensor %q has %d elements, the model %d: %w", key, len(v), len(values), ErrShape)
		}
		copy(values, v)
		return nil
	}
}

// shareBases also assigns a base weight saved with the adapter to the tied module,
// unless that has one of its own.
func (m *Merger) shareBases() {
	for _, tied := range m.placement.modules {
		if tied.TiedTo == "" || m.placement.isSaved(tied.Name) || m.Changes(tied.Name+".weight") {
			continue
		}
		for _, infix := range []string{".base_layer.", "."} {
			key := keyPrefix + m.placement.inFiles(tied.TiedTo) + infix + "weight"
			if _, ok := m.adapter.Tensor(key); ok && !m.placement.isSaved(tied.TiedTo) {
				m.add(tied.Name+".weight", m.replacement(key))
				break
			}
		}
	}
}

// mergeTarget merges one weight. If the initialization moved a part of the base into
// the adapter, that initial part is subtracted first.
func (m *Merger) mergeTarget(t Target, weight []float32, d tensor.DType) error {
	w, err := m.adapter.Weights(t)
	if err != nil {
		return err
	}
	for _, s := range m.placement.shared {
		if w[Role(s.Module)], err = m.adapter.Float32s(s.Key); err != nil {
			return err
		}
	}
	if t.MutatesBase() {
		if d == tensor.F8E4M3 {
			return fmt.Errorf("lora: %w: the adapter begins by taking a part out of the weight of %q, which is quantised; convert the adapter to a plain one", ErrUnsupported, t.Name)
		}
		initial, err := t.Initialize(0, weight)
		if err != nil {
			return err
		}
		if err := t.Residual(weight, initial, d); err != nil {
			return err
		}
	}
	return t.MergeInto(weight, w)
}

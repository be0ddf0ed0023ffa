package lora

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// CheckOptions holds the exceptions that [Adapter.Check] allows.
type CheckOptions struct {
	// AllowZeroB allows an adapter without effect, to start or resume training with.
	AllowZeroB bool
	// AllowRandomBase allows init_lora_weights to be pissa_niter_N. The base weights of
	// such an adapter depend on random numbers, and can be reproduced only by a caller
	// of Initialize that knows the seed.
	AllowRandomBase bool
}

// Report is the account of every tensor and every target of an adapter.
type Report struct {
	Dir      string
	Tensors  int // in the file
	Params   int // their elements
	Targets  int
	Problems []Problem
	Warnings []string // of the configuration, and its names without a match

	specs []TensorSpec
}

// Problem is one thing that is wrong with an adapter.
type Problem struct {
	Kind   error  // one of the Err variables of this package
	Key    string // key of the tensor, found or expected
	Detail string // found, expected, advice
}

// Error returns the key and the problem.
func (p Problem) Error() string {
	if p.Detail == "" {
		return fmt.Sprintf("%s: %v", p.Key, p.Kind)
	}
	return fmt.Sprintf("%s: %v: %s", p.Key, p.Kind, p.Detail)
}

// Unwrap returns Kind for errors.Is, and also ErrShape for a transposed tensor.
func (p Problem) Unwrap() []error {
	if p.Kind == ErrOrientation {
		return []error{ErrOrientation, ErrShape}
	}
	return []error{p.Kind}
}

// Err returns nil if there are no problems, otherwise a [*CheckError].
func (r *Report) Err() error {
	if len(r.Problems) == 0 {
		return nil
	}
	return &CheckError{Dir: r.Dir, Problems: r.Problems}
}

// CheckError lists all problems of an adapter.
type CheckError struct {
	Dir      string
	Problems []Problem
}

// Error returns one line: the first problem of each kind and the number of problems.
func (e *CheckError) Error() string {
	var kinds []error
	first, count := map[error]Problem{}, map[error]int{}
	for _, p := range e.Problems {
		if count[p.Kind]++; count[p.Kind] == 1 {
			kinds = append(kinds, p.Kind)
			first[p.Kind] = p
		}
	}
	var b strings.Builder
	b.WriteString("lora: adapter")
	if e.Dir != "" {
		b.WriteString(" " + e.Dir)
	}
	for i, k := range kinds {
		b.WriteString([]string{": ", "; "}[min(i, 1)] + first[k].Error())
		if n := count[k] - 1; n > 0 {
			fmt.Fprintf(&b, " (and %d more like it)", n)
		}
	}
	return b.String()
}

// Unwrap returns all problems for errors.Is.
func (e *CheckError) Unwrap() []error {
	errs := make([]error, len(e.Problems))
	for i, p := range e.Problems {
		errs[i] = p
	}
	return errs
}

// Check compares every tensor of the adapter with the placement and reads every value.
// The report names each tensor that belongs to no target, is missing, has the wrong
// shape or type, or contains NaN or infinity. It also names each pair A, B that has no
// effect because one of the two is all zero.
//
// Tensors of routed experts in the layout of transformers 4 (some per expert) are first
// joined into the tensors of the placement.
func (a *Adapter) Check(p *Placement, opts CheckOptions) *Report {
	r := &Report{Dir: a.Dir, Tensors: len(a.names), Targets: len(p.Targets), specs: p.Tensors()}
	if err := a.joinExperts(p); err != nil {
		r.add(safetensors.ErrFault, WeightsFile, "%v", err)
		return r
	}
	r.Warnings = append(append(r.Warnings, a.Config.Warnings...), p.Warnings...)
	for _, u := range p.Unused {
		r.Warnings = append(r.Warnings, "without effect: "+u.String())
	}
	if kind, iterations, err := a.Config.InitLoraWeights.parse(); err == nil && kind == InitPiSSA && iterations >= 0 && !opts.AllowRandomBase {
		r.add(ErrUnsupported, ConfigFile, "init_lora_weights is %q: random numbers took the adapter out of the base weights, which cannot be made again; save it with path_initial_model_for_weight_conversion in PEFT", a.Config.InitLoraWeights)
	}
	expected := map[string]TensorSpec{}
	for _, s := range append(p.embeddingBases(), r.specs...) {
		expected[s.Key] = s
	}
	var strange []string
	zero, poolerless := map[string]bool{}, false
	for _, key := range a.names {
		t := a.tensors[key]
		r.Params += t.NumElements()
		s, ok := expected[key]
		if !ok {
			switch {
			case p.lacksPooler(key):
				poolerless = true
			case !copyOfBias(key, expected):
				strange = append(strange, key)
			}
			continue
		}
		if r.checkShape(s, t, p) {
			err := reading(func() error { zero[key] = r.checkValues(key, t); return nil })
			if err != nil {
				r.add(safetensors.ErrFault, key, "%v", err)
			}
		}
	}
	if poolerless {
		r.Warnings = append(r.Warnings, fmt.Sprintf("without effect: %s: the checkpoint has no pooler", poolerDense))
	}
	var missing []TensorSpec
	for _, s := range r.specs {
		if _, ok := a.tensors[s.Key]; !ok && !s.Optional {
			missing = append(missing, s)
		}
	}
	r.strangers(strange, missing)
	if !opts.AllowZeroB {
		r.checkPairs(p, zero)
	}
	return r
}

// poolerDense is the layer of BERT's pooler, which transformers adds to encoders if the
// checkpoint has none. Sentence embeddings do not depend on it.
const poolerDense = "pooler.dense"

// lacksPooler reports whether key belongs to a pooler that the encoder's checkpoint
// lacks.
func (p *Placement) lacksPooler(key string) bool {
	return strings.HasPrefix(key, keyPrefix+poolerDense+".lora_") &&
		!slices.ContainsFunc(p.modules, func(m Module) bool { return m.Name == poolerDense })
}

func (r *Report) add(kind error, key, format string, args ...any) {
	r.Problems = append(r.Problems, Problem{kind, key, fmt.Sprintf(format, args...)})
}

// checkShape compares shape and type, and reports whether the values can be
// looked at.
func (r *Report) checkShape(s TensorSpec, t tensor.Tensor, p *Placement) bool {
	if !t.DType.IsFloat() {
		r.add(ErrDType, s.Key, "found %v, expected a float", t.DType)
		return false
	}
	if slices.Equal(t.Shape, s.Shape) {
		return true
	}
	reversed := slices.Clone(t.Shape)
	slices.Reverse(reversed)
	switch {
	case slices.Equal(reversed, s.Shape):
		r.add(ErrOrientation, s.Key, "found %v, expected %v: other tools store A as [in, rank] and B as [rank, out]", t.Shape, s.Shape)
	case s.Role == RoleA && len(t.Shape) == 2 && t.Shape[1] == s.Shape[1],
		s.Role == RoleB && len(t.Shape) == 2 && t.Shape[0] == s.Shape[0]:
		rank := t.Shape[0]
		if s.Role == RoleB {
			rank = t.Shape[1]
		}
		target, _ := p.Target(s.Module)
		rank /= target.matrices()
		r.add(ErrShape, s.Key, "found %v, expected %v: its rank is %d, that of the configuration %d, so the scale %v would be wrong", t.Shape, s.Shape, rank, target.Rank, target.Scale)
	case s.Role == RoleBase && len(t.Shape) == len(s.Shape):
		r.add(ErrShape, s.Key, "found %v, expected %v: the vocabulary of the base model was resized before training", t.Shape, s.Shape)
	default:
		r.add(ErrShape, s.Key, "found %v, expected %v", t.Shape, s.Shape)
	}
	return false
}

// checkValues reports whether all elements are zero, and notes the first one
// that is not finite.
func (r *Report) checkValues(key string, t tensor.Tensor) (zero bool) {
	const chunk = 4096
	var buffer [chunk]float32
	bits := t.DType.Bits()
	zero = true
	for at := 0; at < len(t.Data); at += chunk / 8 * bits {
		data := t.Data[at:min(at+chunk/8*bits, len(t.Data))]
		values := buffer[:len(data)*8/bits]
		if err := tensor.ToFloat32(values, data, t.DType); err != nil {
			r.add(ErrDType, key, "%v", err)
			return false
		}
		for i, v := range values {
			if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
				r.add(ErrNotFinite, key, "element %d is %v", at*8/bits+i, v)
				return false
			}
			zero = zero && v == 0
		}
	}
	return zero
}

// checkPairs adds a problem if the adapter has no effect on any target. Some targets
// without effect are only a warning: training does not change targets that do not
// affect the loss, such as the pooler of BERT in training for sentence embeddings.
func (r *Report) checkPairs(p *Placement, zero map[string]bool) {
	var idle []Problem
	for _, t := range p.Targets {
		for _, p := range slices.Backward(t.adapter().parts()) {
			if key := t.key(p); p.factor && zero[key] {
				idle = append(idle, Problem{ErrZeroB, key, fmt.Sprintf("all of %v is zero, as before training", p.role)})
				break
			}
		}
	}
	if len(idle) == len(p.Targets) {
		r.Problems = append(r.Problems, idle...)
	} else if len(idle) > 0 {
		more := ""
		if n := len(idle) - 1; n > 0 {
			more = fmt.Sprintf(" (and %d more like it)", n)
		}
		r.Warnings = append(r.Warnings, fmt.Sprintf("without effect: %s: %s%s", idle[0].Key, idle[0].Detail, more))
	}
}

// embeddingBases returns the base weights of embedding and head. PEFT saves them with
// an adapter if the vocabulary was resized or on request.
func (p *Placement) embeddingBases() []TensorSpec {
	var specs []TensorSpec
	for _, m := range p.ends {
		infix := "."
		if _, ok := p.Target(m.Name); ok {
			infix = ".base_layer."
		}
		specs = appendParams(specs, m, infix, RoleBase)
	}
	return specs
}

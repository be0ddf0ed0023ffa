package lora

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/tensor"
)

// FactorType is the rank and the element types of the factors A and B of a plain LoRA target.
// Targets of equal types can share a position of a [NewOpenMultiAdapter].
type FactorType struct {
	Rank int
	A, B tensor.DType
}

// String returns the rank and the element types.
func (s FactorType) String() string { return fmt.Sprintf("%d %v %v", s.Rank, s.A, s.B) }

// Factor identifies A or B of a module at an open position of a [MultiAdapter].
type Factor struct {
	Type   FactorType
	Role   Role // RoleA or RoleB
	Module string
}

// factorPrefix begins the names of params that hold factors of an adapter at an open position.
const factorPrefix = "factor "

// param returns the name of the param that holds the factor.
func (f Factor) param() string {
	return fmt.Sprintf("%s%v %s %s", factorPrefix, f.Type, f.Role, f.Module)
}

// ParseFactor returns the factor that a param of an open [MultiAdapter] holds, by the name of the param. ok
// is false for other params.
func ParseFactor(param string) (f Factor, ok bool) {
	rest, ok := strings.CutPrefix(param, factorPrefix)
	parts := strings.SplitN(rest, " ", 5)
	if !ok || len(parts) < 5 {
		return f, false
	}
	rank, err := strconv.Atoi(parts[0])
	a, errA := tensor.ParseDType(parts[1])
	b, errB := tensor.ParseDType(parts[2])
	return Factor{FactorType{rank, a, b}, Role(parts[3]), parts[4]}, err == nil && errA == nil && errB == nil
}

// FactorTypes returns the factor types of the targets of a plain adapter, each once. An adapter is
// plain if it only adds LoRA to linear layers other than the head, whose base weight PEFT saves
// with the adapter. For other adapters it returns nil.
func (j *Injection) FactorTypes() (sizes []FactorType) {
	if len(j.params)+len(j.tokens)+len(j.base) > 0 {
		return nil
	}
	for _, t := range j.placement.Targets {
		others := slices.ContainsFunc(t.Tensors(), func(x TensorSpec) bool { return x.Role != RoleA && x.Role != RoleB })
		if t.Kind != Linear && t.Kind != Conv1D || t.OutputEmbedding || others || !t.adapter().additive() {
			return nil
		}
		if s := j.size(t); !slices.Contains(sizes, s) {
			sizes = append(sizes, s)
		}
	}
	return sizes
}

func (j *Injection) size(t Target) FactorType {
	if len(j.types) == 0 {
		return FactorType{t.Rank, tensor.F32, tensor.F32}
	}
	dtype := func(role Role) tensor.DType {
		if d, ok := j.types[t.Key(role)]; ok {
			return d
		}
		return tensor.F32
	}
	return FactorType{t.Rank, dtype(RoleA), dtype(RoleB)}
}

// FactorKey returns the key of the adapter's tensor for a factor. ok is false if the adapter does
// not target the module, or with another type.
func (j *Injection) FactorKey(f Factor) (key string, ok bool) {
	t, ok := j.targets[f.Module]
	if !ok || j.size(t) != f.Type {
		return "", false
	}
	return t.Key(f.Role), true
}

// NewOpenMultiAdapter returns a mix in which plain adapters may change between runs. Its first positions
// are open: position i holds the factors of size sizes[i] of the plain adapter parts[i], or
// nothing if that is nil. The graph depends on sizes and on the other parts, but not on the
// adapters at open positions. An adapter with several sizes needs a position for each; the number
// of any of them selects it.
//
// Every run needs the arrays of [MultiAdapter.Array] as inputs.
func NewOpenMultiAdapter(sizes []FactorType, parts ...*Injection) *MultiAdapter {
	x := &MultiAdapter{parts: slices.Clone(parts), sizes: sizes, plain: parts[:len(sizes)], arrays: map[string][]byte{}}
	clear(x.parts[:len(sizes)])
	return x
}

// Prefixes of the names of the arrays of an open mix. A module's name follows.
const (
	matricesPrefix = "adapters.matrices " // i32 [parts]: the position with the part's factors, or -1
	scalesPrefix   = "adapters.scales "   // f32 [open positions]
)

// Array returns the array called name that describes the adapters at open positions (their scales
// and targets), an input of every run. ok is false for other names.
func (x *MultiAdapter) Array(name string) (data []byte, ok bool) {
	if len(x.sizes) == 0 {
		return nil, false
	}
	if data, ok = x.arrays[name]; ok {
		return data, true
	}
	if module, ok := strings.CutPrefix(name, matricesPrefix); ok {
		for _, i := range x.matrices(module) {
			data = binary.NativeEndian.AppendUint32(data, uint32(i))
		}
	} else if module, ok := strings.CutPrefix(name, scalesPrefix); ok {
		for _, s := range x.scales(module) {
			data = binary.NativeEndian.AppendUint32(data, math.Float32bits(s))
		}
	} else {
		return nil, false
	}
	x.arrays[name] = data
	return data, true
}

// matrices returns the position of the factors of a module for each part, or -1.
func (x *MultiAdapter) matrices(module string) []int32 {
	list := make([]int32, len(x.parts))
	for i := range list {
		list[i] = -1
		if i >= len(x.sizes) || x.plain[i] == nil {
			continue
		}
		t, ok := x.plain[i].targets[module]
		if !ok {
			continue
		}
		size := x.plain[i].size(t)
		for k := range x.sizes {
			if x.plain[k] == x.plain[i] && x.sizes[k] == size {
				list[i] = int32(k)
			}
		}
	}
	return list
}

// scales returns the scale of the factors of a module at each open position.
func (x *MultiAdapter) scales(module string) []float32 {
	list := make([]float32, len(x.sizes))
	for i, j := range x.plain {
		if j != nil {
			list[i] = float32(j.targets[module].Scale)
		}
	}
	return list
}

// open reports whether adapters at open positions can target a module.
func (x *MultiAdapter) open(m nn.Module) bool { return len(x.sizes) > 0 && !m.OutputEmbedding }

// openFactors returns the factors at open positions.
func (l *mixedLinear) openFactors() *factored {
	f := &factored{open: true}
	for i, size := range l.x.sizes {
		b := l.b.Part(i, nil)
		a, c := Factor{size, RoleA, l.m.Name}, Factor{size, RoleB, l.m.Name}
		f.downs.Matrices = append(f.downs.Matrices, b.Own(a.param(), size.A, size.Rank, l.m.In))
		f.up.Matrices = append(f.up.Matrices, b.Own(c.param(), size.B, l.m.Out, size.Rank))
	}
	return f
}

// choice returns the matrix of each row, i32 [rows], and the scales of the matrices.
func (l *mixedLinear) choice(f *factored) (index, scales graph.Tensor) {
	if !f.open {
		return l.x.places(l.b, f.numbers), constants(l.b, "adapters.scales", f.scales)
	}
	return l.b.AdaptersIn(matricesPrefix + l.m.Name), l.b.Input(scalesPrefix+l.m.Name, tensor.F32, ir.Static(len(f.up.Matrices)))
}

var _ nn.Arrays = (*MultiAdapter)(nil)

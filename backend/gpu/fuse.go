package gpu

import (
	"slices"

	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// fuse returns the program with launches that kernels compute together as one:
//
//   - an addition to a result that nothing else reads, such as that of a gradient to its sum over micro-batches or to the
//     gradient of a residual, becomes the last operand of a Gemm, RMSNormGrad, LoRADownGrad or LoRADownInputGrad,
//   - a cast of weights that only RMSNorms and their gradients read disappears: they read the argument.
func fuse(p *ir.Program) *ir.Program {
	f := &fuser{launches: slices.Clone(p.Launches), args: p.Args, dims: p.MaxDims()}
	for i := range f.launches {
		if gone(&f.launches[i]) {
			continue
		}
		switch f.launches[i].Op {
		case ir.Gemm, ir.LoRADownGrad, ir.LoRADownInputGrad, ir.RMSNormGrad:
			f.addTo(i)
		case ir.Cast:
			f.uncast(i)
		}
	}
	fused := *p
	fused.Launches = slices.DeleteFunc(f.launches, func(l ir.Launch) bool { return gone(&l) })
	return &fused
}

type fuser struct {
	launches []ir.Launch // a launch that another one computes is empty
	args     []ir.Arg
	dims     []int // the largest
}

// gone reports whether another launch computes the result of a launch.
func gone(l *ir.Launch) bool { return len(l.Out) == 0 }

// addTo lets launch i add the other operand of the addition that alone reads its result.
func (f *fuser) addTo(i int) {
	l := &f.launches[i]
	v := l.Out[0]
	readers := readersOf(f.launches, v, i+1, f.dims)
	if v.Space != ir.SpaceArena || len(readers) != 1 {
		return
	}
	at := readers[0]
	sum := &f.launches[at]
	addend, ok := addendOf(sum, v)
	if !ok {
		return
	}
	one := ir.Launch{Op: l.Op, Attr: l.Attr, In: append(slices.Clone(l.In), addend), Out: sum.Out}
	rounds := v.Stored() == tensor.BF16 // an addition may not change how the result is rounded
	switch a := l.Attr.(type) {
	case ir.GemmAttr:
		if a.HasC || rounds || a.N > 1 { // kernels that add several products one by one begin with the addend
			return
		}
		a.HasC = true
		one.Attr = a
	case ir.NormAttr:
		if hasAddend(l) {
			return
		}
		if rounds {
			one.Attr = rounded{a}
		}
	case ir.DropoutAttr:
		if hasAddend(l) || rounds && l.Op != ir.LoRADownInputGrad {
			return
		}
		if rounds {
			one.Attr = rounded{a}
		}
	}
	if addend.Overlaps(v, f.dims) || !f.mayShare(&one) || checkStored(&one) != nil {
		return
	}
	early, late := true, true // the sum can be computed at the time of i; the product at that of the addition
	for j := i + 1; j < at; j++ {
		o := &f.launches[j]
		early = early && !writes(o, addend, f.dims) && !f.touches(o, sum.Out[0])
		late = late && !slices.ContainsFunc(l.In, func(v ir.Ref) bool { return writes(o, v, f.dims) })
	}
	switch {
	case early:
		f.launches[i], f.launches[at] = one, ir.Launch{}
	case late:
		f.launches[at], f.launches[i] = one, ir.Launch{}
	}
}

// rounded is the attribute of a launch whose result is rounded to bfloat16 before the addend is added.
type rounded struct{ attr any }

// roundingOf returns the attribute of a launch, and whether its result is rounded before the addend is added.
func roundingOf(l *ir.Launch) (attr any, rounds bool) {
	if r, ok := l.Attr.(rounded); ok {
		return r.attr, true
	}
	return l.Attr, false
}

// operands has the number of operands before the addend, for operations that define none.
var operands = map[ir.Op]int{ir.LoRADownGrad: 3, ir.LoRADownInputGrad: 3, ir.RMSNormGrad: 3}

// hasAddend reports whether a launch of one of these operations has an addend.
func hasAddend(l *ir.Launch) bool {
	n, ok := operands[l.Op]
	return ok && len(l.In) > n
}

// addend returns the address of the addend of such a launch; 0 means absent.
func (r *Run) addend(l *ir.Launch) Pointer {
	if !hasAddend(l) {
		return 0
	}
	return r.at(l.In[operands[l.Op]])
}

// mayShare reports whether kernels can write the result of a launch with an addend to its memory. It may be that of an
// operand whose elements they read before they write.
func (f *fuser) mayShare(l *ir.Launch) bool {
	out := l.Out[0]
	for i, v := range l.In {
		elementwise := i == len(l.In)-1 || l.Op == ir.RMSNormGrad && i < 2
		if v.Overlaps(out, f.dims) && !(elementwise && v.Same(out) && v.Type.Equal(out.Type) && v.Stored() == out.Stored()) {
			return false
		}
	}
	return true
}

// uncast lets the RMSNorms that alone read the result of a cast read the weights in the type that they have.
func (f *fuser) uncast(i int) {
	in, out := f.launches[i].In[0], f.launches[i].Out[0]
	if in.Space != ir.SpaceArg || f.args[in.Index].Written || out.Space != ir.SpaceArena || out.Type.DType != tensor.F32 || firstFactors[in.Type.DType] == 0 {
		return
	}
	norms := readersOf(f.launches, out, i+1, f.dims)
	for _, n := range norms {
		l := &f.launches[n]
		w := normWeight[l.Op]
		if w == 0 || slices.ContainsFunc(l.In, func(v ir.Ref) bool { return v.Overlaps(out, f.dims) && !v.Same(l.In[w]) }) || !l.In[w].Same(out) {
			return
		}
	}
	for _, n := range norms {
		l := &f.launches[n]
		l.In = slices.Clone(l.In)
		l.In[normWeight[l.Op]] = in
	}
	f.launches[i] = ir.Launch{}
}

// normWeight has the operand that holds the weights.
var normWeight = map[ir.Op]int{ir.RMSNorm: 1, ir.RMSNormGrad: 2}

// addendOf returns the other operand of a launch that adds it to v, of the same type.
func addendOf(l *ir.Launch, v ir.Ref) (addend ir.Ref, ok bool) {
	if l.Op != ir.Binary || l.Attr != (ir.BinaryAttr{Fn: ir.Add}) || !l.In[0].Type.Equal(v.Type) || !l.In[1].Type.Equal(v.Type) {
		return addend, false
	}
	if l.In[0].Same(v) {
		return l.In[1], true
	}
	return l.In[0], true
}

// writes reports whether a launch writes memory of v.
func writes(l *ir.Launch, v ir.Ref, dims []int) bool {
	return slices.ContainsFunc(l.Out, func(o ir.Ref) bool { return o.Overlaps(v, dims) })
}

// touches reports whether a launch reads or writes memory of v.
func (f *fuser) touches(l *ir.Launch, v ir.Ref) bool {
	return writes(l, v, f.dims) || slices.ContainsFunc(l.In, func(o ir.Ref) bool { return o.Overlaps(v, f.dims) })
}

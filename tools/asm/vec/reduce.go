package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// sums is the number of partial sums of a reduction: element i belongs to sum
// i%sums. It is the constant lanes of package vec.
const sums = 32

// reduction is a kernel that reduces its inputs to one float.
type reduction struct {
	name, signature, doc string
	in, out              []string
	side                 [2]int // number of accumulators with AVX2, AVX-512
	start                func(v *isa) reg.VecVirtual
	fold                 func(v *isa, a, b val) val

	// setup emits the code before the loop and returns the step, which updates the accumulators and returns the
	// outputs. finish, if not nil, may change the result.
	setup  func(v *isa) func(acc val, x []val, mask reg.Register) []val
	finish func(v *isa, result reg.VecVirtual)
}

func (r reduction) emit(v *isa) {
	v.text(r.name, r.signature, r.doc)
	first := append(append([]string{}, r.out...), r.in...)[0]
	l := loop{isa: v, n: length(first), at: GP64()}
	bases := map[string]reg.GPVirtual{}
	for _, p := range append(append([]string{}, r.out...), r.in...) {
		if _, ok := bases[p]; !ok {
			bases[p] = base(p)
		}
	}
	step := r.setup(v)
	acc := make(val, sums/v.lanes)
	for i := range acc {
		acc[i] = r.start(v)
	}
	body := func(acc val, offset int, mask reg.Register) {
		var x []val
		for _, p := range r.in {
			x = append(x, v.load(l.mem(bases[p]).Offset(offset), len(acc), mask))
		}
		for i, y := range step(acc, x, mask) {
			v.store(y, l.mem(bases[r.out[i]]).Offset(offset), mask)
		}
	}
	XORQ(l.at, l.at)
	SUBQ(I32(sums), l.n)
	JLT(LabelRef("tail"))
	Label("loop")
	side := r.side[v.index()]
	for i := 0; i < len(acc); i += side {
		body(acc[i:i+side], i*v.bytes(), nil)
	}
	ADDQ(I32(sums), l.at)
	SUBQ(I32(sums), l.n)
	JGE(LabelRef("loop"))
	Label("tail")
	ADDQ(I32(sums), l.n)
	// The remaining registers go to the accumulators in order.
	for i := range acc {
		SUBQ(I32(v.lanes), l.n)
		JLT(LabelRef(label("part", i)))
		body(acc[i:i+1], 0, nil)
		ADDQ(I32(v.lanes), l.at)
	}
	JMP(LabelRef("fold"))
	for i := range acc {
		Label(label("part", i))
		ADDQ(I32(v.lanes), l.n)
		JZ(LabelRef("fold"))
		body(acc[i:i+1], 0, v.mask(l.n))
		JMP(LabelRef("fold"))
	}
	Label("fold")
	result := v.foldLanes(acc, r.fold)
	if r.finish != nil {
		r.finish(v, result)
	}
	out, err := ReturnIndex(0).Resolve()
	if err != nil {
		panic(err)
	}
	VMOVSS(result.AsX(), out.Addr)
	end()
}

// foldLanes reduces accumulators by halves: the upper half of all lanes onto the lower, until one is left.
func (v *isa) foldLanes(acc val, f func(v *isa, a, b val) val) reg.VecVirtual {
	for len(acc) > 1 {
		h := len(acc) / 2
		acc = f(v, acc[:h], acc[h:])
	}
	r := acc[0].(reg.VecVirtual)
	// From here on 8 lanes of a register suffice; the upper ones may be garbage.
	hi := YMM()
	half := func() { r = f(avx2, val{r.AsY()}, val{hi})[0].(reg.VecVirtual) }
	if v == avx512 {
		VEXTRACTF64X4(U8(1), r, hi)
		half()
		VEXTRACTF32X4(U8(1), r, hi.AsX())
	} else {
		VEXTRACTF128(U8(1), r, hi.AsX())
	}
	half()
	VPSHUFD(U8(0xee), r.AsX(), hi.AsX())
	half()
	VPSHUFD(U8(0x55), r.AsX(), hi.AsX())
	half()
	return r
}

// Command convert generates the arm64 kernels of package tensor, which convert between float32 and the 16-bit floats in
// groups of 16 elements. Run it with go generate in that package.
package main

import "github.com/lorafuse/lorafuse/tools/asm/neon/arm64"

// V and R are the registers of the kernels.
type (
	V = arm64.V
	R = arm64.R
)

// group is the number of elements per iteration.
const group = 16

func main() {
	file := arm64.New("arm64 && !purego")
	for _, e := range []arm64.Elem{arm64.F16, arm64.BF16} {
		widen(file, e)
	}
	narrow(file, arm64.F16, func(f *arm64.Func) func(low, high V) {
		return func(low, high V) {
			f.ToHalf(low, low)
			f.ToHalf2(low, high)
		}
	})
	narrow(file, arm64.BF16, brain)
	file.Write()
}

const signature = "dst, src *byte, n int"

// loop emits body for each group of n > 0 elements.
func loop(f *arm64.Func, from, to int, body func(src, dst R)) {
	src, dst, n := f.Reg(), f.Reg(), f.Reg()
	f.Load("src", src)
	f.Load("dst", dst)
	f.Load("n", n)
	f.Align()
	f.Label("loop")
	body(src, dst)
	f.Go("ADD $%d, %v", group*from, src)
	f.Go("ADD $%d, %v", group*to, dst)
	f.Go("SUBS $%d, %v", group, n)
	f.Branch("BGT", "loop")
	f.Ret()
}

func widen(file *arm64.File, e arm64.Elem) {
	name := "widen" + e.Name + "NEON"
	f := file.Func(name, signature, name+" converts n > 0 elements to float32, a multiple of 16.")
	loop(f, e.Size, 4, func(src, dst R) {
		for i := range group / 8 {
			lo, hi := V(2*i), V(2*i+1)
			e.Load8(f, lo, hi, src, 8*e.Size*i)
			f.StorePair(lo, hi, dst, 32*i)
		}
	})
}

// narrow emits the inverse of widen; pack rounds the floats in low and high and leaves the 8 results in low.
func narrow(file *arm64.File, e arm64.Elem, pack func(f *arm64.Func) func(low, high V)) {
	name := "narrow" + e.Name + "NEON"
	f := file.Func(name, signature, name+" converts n > 0 elements from float32, a multiple of 16.")
	round := pack(f)
	loop(f, 4, e.Size, func(src, dst R) {
		for i := range group / 8 {
			lo, hi := f.Vec(), f.Vec()
			f.LoadPair(lo, hi, src, 32*i)
			round(lo, hi)
			f.StoreVec(lo, dst, 16*i)
		}
	})
}

// brain rounds to bfloat16 with integer operations, since not every machine has the instruction.
func brain(f *arm64.Func) func(low, high V) {
	constant := func(bits uint32) V {
		v, r := f.Vec(), f.Reg()
		f.Go("MOVW $%#x, %v", bits, r)
		f.SpreadWord(v, r)
		return v
	}
	one, half, quiet := constant(1), constant(0x7fff), constant(0x00400000)
	round := func(x V) V {
		number, rounded := f.Vec(), f.Vec()
		f.FEqual(number, x, x)
		f.ShiftRight(rounded, x, 16)
		f.And(rounded, rounded, one) // ties to even
		f.Add(rounded, rounded, half)
		f.Add(rounded, rounded, x)
		f.Or(x, x, quiet)
		f.Select(number, rounded, x)
		return number
	}
	return func(low, high V) { f.OddHalves(low, round(low), round(high)) }
}

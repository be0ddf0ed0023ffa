package main

import "github.com/lorafuse/lorafuse/tools/asm/neon/arm64"

// quantBlock is the number of elements in a block of quantized weights.
const quantBlock = 64

// blocks is a type of quantized weights: codes of 64 elements, followed by their scale.
type blocks struct {
	name  string
	codes int // bytes of codes
}

var (
	q8 = blocks{"Q8", quantBlock}
	q4 = blocks{"Q4", quantBlock / 2} // 4-bit codes with a table of values
)

func (b blocks) bytes() int { return b.codes + 4 }

// code returns the parameter declaration of the table.
func (b blocks) code() string {
	if b == q4 {
		return ", code *float32"
	}
	return ""
}

// Registers of each: for widening codes, and for the table, one byte of its values per register.
const (
	wide    V = 16
	nibbles V = 27
	planes  V = 28
)

// table loads the values of 4-bit codes.
func (b blocks) table(f *arm64.Func, at R) {
	if b == q8 {
		return
	}
	f.Load("code", at)
	f.Go("VLD4 (%v), [V%v.B16, V%v.B16, V%v.B16, V%v.B16]", at, planes, planes+1, planes+2, planes+3)
	f.Bytes(nibbles, 15)
}

// each emits the widening of the block at base, 16 codes at a time. It calls use with the index of the first element
// and the codes as floats in four registers.
func (b blocks) each(f *arm64.Func, base R, use func(element int, w [4]V)) {
	w := [4]V{wide, wide + 1, wide + 2, wide + 3}
	bytes := wide + 4
	if b == q8 {
		for i := 0; i < quantBlock; i += 16 {
			f.LoadVec(bytes, base, i)
			f.SignBytes(w[1], bytes)
			f.SignBytes2(w[3], bytes)
			f.SignHalves(w[0], w[1])
			f.SignHalves2(w[1], w[1])
			f.SignHalves(w[2], w[3])
			f.SignHalves2(w[3], w[3])
			for _, v := range w {
				f.FromInt(v, v)
			}
			use(i, w)
		}
		return
	}
	const half = quantBlock / 2
	index := wide + 5
	for i := 0; i < half; i += 16 {
		f.LoadVec(bytes, base, i)
		f.And(index, bytes, nibbles)
		b.lookup(f, index, w)
		use(i, w)
		f.UpperNibbles(index, bytes)
		b.lookup(f, index, w)
		use(half+i, w)
	}
}

// lookup loads the values of 16 codes into w.
func (b blocks) lookup(f *arm64.Func, index V, w [4]V) {
	low, low2, high, high2 := wide+6, wide+7, wide+8, wide+9
	for i, v := range w {
		f.Lookup(v, planes+V(i), index)
	}
	f.ZipBytes(low, w[0], w[1])
	f.ZipBytes2(low2, w[0], w[1])
	f.ZipBytes(high, w[2], w[3])
	f.ZipBytes2(high2, w[2], w[3])
	f.ZipHalves(w[0], low, high)
	f.ZipHalves2(w[1], low, high)
	f.ZipHalves(w[2], low2, high2)
	f.ZipHalves2(w[3], low2, high2)
}

// unblock emits the widening of consecutive blocks.
func unblock(file *arm64.File, b blocks) {
	name := "neonUnblock" + b.name
	f := file.Func(name, "dst *float32, src *byte, blocks int"+b.code(),
		sprintf("%s is dst[i] = scale · the elements of blocks > 0 blocks of %d bytes.", name, b.bytes()))
	dst, src, n := f.Reg(), f.Reg(), f.Reg()
	b.table(f, n)
	f.Load("dst", dst)
	f.Load("src", src)
	f.Load("blocks", n)
	const scale = 0
	f.Align()
	f.Label("loop")
	f.LoadWord(scale, src, b.codes)
	b.each(f, src, func(element int, w [4]V) {
		for _, v := range w {
			f.FMulLane(v, v, scale, 0)
		}
		f.StorePair(w[0], w[1], dst, 4*element)
		f.StorePair(w[2], w[3], dst, 4*element+32)
	})
	f.Go("ADD $%d, %v", b.bytes(), src)
	f.Go("ADD $%d, %v", 4*quantBlock, dst)
	f.Go("SUBS $1, %v", n)
	f.Branch("BNE", "loop")
	f.Ret()
}

// dotBlocks emits the products of rows of x with n rows of quantized w, each read once and sequentially. The sum over a
// block, in four registers, is multiplied by its scale.
func dotBlocks(file *arm64.File, rows int, b blocks) {
	const side = 4
	name := sprintf("neonDots%sx%d", b.name, rows)
	f := file.Func(name, "k int, x *float32, ldx int, w *byte, ldw, n int, out *float32, ldo int"+b.code(),
		sprintf("%s is out[i·ldo+4j] = x[i·ldx:]·w[j·ldw:], strides in bytes, i < %d, j < n; k > 0 in blocks.", name, rows))
	x, ldx, w, ldw, n, out, ldo := f.Reg(), f.Reg(), f.Reg(), f.Reg(), f.Reg(), f.Reg(), f.Reg()
	k, to, from := f.Reg(), f.Reg(), f.Reg()
	b.table(f, k)
	f.Load("x", x)
	f.Load("ldx", ldx)
	f.Load("w", w)
	f.Load("ldw", ldw)
	f.Load("n", n)
	f.Load("out", out)
	f.Load("ldo", ldo)
	at := make([]R, rows)
	for i := range at {
		at[i] = f.Reg()
	}
	sum := func(i int) V { return V(i) }
	part := func(i, s int) V { return V(3 + i*side + s) }
	const x0, scale = 15, 26

	f.Label("row")
	f.Load("k", k)
	f.Go("MOVD %v, %v", w, from)
	for i, r := range at {
		if i == 0 {
			f.Go("MOVD %v, %v", x, r)
		} else {
			f.Go("ADD %v, %v, %v", ldx, at[i-1], r)
		}
		f.Zero(sum(i))
	}
	f.Align()
	f.Label("loop")
	f.Go("PRFM %d(%v), PLDL1KEEP", ahead, from)
	f.LoadWord(scale, from, b.codes)
	first := true
	b.each(f, from, func(element int, w [4]V) {
		for i, r := range at {
			for s, v := range w {
				f.LoadVec(x0, r, 4*element+16*s)
				if first {
					f.FMul(part(i, s), x0, v)
				} else {
					f.FMulAdd(part(i, s), x0, v)
				}
			}
		}
		first = false
	})
	for i, r := range at {
		f.FAdd(part(i, 0), part(i, 0), part(i, 1))
		f.FAdd(part(i, 2), part(i, 2), part(i, 3))
		f.FAdd(part(i, 0), part(i, 0), part(i, 2))
		f.FMulAddLane(sum(i), part(i, 0), scale, 0)
		f.Go("ADD $%d, %v", 4*quantBlock, r)
	}
	f.Go("ADD $%d, %v", b.bytes(), from)
	f.Go("SUBS $1, %v", k)
	f.Branch("BNE", "loop")
	f.Go("MOVD %v, %v", out, to)
	for i := range rows {
		f.FAddPairs(sum(i), sum(i), sum(i))
		f.FAddPairs(sum(i), sum(i), sum(i))
		f.StoreWord(sum(i), to, 0)
		f.Go("ADD %v, %v", ldo, to)
	}
	f.Go("ADD $4, %v", out)
	f.Go("ADD %v, %v", ldw, w)
	f.Go("SUBS $1, %v", n)
	f.Branch("BNE", "row")
	f.Ret()
}

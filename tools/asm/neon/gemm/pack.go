package main

import "github.com/lorafuse/lorafuse/tools/asm/neon/arm64"

// transpose emits the packing of 4 or 8 rows along k into a panel across k: element (i,t) at src + i·lane + t·size goes
// to dst + t·width + 4i, times alpha. It transposes squares of 4×4 elements in registers.
func transpose(file *arm64.File, group int, e arm64.Elem) {
	name := sprintf("neonTranspose%sx%d", e.Name, group)
	f := file.Func(name, "dst *float32, width int, src *byte, lane, rows, k int, alpha float32",
		sprintf("%s is dst[t·width+4i] = alpha·src[i·lane+%d·t], strides in bytes, i < %d with zeroes from rows on, t < k.", name, e.Size, group))
	dst, width, lane, rows, k, next := f.Reg(), f.Reg(), f.Reg(), f.Reg(), f.Reg(), f.Reg()
	from := make([]R, group)
	for i := range from {
		from[i] = f.Reg()
	}
	f.Load("dst", dst)
	f.Load("width", width)
	f.Load("src", from[0])
	f.Load("lane", lane)
	f.Load("rows", rows)
	f.Load("k", k)
	for i := 1; i < group; i++ { // missing rows are read from the first row
		f.Go("ADD %v, %v, %v", lane, from[i-1], next)
		f.Go("CMP $%d, %v", i, rows)
		f.Go("CSEL GT, %v, %v, %v", next, from[0], from[i])
	}
	const alpha, count, iota = 20, 21, 22
	mask := []V{16, 17}[:group/4]
	f.LoadFloat("alpha", alpha)
	f.SpreadWord(count, rows)
	for i, m := range mask {
		for half := range 2 {
			f.Go("MOVD $%#x, %v", (4*i+2*half+1)<<32|(4*i+2*half), next)
			f.PutDouble(iota, half, next)
		}
		f.Greater(m, count, iota)
	}
	store := func(v []V) {
		for i, z := range v {
			f.FMulLane(z, z, alpha, 0)
			f.And(z, z, mask[i])
		}
		if len(v) == 2 {
			f.StorePair(v[0], v[1], dst, 0)
		} else {
			f.StoreVec(v[0], dst, 0)
		}
		f.Go("ADD %v, %v", width, dst)
	}

	f.Go("SUBS $4, %v", k)
	f.Branch("BLT", "rest")
	f.Label("loop")
	for i, r := range from {
		e.Load(f, V(i), r, 0)
		f.Go("ADD $%d, %v", 4*e.Size, r)
	}
	squares := make([][4]V, group/4)
	for i := range squares {
		v := V(4 * i)
		squares[i] = f.Square([4]V{v, v + 1, v + 2, v + 3}, [4]V{8 + v, 9 + v, 10 + v, 11 + v})
	}
	for t := range 4 {
		var v []V
		for _, s := range squares {
			v = append(v, s[t])
		}
		store(v)
	}
	f.Go("SUBS $4, %v", k)
	f.Branch("BGE", "loop")
	f.Label("rest")
	f.Go("ADDS $4, %v", k)
	f.Branch("BEQ", "done")
	f.Label("last")
	e.LoadLanes(f, 0, 1, from)
	store([]V{0, 1}[:group/4])
	f.Go("SUBS $1, %v", k)
	f.Branch("BNE", "last")
	f.Label("done")
	f.Ret()
}

const copySignature = "dst *float32, width int, src *byte, step, k int, alpha float32"

// copyVecs is the maximum number of registers that copyLanes moves.
const copyVecs = 4

// copyLanes emits the packing of rows across k: element (i,t) at src + size·i
// + t·step goes to dst + t·width + 4i, times alpha.
func copyLanes(file *arm64.File, vecs int, e arm64.Elem) {
	name := sprintf("neonCopy%sx%d", e.Name, 4*vecs)
	f := file.Func(name, copySignature,
		sprintf("%s is dst[t·width+4i] = alpha·src[%d·i+t·step], strides in bytes, i < %d, t < k; k > 0.", name, e.Size, 4*vecs))
	dst, width, src, step, k := f.Reg(), f.Reg(), f.Reg(), f.Reg(), f.Reg()
	f.Load("dst", dst)
	f.Load("width", width)
	f.Load("src", src)
	f.Load("step", step)
	f.Load("k", k)
	f.LoadFloat("alpha", 16)
	f.Align()
	f.Label("loop")
	for j := 0; j < vecs; j += 2 {
		if j+1 < vecs {
			e.Load8(f, V(j), V(j+1), src, 4*j*e.Size)
		} else {
			e.Load(f, V(j), src, 4*j*e.Size)
		}
	}
	for j := range vecs {
		f.FMulLane(V(j), V(j), 16, 0)
	}
	for j := range vecs {
		f.StoreVec(V(j), dst, 16*j)
	}
	f.Go("ADD %v, %v", step, src)
	f.Go("ADD %v, %v", width, dst)
	f.Go("SUBS $1, %v", k)
	f.Branch("BNE", "loop")
	f.Ret()
}

// copyPart emits copyLanes for less than a register, padded with zeros.
func copyPart(file *arm64.File, e arm64.Elem) {
	name := sprintf("neonCopy%sPart", e.Name)
	f := file.Func(name, "dst *float32, width int, src *byte, step, lanes, k int, alpha float32",
		sprintf("%s is dst[t·width+4i] = alpha·src[%d·i+t·step], strides in bytes, i < 4 with zeroes from lanes < 4 on, t < k; k > 0.", name, e.Size))
	dst, width, src, step, lanes, k, at := f.Reg(), f.Reg(), f.Reg(), f.Reg(), f.Reg(), f.Reg(), f.Reg()
	f.Load("dst", dst)
	f.Load("width", width)
	f.Load("src", src)
	f.Load("step", step)
	f.Load("lanes", lanes)
	f.Load("k", k)
	f.LoadFloat("alpha", 16)
	f.Label("loop")
	some(f, 0, at, src, lanes, e)
	e.Widen(f, 0, 0)
	f.FMulLane(0, 0, 16, 0)
	f.StoreVec(0, dst, 0)
	f.Go("ADD %v, %v", step, src)
	f.Go("ADD %v, %v", width, dst)
	f.Go("SUBS $1, %v", k)
	f.Branch("BNE", "loop")
	f.Ret()
}

// some loads n < 4 elements at src without widening, padded with zeros. It uses at.
func some(f *arm64.Func, d V, at, src, n R, e arm64.Elem) {
	end := f.Fresh("some")
	f.Zero(d)
	f.Go("MOVD %v, %v", src, at)
	for i := range 3 {
		f.Go("CMP $%d, %v", i, n)
		f.Branch("BEQ", end)
		if e == arm64.F32 {
			f.LoadLane(d, i, at)
		} else {
			f.LoadHalfLane(d, i, at)
		}
	}
	f.Label(end)
}

package main

import "github.com/lorafuse/lorafuse/tools/asm/neon/arm64"

// Packing for machines that multiply bfloat16: four adjacent elements along k are side by side in a panel, rounded to
// bfloat16.

// quadRows emits the packing of rows along k: elements (i,4t…4t+3) go to dst + t·width + 8i. Raw bfloat16 is copied
// unchanged; other types are multiplied by alpha and rounded.
func quadRows(file *arm64.File, rows int, e arm64.Elem, raw bool) {
	name := sprintf("neonQuadRows%sx%d", e.Name, rows)
	if raw {
		name = sprintf("neonQuadRowsRawx%d", rows)
	}
	f := file.Func(name, "dst *float32, width int, src *byte, lane, k int, alpha float32",
		sprintf("%s is dst[t·width+8i] = the quad alpha·src[i·lane+%d·4t], strides in bytes, i < %d, 4t < k.", name, e.Size, rows))
	dst, width, lane, k, at := f.Reg(), f.Reg(), f.Reg(), f.Reg(), f.Reg()
	from := make([]R, rows)
	for i := range from {
		from[i] = f.Reg()
	}
	f.Load("dst", dst)
	f.Load("width", width)
	f.Load("src", from[0])
	f.Load("lane", lane)
	f.Load("k", k)
	for i := 1; i < rows; i++ {
		f.Go("ADD %v, %v, %v", lane, from[i-1], from[i])
	}
	const alpha = 16
	if !raw {
		f.LoadFloat("alpha", alpha)
	}
	narrow := func(v V) {
		f.FMulLane(v, v, alpha, 0)
		f.ToBrain(v, v)
	}

	f.Go("SUBS $4, %v", k)
	f.Branch("BLT", "rest")
	f.Align()
	f.Label("loop")
	for i, r := range from {
		if raw {
			f.LoadHalf(V(i), r, 0)
		} else {
			e.Load(f, V(i), r, 0)
			narrow(V(i))
		}
		f.Go("ADD $%d, %v", 4*e.Size, r)
	}
	for i := range from {
		f.StoreHalf(V(i), dst, 8*i)
	}
	f.Go("ADD %v, %v", width, dst)
	f.Go("SUBS $4, %v", k)
	f.Branch("BGE", "loop")
	f.Label("rest")
	f.Go("ADDS $4, %v", k)
	f.Branch("BEQ", "done")
	for i, r := range from {
		some(f, 0, at, r, k, e)
		if !raw {
			e.Widen(f, 0, 0)
			narrow(0)
		}
		f.StoreHalf(0, dst, 8*i)
	}
	f.Label("done")
	f.Ret()
}

// quadLanes emits the packing of four rows across k: element (i,t) at src + size·i + t·step.
func quadLanes(file *arm64.File, e arm64.Elem) {
	name := sprintf("neonQuadLanes%s", e.Name)
	f := file.Func(name, copySignature,
		sprintf("%s is dst[t·width+8i] = the quad alpha·src[%d·i+4t·step…], strides in bytes, i < 4, 4t < k.", name, e.Size))
	dst, width, src, step, k := f.Reg(), f.Reg(), f.Reg(), f.Reg(), f.Reg()
	f.Load("dst", dst)
	f.Load("width", width)
	f.Load("src", src)
	f.Load("step", step)
	f.Load("k", k)
	f.LoadFloat("alpha", 16)
	load := func(i int) {
		e.Load(f, V(i), src, 0)
		f.Go("ADD %v, %v", step, src)
	}
	write := func() {
		r := f.Square([4]V{0, 1, 2, 3}, [4]V{4, 5, 6, 7})
		for i, v := range r {
			f.FMulLane(v, v, 16, 0)
			if i%2 == 0 {
				f.ToBrain(v, v)
			} else {
				f.ToBrain2(r[i-1], v)
			}
		}
		f.StorePair(r[0], r[2], dst, 0)
	}
	f.Go("SUBS $4, %v", k)
	f.Branch("BLT", "rest")
	f.Label("loop")
	for i := range 4 {
		load(i)
	}
	write()
	f.Go("ADD %v, %v", width, dst)
	f.Go("SUBS $4, %v", k)
	f.Branch("BGE", "loop")
	f.Label("rest")
	f.Go("ADDS $4, %v", k)
	f.Branch("BEQ", "done")
	for i := range 4 {
		f.Zero(V(i))
	}
	for i := range 3 {
		load(i)
		f.Go("SUBS $1, %v", k)
		f.Branch("BEQ", "last")
	}
	f.Label("last")
	write()
	f.Label("done")
	f.Ret()
}

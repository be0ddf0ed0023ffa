package main

import "fmt"

const panelSignature = "x *float32, xStride int, p *float32, pStride int, rows *float32, stride, width, count int"

// strided returns n addresses at a distance of stride.
func (k *kernel) strided(first, stride string, n int) []R {
	at := []R{k.param(first)}
	k.Load(stride, k.temp)
	for i := 1; i < n; i++ {
		at = append(at, k.Reg())
		k.Go("ADD %v<<2, %v, %v", k.temp, at[i-1], at[i])
	}
	return at
}

// addRows holds some columns of the sums of n vectors in registers while it iterates over the rows.
func addRows(n int) {
	k := text(fmt.Sprintf("addRows%d", n), panelSignature, "is x += Σ p[j]·row j for several x with their p; count > 0.")
	vectors, factors := k.strided("x", "xStride", n), k.strided("p", "pStride", n)
	rows, stride, left := k.param("rows"), k.param("stride"), k.param("width")
	row, offset, end := k.Reg(), k.Reg(), k.param("count")
	k.Go("LSL $2, %v", stride)
	k.Go("LSL $2, %v", end)
	columns := []int{16, 8, 4, 1}
	if n == 1 {
		columns = append([]int{32}, columns...)
	}
	for _, c := range columns {
		again, done, each := fmt.Sprintf("columns%d", c), fmt.Sprintf("done%d", c), fmt.Sprintf("rows%d", c)
		load, store := k.LoadVec, k.StoreVec
		if c == 1 {
			load, store = k.LoadWord, k.StoreWord
		}
		vecs := (c + lanes - 1) / lanes
		k.Label(again)
		k.Go("SUBS $%d, %v", c, left)
		k.Branch("BLT", done)
		acc := make([]val, n)
		for i := range acc {
			acc[i] = k.fresh(vecs)
			for j, a := range acc[i] {
				load(a.reg, vectors[i], 16*j)
			}
		}
		k.Go("MOVD %v, %v", rows, row)
		k.Go("MOVD $0, %v", offset)
		k.Align()
		k.Label(each)
		v := k.fresh(vecs)
		for j := range v {
			load(v[j].reg, row, 16*j)
		}
		for i := range n {
			f := k.Vec()
			k.Go("FMOVS (%v)(%v), F%v", factors[i], offset, f)
			k.addMul(acc[i], v, val{{f, 0}})
		}
		k.Go("ADD %v, %v", stride, row)
		k.Go("ADD $4, %v", offset)
		k.Go("CMP %v, %v", end, offset)
		k.Branch("BLT", each)
		for i := range acc {
			for j, a := range acc[i] {
				store(a.reg, vectors[i], 16*j)
			}
			k.Go("ADD $%d, %v", 4*c, vectors[i])
		}
		k.Go("ADD $%d, %v", 4*c, rows)
		k.Branch("B", again)
		k.Label(done)
		k.Go("ADD $%d, %v", c, left)
	}
	k.Ret()
}

// dotRows processes four rows at a time. If fewer are left, it repeats the last one, so that every row is summed in the
// same order, alternating between two registers.
func dotRows(n int) {
	const side = 2
	k := text(fmt.Sprintf("dotRows%d", n), panelSignature, "is p[j] = x·row j for several x with their p; count > 0.")
	x, dst, count := k.strided("x", "xStride", n), k.strided("p", "pStride", n), k.param("count")
	next, stride, left := k.param("rows"), k.param("stride"), k.Reg()
	k.Go("LSL $2, %v", stride)
	var rows [4]R
	for i := range rows {
		rows[i] = k.Reg()
	}
	vectors := make([]R, n)
	for i := range vectors {
		vectors[i] = k.Reg()
	}

	k.Label("rows")
	k.Go("MOVD %v, %v", next, rows[0])
	for i := 1; i < len(rows); i++ {
		k.Go("ADD %v, %v, %v", stride, rows[i-1], k.temp)
		k.Go("CMP $%d, %v", i, count)
		k.Go("CSEL GT, %v, %v, %v", k.temp, rows[i-1], rows[i])
	}
	k.Go("ADD %v, %v, %v", stride, rows[3], next)
	for i, r := range vectors {
		k.Go("MOVD %v, %v", x[i], r)
	}
	acc := make([][4]val, n)
	for i := range acc {
		for r := range rows {
			acc[i][r] = k.fresh(side)
			for _, a := range acc[i][r] {
				k.Zero(a.reg)
			}
		}
	}
	k.Load("width", left)
	for _, elements := range []int{side * lanes, lanes, 1} {
		again, done := fmt.Sprintf("loop%d", elements), fmt.Sprintf("done%d", elements)
		vecs, load := (elements+lanes-1)/lanes, k.LoadVec
		if elements == 1 {
			load = k.LoadWord
		}
		k.Go("SUBS $%d, %v", elements, left)
		k.Branch("BLT", done)
		if elements > 1 {
			k.Align()
		}
		k.Label(again)
		read := func(r R) val {
			v := k.fresh(vecs)
			for j := range v {
				load(v[j].reg, r, 16*j)
			}
			k.Go("ADD $%d, %v", 4*elements, r)
			return v
		}
		var v []val
		for _, r := range vectors {
			v = append(v, read(r))
		}
		for r := range rows {
			column := read(rows[r])
			for i := range n {
				k.addMul(acc[i][r][:vecs], v[i], column)
			}
		}
		k.Go("SUBS $%d, %v", elements, left)
		k.Branch("BGE", again)
		k.Label(done)
		if elements > 1 {
			k.Go("ADD $%d, %v", elements, left)
		}
	}
	folded := make([]V, n)
	for i := range folded {
		var s [4]V
		for r := range s {
			s[r] = k.add(acc[i][r][:1], acc[i][r][1:])[0].reg
		}
		k.FAddPairs(s[0], s[0], s[1])
		k.FAddPairs(s[2], s[2], s[3])
		k.FAddPairs(s[0], s[0], s[2])
		folded[i] = s[0]
	}
	k.Go("CMP $4, %v", count)
	k.Branch("BLT", "last")
	for i, s := range folded {
		k.StoreVec(s, dst[i], 0)
		k.Go("ADD $16, %v", dst[i])
	}
	k.Go("SUBS $4, %v", count)
	k.Branch("BNE", "rows")
	k.Ret()
	k.Label("last")
	for i, s := range folded {
		k.some(dst[i], count, func(lane int, at R) { k.StoreLane(s, lane, at) })
	}
	k.Ret()
}

package main

import "github.com/lorafuse/lorafuse/tools/asm/neon/arm64"

const (
	dotRows = 3
	strands = 8 // registers over which one sum of dots is spread, 32 lanes in total

	// ahead is the prefetch distance of dots in bytes: the hardware prefetcher does not cross pages, and a row of w is
	// often one page.
	ahead = 2048
)

// dots emits the products of rows of x with n rows of w, each read once and sequentially.
func dots(file *arm64.File, rows int, e arm64.Elem) {
	name := sprintf("neonDots%sx%d", e.Name, rows)
	f := file.Func(name, "k int, x *float32, ldx int, w *byte, ldw, n int, out *float32, ldo int",
		sprintf("%s is out[i·ldo+4j] = x[i·ldx:]·w[j·ldw:], strides in bytes, i < %d, j < n.", name, rows))
	x, ldx, w, ldw, n, out, ldo := f.Reg(), f.Reg(), f.Reg(), f.Reg(), f.Reg(), f.Reg(), f.Reg()
	f.Load("x", x)
	f.Load("ldx", ldx)
	f.Load("w", w)
	f.Load("ldw", ldw)
	f.Load("n", n)
	f.Load("out", out)
	f.Load("ldo", ldo)
	k, to, from := f.Reg(), f.Reg(), f.Reg()
	at := make([]R, rows)
	for i := range at {
		at[i] = f.Reg()
	}
	sum := func(i, s int) V { return V(i*strands + s) }
	const w0, w1, x0, x1 = 24, 25, 26, 27

	f.Label("row")
	f.Load("k", k)
	f.Go("MOVD %v, %v", w, from)
	for i, r := range at {
		if i == 0 {
			f.Go("MOVD %v, %v", x, r)
		} else {
			f.Go("ADD %v, %v, %v", ldx, at[i-1], r)
		}
	}
	for i := range rows * strands {
		f.Zero(V(i))
	}
	advance := func(elements int) {
		for _, r := range at {
			f.Go("ADD $%d, %v", 4*elements, r)
		}
		f.Go("ADD $%d, %v", elements*e.Size, from)
	}
	f.Go("SUBS $%d, %v", 4*strands, k)
	f.Branch("BLT", "rest")
	f.Align()
	f.Label("loop")
	for s := 0; s < strands; s += 2 {
		if disp := 4 * s * e.Size; disp%64 == 0 {
			f.Go("PRFM %d(%v), PLDL1KEEP", disp+ahead, from)
		}
		e.Load8(f, w0, w1, from, 4*s*e.Size)
		for i, r := range at {
			f.LoadPair(x0+V(2*i), x1+V(2*i), r, 16*s)
			f.FMulAdd(sum(i, s), x0+V(2*i), w0)
			f.FMulAdd(sum(i, s+1), x1+V(2*i), w1)
		}
	}
	advance(4 * strands)
	f.Go("SUBS $%d, %v", 4*strands, k)
	f.Branch("BGE", "loop")
	f.Label("rest")
	f.Go("ADDS $%d, %v", 4*strands, k)
	f.Branch("BEQ", "fold")
	for _, size := range []int{4, 1} {
		loop, done := sprintf("piece%d", size), sprintf("done%d", size)
		f.Go("SUBS $%d, %v", size, k)
		f.Branch("BLT", done)
		f.Label(loop)
		if size == 4 {
			e.Load(f, w0, from, 0)
		} else {
			e.Load1(f, w0, from, 0)
		}
		for i, r := range at {
			if size == 4 {
				f.LoadVec(x0, r, 0)
			} else {
				f.LoadWord(x0, r, 0)
			}
			f.FMulAdd(sum(i, 0), x0, w0)
		}
		advance(size)
		f.Go("SUBS $%d, %v", size, k)
		f.Branch("BGE", loop)
		f.Label(done)
		f.Go("ADD $%d, %v", size, k)
	}
	f.Label("fold")
	f.Go("MOVD %v, %v", out, to)
	for i := range rows {
		for half := strands / 2; half > 0; half /= 2 {
			for s := range half {
				f.FAdd(sum(i, s), sum(i, s), sum(i, s+half))
			}
		}
		f.FAddPairs(sum(i, 0), sum(i, 0), sum(i, 0))
		f.FAddPairs(sum(i, 0), sum(i, 0), sum(i, 0))
		f.StoreWord(sum(i, 0), to, 0)
		f.Go("ADD %v, %v", ldo, to)
	}
	f.Go("ADD $4, %v", out)
	f.Go("ADD %v, %v", ldw, w)
	f.Go("SUBS $1, %v", n)
	f.Branch("BNE", "row")
	f.Ret()
}

const directRows = 8

// directVecs returns the width of the direct kernel for a number of rows, in registers: enough sums to hide the latency
// of the multiply-adds.
func directVecs(rows int) int {
	switch {
	case rows <= 2:
		return 8
	case rows <= 4:
		return 4
	}
	return 2
}

// direct emits C += alpha·a·b for few rows, with a b of float32 read in place, [k] rows of vecs registers.
func direct(file *arm64.File, rows, vecs int) {
	name := sprintf("neonDirectx%dx%d", rows, 4*vecs)
	f := file.Func(name, "k int, a *float32, arow, acol int, b *byte, ldb int, c *float32, ldc int, alpha float32",
		sprintf("%s is C[%d,%d] += alpha·a·b, a[i,t] at i·arow + t·acol, strides in bytes.", name, rows, 4*vecs))
	k, acol, b, ldb, c, ldc, at := f.Reg(), f.Reg(), f.Reg(), f.Reg(), f.Reg(), f.Reg(), f.Reg()
	a := make([]R, rows)
	for i := range a {
		a[i] = f.Reg()
	}
	f.Load("k", k)
	f.Load("a", a[0])
	f.Load("arow", at)
	for i := 1; i < rows; i++ {
		f.Go("ADD %v, %v, %v", at, a[i-1], a[i])
	}
	f.Load("acol", acol)
	f.Load("b", b)
	f.Load("ldb", ldb)
	f.Load("c", c)
	f.Load("ldc", ldc)
	sum := func(i, j int) V { return V(16 + i*vecs + j) }
	for i := range rows * vecs {
		f.Zero(V(16 + i))
	}
	f.Go("MOVD $0, %v", at)
	f.Align()
	f.Label("loop")
	if vecs == 1 {
		f.LoadVec(0, b, 0)
	} else {
		for j := 0; j < vecs; j += 2 {
			f.LoadPair(V(j), V(j+1), b, 16*j)
		}
	}
	for i := range rows {
		f.Go("FMOVS (%v)(%v), F%v", a[i], at, V(8+i))
		for j := range vecs {
			f.FMulAddLane(sum(i, j), V(j), V(8+i), 0)
		}
	}
	f.Go("ADD %v, %v", acol, at)
	f.Go("ADD %v, %v", ldb, b)
	f.Go("SUBS $1, %v", k)
	f.Branch("BNE", "loop")
	f.LoadFloat("alpha", 8)
	for i := range rows {
		for j := range vecs {
			f.LoadVec(V(j%8), c, 16*j)
			f.FMulAddLane(V(j%8), sum(i, j), 8, 0)
			f.StoreVec(V(j%8), c, 16*j)
		}
		f.Go("ADD %v, %v", ldc, c)
	}
	f.Ret()
}

package main

import "github.com/lorafuse/lorafuse/tools/asm/neon/arm64"

const (
	blockRows = 4
	blockCols = 6
)

// block emits the products of four rows of x, read in place, with up to six rows of w. The rows of w are packed side by
// side, four elements of each at a time. Ten loads serve 24 multiply-adds.
func block(file *arm64.File, cols int) {
	name := sprintf("neonBlockx%d", cols)
	f := file.Func(name, "k int, x *float32, ldx int, w *float32, c *float32, ldc int, alpha float32",
		sprintf("%s is c[i·ldc+4j] += alpha·x[i·ldx:]·w[j], strides in bytes, i < %d, j < %d; element t of w[j] is w[t/4][j][t%%4], zeroes beyond k.", name, blockRows, cols))
	k, stride, w, c, ldc, at := f.Reg(), f.Reg(), f.Reg(), f.Reg(), f.Reg(), f.Reg()
	x := make([]R, blockRows)
	for i := range x {
		x[i] = f.Reg()
	}
	f.Load("k", k)
	f.Load("x", x[0])
	f.Load("ldx", stride)
	for i := 1; i < blockRows; i++ {
		f.Go("ADD %v, %v, %v", stride, x[i-1], x[i])
	}
	f.Load("w", w)
	f.Load("c", c)
	f.Load("ldc", ldc)
	sum := func(i, j int) V { return V(8 + j*blockRows + i) }
	for i := range blockRows * cols {
		f.Zero(V(8 + i))
	}
	multiply := func(disp int) { // rows 0 to 3 of x are in registers
		for j := range cols {
			v := V(4 + j%4)
			f.LoadVec(v, w, disp+16*j)
			for i := range x {
				f.FMulAdd(sum(i, j), V(i), v)
			}
		}
	}
	for _, size := range []int{16, 4} {
		loop, done := sprintf("loop%d", size), sprintf("done%d", size)
		f.Go("SUBS $%d, %v", size, k)
		f.Branch("BLT", done)
		f.Align()
		f.Label(loop)
		for u := range size / 4 {
			for i, r := range x {
				f.LoadVec(V(i), r, 16*u)
			}
			multiply(16 * cols * u)
		}
		for _, r := range x {
			f.Go("ADD $%d, %v", 4*size, r)
		}
		f.Go("ADD $%d, %v", 4*cols*size, w)
		f.Go("SUBS $%d, %v", size, k)
		f.Branch("BGE", loop)
		f.Label(done)
		f.Go("ADD $%d, %v", size, k)
	}
	f.Branch("CBZ "+k.String()+",", "fold")
	for i, r := range x {
		some(f, V(i), at, r, k, arm64.F32)
	}
	multiply(0)
	f.Label("fold")
	const alpha, old = 4, 5
	f.LoadFloat("alpha", alpha)
	for i := range x {
		for j := 0; j < cols; j += 4 {
			n := min(4, cols-j)
			r := func(n int) V { return sum(i, min(j+n, cols-1)) }
			f.FAddPairs(0, r(0), r(1))
			f.FAddPairs(1, r(2), r(3))
			f.FAddPairs(0, 0, 1)
			loadFew(f, old, c, 4*j, n, at)
			f.FMulAddLane(old, 0, alpha, 0)
			storeFew(f, old, c, 4*j, n, at)
		}
		f.Go("ADD %v, %v", ldc, c)
	}
	f.Ret()
}

// loadFew loads n ≤ 4 floats at disp from r; storeFew is the inverse. Both use at.
func loadFew(f *arm64.Func, d V, r R, disp, n int, at R) {
	switch n {
	case 1:
		f.LoadWord(d, r, disp)
	case 4:
		f.LoadVec(d, r, disp)
	default:
		f.LoadHalf(d, r, disp)
		if n == 3 {
			f.Go("ADD $%d, %v, %v", disp+8, r, at)
			f.LoadLane(d, 2, at)
		}
	}
}

func storeFew(f *arm64.Func, s V, r R, disp, n int, at R) {
	switch n {
	case 1:
		f.StoreWord(s, r, disp)
	case 4:
		f.StoreVec(s, r, disp)
	default:
		f.StoreHalf(s, r, disp)
		if n == 3 {
			f.Go("ADD $%d, %v, %v", disp+8, r, at)
			f.StoreLane(s, 2, at)
		}
	}
}

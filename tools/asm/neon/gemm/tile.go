package main

import "github.com/lorafuse/lorafuse/tools/asm/neon/arm64"

// A tile has at most tileRows rows and tileVecs registers of 4 columns. Its 24 sums leave registers for the operands.
const (
	tileRows = 8
	tileVecs = 3
)

const tileSignature = "k int, a, b, c *float32, ldc, cols int, add bool, bias *float32"

// tileState is a tile kernel under construction, with its registers: sums from 8 on, operands below.
type tileState struct {
	*arm64.Func
	rows                             int
	k, a, b, c, ldc, cols, add, bias R
	sum                              func(i, j int) V // row i, 4 columns from 4j
}

func newTile(file *arm64.File, name, of string, rows int) *tileState {
	t := &tileState{rows: rows, Func: file.Func(sprintf("%sx%d", name, rows), tileSignature,
		sprintf("%sx%d is C[%d,cols] = (C if add) + bias + a·b%s; ldc in bytes, cols ≤ %d.", name, rows, rows, of, 4*tileVecs))}
	t.k, t.a, t.b, t.c, t.ldc, t.cols, t.add, t.bias = t.Reg(), t.Reg(), t.Reg(), t.Reg(), t.Reg(), t.Reg(), t.Reg(), t.Reg()
	t.Load("k", t.k)
	t.Load("a", t.a)
	t.Load("b", t.b)
	t.Load("c", t.c)
	t.Load("ldc", t.ldc)
	row := t.Reg()
	t.Go("MOVD %v, %v", t.c, row)
	for range rows { // C is needed at the end of the loop
		t.Go("PRFM (%v), PSTL1KEEP", row)
		t.Go("ADD %v, %v", t.ldc, row)
	}
	for i := V(8); i < 32; i++ {
		t.Zero(i)
	}
	return t
}

// loop emits n iterations of step, unroll at a time; advance advances the panels by as many iterations.
func (t *tileState) loop(n R, unroll int, step func(u int), advance func(rounds int)) {
	t.Go("SUBS $%d, %v", unroll, n)
	t.Branch("BLT", "rest")
	t.Align()
	t.Label("loop")
	for u := range unroll {
		step(u)
	}
	advance(unroll)
	t.Go("SUBS $%d, %v", unroll, n)
	t.Branch("BGE", "loop")
	t.Label("rest")
	t.Go("ADDS $%d, %v", unroll, n)
	t.Branch("BEQ", "done")
	t.Label("last")
	step(0)
	advance(1)
	t.Go("SUBS $1, %v", n)
	t.Branch("BNE", "last")
	t.Label("done")
}

// tile emits C[rows, cols] = (C if add) + bias + a·b for packed panels a [k][rows] and b [k][12], all sums in
// registers. Five loads serve 24 multiply-adds: a row of b, and the elements of a in their lanes.
func tile(file *arm64.File, rows int) {
	t := newTile(file, "neonTile", "", rows)
	t.sum = func(i, j int) V { return V(8 + tileVecs*i + j) }
	t.loop(t.k, 4, func(u int) {
		b := V(2 + u%2*tileVecs)
		switch at := 4 * rows * u; { // a read past a short row gets the next row, or the slack of the panel
		case rows == 8:
			t.LoadPair(0, 1, t.a, at)
		case rows > 4:
			t.LoadVec(0, t.a, at)
			t.LoadVec(1, t.a, at+16)
		default:
			t.LoadVec(0, t.a, at)
		}
		t.LoadPair(b, b+1, t.b, 16*tileVecs*u)
		t.LoadVec(b+2, t.b, 16*tileVecs*u+32)
		for i := range rows {
			for j := range tileVecs {
				t.FMulAddLane(t.sum(i, j), b+V(j), V(i/4), i%4)
			}
		}
	}, func(rounds int) {
		t.Go("ADD $%d, %v", 4*rows*rounds, t.a)
		t.Go("ADD $%d, %v", 16*tileVecs*rounds, t.b)
	})
	t.finish()
}

// finish adds C and bias to the sums and stores them.
func (t *tileState) finish() {
	t.Load("add", t.add)
	t.Load("bias", t.bias)
	t.Load("cols", t.cols)
	t.Go("CMP $%d, %v", 4*tileVecs, t.cols)
	t.Branch("BNE", "edge")
	row := t.Reg()
	eachRow := func(f func(i int)) {
		t.Go("MOVD %v, %v", t.c, row)
		for i := range t.rows {
			f(i)
			t.Go("ADD %v, %v", t.ldc, row)
		}
	}
	load := func(r R) { t.LoadPair(0, 1, r, 0); t.LoadVec(2, r, 32) }
	addTo := func(i int) {
		for j := range tileVecs {
			t.FAdd(t.sum(i, j), t.sum(i, j), V(j))
		}
	}
	t.Branch("CBZ "+t.add.String()+",", "bias")
	eachRow(func(i int) { load(row); addTo(i) })
	t.Label("bias")
	t.Branch("CBZ "+t.bias.String()+",", "store")
	load(t.bias)
	for i := range t.rows {
		addTo(i)
	}
	t.Label("store")
	eachRow(func(i int) {
		t.StorePair(t.sum(i, 0), t.sum(i, 1), row, 0)
		t.StoreVec(t.sum(i, 2), row, 32)
	})
	t.Ret()
	t.edge(row)
}

// edge emits finish for fewer columns than the tile has, one by one, from sums spilled to the stack.
func (t *tileState) edge(row R) {
	sums, from, bias, n := t.Reg(), t.Reg(), t.Reg(), t.Reg()
	t.Locals(16 * tileVecs * t.rows)
	t.Label("edge")
	t.Go("ADD $8, RSP, %v", sums)
	for i := range t.rows {
		for j := range tileVecs {
			t.StoreVec(t.sum(i, j), sums, 16*(tileVecs*i+j))
		}
	}
	left := t.k // k is no longer needed
	t.Go("MOVD $%d, %v", t.rows, left)
	t.Label("edgeRow")
	t.Go("MOVD %v, %v", sums, from)
	t.Go("MOVD %v, %v", t.c, row)
	t.Go("MOVD %v, %v", t.bias, bias)
	t.Go("MOVD %v, %v", t.cols, n)
	t.Label("edgeColumn")
	t.Go("FMOVS.P 4(%v), F0", from)
	t.Branch("CBZ "+t.add.String()+",", "edgeBias")
	t.Go("FMOVS (%v), F1", row)
	t.Go("FADDS F1, F0")
	t.Label("edgeBias")
	t.Branch("CBZ "+t.bias.String()+",", "edgeStore")
	t.Go("FMOVS.P 4(%v), F1", bias)
	t.Go("FADDS F1, F0")
	t.Label("edgeStore")
	t.Go("FMOVS.P F0, 4(%v)", row)
	t.Go("SUBS $1, %v", n)
	t.Branch("BNE", "edgeColumn")
	t.Go("ADD $%d, %v", 16*tileVecs, sums)
	t.Go("ADD %v, %v", t.ldc, t.c)
	t.Go("SUBS $1, %v", left)
	t.Branch("BNE", "edgeRow")
	t.Ret()
}

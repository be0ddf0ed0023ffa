package exec_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/graph/exec"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// keepsAll stores everything narrower; keepsNot everything except the given place of an operation.
func keepsAll(ir.Op, any, []ir.Type, ir.Place, tensor.DType) bool { return true }

func keepsNot(op ir.Op, at ir.Place) exec.Stores {
	return func(o ir.Op, _ any, _ []ir.Type, p ir.Place, _ tensor.DType) bool { return o != op || p != at }
}

func storing(spec exec.Spec, s exec.Stores) exec.Spec {
	spec.Store, spec.Stores = tensor.BF16, s
	return spec
}

func TestStoredTrainingStepText(t *testing.T) {
	g, spec := trainingStep()
	text := plan(t, g, storing(spec, keepsAll)).String()
	golden := filepath.Join("testdata", "stored_step.golden")
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(text), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	assert.Equal(t, string(want), text)

	plain, spec := trainingStep()
	assert.Equal(t, plan(t, plain, spec).String(), plan(t, plain, exec.Spec{Results: spec.Results, Updates: spec.Updates, Stores: keepsAll}).String(),
		"what may not be stored is not asked for")
}

// chain builds rows that products read, of a product and of a function of it, and a table into which the last ones are
// written. There are 16 rows, or a bounded number of them if rows is not zero.
func chain(rows int) (*ir.Graph, exec.Spec) {
	g, n := ir.New(), ir.Static(16)
	if rows > 0 {
		n = g.Bound("n", rows)
	}
	x := g.Param("x", ir.Type{DType: tensor.F32, Shape: ir.Shape{n, ir.Static(64)}})
	w, table := g.Param("w", f32(64, 64)), g.Param("table", f32(128, 64))
	at := g.Param("at", ir.Type{DType: tensor.I32, Shape: ir.ShapeOf(1)})
	y := g.Linear(x, w, 0)
	z := g.Unary(ir.Tanh, y)
	spec := results(g.Linear(y, w, 0), g.Linear(z, w, 0))
	spec.Updates = []exec.Update{{Param: "table", Value: g.Apply(ir.UpdateRows, nil, table, z, at)}, {Param: "w", Value: g.Unary(ir.Neg, w)}}
	return g, spec
}

// pool builds rows that are written into the rows of a table that an index selects.
func pool() (*ir.Graph, exec.Spec) {
	g := ir.New()
	n := g.Bound("n", 4)
	rows, at := g.Param("rows", ir.Type{DType: tensor.F32, Shape: ir.Shape{n, ir.Static(8)}}), g.Param("at", ir.Type{DType: tensor.I32, Shape: ir.Shape{n}})
	next := g.ScatterRows(g.Param("pool", f32(64, 8)), rows, at)
	spec := results(g.SumSquares(next))
	spec.Updates = []exec.Update{{Param: "pool", Value: next}}
	return g, spec
}

// storedAs lists the values that are stored in another type, by the operation that computes them.
func storedAs(p *ir.Program) (made map[ir.Op]int, args []string) {
	made = map[ir.Op]int{}
	for _, l := range p.Launches {
		for _, o := range l.Out {
			if o.Store != tensor.Invalid {
				made[l.Op]++
			}
		}
	}
	for _, a := range p.Args {
		if a.Store != tensor.Invalid {
			args = append(args, a.Name)
		}
	}
	return made, args
}

func TestStore(t *testing.T) {
	for _, c := range []struct {
		name   string
		rows   int
		stores exec.Stores
		made   map[ir.Op]int
		args   []string
	}{
		{"everything", 16, keepsAll, map[ir.Op]int{ir.Gemm: 1, ir.Unary: 1, ir.UpdateRows: 1}, []string{"table"}},
		{"few rows", 8, keepsAll, map[ir.Op]int{ir.UpdateRows: 1}, []string{"table"}},
		{"no device asked", 16, nil, map[ir.Op]int{}, nil},
		{"not what products read", 16, keepsNot(ir.Gemm, ir.Place{}), map[ir.Op]int{ir.UpdateRows: 1}, []string{"table"}},
		{"not what products make", 16, keepsNot(ir.Gemm, ir.Place{Out: true}), map[ir.Op]int{ir.Unary: 1, ir.UpdateRows: 1}, []string{"table"}},
		{"no table that is read", 16, keepsNot(ir.UpdateRows, ir.Place{}), map[ir.Op]int{ir.Gemm: 1, ir.Unary: 1}, nil},
		{"no table that is written", 16, keepsNot(ir.UpdateRows, ir.Place{Out: true}), map[ir.Op]int{ir.Gemm: 1, ir.Unary: 1}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, spec := chain(c.rows)
			p := plan(t, g, storing(spec, c.stores))
			made, args := storedAs(p)
			assert.Equal(t, c.made, made, "%v", p)
			assert.Equal(t, c.args, args, "%v", p)
		})
	}
	g, spec := pool()
	made, args := storedAs(plan(t, g, storing(spec, keepsAll)))
	assert.Equal(t, map[ir.Op]int{ir.ScatterRows: 1}, made)
	assert.Equal(t, []string{"pool"}, args)
	g, spec = chain(0)
	spec.FixedSizes = true
	made, args = storedAs(plan(t, g, storing(spec, keepsAll)))
	assert.Equal(t, map[ir.Op]int{ir.Gemm: 1, ir.Unary: 1, ir.UpdateRows: 1}, made, "fixed sizes")
	assert.Equal(t, []string{"table"}, args)
	g, spec = chain(0)
	made, _ = storedAs(plan(t, g, storing(spec, keepsAll)))
	assert.Equal(t, map[ir.Op]int{ir.UpdateRows: 1}, made, "fixed sizes that are not declared")
	g, spec = chain(64)
	before := plan(t, g, spec).Arena
	assert.Equal(t, before/2, plan(t, g, storing(spec, keepsAll)).Arena)
}

// TestStoreInPlace: a value reuses the memory of one that keeps its type.
func TestStoreInPlace(t *testing.T) {
	in, out := ir.Place{}, ir.Place{Out: true}
	for _, c := range []struct {
		stores exec.Stores
		bytes  int
	}{
		{nil, 4}, {keepsAll, 2}, {keepsNot(ir.Unary, out), 6}, {keepsNot(ir.Unary, in), 6},
	} {
		g := ir.New()
		n := g.Bound("n", 64)
		x := g.Param("x", ir.Type{DType: tensor.F32, Shape: ir.Shape{n, ir.Static(64)}})
		y := g.Unary(ir.Tanh, g.Linear(x, g.Param("w", f32(64, 64)), 0))
		spec := storing(results(g.SumSquares(y)), c.stores)
		spec.StoreAll = true
		p := plan(t, g, spec)
		assert.Equal(t, c.bytes*64*64, p.Arena, "%v", p)
	}
}

// TestStoreAll: params and results too, whatever their shape.
func TestStoreAll(t *testing.T) {
	g, spec := chain(4)
	spec = storing(spec, keepsAll)
	spec.StoreAll = true
	p := plan(t, g, spec)
	_, args := storedAs(p)
	assert.ElementsMatch(t, []string{"x", "w", "table", "r0", "r1"}, args, "%v", p)

	// A param is read in its own type and updated by a value that could be stored narrower.
	spec.Stores = keepsNot(ir.Gemm, ir.Place{Index: 1})
	_, args = storedAs(plan(t, g, spec))
	assert.ElementsMatch(t, []string{"x", "table", "r0", "r1"}, args)
}

// TestStoreSpares: running sums are not rounded where that costs little memory. Values that only a sum reads are rounded,
// even if there is memory for them, and so are their sums.
func TestStoreSpares(t *testing.T) {
	for _, spare := range []int{0, 32} {
		g := ir.New()
		n := g.Bound("n", 64)
		x := g.Param("x", ir.Type{DType: tensor.F32, Shape: ir.Shape{n, ir.Static(64)}})
		up, down := g.Param("up", f32(4096, 64)), g.Param("down", f32(64, 4096))
		h := g.Linear(x, g.Param("w", f32(64, 64)), 0)
		y := g.Add(g.Linear(g.Unary(ir.Tanh, g.Linear(h, up, 0)), down, 0), h)
		v := g.Param("v", f32(64, 64))
		z := g.Linear(y, v, 0)
		z = g.Add(z, g.Unary(ir.Exp, z))
		last := g.Add(g.Linear(z, v, 0), g.Unary(ir.Exp, g.Linear(z, g.Param("u", f32(64, 64)), 0)))
		spec := storing(results(g.SumSquares(last)), keepsAll)
		spec.Spare = spare
		p := plan(t, g, spec)
		require.Len(t, p.Launches, 11, "%v", p)
		exact := map[int]bool{4: true, 6: true}   // z and the sum in its place live when the large values are freed
		exact[0], exact[3] = spare > 0, spare > 0 // h lives beside them, and y in its place
		for i := range 10 {
			assert.Equal(t, exact[i], p.Launches[i].Out[0].Store == tensor.Invalid, "%d of %v", i, p)
		}
	}
}

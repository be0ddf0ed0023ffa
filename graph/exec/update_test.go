package exec_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/graph/conformance"
	"github.com/lorafuse/lorafuse/graph/exec"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// updateCase is a program over the params a, b and c of three elements, and their contents after a run. They start as
// {1,2,3}, {10,20,30} and {100,200,300}.
type updateCase struct {
	name    string
	build   func(g *ir.Graph, a, b, c ir.Value) map[string]ir.Value
	order   []string // of the updates
	result  func(g *ir.Graph, a, b, c ir.Value) ir.Value
	a, b, c []float32
	r       []float32
}

var updateCases = []updateCase{
	{name: "in place", order: []string{"a"},
		build: func(g *ir.Graph, a, _, _ ir.Value) map[string]ir.Value {
			return map[string]ir.Value{"a": g.Scale(a, 2)}
		},
		a: []float32{2, 4, 6}},
	{name: "the new value is read later", order: []string{"a"},
		build: func(g *ir.Graph, a, _, _ ir.Value) map[string]ir.Value {
			return map[string]ir.Value{"a": g.Scale(a, 2)}
		},
		a: []float32{2, 4, 6},
		result: func(g *ir.Graph, a, _, _ ir.Value) ir.Value {
			return g.AddScalar(g.Scale(a, 2), 1)
		}, r: []float32{3, 5, 7}},
	{name: "the old value is read later", order: []string{"a"},
		build: func(g *ir.Graph, a, b, _ ir.Value) map[string]ir.Value {
			return map[string]ir.Value{"a": g.Unary(ir.Neg, g.Scale(a, 2))}
		},
		a: []float32{-2, -4, -6},
		result: func(g *ir.Graph, a, b, _ ir.Value) ir.Value {
			return g.Add(g.Scale(g.Unary(ir.Neg, g.Scale(a, 2)), 10), a)
		}, r: []float32{-19, -38, -57}},
	{name: "the old value is read later, the new one changed in place", order: []string{"a"},
		build: func(g *ir.Graph, a, b, _ ir.Value) map[string]ir.Value {
			return map[string]ir.Value{"a": g.Scale(a, 2)}
		},
		a: []float32{2, 4, 6},
		result: func(g *ir.Graph, a, b, _ ir.Value) ir.Value {
			// Neg is the last that reads the new value, and may work in place.
			return g.Sub(g.Unary(ir.Neg, g.Scale(a, 2)), g.Mul(a, b))
		}, r: []float32{-12, -44, -96}},
	{name: "swap", order: []string{"a", "b"},
		build: func(_ *ir.Graph, a, b, _ ir.Value) map[string]ir.Value { return map[string]ir.Value{"a": b, "b": a} },
		a:     []float32{10, 20, 30}, b: []float32{1, 2, 3}},
	{name: "swap through reshapes", order: []string{"b", "a"},
		build: func(g *ir.Graph, a, b, _ ir.Value) map[string]ir.Value {
			turn := func(x ir.Value) ir.Value { return g.Reshape(g.Reshape(x, ir.ShapeOf(3, 1)), ir.ShapeOf(3)) }
			return map[string]ir.Value{"a": turn(b), "b": turn(a)}
		},
		a: []float32{10, 20, 30}, b: []float32{1, 2, 3}},
	{name: "rotate", order: []string{"a", "b", "c"},
		build: func(_ *ir.Graph, a, b, c ir.Value) map[string]ir.Value {
			return map[string]ir.Value{"a": b, "b": c, "c": a}
		},
		a: []float32{10, 20, 30}, b: []float32{100, 200, 300}, c: []float32{1, 2, 3}},
	{name: "rotate the other way", order: []string{"a", "b", "c"},
		build: func(_ *ir.Graph, a, b, c ir.Value) map[string]ir.Value {
			return map[string]ir.Value{"b": a, "c": b, "a": c}
		},
		a: []float32{100, 200, 300}, b: []float32{1, 2, 3}, c: []float32{10, 20, 30}},
	{name: "shift", order: []string{"a", "b", "c"},
		build: func(g *ir.Graph, a, b, _ ir.Value) map[string]ir.Value {
			return map[string]ir.Value{"a": g.Scale(a, 2), "b": a, "c": b}
		},
		a: []float32{2, 4, 6}, b: []float32{1, 2, 3}, c: []float32{10, 20, 30}},
	{name: "shift, named in another order", order: []string{"c", "a", "b"},
		build: func(g *ir.Graph, a, b, _ ir.Value) map[string]ir.Value {
			return map[string]ir.Value{"a": g.Add(a, b), "b": a, "c": b}
		},
		a: []float32{11, 22, 33}, b: []float32{1, 2, 3}, c: []float32{10, 20, 30}},
	{name: "to each other", order: []string{"a", "b"},
		build: func(g *ir.Graph, a, b, _ ir.Value) map[string]ir.Value {
			return map[string]ir.Value{"a": g.Scale(b, 2), "b": g.Scale(a, 3)}
		},
		a: []float32{20, 40, 60}, b: []float32{3, 6, 9}},
	{name: "one value to two params", order: []string{"a", "b"},
		build: func(g *ir.Graph, a, b, _ ir.Value) map[string]ir.Value {
			s := g.Add(a, b)
			return map[string]ir.Value{"a": s, "b": s}
		},
		a: []float32{11, 22, 33}, b: []float32{11, 22, 33}},
	{name: "its own value", order: []string{"a"},
		build: func(_ *ir.Graph, a, _, _ ir.Value) map[string]ir.Value { return map[string]ir.Value{"a": a} },
		a:     []float32{1, 2, 3}},
	{name: "a result of the old value", order: []string{"a"},
		build: func(g *ir.Graph, a, _, _ ir.Value) map[string]ir.Value {
			return map[string]ir.Value{"a": g.Scale(a, 2)}
		},
		a:      []float32{2, 4, 6},
		result: func(_ *ir.Graph, a, _, _ ir.Value) ir.Value { return a }, r: []float32{1, 2, 3}},
	{name: "a result of the old value, reshaped", order: []string{"a"},
		build: func(g *ir.Graph, a, _, _ ir.Value) map[string]ir.Value {
			return map[string]ir.Value{"a": g.Scale(a, 2)}
		},
		a:      []float32{2, 4, 6},
		result: func(g *ir.Graph, a, _, _ ir.Value) ir.Value { return g.Reshape(a, ir.ShapeOf(3, 1)) }, r: []float32{1, 2, 3}},
	{name: "a param that nothing reads", order: []string{"c"},
		build: func(g *ir.Graph, a, b, _ ir.Value) map[string]ir.Value { return map[string]ir.Value{"c": g.Mul(a, b)} },
		c:     []float32{10, 40, 90}},
	{name: "read first, updated last", order: []string{"a"},
		build: func(g *ir.Graph, a, b, _ ir.Value) map[string]ir.Value {
			y := g.Unary(ir.Neg, a)
			for range 4 {
				y = g.Add(g.Mul(y, b), y)
			}
			return map[string]ir.Value{"a": g.Scale(y, 0)}
		},
		a: []float32{0, 0, 0}},
	{name: "read twice by the operation that makes it", order: []string{"a"},
		build: func(g *ir.Graph, a, _, _ ir.Value) map[string]ir.Value { return map[string]ir.Value{"a": g.Mul(a, a)} },
		a:     []float32{1, 4, 9}},
	{name: "second operand", order: []string{"a"},
		build: func(g *ir.Graph, a, b, _ ir.Value) map[string]ir.Value { return map[string]ir.Value{"a": g.Sub(b, a)} },
		a:     []float32{9, 18, 27}},
}

func TestUpdates(t *testing.T) {
	dev := device(t)
	wild := conformance.Chaos(device(t), 3)
	t.Cleanup(func() { require.NoError(t, wild.Close()) })
	for _, c := range updateCases {
		for _, noReuse := range []bool{false, true} {
			name := c.name
			if noReuse {
				name += ", no memory reused"
			}
			t.Run(name, func(t *testing.T) {
				g := ir.New()
				a, b, cc := g.Param("a", f32(3)), g.Param("b", f32(3)), g.Param("c", f32(3))
				spec := exec.Spec{NoReuse: noReuse}
				values := c.build(g, a, b, cc)
				for _, name := range c.order {
					spec.Updates = append(spec.Updates, exec.Update{Param: name, Value: values[name]})
				}
				if c.result != nil {
					spec.Results = []exec.Result{{Name: "r", Value: c.result(g, a, b, cc)}}
				}
				require.NoError(t, g.Err())
				for _, d := range []struct {
					name string
					s    *session
				}{{"alone", start(t, g, spec, dev)}, {"chaos", start(t, g, spec, wild)}} {
					d.s.set("a", 1, 2, 3)
					d.s.set("b", 10, 20, 30)
					d.s.set("c", 100, 200, 300)
					d.s.run()
					for name, want := range map[string][]float32{"a": c.a, "b": c.b, "c": c.c, "r": c.r} {
						if want != nil {
							assert.Equal(t, want, d.s.get(name), "%s on %s\n%v", name, d.name, d.s.exe.Program())
						}
					}
				}
			})
		}
	}
}

// TestDonation requires state to be updated in place: no additional memory, and one launch per operation.
func TestDonation(t *testing.T) {
	g := ir.New()
	table := g.Param("cache", f32(64, 8))
	rows, at := g.Param("rows", f32(2, 8)), g.Param("at", ir.Type{DType: tensor.I32, Shape: ir.ShapeOf(1)})
	next := g.UpdateRows(table, rows, at)
	spec := results(g.SumSquares(next))
	spec.Updates = []exec.Update{{Param: "cache", Value: next}}
	p := plan(t, g, spec)
	assert.Zero(t, p.Arena, "%v", p)
	assert.Len(t, p.Launches, 2, "%v", p)

	g = ir.New()
	table, rows = g.Param("pool", f32(64, 8)), g.Param("rows", f32(2, 8))
	next = g.ScatterRows(table, rows, g.Param("at", ir.Type{DType: tensor.I32, Shape: ir.ShapeOf(2)}))
	spec = results(g.SumSquares(next))
	spec.Updates = []exec.Update{{Param: "pool", Value: next}}
	p = plan(t, g, spec)
	assert.Zero(t, p.Arena, "%v", p)
	assert.Len(t, p.Launches, 2, "%v", p)

	g = ir.New()
	w, m, v := g.Param("w", f32(9)), g.Param("m", f32(9)), g.Param("v", f32(9))
	rates, scale := g.Param("rates", ir.AdamWRates), g.Param("scale", f32())
	w2, m2, v2 := g.AdamW(w, m, v, g.Param("g", f32(9)), rates, scale, ir.AdamWAttr{Beta1: 0.9, Beta2: 0.99, Eps: 1e-8})
	p = plan(t, g, exec.Spec{Updates: []exec.Update{{Param: "w", Value: w2}, {Param: "m", Value: m2}, {Param: "v", Value: v2}}})
	assert.Zero(t, p.Arena, "%v", p)
	assert.Len(t, p.Launches, 1, "%v", p)
}

// TestRowsWrittenTwice writes two ranges of a cache in one program.
func TestRowsWrittenTwice(t *testing.T) {
	g := ir.New()
	index := ir.Type{DType: tensor.I32, Shape: ir.ShapeOf(1)}
	table, rows := g.Param("cache", f32(4)), g.Param("rows", f32(1))
	first := g.UpdateRows(table, rows, g.Const(1, index))
	second := g.UpdateRows(first, g.Scale(rows, 2), g.Const(3, index))
	spec := results(g.Scale(first, 1.5))
	spec.Updates = []exec.Update{{Param: "cache", Value: second}}
	s := start(t, g, spec, device(t))
	s.set("cache", 1, 2, 3, 4)
	s.set("rows", -5)
	s.run()
	assert.Equal(t, []float32{1, -5, 3, -10}, s.get("cache"))
	assert.Equal(t, []float32{1.5, -7.5, 4.5, 6}, s.get("r0"))
}

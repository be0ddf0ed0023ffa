package exec_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/graph/exec"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// canonCase is a graph over x [3,4], w [5,4], a [2,4], b [5,2], bias [5] and
// c [3,5], and the lines of its launches, without their types.
type canonCase struct {
	name  string
	build func(g *ir.Graph, p map[string]ir.Value) []ir.Value
	want  []string
}

var canonCases = []canonCase{
	{"scale becomes alpha", func(g *ir.Graph, p map[string]ir.Value) []ir.Value {
		return []ir.Value{g.Scale(g.Scale(g.MatMul(p["x"], p["w"], false, true), 3), 0.5)}
	}, []string{"$r0 = Gemm{NT·1.5} $x, $w"}},
	{"scale of a sum of products scales each", func(g *ir.Graph, p map[string]ir.Value) []ir.Value {
		h := g.MatMul(p["x"], p["a"], false, true)
		return []ir.Value{g.Scale(g.Gemm([]ir.Product{{A: p["x"], B: p["w"], TB: true, Alpha: 1}, {A: h, B: p["b"], TB: true, Alpha: 4}}, 0, 0), 0.5)}
	}, []string{"@ = Gemm{NT} $x, $a", "$r0 = Gemm{NT·0.5 NT·2} $x, $w, @, $b"}},
	{"a linear with its adapter is one product with a longer K", func(g *ir.Graph, p map[string]ir.Value) []ir.Value {
		h := g.MatMul(p["x"], p["a"], false, true)
		return []ir.Value{g.Add(g.Linear(p["x"], p["w"], p["bias"]), g.Scale(g.MatMul(h, p["b"], false, true), 2))}
	}, []string{"@ = Gemm{NT} $x, $a", "$r0 = Gemm{NT NT·2 bias} $x, $w, @, $b, $bias"}},
	{"bias of the second", func(g *ir.Graph, p map[string]ir.Value) []ir.Value {
		h := g.MatMul(p["x"], p["a"], false, true)
		return []ir.Value{g.Add(g.MatMul(h, p["b"], false, true), g.Gemm([]ir.Product{{A: p["x"], B: p["w"], TB: true, Alpha: 1}}, p["bias"], p["c"]))}
	}, []string{"@ = Gemm{NT} $x, $a", "$r0 = Gemm{NT NT bias C} @, $b, $x, $w, $bias, $c"}},
	{"an addend", func(g *ir.Graph, p map[string]ir.Value) []ir.Value {
		return []ir.Value{g.Add(p["c"], g.Linear(p["x"], p["w"], p["bias"]))}
	}, []string{"$r0 = Gemm{NT bias C} $x, $w, $bias, $c"}},
	{"an addend of a product by rows", func(g *ir.Graph, p map[string]ir.Value) []ir.Value {
		rows := func(w ir.Value) ir.Value {
			return g.RowsGemm(ir.RowsProduct{X: p["x"], Index: g.Iota(0, ir.ShapeOf(3)), Weights: []ir.Value{w}, TB: true, Width: 5})
		}
		return []ir.Value{g.Add(rows(p["w"]), rows(p["a"]))}
	}, []string{"@ = Iota{Axis:0}", "@ = RowsGemm{Tables:1 TB:true Width:5 HasScale:false HasBias:false HasC:false} $x, @, $w",
		"$r0 = RowsGemm{Tables:1 TB:true Width:5 HasScale:false HasBias:false HasC:true} $x, @, $a, @"}},
	{"a product that is read again is not made twice", func(g *ir.Graph, p map[string]ir.Value) []ir.Value {
		y := g.MatMul(p["x"], p["w"], false, true)
		h := g.MatMul(g.Unary(ir.Neg, p["x"]), p["w"], false, true)
		return []ir.Value{g.Add(y, h), y}
	}, []string{"$r1 = Gemm{NT} $x, $w", "@ = Unary{Neg} $x", "$r0 = Gemm{NT C} @, $w, $r1"}},
	{"two biases", func(g *ir.Graph, p map[string]ir.Value) []ir.Value {
		return []ir.Value{g.Add(g.Linear(p["x"], p["w"], p["bias"]), g.Linear(g.Unary(ir.Neg, p["x"]), p["w"], p["bias"]))}
	}, []string{"@ = Gemm{NT bias} $x, $w, $bias", "@ = Unary{Neg} $x", "$r0 = Gemm{NT bias C} @, $w, $bias, @"}},
	{"two addends", func(g *ir.Graph, p map[string]ir.Value) []ir.Value {
		with := func(x ir.Value) ir.Value {
			return g.Gemm([]ir.Product{{A: x, B: p["w"], TB: true, Alpha: 1}}, 0, p["c"])
		}
		return []ir.Value{g.Add(with(p["x"]), with(g.Unary(ir.Neg, p["x"])))}
	}, []string{"@ = Gemm{NT C} $x, $w, $c", "@ = Unary{Neg} $x", "@ = Gemm{NT C} @, $w, $c", "$r0 = Binary{Add} @, @"}},
	{"a row becomes the bias", func(g *ir.Graph, p map[string]ir.Value) []ir.Value {
		return []ir.Value{g.Add(g.MatMul(p["x"], p["w"], false, true), p["bias"])}
	}, []string{"$r0 = Gemm{NT bias} $x, $w, $bias"}},
	{"a second row does not", func(g *ir.Graph, p map[string]ir.Value) []ir.Value {
		return []ir.Value{g.Add(g.Linear(p["x"], p["w"], p["bias"]), g.Unary(ir.Neg, p["bias"]))}
	}, []string{"@ = Gemm{NT bias} $x, $w, $bias", "@ = Unary{Neg} $bias", "$r0 = Binary{Add} @, @"}},
	{"transposes become flags", func(g *ir.Graph, p map[string]ir.Value) []ir.Value {
		return []ir.Value{g.MatMul(g.Transpose(g.Transpose(p["x"], 1, 0), 1, 0), g.Transpose(p["w"], 1, 0), false, false)}
	}, []string{"$r0 = Gemm{NT} $x, $w"}},
	{"gradients of a linear with its adapter", func(g *ir.Graph, p map[string]ir.Value) []ir.Value {
		h := g.MatMul(p["x"], p["a"], false, true)
		y := g.Gemm([]ir.Product{{A: p["x"], B: p["w"], TB: true, Alpha: 1}, {A: h, B: p["b"], TB: true, Alpha: 2}}, 0, 0)
		loss := g.Reduce(ir.ReduceSum, g.Reduce(ir.ReduceSum, g.Mul(y, p["c"]), 1), 0)
		return g.Gradients(loss, []ir.Value{p["x"], p["a"], p["b"]}, ir.GradOptions{})
	}, []string{
		"@ = Gemm{NT} $x, $a",
		"$r2 = Gemm{TN·2} $c, @",          // db
		"@ = Gemm{NN·2} $c, $b",           // dh
		"$r0 = Gemm{NN NN} $c, $w, @, $a", // dx, one product with a longer K
		"$r1 = Gemm{TN} @, $x",            // da
	}},
	{"leading axes change nothing", func(g *ir.Graph, p map[string]ir.Value) []ir.Value {
		x3 := g.Param("x3", f32(2, 3, 4))
		times := func(x ir.Value, w string) ir.Value { // as a user writes it: rows, and their axes again
			s := g.Type(x).Shape
			y := g.MatMul(g.Reshape(x, ir.Shape{ir.Static(6), s[2]}), p[w], false, true)
			return g.Reshape(y, ir.Shape{s[0], s[1], g.Type(y).Last()})
		}
		c3 := g.Param("c3", f32(2, 3, 5))
		return []ir.Value{g.Add(g.Add(g.Add(times(x3, "w"), g.Scale(times(times(x3, "a"), "b"), 2)), p["bias"]), c3)}
	}, []string{"@ = Gemm{NT} $x3, $a", "$r0 = Gemm{NT NT·2 bias C} $x3, $w, @, $b, $bias, $c3"}},
	{"axes that a product did not have stay apart", func(g *ir.Graph, p map[string]ir.Value) []ir.Value {
		y := g.Reshape(g.MatMul(p["x"], p["a"], false, true), ir.ShapeOf(1, 2, 3))
		return []ir.Value{g.Add(y, g.Const(1, f32(1, 2, 3)))}
	}, []string{"@ = Gemm{NT} $x, $a", "@ = Const{1}", "$r0 = Binary{Add} @, @"}},
	{"a sum with zero, a product with one", func(g *ir.Graph, p map[string]ir.Value) []ir.Value {
		zero := g.Const(0, f32(3, 4))
		return []ir.Value{g.Unary(ir.Exp, g.Add(zero, g.Scale(p["x"], 1)))}
	}, []string{"$r0 = Unary{Exp} $x"}},
	{"zero that widens the shape stays", func(g *ir.Graph, p map[string]ir.Value) []ir.Value {
		return []ir.Value{g.Add(p["bias"], g.Const(0, f32(3, 5)))}
	}, []string{"@ = Const{0}", "$r0 = Binary{Add} $bias, @"}},
	{"constants", func(g *ir.Graph, p map[string]ir.Value) []ir.Value {
		return []ir.Value{g.Scale(g.Scale(g.Const(3, f32(2)), 0.5), 0.25)}
	}, []string{"$r0 = Const{0.375}"}},
	{"equal operations become one", func(g *ir.Graph, p map[string]ir.Value) []ir.Value {
		y := func() ir.Value { return g.Unary(ir.Exp, g.MatMul(p["x"], p["w"], false, true)) }
		return []ir.Value{g.Mul(y(), y()), y()}
	}, []string{"@ = Gemm{NT} $x, $w", "$r1 = Unary{Exp} @", "$r0 = Binary{Mul} $r1, $r1"}},
	{"what nobody reads falls away", func(g *ir.Graph, p map[string]ir.Value) []ir.Value {
		g.Softmax(g.MatMul(p["x"], p["w"], false, true))
		return []ir.Value{g.Unary(ir.Neg, p["x"])}
	}, []string{"$r0 = Unary{Neg} $x"}},
	{"a value that is not differentiated is the value", func(g *ir.Graph, p map[string]ir.Value) []ir.Value {
		return []ir.Value{g.Unary(ir.Neg, g.Detach(p["x"]))}
	}, []string{"$r0 = Unary{Neg} $x"}},
}

func TestCanonicalForm(t *testing.T) {
	for _, c := range canonCases {
		t.Run(c.name, func(t *testing.T) {
			g := ir.New()
			p := map[string]ir.Value{}
			for _, x := range []struct {
				name string
				typ  ir.Type
			}{{"x", f32(3, 4)}, {"w", f32(5, 4)}, {"a", f32(2, 4)}, {"b", f32(5, 2)}, {"bias", f32(5)}, {"c", f32(3, 5)}} {
				p[x.name] = g.Param(x.name, x.typ)
			}
			vs := c.build(g, p)
			require.NoError(t, g.Err())
			assert.Equal(t, c.want, lines(plan(t, g, results(vs...))))
		})
	}
}

// TestKeepSums: no product starts with its addend or takes in a later factor, products with quantised weights are computed first, and the rest of
// the normal form is unchanged.
func TestKeepSums(t *testing.T) {
	g := ir.New()
	q, a, h := g.Param("q", ir.Type{DType: tensor.NF4, Shape: ir.ShapeOf(5, 64)}), g.Param("a", f32(3, 64)), g.Param("h", f32(3, 2))
	up, own := g.Param("up", f32(5, 2)), g.Param("bias", f32(5))
	both := g.Gemm([]ir.Product{{A: h, B: up, TB: true, Alpha: 2}, {A: a, B: q, TB: true, Alpha: 1}}, own, 0)
	x, w, v, bias, c := g.Param("x", f32(3, 4)), g.Param("w", f32(5, 4)), g.Param("v", f32(5, 4)), own, g.Param("c", f32(3, 5))
	rows := g.RowsGemm(ir.RowsProduct{X: x, Index: g.Iota(0, ir.ShapeOf(3)), Weights: []ir.Value{w}, TB: true})
	for _, y := range []struct {
		of   ir.Value
		want []string
	}{
		{g.Add(c, g.Scale(g.MatMul(x, w, false, true), 2)), []string{"@ = Gemm{NT} $x, $w", "@ = Const{2}", "@ = Binary{Mul} @, @", "$r0 = Binary{Add} $c, @"}},
		{g.Add(g.MatMul(x, w, false, true), bias), []string{"@ = Gemm{NT} $x, $w", "$r0 = Binary{Add} @, $bias"}},
		{g.Add(g.Linear(x, w, bias), c), []string{"@ = Gemm{NT bias} $x, $w, $bias", "$r0 = Binary{Add} @, $c"}},
		{g.Add(g.MatMul(x, w, false, true), g.MatMul(x, v, false, true)), []string{"@ = Gemm{NT} $x, $w", "@ = Gemm{NT} $x, $v", "$r0 = Binary{Add} @, @"}},
		{both, []string{"@ = Gemm{NT bias} $a, $q, $bias", "$r0 = Gemm{NT·2 C} $h, $up, @"}},
		{g.Add(rows, c), []string{"@ = Iota{Axis:0}", "@ = RowsGemm{Tables:1 TB:true Width:5 HasScale:false HasBias:false HasC:false} $x, @, $w", "$r0 = Binary{Add} @, $c"}},
	} {
		spec := results(y.of)
		spec.KeepSums = true
		assert.Equal(t, y.want, lines(plan(t, g, spec)))
	}
}

// lines writes launches without types and places.
func lines(p *ir.Program) []string {
	name := func(r ir.Ref) string {
		if r.Space == ir.SpaceArg {
			return "$" + p.Args[r.Index].Name
		}
		return "@"
	}
	var out []string
	for _, l := range p.Launches {
		s := ""
		for i, r := range l.Out {
			if i > 0 {
				s += ", "
			}
			s += name(r)
		}
		s += " = " + operation(l)
		for i, r := range l.In {
			if i > 0 {
				s += ","
			}
			s += " " + name(r)
		}
		out = append(out, s)
	}
	return out
}

func TestPlanRefusals(t *testing.T) {
	x := func(g *ir.Graph) ir.Value { return g.Param("x", f32(4)) }
	for want, build := range map[string]func(g *ir.Graph) exec.Spec{
		"exec: a result or an update has no value": func(*ir.Graph) exec.Spec { return results(0) },
		`exec: the result "x" has the name of another argument`: func(g *ir.Graph) exec.Spec {
			return exec.Spec{Results: []exec.Result{{Name: "x", Value: g.Scale(x(g), 2)}}}
		},
		`exec: the result "y" has the name of another argument`: func(g *ir.Graph) exec.Spec {
			return exec.Spec{Results: []exec.Result{{Name: "y", Value: g.Scale(x(g), 2)}, {Name: "y", Value: x(g)}}}
		},
		`exec: the update of "x" is f32[2,2], expected f32[4] once`: func(g *ir.Graph) exec.Spec {
			return exec.Spec{Updates: []exec.Update{{Param: "x", Value: g.Reshape(x(g), ir.ShapeOf(2, 2))}}}
		},
		`exec: the update of "x" is f32[4], expected f32[4] once`: func(g *ir.Graph) exec.Spec {
			y := g.Scale(x(g), 2)
			return exec.Spec{Updates: []exec.Update{{Param: "x", Value: y}, {Param: "x", Value: y}}}
		},
		"canon_test.go": func(g *ir.Graph) exec.Spec { return results(g.Add(x(g), g.Param("y", f32(3)))) },
	} {
		g := ir.New()
		_, err := exec.Plan(g, build(g), everything)
		if assert.Error(t, err) {
			assert.ErrorContains(t, err, want)
		}
	}
}

// operation returns the operation of a launch with its attributes.
func operation(l ir.Launch) string {
	p := &ir.Program{Launches: []ir.Launch{{Op: l.Op, Attr: l.Attr}}}
	text := strings.Split(strings.TrimSpace(p.String()), "\n")
	return strings.TrimPrefix(strings.TrimSpace(text[len(text)-1]), "= ")
}

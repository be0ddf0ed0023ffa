package conformance

import (
	"fmt"
	"strings"

	"github.com/lorafuse/lorafuse/internal/ir"
)

// rowsRow describes a case of RowsGemm and of its gradient for the matrices.
type rowsRow struct {
	name    string
	x       string // type of x
	index   fill
	weights []string // types of the matrices
	stacked bool
	tb      bool
	width   int
	scale   fill // nil for none
	bias, c bool
	bench   bool
}

var rowsRows = []rowsRow{
	{name: "", x: "f32[7,33]", index: values(2, 0, 1, 2, -1, 0, 2), weights: []string{"f32[4,33]", "f32[9,33]", "f32[16,33]"}, tb: true, width: 16},
	{name: "narrow", x: "f32[6,16]", index: values(1, 1, 0, 2, 2, 2), weights: []string{"f32[40,4]", "f32[40,16]", "f32[31,9]"}, tb: true, width: 40, scale: values(2, 0.5, -1), bias: true, c: true},
	{name: "together", x: "f32[9,20]", index: values(-1, 0, 0, 0, 1, 1, 1, 1, -1), weights: []string{"f32[8,20]", "f32[12,20]"}, tb: true, width: 12, scale: values(1.5, 2), c: true},
	{name: "backward", x: "f32[7,16]", index: values(2, 0, 1, 2, -1, 0, 2), weights: []string{"f32[4,70]", "f32[9,70]", "f32[16,70]"}, width: 70, scale: values(1, 2, 3)},
	{name: "nobody", x: "f32[3,8]", index: values(-1, -1, -1), weights: []string{"f32[5,8]", "f32[5,8]"}, tb: true, width: 5, bias: true},
	{name: "stacked", x: "f32[11,24]", index: below(4), weights: []string{"f32[4,10,24]"}, stacked: true, tb: true, width: 10, bias: true},
	{name: "stacked backward", x: "f32[11,24]", index: below(4), weights: []string{"bf16[4,24,30]"}, stacked: true, width: 30, scale: values(1, 0.5, 2, -1)},
	{name: "bf16", x: "f32[9,140]", index: below(3), weights: []string{"bf16[70,140]", "bf16[70,140]", "f16[70,140]"}, tb: true, width: 70},
	{name: "bounded", x: "f32[n,33]", index: below(2), weights: []string{"f32[8,33]", "f32[5,33]"}, tb: true, width: 8, c: true},
	{name: "many rows", x: "f32[150,40]", index: below(2), weights: []string{"f32[24,40]", "f32[16,40]"}, tb: true, width: 24, scale: values(1, 2)},
	{name: "sorted rows", x: "f32[300,40]", index: turns(4, -1), weights: []string{"f32[24,40]", "f32[16,40]", "f32[1,40]", "f32[7,40]"}, tb: true, width: 24, scale: values(1, 2, -1, 0.5), bias: true, c: true},
	{name: "sorted rows backward", x: "f32[290,24]", index: turns(2, 0), weights: []string{"f32[24,140]", "f32[11,139]", "f32[24,140]"}, width: 140},
	{name: "long rows", x: "f32[75,300]", index: turns(3, -1), weights: []string{"f32[16,300]", "bf16[20,300]", "f16[64,296]"}, tb: true, width: 64, scale: values(1, 2, 3)},
	{name: "long rows backward", x: "f32[70,301]", index: turns(3, -1), weights: []string{"f32[301,16]", "bf16[290,20]", "f16[301,5]"}, width: 20, c: true},
	{name: "many matrices", x: "f32[40,12]", index: below(18), weights: repeated("f32[5,12]", 18), tb: true, width: 5, bias: true},
	{name: "bench/adapters", x: "f32[64,2048]", index: below(16), weights: repeated("f32[16,2048]", 16), tb: true, width: 16, bench: true},
}

func repeated(typ string, n int) (types []string) {
	for range n {
		types = append(types, typ)
	}
	return types
}

func rowsCases() []testCase {
	var all []testCase
	for _, r := range rowsRows {
		n := r.x[4 : 4+strings.Index(r.x[4:], ",")]
		c := testCase{op: ir.RowsGemm, name: r.name, bounds: "n=5/8", limit: gemmLimit, bench: r.bench,
			in: []input{arg(r.x, normal), {typ: "i32[" + n + "]", fill: r.index}}}
		for _, w := range r.weights {
			c.in = append(c.in, arg(w, normal))
		}
		p := ir.RowsProduct{Stacked: r.stacked, TB: r.tb, Width: r.width}
		e := len(r.weights)
		if r.stacked {
			e = int(r.weights[0][strings.Index(r.weights[0], "[")+1] - '0')
		}
		if r.scale != nil {
			c.in = append(c.in, frozen(fmt.Sprintf("f32[%d]", e), r.scale))
		}
		if r.bias {
			c.in = append(c.in, arg(fmt.Sprintf("f32[%d,%d]", e, r.width), normal))
		}
		if r.c {
			c.in = append(c.in, arg(fmt.Sprintf("f32[%s,%d]", n, r.width), normal))
		}
		take := func(in []ir.Value) ir.RowsProduct {
			p := p
			p.X, p.Index, p.Weights, in = in[0], in[1], in[2:2+len(r.weights)], in[2+len(r.weights):]
			for _, o := range []struct {
				has bool
				to  *ir.Value
			}{{r.scale != nil, &p.Scale}, {r.bias, &p.Bias}, {r.c, &p.C}} {
				if o.has {
					*o.to, in = in[0], in[1:]
				}
			}
			return p
		}
		c.build = func(g *ir.Graph, in []ir.Value) []ir.Value { return one(g.RowsGemm(take(in))) }
		all = append(all, c, rowsGradCase(&r, c, n))
	}
	return all
}

// rowsGradCase returns the case of the gradient of c for the matrices.
func rowsGradCase(r *rowsRow, c testCase, n string) testCase {
	end := 2 + len(r.weights)
	if r.scale != nil {
		end++
	}
	c.op = ir.RowsGemmGrad
	c.in = append([]input{arg(fmt.Sprintf("f32[%s,%d]", n, r.width), normal)}, c.in[:end]...)
	for i := range r.weights {
		c.in[3+i].frozen = true // only the types of the weights are read
	}
	a := ir.RowsGemmAttr{Tables: len(r.weights), TB: r.tb, Width: r.width, HasScale: r.scale != nil}
	if r.stacked {
		a.Tables = 0
	}
	c.build = func(g *ir.Graph, in []ir.Value) []ir.Value {
		d := g.Apply(ir.RowsGemmGrad, a, in...)
		outs := one(d)
		for i := 1; i < a.Tables; i++ {
			outs = append(outs, g.Out(d, i))
		}
		return outs
	}
	return c
}

package conformance

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

func rmsNormCase(name, x, w string, eps float32) testCase {
	return testCase{op: ir.RMSNorm, name: name, bounds: "n=3/5", in: []input{arg(x, normal), arg(w, positive)},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value { return one(g.RMSNorm(in[0], in[1], eps)) }}
}

func rmsNormGradCase(name, x, w string) testCase {
	return testCase{op: ir.RMSNormGrad, name: name, bounds: "n=3/5", in: []input{arg(x, normal), arg(x, normal), arg(w, positive)},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value {
			return one(g.Apply(ir.RMSNormGrad, ir.NormAttr{Eps: 1e-6}, in...))
		}}
}

// plusAnother adds an input of type x to the result of a case.
func plusAnother(c testCase, x string) testCase {
	build, n := c.build, len(c.in)
	c.in, c.name = append(c.in, arg(x, normal)), strings.TrimPrefix(c.name+", plus another", ", ")
	c.build = func(g *ir.Graph, in []ir.Value) []ir.Value { return one(g.Add(build(g, in[:n])[0], in[n])) }
	return c
}

// castWeight converts the last input of a case of a norm, a frozen weight, to f32.
func castWeight(c testCase) testCase {
	build, n := c.build, len(c.in)-1
	c.in[n].frozen = true
	c.build = func(g *ir.Graph, in []ir.Value) []ir.Value {
		return build(g, append(slices.Clone(in[:n]), g.Cast(in[n], tensor.F32)))
	}
	return c
}

func layerNormCase(name, x, d string, weight, bias bool, eps float32) testCase {
	c := testCase{op: ir.LayerNorm, name: name, bounds: "n=3/5", in: []input{arg(x, normal)}}
	if weight {
		c.in = append(c.in, arg("f32["+d+"]", positive))
	}
	if bias {
		c.in = append(c.in, arg("f32["+d+"]", normal))
	}
	c.build = func(g *ir.Graph, in []ir.Value) []ir.Value {
		var w, b ir.Value
		if weight {
			w = in[1]
		}
		if bias {
			b = in[len(in)-1]
		}
		return one(g.LayerNorm(in[0], w, b, eps))
	}
	return c
}

func layerNormGradCase(name, x string, rest ...input) testCase {
	return testCase{op: ir.LayerNormGrad, name: name, bounds: "n=3/5", in: append([]input{arg(x, normal), arg(x, normal)}, rest...),
		build: func(g *ir.Graph, in []ir.Value) []ir.Value {
			return one(g.Apply(ir.LayerNormGrad, ir.LayerNormAttr{Eps: 1e-5, HasWeight: len(in) > 2}, in...))
		}}
}

func topKCase(name, x string, k int, f fill) testCase {
	return testCase{op: ir.TopK, name: name, bounds: "n=3/5", in: []input{arg(x, f)}, build: func(g *ir.Graph, in []ir.Value) []ir.Value {
		v, i := g.TopK(in[0], k)
		return []ir.Value{v, i}
	}}
}

// topKTies selects from numbers of which many are equal.
func topKTies(name, x string, k, different int) testCase {
	c := topKCase(name, x, k, below(different))
	c.in[0].frozen = true
	return c
}

func softmaxCase(name, x string, f fill) testCase {
	return testCase{op: ir.Softmax, name: name, bounds: "n=3/5 m=7/9", in: []input{arg(x, f)},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value { return one(g.Softmax(in[0])) }}
}

var normCases = []testCase{
	rmsNormCase("", "f32[5,64]", "f32[64]", 1e-6),
	rmsNormCase("odd", "f32[7,33]", "f32[33]", 1e-5),
	rmsNormCase("bounded", "f32[n,33]", "f32[33]", 1e-6),
	rmsNormCase("three axes", "f32[2,n,9]", "f32[9]", 1e-6),
	rmsNormCase("vector", "f32[70]", "f32[70]", 1e-6),
	rmsNormCase("one column", "f32[5,1]", "f32[1]", 0.5),
	rmsNormCase("long", "f32[2,1030]", "f32[1030]", 1e-6),
	rmsNormCase("large eps", "f32[5,9]", "f32[9]", 3),
	{op: ir.RMSNorm, name: "small", in: []input{arg("f32[5,9]", scaled(normal, 1e-3)), arg("f32[9]", positive)},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value { return one(g.RMSNorm(in[0], in[1], 1e-5)) }},
	rmsNormGradCase("long", "f32[2,1028]", "f32[1028]"),
	rmsNormGradCase("", "f32[5,64]", "f32[64]"),
	rmsNormGradCase("odd", "f32[3,33]", "f32[33]"),
	rmsNormGradCase("bounded", "f32[n,7]", "f32[7]"),
	plusAnother(rmsNormGradCase("", "f32[5,64]", "f32[64]"), "f32[5,64]"),
	plusAnother(castWeight(rmsNormGradCase("bounded, bf16 weights", "f32[n,33]", "bf16[33]")), "f32[n,33]"),
	plusAnother(castWeight(rmsNormGradCase("long, f16 weights", "f32[2,1028]", "f16[1028]")), "f32[2,1028]"),
	layerNormCase("", "f32[5,64]", "64", true, true, 1e-5),
	layerNormCase("odd", "f32[7,33]", "33", true, true, 1e-12),
	layerNormCase("bounded", "f32[n,33]", "33", true, true, 1e-5),
	layerNormCase("three axes", "f32[2,n,9]", "9", true, false, 1e-6),
	layerNormCase("plain", "f32[5,70]", "70", false, false, 1e-6),
	layerNormCase("bias only", "f32[5,16]", "16", false, true, 1e-5),
	layerNormCase("large eps", "f32[5,9]", "9", true, true, 3),
	layerNormCase("long", "f32[2,1028]", "1028", true, true, 1e-5),
	layerNormGradCase("", "f32[5,64]", arg("f32[64]", positive)),
	layerNormGradCase("long", "f32[2,1028]", arg("f32[1028]", positive)),
	layerNormGradCase("bounded", "f32[n,7]", arg("f32[7]", positive)),
	layerNormGradCase("plain", "f32[3,33]"),
	topKCase("", "f32[5,33]", 4, apart),
	topKCase("bounded", "f32[n,16]", 3, apart),
	topKCase("three axes", "f32[2,n,8]", 2, apart),
	topKCase("all", "f32[9]", 9, apart),
	topKCase("one", "f32[4,7]", 1, apart),
	topKTies("ties in several warps", "f32[3,1500]", 9, 200),
	topKTies("ties in several blocks", "f32[3,9001]", 7, 5),
	{op: ir.TopK, name: "ties and ends", in: []input{frozen("f32[4,5]", values(1, 2, 2, 1, 2,
		math.Inf(-1), math.Inf(-1), 0, math.Inf(-1), math.Inf(-1), math.Inf(1), math.NaN(), 3, math.NaN(), math.Inf(1),
		math.Copysign(0, -1), 0, -1, 0, math.Copysign(0, -1)))},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value {
			v, i := g.TopK(in[0], 4)
			return []ir.Value{v, i}
		}},
	softmaxCase("long", "f32[2,1100]", normal),
	softmaxCase("", "f32[5,33]", normal),
	softmaxCase("vector", "f32[7]", normal),
	softmaxCase("three axes", "f32[2,3,64]", normal),
	softmaxCase("bounded", "f32[n,m]", normal),
	softmaxCase("far apart", "f32[5,16]", scaled(normal, 50)),
	{op: ir.RMSNorm, name: "bench", bench: true, in: []input{arg("f32[512,2048]", normal), arg("f32[2048]", positive)},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value { return one(g.RMSNorm(in[0], in[1], 1e-6)) }},
	{op: ir.RMSNormGrad, name: "bench", bench: true, in: []input{arg("f32[512,2048]", normal), arg("f32[512,2048]", normal), arg("f32[2048]", positive)},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value {
			return one(g.Apply(ir.RMSNormGrad, ir.NormAttr{Eps: 1e-6}, in...))
		}},
	{op: ir.LayerNorm, name: "bench", bench: true, in: []input{arg("f32[512,2048]", normal), arg("f32[2048]", positive), arg("f32[2048]", normal)},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value { return one(g.LayerNorm(in[0], in[1], in[2], 1e-6)) }},
	{op: ir.LayerNormGrad, name: "bench", bench: true, in: []input{arg("f32[512,2048]", normal), arg("f32[512,2048]", normal)},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value {
			return one(g.Apply(ir.LayerNormGrad, ir.LayerNormAttr{Eps: 1e-6}, in...))
		}},
	{op: ir.Softmax, name: "bench", bench: true, in: []input{arg("f32[512,1024]", normal)},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value { return one(g.Softmax(in[0])) }},
}

func tableCase(name, pos, freq string, scale float32) testCase {
	// Both round the angle to f32, so the limit covers only the sine of it.
	return testCase{op: ir.RoPETable, name: name, bounds: "n=4/7", in: []input{arg(pos, below(4000)), frozen(freq, positive)},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value { return one(g.RoPETable(in[0], in[1], scale)) }}
}

func ropeCase(name, x, table string, attr ir.RoPEAttr) testCase {
	return testCase{op: ir.RoPE, name: name, bounds: "n=4/7", in: []input{arg(x, normal), frozen(table, normal)},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value {
			return one(g.Apply(ir.RoPE, attr, in...))
		}}
}

// ropesCase rotates queries and keys.
func ropesCase(name, q, k string, attr ir.RoPEAttr) testCase {
	table := fmt.Sprintf("f32[n,%d]", attr.HeadDim)
	return testCase{op: ir.RoPE, name: name, bounds: "n=4/7", in: []input{arg(q, normal), arg(k, normal), frozen(table, normal)},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value {
			return []ir.Value{g.Apply(ir.RoPE, attr, in[0], in[2]), g.Apply(ir.RoPE, attr, in[1], in[2])}
		}}
}

// cacheCase rotates queries and keys, and writes keys and values to rows of a cache.
func cacheCase(name string, headDim int) testCase {
	row := fmt.Sprintf("[n,%d]", 2*headDim)
	cache := arg(fmt.Sprintf("f32[9,%d]", 2*headDim), normal)
	return testCase{op: ir.RoPE, name: name, bounds: "n=3/7", in: []input{
		arg("f32"+row, normal), arg("f32"+row, normal), arg("f32"+row, normal), frozen(fmt.Sprintf("f32[n,%d]", headDim), normal), cache, cache, arg("i32[n]", values(4, -1, 8)),
	}, build: func(g *ir.Graph, in []ir.Value) []ir.Value {
		keys, values := g.Add(in[4], in[5]), g.Mul(in[4], in[5]) // which nothing else reads, so that rows are written in place
		q, k := g.RoPE(in[0], in[3], headDim), g.RoPE(in[1], in[3], headDim)
		keys, values = g.ScatterRows(keys, k, in[6]), g.ScatterRows(values, in[2], in[6])
		return []ir.Value{q, g.Add(keys, values)}
	}}
}

var ropeCases = []testCase{
	cacheCase("cache", 8),
	cacheCase("cache, odd half", 6),
	ropesCase("two values", "f32[n,32]", "f32[n,16]", ir.RoPEAttr{HeadDim: 8}),
	ropesCase("two values, odd half, inverse", "f32[n,30]", "f32[n,6]", ir.RoPEAttr{HeadDim: 6, Inverse: true}),
	tableCase("", "i32[5]", "f32[16]", 1),
	tableCase("bounded", "i32[n]", "f32[9]", 1.25),
	ropeCase("", "f32[5,32]", "f32[5,8]", ir.RoPEAttr{HeadDim: 8}),
	ropeCase("one head", "f32[5,10]", "f32[5,10]", ir.RoPEAttr{HeadDim: 10}),
	ropeCase("odd half", "f32[3,30]", "f32[3,6]", ir.RoPEAttr{HeadDim: 6}),
	ropeCase("inverse", "f32[5,32]", "f32[5,8]", ir.RoPEAttr{HeadDim: 8, Inverse: true}),
	ropeCase("bounded", "f32[n,128]", "f32[n,64]", ir.RoPEAttr{HeadDim: 64}),
	ropeCase("neighbours", "f32[5,32]", "f32[5,8]", ir.RoPEAttr{HeadDim: 8, Interleaved: true}),
	ropeCase("neighbours, odd half", "f32[3,30]", "f32[3,6]", ir.RoPEAttr{HeadDim: 6, Interleaved: true}),
	ropeCase("neighbours, one pair", "f32[5,6]", "f32[5,2]", ir.RoPEAttr{HeadDim: 2, Interleaved: true}),
	ropeCase("neighbours, inverse", "f32[5,32]", "f32[5,8]", ir.RoPEAttr{HeadDim: 8, Inverse: true, Interleaved: true}),
	ropeCase("neighbours, bounded", "f32[n,128]", "f32[n,64]", ir.RoPEAttr{HeadDim: 64, Interleaved: true}),
	{op: ir.RoPE, name: "bench", bench: true, in: []input{arg("f32[512,2048]", normal), arg("f32[512,128]", normal)},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value { return one(g.RoPE(in[0], in[1], 128)) }},
}

func gluCases() []testCase {
	bench := []input{arg("f32[512,2048]", normal), arg("f32[512,2048]", normal)}
	all := []testCase{
		{op: ir.GLU, name: "bench", bench: true, in: bench,
			build: func(g *ir.Graph, in []ir.Value) []ir.Value { return one(g.GLU(in[0], in[1], ir.SiLU)) }},
	}
	for _, act := range []ir.Activation{ir.SiLU, ir.GELU, ir.GELUTanh, ir.QuickGELU, ir.ReLU} {
		for _, x := range []struct {
			name, typ string
			f         fill
		}{{"", "f32[5,33]", normal}, {"bounded", "f32[n,16]", normal}, {"wide", "f32[40]", scaled(normal, 6)}} {
			name := act.String()
			if x.name != "" {
				name += "/" + x.name
			}
			all = append(all,
				testCase{op: ir.Activate, name: name, bounds: "n=3/5", in: []input{arg(x.typ, x.f)},
					build: func(g *ir.Graph, in []ir.Value) []ir.Value { return one(g.Activate(in[0], act)) }},
				testCase{op: ir.ActivateGrad, name: name, bounds: "n=3/5", in: []input{arg(x.typ, normal), {x.typ, x.f, act == ir.ReLU}}, // the slope of ReLU is constant
					build: func(g *ir.Graph, in []ir.Value) []ir.Value {
						return one(g.Apply(ir.ActivateGrad, ir.ActivateAttr{Act: act}, in...))
					}},
				testCase{op: ir.GLU, name: name, bounds: "n=3/5", in: []input{arg(x.typ, x.f), arg(x.typ, normal)},
					build: func(g *ir.Graph, in []ir.Value) []ir.Value { return one(g.GLU(in[0], in[1], act)) }},
				testCase{op: ir.GLUGrad, name: name, bounds: "n=3/5",
					// 1 − tanh² cancels far from zero.
					in: []input{arg(x.typ, normal), {x.typ, x.f, x.name == "wide"}, arg(x.typ, normal)},
					build: func(g *ir.Graph, in []ir.Value) []ir.Value {
						d := g.Apply(ir.GLUGrad, ir.GLUAttr{Act: act}, in...)
						return []ir.Value{d, g.Out(d, 1)}
					}})
		}
	}
	return all
}

func dropoutCase(name, x string, p float64, stream uint32) testCase {
	return testCase{op: ir.Dropout, name: name, bounds: "n=3/5", in: []input{arg(x, normal), arg("u32[3]", words)},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value {
			return one(g.Apply(ir.Dropout, ir.DropoutAttr{P: p, Stream: stream}, in...))
		}}
}

// byRows returns the dropout case c with a key per row, for rows rows, instead of one for all.
func byRows(c testCase, rows string) testCase {
	c.name = strings.TrimSpace("rows " + c.name)
	c.in = slices.Clone(c.in)
	c.in[len(c.in)-1] = arg("u32["+rows+",4]", words)
	return c
}

// downCase returns a case of LoRADown or one of its gradients, with two matrices and a key.
func downCase(op ir.Op, name, x, y string, p float64) testCase {
	return testCase{op: op, name: name, bounds: "n=3/5", limit: gemmLimit, in: []input{arg(x, normal), arg(y, normal), arg("u32[3]", words)},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value {
			return one(g.Apply(op, ir.DropoutAttr{P: p, Stream: 3}, in...))
		}}
}

// downsCase returns a case of products of one x, each with random numbers of its own.
func downsCase(op ir.Op, name, x string, others ...string) testCase {
	c := testCase{op: op, name: name, bounds: "n=3/5", limit: gemmLimit, in: []input{arg(x, normal), arg("u32[3]", words)}}
	for _, other := range others {
		c.in = append(c.in, arg(other, normal))
	}
	c.build = func(g *ir.Graph, in []ir.Value) (all []ir.Value) {
		for i, v := range in[2:] {
			d := ir.DropoutAttr{P: 0.2, Stream: uint32(3 + i)}
			if op == ir.LoRADownGrad {
				all = append(all, g.Apply(op, d, v, in[0], in[1]))
			} else {
				all = append(all, g.Apply(op, d, in[0], v, in[1]))
			}
		}
		return all
	}
	return c
}

var dropoutCases = []testCase{
	dropoutCase("", "f32[7,33]", 0.1, 0),
	dropoutCase("half", "f32[5,64]", 0.5, 9),
	dropoutCase("none", "f32[5,6]", 0, 9),
	dropoutCase("nearly all", "f32[9,9]", 0.99, 1<<31),
	dropoutCase("bounded", "f32[n,7]", 0.25, 2),
	dropoutCase("long", "f32[3,8195]", 0.05, 2),
	byRows(dropoutCase("", "f32[7,33]", 0.1, 4), "7"),
	byRows(dropoutCase("bounded", "f32[n,700]", 0.25, 2), "n"),
	byRows(downCase(ir.LoRADown, "", "f32[5,33]", "f32[4,33]", 0.1), "5"),
	byRows(downCase(ir.LoRADown, "bounded", "f32[n,40]", "f32[7,40]", 0.3), "n"),
	byRows(downCase(ir.LoRADown, "many", "f32[300,17]", "f32[3,17]", 0.05), "300"),
	byRows(downCase(ir.LoRADownGrad, "", "f32[5,4]", "f32[5,33]", 0.1), "5"),
	byRows(downCase(ir.LoRADownGrad, "many", "f32[300,5]", "f32[300,1041]", 0.2), "300"),
	byRows(downCase(ir.LoRADownInputGrad, "", "f32[5,4]", "f32[4,33]", 0.1), "5"),
	byRows(downCase(ir.LoRADownInputGrad, "many", "f32[300,3]", "f32[3,130]", 0.05), "300"),
	downCase(ir.LoRADown, "", "f32[5,33]", "f32[4,33]", 0.1),
	downCase(ir.LoRADown, "bounded", "f32[n,40]", "f32[7,40]", 0.3),
	downCase(ir.LoRADown, "many rows", "f32[300,17]", "f32[3,17]", 0.05),
	downCase(ir.LoRADown, "bf16", "f32[5,33]", "bf16[8,33]", 0.1),
	downCase(ir.LoRADownGrad, "", "f32[5,4]", "f32[5,33]", 0.1),
	downCase(ir.LoRADownGrad, "bounded", "f32[n,7]", "f32[n,40]", 0.3),
	downCase(ir.LoRADownGrad, "many rows", "f32[300,3]", "f32[300,17]", 0.05),
	downCase(ir.LoRADownGrad, "many columns", "f32[300,5]", "f32[300,1041]", 0.2),
	downCase(ir.LoRADownGrad, "many ranks", "f32[70,40]", "f32[70,130]", 0.2),
	downCase(ir.LoRADown, "many channels", "f32[83,521]", "f32[7,521]", 0.2),
	downCase(ir.LoRADownInputGrad, "", "f32[5,4]", "f32[4,33]", 0.1),
	downCase(ir.LoRADownInputGrad, "bounded", "f32[n,7]", "f32[7,40]", 0.3),
	downCase(ir.LoRADownInputGrad, "many rows", "f32[300,3]", "f32[3,130]", 0.05),
	downCase(ir.LoRADownInputGrad, "bf16", "f32[5,8]", "bf16[8,33]", 0.1),
	downsCase(ir.LoRADown, "three of one x", "f32[n,40]", "f32[7,40]", "f32[7,40]", "f32[7,40]"),
	downsCase(ir.LoRADown, "four of one x, of three ranks", "f32[70,37]", "f32[5,37]", "f32[5,37]", "f32[17,37]", "f32[2,37]"),
	downsCase(ir.LoRADownGrad, "two of one x", "f32[600,37]", "f32[600,5]", "f32[600,5]"),
	plusAnother(downCase(ir.LoRADownGrad, "", "f32[5,4]", "f32[5,33]", 0.1), "f32[4,33]"),
	plusAnother(downCase(ir.LoRADownGrad, "many columns", "f32[300,5]", "f32[300,1041]", 0.2), "f32[5,1041]"),
	plusAnother(downCase(ir.LoRADownInputGrad, "bounded", "f32[n,7]", "f32[7,40]", 0.3), "f32[n,40]"),
	{op: ir.LoRADown, name: "bench", bench: true, in: []input{arg("f32[512,2048]", normal), arg("f32[16,2048]", normal), arg("u32[3]", words)},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value {
			return one(g.LoRADown(in[0], in[1], in[2], ir.DropoutAttr{P: 0.05, Stream: 1}))
		}},
	{op: ir.LoRADownGrad, name: "bench", bench: true, in: []input{arg("f32[512,16]", normal), arg("f32[512,2048]", normal), arg("u32[3]", words)},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value {
			return one(g.Apply(ir.LoRADownGrad, ir.DropoutAttr{P: 0.05, Stream: 1}, in...))
		}},
	{op: ir.LoRADownInputGrad, name: "bench", bench: true, in: []input{arg("f32[512,16]", normal), arg("f32[16,2048]", normal), arg("u32[3]", words)},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value {
			return one(g.Apply(ir.LoRADownInputGrad, ir.DropoutAttr{P: 0.05, Stream: 1}, in...))
		}},
}

package conformance

import "github.com/lorafuse/lorafuse/internal/ir"

func conv2DCase(name, x, w, bias string, a ir.Conv2DAttr) testCase {
	c := testCase{op: ir.Conv2D, name: name, bounds: "n=2/3", limit: gemmLimit, in: []input{arg(x, normal), arg(w, normal)}}
	if bias != "" {
		c.in = append(c.in, arg(bias, normal))
	}
	c.build = func(g *ir.Graph, in []ir.Value) []ir.Value {
		return one(g.Conv2D(in[0], in[1], append(in, 0)[2], a))
	}
	return c
}

// around is a 3×3 convolution that keeps the size of images.
var around = ir.Conv2DAttr{Stride: 1, Top: 1, Left: 1, Bottom: 1, Right: 1}

func groupNormCase(name, x, c string, groups int, eps float32) testCase {
	return testCase{op: ir.GroupNorm, name: name, bounds: "n=2/3", in: []input{arg(x, normal), arg("f32["+c+"]", positive), arg("f32["+c+"]", normal)},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value {
			return one(g.GroupNorm(in[0], in[1], in[2], groups, eps))
		}}
}

var imageCases = []testCase{
	conv2DCase("", "f32[1,5,7,6]", "f32[9,3,3,6]", "f32[9]", around),
	conv2DCase("samples", "f32[2,4,5,3]", "f32[5,3,3,3]", "f32[5]", around),
	conv2DCase("bounded", "f32[n,4,5,3]", "f32[5,3,3,3]", "", around),
	conv2DCase("half", "f32[1,6,8,8]", "f32[8,3,3,8]", "f32[8]", ir.Conv2DAttr{Stride: 2, Bottom: 1, Right: 1}),
	conv2DCase("half of odd", "f32[2,5,7,4]", "f32[6,3,3,4]", "f32[6]", ir.Conv2DAttr{Stride: 2, Bottom: 1, Right: 1}),
	conv2DCase("half around", "f32[1,6,5,4]", "f32[6,3,3,4]", "", ir.Conv2DAttr{Stride: 2, Top: 1, Left: 1, Bottom: 1, Right: 1}),
	conv2DCase("bounded half", "f32[n,6,4,3]", "f32[4,3,3,3]", "f32[4]", ir.Conv2DAttr{Stride: 2, Bottom: 1, Right: 1}),
	conv2DCase("one pixel", "f32[1,3,5,7]", "f32[4,1,1,7]", "f32[4]", ir.Conv2DAttr{Stride: 1}),
	conv2DCase("patches", "f32[1,7,6,3]", "f32[10,2,2,3]", "", ir.Conv2DAttr{Stride: 2}),
	conv2DCase("wide", "f32[1,3,12,2]", "f32[3,2,9,2]", "f32[3]", ir.Conv2DAttr{Stride: 1, Top: 1, Left: 4, Right: 2}),
	conv2DCase("far", "f32[1,9,10,2]", "f32[3,2,1,2]", "f32[3]", ir.Conv2DAttr{Stride: 3, Top: 2, Left: 3, Bottom: 1}),
	conv2DCase("only zeros", "f32[1,1,1,2]", "f32[3,2,2,2]", "f32[3]", ir.Conv2DAttr{Stride: 1, Top: 3, Left: 3, Bottom: 3, Right: 3}),
	conv2DCase("bf16", "f32[1,9,8,40]", "bf16[24,3,3,40]", "f32[24]", around),
	conv2DCase("f16", "f32[1,6,6,16]", "f16[3,3,3,16]", "f32[3]", around),
	conv2DCase("many channels", "f32[1,4,37,70]", "f32[130,3,3,70]", "f32[130]", around),
	conv2DCase("picture", "f32[1,19,33,3]", "f32[16,3,3,3]", "f32[16]", around),
	conv2DCase("tiles", "f32[2,17,19,48]", "f32[50,3,3,48]", "f32[50]", around),
	conv2DCase("tiles, bounded", "f32[n,16,17,48]", "f32[48,3,3,48]", "", around),
	conv2DCase("tiles, bf16", "f32[1,18,16,52]", "bf16[48,3,3,52]", "f32[48]", around),
	conv2DCase("tiles, far", "f32[1,20,11,48]", "f32[48,3,3,48]", "f32[48]", ir.Conv2DAttr{Stride: 1, Top: 5, Left: 15, Right: 3}),
	conv2DCase("tiles, inside", "f32[1,18,35,48]", "f16[49,3,3,48]", "f32[49]", ir.Conv2DAttr{Stride: 1}),
	conv2DCase("tiles, wide", "f32[1,3,130,48]", "f32[48,3,3,48]", "f32[48]", ir.Conv2DAttr{Stride: 1, Top: 1, Left: 1, Right: 1}),
	groupNormCase("", "f32[2,5,12]", "12", 3, 1e-6),
	groupNormCase("images", "f32[2,3,5,16]", "16", 4, 1e-6),
	groupNormCase("bounded", "f32[n,4,3,6]", "6", 2, 1e-5),
	groupNormCase("one group", "f32[1,7,9]", "9", 1, 1e-6),
	groupNormCase("each channel", "f32[2,6,5]", "5", 5, 1e-6),
	groupNormCase("no pixels", "f32[3,64]", "64", 2, 1e-6),
	groupNormCase("large", "f32[1,37,41,24]", "24", 8, 1e-6),
	groupNormCase("large eps", "f32[2,5,12]", "12", 3, 3),
	{op: ir.Broadcast, name: "nearest pixel", in: []input{arg("f32[2,3,4,5]", normal)},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value { return one(g.Upsample(in[0], 2)) }},
	{op: ir.Conv2D, name: "bench", bench: true, in: []input{arg("f32[1,64,64,128]", normal), arg("f32[128,3,3,128]", normal), arg("f32[128]", normal)},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value { return one(g.Conv2D(in[0], in[1], in[2], around)) }},
	{op: ir.GroupNorm, name: "bench", bench: true, in: []input{arg("f32[1,128,128,128]", normal), arg("f32[128]", positive), arg("f32[128]", normal)},
		build: func(g *ir.Graph, in []ir.Value) []ir.Value { return one(g.GroupNorm(in[0], in[1], in[2], 32, 1e-6)) }},
}

package ir

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/tensor"
)

var update = flag.Bool("update", false, "write the golden files of this package anew")

func argument(index int, t Type) Ref { return Ref{Space: SpaceArg, Index: index, Type: t} }

func inArena(offset int, t Type) Ref { return Ref{Space: SpaceArena, Offset: offset, Type: t} }

// sample builds a program that shows all features of the text form.
func sample() *Program {
	rows := nType(tensor.F32, n, Static(4))
	ids := nType(tensor.I32, n)
	return &Program{
		Bounds: []Bound{{}, {"n", 8}},
		Args: []Arg{
			{Name: "x", Type: rows}, {Name: "w", Type: bf16(4, 4)}, {Name: "bias", Type: mat(4)}, {Name: "key", Type: RandomKey},
			{Name: "y", Type: rows, Written: true}, {Name: "ids", Type: ids, Written: true},
			{Name: "pool", Type: mat(64, 2)}, {Name: "pages", Type: i32(5)},
		},
		Arena: 512,
		Launches: []Launch{
			{Op: Gemm, Attr: GemmAttr{N: 2, P: [MaxProducts]ProductAttr{{TB: true, Alpha: 1}, {TA: false, Alpha: -0.5}}, HasBias: true, HasC: true},
				In:  []Ref{argument(0, rows), argument(1, bf16(4, 4)), argument(0, rows), argument(1, bf16(4, 4)), argument(2, mat(4)), argument(0, rows)},
				Out: []Ref{inArena(0, rows)}},
			{Op: Unary, Attr: UnaryAttr{Tanh}, In: []Ref{inArena(0, rows)}, Out: []Ref{inArena(0, rows)}},
			{Op: Const, Attr: ConstAttr{Value: 0.25, dtype: tensor.F32}, Out: []Ref{inArena(256, mat())}},
			{Op: Binary, Attr: BinaryAttr{Mul}, In: []Ref{inArena(0, rows), inArena(256, mat())}, Out: []Ref{inArena(128, rows)}},
			{Op: Transpose, Attr: PermAttr{2, [MaxRank]int{1, 0}}, In: []Ref{inArena(128, rows)}, Out: []Ref{inArena(256, nType(tensor.F32, Static(4), n))}},
			{Op: RMSNorm, Attr: NormAttr{1e-6}, In: []Ref{inArena(128, rows), argument(2, mat(4))}, Out: []Ref{inArena(128, rows)}},
			{Op: Dropout, Attr: DropoutAttr{0.1, 3}, In: []Ref{inArena(128, rows), argument(3, RandomKey)}, Out: []Ref{argument(4, rows)}},
			{Op: GLUGrad, Attr: GLUAttr{GELU}, In: []Ref{argument(4, rows), argument(0, rows), inArena(128, rows)}, Out: []Ref{inArena(0, rows), inArena(128, rows)}},
			{Op: Slice, Attr: SliceAttr{1, 0, 2}, In: []Ref{argument(0, rows)}, Out: []Ref{inArena(256, nType(tensor.F32, n, Static(2)))}},
			{Op: Iota, Attr: IotaAttr{0, axesOf(Shape{n})}, Out: []Ref{inArena(320, ids)}},
			{Op: Philox, Attr: PhiloxAttr{9, axesOf(Shape{n})}, In: []Ref{argument(3, RandomKey)}, Out: []Ref{inArena(384, nType(tensor.U32, n))}},
			{Op: Attention, Attr: AttentionAttr{Heads: 2, KVHeads: 1, HeadDim: 2, Scale: 0.5, SoftCap: 3, Page: 4},
				In:  []Ref{inArena(128, rows), argument(6, mat(64, 2)), argument(6, mat(64, 2)), inArena(320, ids), inArena(320, ids), argument(7, i32(5))},
				Out: []Ref{inArena(0, rows), inArena(256, nType(tensor.F32, n, Static(2)))}},
			{Op: ArgMax, In: []Ref{inArena(128, rows)}, Out: []Ref{argument(5, ids)}},
		},
	}
}

func TestProgramText(t *testing.T) {
	p := sample()
	require.NoError(t, p.Verify())
	golden := filepath.Join("testdata", "program.golden")
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(golden, []byte(p.String()), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	assert.Equal(t, string(want), p.String())
}

func TestStoredBytes(t *testing.T) {
	rows := nType(tensor.F32, n, Static(4))
	l := Launch{Op: Unary, Attr: UnaryAttr{Tanh}, In: []Ref{inArena(0, rows)}, Out: []Ref{inArena(256, rows)}}
	flops, bytes := l.Cost([]int{0, 8})
	assert.Equal(t, []int{32, 256}, []int{flops, bytes})
	l.In[0].Store = tensor.BF16
	flops, bytes = l.Cost([]int{0, 8})
	assert.Equal(t, []int{32, 64 + 128}, []int{flops, bytes})
	assert.Equal(t, "@0:f32[v1,4] as bf16", l.In[0].String())
	assert.Equal(t, 64, Arg{Type: rows, Store: tensor.BF16}.Bytes([]int{0, 8}))

	p := Program{Bounds: []Bound{{}, {"n", 8}}, Arena: 512, Launches: []Launch{l}}
	r, ok := p.Narrowed()
	assert.True(t, ok)
	assert.Equal(t, l.In[0], r)
	_, ok = sample().Narrowed()
	assert.False(t, ok)
}

func TestProgramCost(t *testing.T) {
	p := sample()
	assert.Equal(t, []int{0, 8}, p.MaxDims())
	assert.Equal(t, 1, p.ArgIndex("w"))
	assert.Equal(t, -1, p.ArgIndex("v"))
	q := *p
	q.IndexArgs()
	for i, a := range q.Args {
		assert.Equal(t, i, q.ArgIndex(a.Name))
	}
	assert.Equal(t, -1, q.ArgIndex("v"))
	q.Args = append(slices.Clone(q.Args), Arg{Name: "v"}) // not indexed yet
	assert.Equal(t, len(q.Args)-1, q.ArgIndex("v"))
	flops, bytes := p.Launches[0].Cost([]int{0, 2})
	assert.Equal(t, 2*2*(2*4*4), flops, "two products of [2,4] and [4,4]")
	assert.Equal(t, 4*8+2*16+4*8+2*16+4*4+4*8+4*8, bytes)
	assert.Less(t, p.Flops([]int{0, 2}), p.Flops([]int{0, 8}))
}

func TestVerifyFindsWhatIsWrong(t *testing.T) {
	rows := nType(tensor.F32, n, Static(4))
	for want, spoil := range map[string]func(p *Program){
		"launch 0 Gemm: @448:f32[v1,4] ends past the arena of 512 bytes":               func(p *Program) { p.Launches[0].Out[0].Offset = 448 },
		"launch 0 Gemm: @-64:f32[v1,4] ends past the arena":                            func(p *Program) { p.Launches[0].Out[0].Offset = -64 },
		"launch 0 Gemm: $9:f32[v1,4] is not an argument":                               func(p *Program) { p.Launches[0].In[0].Index = 9 },
		"launch 0 Gemm: $-1:f32[v1,4] is not an argument":                              func(p *Program) { p.Launches[0].In[0].Index = -1 },
		"launch 5 RMSNorm: $2:f32[8] does not fit the argument f32[4]":                 func(p *Program) { p.Launches[5].In[1].Type = mat(8) },
		"launch 5 RMSNorm: $2:f32[4] does not fit the argument f32[4]":                 func(p *Program) { p.Launches[5].In[1].Offset = -4 },
		"launch 1 Unary: output 0 is f32[4,v1], expected f32[v1,4]":                    func(p *Program) { p.Launches[1].Out[0].Type = nType(tensor.F32, Static(4), n) },
		"launch 7 GLUGrad: 1 outputs, expected 2":                                      func(p *Program) { p.Launches[7].Out = p.Launches[7].Out[:1] },
		"launch 1 Unary: got 0 inputs, expected 1":                                     func(p *Program) { p.Launches[1].In = nil },
		`launch 6 Dropout: output 0 writes the argument "y", which is read only`:       func(p *Program) { p.Args[4].Written = false },
		"launch 3 Binary: output 0 @192:f32[v1,4] lies over input 1 @256:f32[]":        func(p *Program) { p.Launches[3].Out[0].Offset = 192 },
		"launch 4 Transpose: output 0 @128:f32[4,v1] lies over input 0 @128:f32[v1,4]": func(p *Program) { p.Launches[4].Out[0].Offset = 128 },
		"launch 7 GLUGrad: output 1 @0:f32[v1,4] lies over output 0 @0:f32[v1,4]":      func(p *Program) { p.Launches[7].Out[1].Offset = 0 },
		"launch 1 Unary: input 0 @64:f32[v1,4] is not there":                           func(p *Program) { p.Launches[1].In[0] = inArena(64, rows) },
		"launch 1 Unary: input 0 @0:f32[v1,4] is not there: it was not written": func(p *Program) {
			p.Launches = p.Launches[1:]
			p.Launches[0], p.Launches[1] = p.Launches[1], p.Launches[0]
		},
		"launch 3 Binary: input 1 @256:f32[] is not there: it was not written, or was written": func(p *Program) {
			p.Launches[1].Out[0].Offset = 192
			p.Launches[2].Out[0].Offset = 448
			p.Launches[3].In[0].Offset = 192
		},
		"launch 5 RMSNorm: input 0 @128:f32[v1,4] is not there":                        func(p *Program) { p.Launches[4].Out[0].Offset = 192; p.Launches[4].In[0].Offset = 0 },
		"launch 1 Unary: output 0 @0:f32[v1,4] as bf16 lies over input 0 @0:f32[v1,4]": func(p *Program) { p.Launches[1].Out[0].Store = tensor.BF16 },
		"launch 3 Binary: input 0 @0:f32[v1,4] as bf16 is not there":                   func(p *Program) { p.Launches[3].In[0].Store = tensor.BF16 },
		"launch 0 Gemm: $1:bf16[4,4] as bf16: only f32 is stored in fewer bits":        func(p *Program) { p.Launches[0].In[1].Store = tensor.BF16 },
		"launch 0 Gemm: $0:f32[v1,4] as bf16: the argument is f32[v1,4]":               func(p *Program) { p.Launches[0].In[0].Store = tensor.BF16 },
		"launch 0 Gemm: $0:f32[v1,4] does not fit the argument f32[v1,4] as bf16":      func(p *Program) { p.Args[0].Store = tensor.BF16 },
		"launch 2 Const: a constant of INVALID, expected F32, I32, U32 or BOOL":        func(p *Program) { p.Launches[2].Attr = ConstAttr{} },
	} {
		p := sample()
		spoil(p)
		assert.ErrorContains(t, p.Verify(), want)
	}
}

// TestContents compares the contents of an arena with a record of the last writer of every byte.
func TestContents(t *testing.T) {
	s := newScene(t)
	for range 300 {
		var held contents
		owner := make([]int, 40)
		var refs []Ref
		for i := range 12 {
			size := 1 + s.rand.IntN(8)
			r := inArena(s.rand.IntN(len(owner)-size), Type{tensor.U8, ShapeOf(size)})
			refs = append(refs, r)
			held = held.with(r, nil)
			for b := range size {
				owner[r.Offset+b] = i
			}
			for j, q := range refs {
				last := j
				for k, o := range refs[j:] {
					if o.Offset == q.Offset && o.Type.Equal(q.Type) {
						last = j + k
					}
				}
				spoiled := slices.ContainsFunc(owner[q.Offset:q.Offset+q.Type.Bytes(nil)], func(o int) bool { return o != last })
				require.Equal(t, !spoiled, held.has(q, nil))
			}
		}
	}
}

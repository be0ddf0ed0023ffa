package vec

import (
	"math"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/philox"
)

// everyKernel runs each kernel once on n elements taken by alloc and returns
// what they write, but for Panel.Dot. Inputs are the same in every run.
func everyKernel(n int, alloc func(seed uint64, n int) []float32) (out [][]float32) {
	in := func(seed uint64) []float32 { return alloc(seed, n) }
	keep := func(x ...[]float32) { out = append(out, x...) }
	value := func(v float32) { out = append(out, []float32{v}) }
	x, y, w := in(1), in(2), in(3)
	for _, f := range []func(dst []float32){
		func(d []float32) { Add(d, x, y) },
		func(d []float32) { Sub(d, x, y) },
		func(d []float32) { Mul(d, x, y) },
		func(d []float32) { Div(d, x, y) },
		func(d []float32) { FMA(d, x, y) },
		func(d []float32) { Axpy(d, 0.3, x) },
		func(d []float32) { Scale(d, 0.3, x) },
		func(d []float32) { Apply(ExpOp, d, x) },
		func(d []float32) { ExpAffine(d, x, 0.5, 1, 2) },
		func(d []float32) { value(ExpSum(d, x, 0.5, 1)) },
		func(d []float32) { RMSNorm(d, x, w, 1e-6) },
		func(d []float32) { RMSNormGrad(d, in(4), y, x, w, 1e-6) },
		func(d []float32) { LayerNorm(d, x, w, y, 1e-6) },
		func(d []float32) { Softmax(d, x) },
		func(d []float32) { ScoreGrad(d, x, y, Dot(x, y), 1) },
		func(d []float32) { Dropout(d, x, philox.NewMask(1, 2, 3, 0.3), 5, 2) },
		func(d []float32) { Rotary(d, x, n, y[:n/2], w[:n/2], false) },
		func(d []float32) { Rotary(d, x, n, y[:n/2], w[:n/2], true) },
	} {
		dst := in(5)
		f(dst)
		keep(dst)
	}
	for op := range unaryCount {
		dst := in(5)
		Apply(op, dst, x)
		keep(dst)
	}
	for act := range actCount {
		a, b, c, d, e := in(5), in(5), in(5), in(5), in(5)
		Activate(act, a, x)
		ActivateGrad(act, b, y, x)
		GLU(act, c, x, y)
		GLUGrad(act, d, e, w, x, y)
		keep(a, b, c, d, e)
	}
	p, m, v := in(6), in(7), in(8)
	Mul(v, v, v)
	adamW{LR: 0.1, Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, WeightDecay: 0.1}.Step(p, m, v, x, 3)
	keep(p, m, v)
	for _, s := range []float32{Sum(x), SumSquares(x), Dot(x, y), Max(x), LogSumExp(x), active.dot3(x, y, w), active.sumSquaredDeviations(x, 0.2)} {
		value(s)
	}
	for vectors := range 8 {
		const count = 7
		panel := Panel{Rows: alloc(9, n*count), Stride: n, Width: n, Count: count}
		sums := alloc(5, n*vectors)
		panel.AddTo(sums, n, alloc(10, count*vectors), count, vectors)
		keep(sums)
		dots := alloc(5, count*vectors)
		panel.Dot(dots, count, alloc(10, n*vectors), n, vectors)
	}
	return out
}

// AVX2 and AVX-512 do the same operations in the same order, but for Panel.Dot,
// which has one partial sum per lane.
func TestVectorISAsAgreeBitForBit(t *testing.T) {
	have := available()
	if len(have) < 3 {
		t.Skip("needs AVX-512")
	}
	chosen := active
	defer func() { active = chosen }()
	for _, n := range []int{1, 8, 15, 16, 31, 64, 100, 1000} {
		active = have[1]
		want := everyKernel(n, func(seed uint64, n int) []float32 { return random(seed, n, 2) })
		active = have[2]
		got := everyKernel(n, func(seed uint64, n int) []float32 { return random(seed, n, 2) })
		for k := range want {
			for i := range want[k] {
				require.Equal(t, math.Float32bits(want[k][i]), math.Float32bits(got[k][i]), "kernel %d, n = %d, element %d", k, n, i)
			}
		}
	}
}

// The register allocator does not know that AVX2 has half of the registers,
// and the assembler silently takes an AVX-512 encoding for the others.
func TestAVX2KernelsNeedNoMore(t *testing.T) {
	text, err := os.ReadFile("kernels_amd64.s")
	require.NoError(t, err)
	functions := strings.Split(string(text), "\nTEXT ")
	require.Greater(t, len(functions), 90)
	more := regexp.MustCompile(`\b([XY](1[6-9]|2[0-9]|3[01])|Z[0-9]+|K[0-7])\b|\.(BCST|Z)\b`)
	count := 0
	for _, f := range functions[1:] {
		if name, _, _ := strings.Cut(f, "("); strings.HasSuffix(name, "AVX2") {
			count++
			assert.Empty(t, more.FindString(f), name)
		}
	}
	assert.Greater(t, count, 40)
}

func TestISAIsTheBestOne(t *testing.T) {
	if os.Getenv("LORAFUSE_CPU") == "" {
		have := available()
		assert.Equal(t, have[len(have)-1].name, active.name)
	} else {
		assert.Equal(t, os.Getenv("LORAFUSE_CPU"), active.name)
	}
}

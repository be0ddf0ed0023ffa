//go:build cuda && linux

package cuda_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cpu"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/ir"
	"github.com/lorafuse/lorafuse/quant"
	"github.com/lorafuse/lorafuse/tensor"
)

// values are the params of a graph under test, made as they are asked for.
type values struct {
	g      *graph.Graph
	random *rand.Rand
	args   map[string]*tensor.Tensor
	hosts  map[string]*ir.Host
}

func newValues(seed uint64) *values {
	return &values{graph.New(), rand.New(rand.NewPCG(seed, 1)), map[string]*tensor.Tensor{}, map[string]*ir.Host{}}
}

func (v *values) param(d tensor.DType, data []byte, numbers []float64, dims ...int) graph.Tensor {
	name := fmt.Sprintf("in%d", len(v.args))
	v.args[name] = &tensor.Tensor{DType: d, Shape: dims, Data: data}
	v.hosts[name] = &ir.Host{DType: d, Shape: dims, Data: numbers}
	return v.g.Param(name, d, ir.ShapeOf(dims...)...)
}

// floats is a param of normal numbers times scale, rounded to type d.
func (v *values) floats(d tensor.DType, scale float64, dims ...int) graph.Tensor {
	n := 1
	for _, x := range dims {
		n *= x
	}
	f := make([]float32, n)
	for i := range f {
		f[i] = float32(scale * v.random.NormFloat64())
	}
	data := make([]byte, d.Bytes(n))
	var err error
	if d.Quantized() {
		if err = quant.Quantize(data, f, d); err == nil {
			err = quant.Dequantize(f, data, 0, d)
		}
	} else if err = tensor.FromFloat32(data, f, d); err == nil {
		err = tensor.ToFloat32(f, data, d)
	}
	if err != nil {
		panic(err)
	}
	numbers := make([]float64, n)
	for i, x := range f {
		numbers[i] = float64(x)
	}
	return v.param(d, data, numbers, dims...)
}

// words is a param of whole numbers.
func (v *values) words(d tensor.DType, x ...int) graph.Tensor {
	data, numbers := []byte(nil), []float64(nil)
	for _, w := range x {
		data, numbers = binary.LittleEndian.AppendUint32(data, uint32(w)), append(numbers, float64(w))
	}
	return v.param(d, data, numbers, len(x))
}

// labels are n classes below count; every third row has none.
func (v *values) labels(n, count int) graph.Tensor {
	x := make([]int, n)
	for i := range x {
		if x[i] = v.random.IntN(count); i%3 == 1 {
			x[i] = -100
		}
	}
	return v.words(tensor.I32, x...)
}

func (v *values) on(t *testing.T, dev backend.Device, outs []graph.Tensor) [][]float32 {
	t.Helper()
	got, err := graph.Eval(context.Background(), dev, outs, v.args, nil)
	require.NoError(t, err)
	all := make([][]float32, len(got))
	for i := range got {
		all[i], err = got[i].Float32s()
		require.NoError(t, err)
	}
	return all
}

// check requires the reference's results within limit, of the element and the
// root mean square of all, and the same bits again.
func (v *values) check(t *testing.T, dev backend.Device, limit float64, outs ...graph.Tensor) {
	t.Helper()
	ids := make([]ir.Value, len(outs))
	for i, o := range outs {
		ids[i] = o.Value()
	}
	want, err := v.g.IR().Reference(ids, v.hosts, nil)
	require.NoError(t, err)
	got := v.on(t, dev, outs)
	require.Equal(t, got, v.on(t, dev, outs), "a second run")
	for i := range outs {
		squares := 0.0
		for _, w := range want[i].Data {
			squares += w * w
		}
		rms := math.Sqrt(squares / float64(max(1, len(want[i].Data))))
		require.Len(t, got[i], len(want[i].Data))
		for j, w := range want[i].Data {
			if d := math.Abs(float64(got[i][j]) - w); !(d <= limit*(math.Abs(w)+rms)) {
				require.Failf(t, "wrong", "output %d element %d: %v, expected %v", i, j, got[i][j], w)
			}
		}
	}
}

// TestRows runs kernels on rows of awkward lengths: those of a warp, of a block,
// of a large block, with and without 16-byte accesses.
func TestRows(t *testing.T) {
	dev := opened(t, backend.Options{})
	for _, d := range []int{1, 3, 31, 128, 1000, 1023, 1024, 1025, 1028, 4099, 8200} {
		v := newValues(uint64(d))
		apply := func(op ir.Op, attr any, in ...graph.Tensor) graph.Tensor {
			ids := make([]ir.Value, len(in))
			for i, x := range in {
				ids[i] = x.Value()
			}
			return v.g.Of(v.g.IR().Apply(op, attr, ids...))
		}
		x, dy, w := v.floats(tensor.F32, 1, 3, d), v.floats(tensor.F32, 1, 3, d), v.floats(tensor.F32, 1, d)
		labels, dloss := v.labels(3, d), v.g.Const(0.25)
		v.check(t, dev, 3e-6,
			x.RMSNorm(w, 1e-6), apply(ir.RMSNormGrad, ir.NormAttr{Eps: 0.1}, dy, x, w), x.Scale(4).Softmax(),
			apply(ir.CrossEntropy, nil, x, labels), apply(ir.CrossEntropyGrad, nil, x, labels, dloss),
			x.GLU(dy, ir.GELU), x.GLU(dy, ir.GELUTanh), x.GLU(dy, ir.SiLU), x.SumSquares())
	}
}

// TestExactBits: masks of dropout and tables of rotary positions are those of the
// CPU, bit for bit: positions up to two thousand million, where the angle is many
// turns away from zero.
func TestExactBits(t *testing.T) {
	dev := opened(t, backend.Options{})
	host, err := cpu.Open(backend.Options{})
	require.NoError(t, err)
	defer host.Close()
	v := newValues(5)
	key := v.words(tensor.U32, 0x11223344, 0x99aabbcc, 7)
	positions := v.words(tensor.I32, 0, 1, 2, 17, 4095, 131071, 999_999, 1_048_577, 2_000_000_000)
	h := 33
	frequencies := v.floats(tensor.F32, 1, h)
	for i := range h {
		f := float32(math.Pow(10000, -float64(i)/float64(h)))
		binary.LittleEndian.PutUint32(v.args["in2"].Data[4*i:], math.Float32bits(f))
	}
	var outs []graph.Tensor
	for _, n := range []int{1, 5, 4096, 4099} {
		x := v.floats(tensor.F32, 1, n)
		outs = append(outs, v.g.Of(v.g.IR().Dropout(x.Value(), key.Value(), ir.DropoutAttr{P: 0.3, Stream: 1 << 31})))
	}
	outs = append(outs, v.g.Of(v.g.IR().RoPETable(positions.Value(), frequencies.Value(), 1.25)))
	require.Equal(t, v.on(t, host, outs), v.on(t, dev, outs))
}

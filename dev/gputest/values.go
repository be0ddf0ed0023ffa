// Package gputest compares GPU kernels with the reference of package ir in cases that conformance lacks: at row
// lengths at which kernels change, bit for bit if the CPU's bits are guaranteed, and for many tensors at once. It also
// checks the order of pending work on devices. The requirements are the same for CUDA and Metal, whose tests call this
// package.
package gputest

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/tensor"
)

// values holds the params of a graph under test, created on demand.
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

// floats returns a param of normally distributed numbers times scale, rounded to type d.
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

// words returns a param of integers.
func (v *values) words(d tensor.DType, x ...int64) graph.Tensor {
	data, numbers := []byte(nil), []float64(nil)
	for _, w := range x {
		data, numbers = binary.LittleEndian.AppendUint32(data, uint32(w)), append(numbers, float64(w))
	}
	return v.param(d, data, numbers, len(x))
}

// labels returns n classes below count; every third row has none.
func (v *values) labels(n, count int) graph.Tensor {
	x := make([]int64, n)
	for i := range x {
		if x[i] = v.random.Int64N(int64(count)); i%3 == 1 {
			x[i] = -100
		}
	}
	return v.words(tensor.I32, x...)
}

func (v *values) on(t testing.TB, dev backend.Device, outs []graph.Tensor) [][]float32 {
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
func (v *values) check(t testing.TB, dev backend.Device, limit float64, outs ...graph.Tensor) {
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
		requireClose(t, want[i].Data, got[i], limit, "output %d", i)
	}
}

// checkStored requires the reference's result within limit of a program whose values have fixed sizes and are stored
// as bf16, at least those that the given operations compute.
func (v *values) checkStored(t testing.TB, dev backend.Device, limit float64, out graph.Tensor, ops ...ir.Op) {
	t.Helper()
	want, err := v.g.IR().Reference([]ir.Value{out.Value()}, v.hosts, nil)
	require.NoError(t, err)
	b := Bind(t, dev, v.g.Program().Result("out", out).FixedSizes().StoreBF16(dev, 0))
	for _, l := range b.Program().Launches {
		stored := l.Out[0].Store == tensor.BF16 || l.Out[0].Space == ir.SpaceArg // the result
		require.True(t, stored || !slices.Contains(ops, l.Op), "%v is stored as f32", l.Op)
	}
	for name, x := range v.args {
		b.Set(t, name, x.Data)
	}
	require.NoError(t, b.RunWait(context.Background()))
	n := len(want[0].Data)
	got, err := (&tensor.Tensor{DType: tensor.F32, Shape: []int{n}, Data: b.Get(t, "out", 4*n)}).Float32s()
	require.NoError(t, err)
	requireClose(t, want[0].Data, got, limit, "stored")
}

// requireClose bounds differences by limit, relative to the element and the root mean square of all.
func requireClose(t testing.TB, want []float64, got []float32, limit float64, format string, args ...any) {
	t.Helper()
	require.Len(t, got, len(want))
	squares := 0.0
	for _, w := range want {
		squares += w * w
	}
	rms := math.Sqrt(squares / float64(max(1, len(want))))
	for i, w := range want {
		if d := math.Abs(float64(got[i]) - w); !(d <= limit*(math.Abs(w)+rms)) {
			require.Failf(t, "wrong", "%s, element %d: %v, expected %v", fmt.Sprintf(format, args...), i, got[i], w)
		}
	}
}

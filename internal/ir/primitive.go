package ir

import (
	"fmt"
	"math"

	"github.com/lorafuse/lorafuse/tensor"
)

// ParamAttr holds the name of an input of the graph.
type ParamAttr struct{ Name string }

// OutAttr selects an output of a node.
type OutAttr struct{ Index int }

// ConstAttr holds the number that fills a shape.
type ConstAttr struct {
	Value float64
	dtype tensor.DType
	axes  axes
}

// IotaAttr holds the axis whose index fills a shape.
type IotaAttr struct {
	Axis int
	axes axes
}

// CastAttr holds the target element type.
type CastAttr struct{ To tensor.DType }

var _ = define(Param, OpDef{Name: "Param", Doc: "an input of the graph", NoGradient: true,
	Infer: func(any, []Type) ([]Type, error) { return nil, fmt.Errorf("params are made by Graph.Param") }})

var _ = define(Out, OpDef{Name: "Out", Doc: "an output after the first of a node",
	Infer: func(any, []Type) ([]Type, error) { return nil, fmt.Errorf("outputs are named by Graph.Out") }})

var _ = define(Const, OpDef{Name: "Const", Doc: "a number that fills a shape", NoGradient: true,
	Infer: func(attr any, _ []Type) ([]Type, error) {
		a := attr.(ConstAttr)
		if !isNumber(a.dtype) && a.dtype != tensor.Bool {
			return nil, fmt.Errorf("a constant of %v, expected F32, I32, U32 or BOOL", a.dtype)
		}
		return []Type{{a.dtype, a.axes.shape()}}, a.axes.check()
	},
	Reference: func(attr any, _, outs []*Host) { fill(outs[0].Data, attr.(ConstAttr).Value) },
})

var _ = define(Iota, OpDef{Name: "Iota", Doc: "the index along one axis, as i32", NoGradient: true,
	Infer: func(attr any, _ []Type) ([]Type, error) {
		a := attr.(IotaAttr)
		if a.Axis < 0 || a.Axis >= a.axes.n {
			return nil, fmt.Errorf("axis %d of a shape with %d axes", a.Axis, a.axes.n)
		}
		return []Type{{tensor.I32, a.axes.shape()}}, a.axes.check()
	},
	Reference: func(attr any, _, outs []*Host) {
		o := outs[0]
		inner := product(o.Shape[attr.(IotaAttr).Axis+1:])
		n := o.Shape[attr.(IotaAttr).Axis]
		for i := range o.Data {
			o.Data[i] = float64(i / inner % n)
		}
	},
})

var _ = define(Cast, OpDef{Name: "Cast", Doc: "conversion of the element type, rounding to nearest even",
	Infer: func(attr any, in []Type) ([]Type, error) {
		if len(in) != 1 {
			return nil, arity(1, in)
		}
		to := attr.(CastAttr).To
		if to != tensor.F32 && in[0].DType != tensor.F32 {
			return nil, fmt.Errorf("to %v, expected to or from F32", to)
		}
		if to.Quantized() {
			return nil, fmt.Errorf("to %v: values are quantised before a program runs", to)
		}
		return []Type{{to, in[0].Shape}}, nil
	},
	Gradient: func(b *Backward) {
		if from := b.InType(0).DType; from.IsFloat() && b.OutType(0).DType.IsFloat() {
			b.Acc(0, b.G.Cast(b.Dy(0), tensor.F32))
		}
	},
	Reference: func(attr any, in, outs []*Host) {
		for i, x := range in[0].Data {
			outs[0].Data[i] = round(attr.(CastAttr).To, x)
		}
	},
})

// Const creates a value of type t filled with x.
func (g *Graph) Const(x float64, t Type) Value {
	return g.Apply(Const, ConstAttr{x, t.DType, axesOf(t.Shape)})
}

// Iota creates an i32 value of shape s filled with the index along axis.
func (g *Graph) Iota(axis int, s Shape) Value {
	return g.Apply(Iota, IotaAttr{axis, axesOf(s)})
}

// Cast converts the elements of x to dtype.
func (g *Graph) Cast(x Value, dtype tensor.DType) Value {
	if x != 0 && g.Type(x).DType == dtype {
		return x
	}
	return g.Apply(Cast, CastAttr{dtype}, x)
}

// round returns x rounded to an element of type d.
func round(d tensor.DType, x float64) float64 {
	switch d {
	case tensor.F32:
		return float64(float32(x))
	case tensor.BF16:
		return float64(tensor.BF16ToFloat32(tensor.Float32ToBF16(float32(x))))
	case tensor.F16:
		return float64(tensor.F16ToFloat32(tensor.Float32ToF16(float32(x))))
	case tensor.F64:
		return x
	case tensor.Bool:
		if x != 0 {
			return 1
		}
		return 0
	}
	return math.RoundToEven(x)
}

func fill(x []float64, v float64) {
	for i := range x {
		x[i] = v
	}
}

func product(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}

func arity(want int, in []Type) error {
	return fmt.Errorf("got %d inputs, expected %d", len(in), want)
}

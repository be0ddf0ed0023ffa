package ir

import (
	"fmt"
	"math"

	"github.com/lorafuse/lorafuse/tensor"
)

// UnaryFn is a function of one number.
type UnaryFn uint8

// Functions of [Unary].
const (
	Neg UnaryFn = iota
	Exp
	Log
	Sqrt
	Rsqrt
	Reciprocal
	Tanh
	Sigmoid
	Erf
	Sin
	Cos
	Abs
	IsFinite
)

// BinaryFn is a function of two numbers.
type BinaryFn uint8

// Functions of [Binary].
const (
	Add BinaryFn = iota
	Sub
	Mul
	Div
	Max
	Min
)

// CompareFn is a relation between two numbers.
type CompareFn uint8

// Relations of [Compare].
const (
	Less CompareFn = iota
	LessEqual
	Equal
	NotEqual
	GreaterEqual
	Greater
)

var (
	unaryNames   = [...]string{"Neg", "Exp", "Log", "Sqrt", "Rsqrt", "Reciprocal", "Tanh", "Sigmoid", "Erf", "Sin", "Cos", "Abs", "IsFinite"}
	binaryNames  = [...]string{"Add", "Sub", "Mul", "Div", "Max", "Min"}
	compareNames = [...]string{"Less", "LessEqual", "Equal", "NotEqual", "GreaterEqual", "Greater"}
)

// UnaryAttr holds the function that is applied.
type UnaryAttr struct{ Fn UnaryFn }

// BinaryAttr holds the function that is applied.
type BinaryAttr struct{ Fn BinaryFn }

// CompareAttr holds the relation that is tested.
type CompareAttr struct{ Fn CompareFn }

// String returns the name of the function.
func (f UnaryFn) String() string { return unaryNames[f] }

// String returns the name of the function.
func (f BinaryFn) String() string { return binaryNames[f] }

// String returns the name of the relation.
func (f CompareFn) String() string { return compareNames[f] }

// Eval computes the function in float64.
func (f UnaryFn) Eval(x float64) float64 {
	switch f {
	case Neg:
		return -x
	case Exp:
		return math.Exp(x)
	case Log:
		return math.Log(x)
	case Sqrt:
		return math.Sqrt(x)
	case Rsqrt:
		return 1 / math.Sqrt(x)
	case Reciprocal:
		return 1 / x
	case Tanh:
		return math.Tanh(x)
	case Sigmoid:
		return 1 / (1 + math.Exp(-x))
	case Erf:
		return math.Erf(x)
	case Sin:
		return math.Sin(x)
	case Cos:
		return math.Cos(x)
	case Abs:
		return math.Abs(x)
	}
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return 0
	}
	return 1
}

// Eval computes the function in float64.
func (f BinaryFn) Eval(x, y float64) float64 {
	switch f {
	case Add:
		return x + y
	case Sub:
		return x - y
	case Mul:
		return x * y
	case Div:
		return x / y
	case Max:
		return math.Max(x, y)
	}
	return math.Min(x, y)
}

// Eval reports whether the relation holds.
func (f CompareFn) Eval(x, y float64) bool {
	switch f {
	case Less:
		return x < y
	case LessEqual:
		return x <= y
	case Equal:
		return x == y
	case NotEqual:
		return x != y
	case GreaterEqual:
		return x >= y
	}
	return x > y
}

var _ = define(Unary, OpDef{Name: "Unary", Doc: "a function of each element",
	Infer: func(attr any, in []Type) ([]Type, error) {
		if len(in) != 1 {
			return nil, arity(1, in)
		}
		if in[0].DType != tensor.F32 {
			return nil, fmt.Errorf("%v of %v, expected F32", attr.(UnaryAttr).Fn, in[0].DType)
		}
		return in[:1], nil
	},
	Gradient: unaryGradient,
	Reference: func(attr any, in, outs []*Host) {
		for i, x := range in[0].Data {
			outs[0].Data[i] = attr.(UnaryAttr).Fn.Eval(x)
		}
	},
	InPlace: func(any, int) int { return 0 },
})

func unaryGradient(b *Backward) {
	g, x, y, dy := b.G, b.In(0), b.Out(0), b.Dy(0)
	switch b.Attr.(UnaryAttr).Fn {
	case Neg:
		b.Acc(0, g.Unary(Neg, dy))
	case Exp:
		b.Acc(0, g.Mul(dy, y))
	case Log:
		b.Acc(0, g.Div(dy, x))
	case Sqrt:
		b.Acc(0, g.Div(g.Scale(dy, 0.5), y))
	case Rsqrt:
		b.Acc(0, g.Mul(g.Scale(dy, -0.5), g.Mul(y, g.Mul(y, y))))
	case Reciprocal:
		b.Acc(0, g.Mul(g.Unary(Neg, dy), g.Mul(y, y)))
	case Tanh:
		b.Acc(0, g.Mul(dy, g.AddScalar(g.Unary(Neg, g.Mul(y, y)), 1)))
	case Sigmoid:
		b.Acc(0, g.Mul(dy, g.Mul(y, g.AddScalar(g.Unary(Neg, y), 1))))
	case Erf:
		b.Acc(0, g.Mul(dy, g.Scale(g.Unary(Exp, g.Unary(Neg, g.Mul(x, x))), 2/math.Sqrt(math.Pi))))
	case Sin:
		b.Acc(0, g.Mul(dy, g.Unary(Cos, x)))
	case Cos:
		b.Acc(0, g.Unary(Neg, g.Mul(dy, g.Unary(Sin, x))))
	case Abs:
		zero := g.Const(0, g.Type(x))
		b.Acc(0, g.Where(g.Compare(Less, x, zero), g.Unary(Neg, dy), dy))
	}
}

var _ = define(Binary, OpDef{Name: "Binary", Doc: "a function of two elements; axes of one element and missing outer axes are repeated",
	Infer: func(attr any, in []Type) ([]Type, error) {
		if len(in) != 2 {
			return nil, arity(2, in)
		}
		if fn := attr.(BinaryAttr).Fn; fn == Div && in[0].DType != tensor.F32 {
			return nil, fmt.Errorf("%v of %v, expected F32", fn, in[0].DType)
		}
		s, err := inferPair(in)
		return []Type{{in[0].DType, s}}, err
	},
	Gradient: binaryGradient,
	Reference: func(attr any, in, outs []*Host) {
		a, b := broadcastTo(in[0], outs[0].Shape), broadcastTo(in[1], outs[0].Shape)
		for i := range outs[0].Data {
			outs[0].Data[i] = attr.(BinaryAttr).Fn.Eval(a[i], b[i])
		}
	},
	InPlace: func(any, int) int { return 0 },
})

func binaryGradient(b *Backward) {
	g, dy := b.G, b.Dy(0)
	x, y := b.In(0), b.In(1)
	acc := func(i int, d Value) { b.Acc(i, g.SumTo(d, b.InType(i).Shape)) }
	switch fn := b.Attr.(BinaryAttr).Fn; fn {
	case Add, Sub:
		if b.Needs(0) {
			acc(0, dy)
		}
		if b.Needs(1) && fn == Add {
			acc(1, dy)
		} else if b.Needs(1) {
			acc(1, g.Unary(Neg, dy))
		}
	case Mul:
		if b.Needs(0) {
			acc(0, g.Mul(dy, y))
		}
		if b.Needs(1) {
			acc(1, g.Mul(dy, x))
		}
	case Div:
		if b.Needs(0) {
			acc(0, g.Div(dy, y))
		}
		if b.Needs(1) {
			acc(1, g.Unary(Neg, g.Div(g.Mul(dy, b.Out(0)), y)))
		}
	case Max, Min:
		rel := GreaterEqual
		if fn == Min {
			rel = LessEqual
		}
		first := g.Compare(rel, x, y)
		zero := g.Const(0, g.Type(dy))
		if b.Needs(0) {
			acc(0, g.Where(first, dy, zero))
		}
		if b.Needs(1) {
			acc(1, g.Where(first, zero, dy))
		}
	}
}

var _ = define(Compare, OpDef{Name: "Compare", Doc: "a relation of two elements, as bool; repeated like Binary", NoGradient: true,
	Infer: func(attr any, in []Type) ([]Type, error) {
		if len(in) != 2 {
			return nil, arity(2, in)
		}
		s, err := inferPair(in)
		return []Type{{tensor.Bool, s}}, err
	},
	Reference: func(attr any, in, outs []*Host) {
		a, b := broadcastTo(in[0], outs[0].Shape), broadcastTo(in[1], outs[0].Shape)
		for i := range outs[0].Data {
			if attr.(CompareAttr).Fn.Eval(a[i], b[i]) {
				outs[0].Data[i] = 1
			}
		}
	},
})

var _ = define(Where, OpDef{Name: "Where", Doc: "the second input where the first (bool) is true, else the third; repeated like Binary",
	Infer: func(attr any, in []Type) ([]Type, error) {
		if len(in) != 3 {
			return nil, arity(3, in)
		}
		if in[0].DType != tensor.Bool || in[1].DType != in[2].DType || !isNumber(in[1].DType) && in[1].DType != tensor.Bool {
			return nil, fmt.Errorf("expected a bool, and two of F32, I32, U32 or BOOL")
		}
		s, err := broadcastShapes(in[1].Shape, in[2].Shape)
		if err == nil {
			s, err = broadcastShapes(in[0].Shape, s)
		}
		return []Type{{in[1].DType, s}}, err
	},
	Gradient: func(b *Backward) {
		g, c, dy := b.G, b.In(0), b.Dy(0)
		zero := g.Const(0, g.Type(dy))
		if b.Needs(1) {
			b.Acc(1, g.SumTo(g.Where(c, dy, zero), b.InType(1).Shape))
		}
		if b.Needs(2) {
			b.Acc(2, g.SumTo(g.Where(c, zero, dy), b.InType(2).Shape))
		}
	},
	Reference: func(attr any, in, outs []*Host) {
		s := outs[0].Shape
		c, x, y := broadcastTo(in[0], s), broadcastTo(in[1], s), broadcastTo(in[2], s)
		for i := range outs[0].Data {
			outs[0].Data[i] = y[i]
			if c[i] != 0 {
				outs[0].Data[i] = x[i]
			}
		}
	},
})

// inferPair returns the broadcast shape of two values of the same numeric type.
func inferPair(in []Type) (Shape, error) {
	if in[0].DType != in[1].DType || !isNumber(in[0].DType) {
		return nil, fmt.Errorf("expected both to be F32, I32 or U32")
	}
	return broadcastShapes(in[0].Shape, in[1].Shape)
}

// broadcastShapes aligns both shapes at their last axis and broadcasts axes of size one.
func broadcastShapes(a, b Shape) (Shape, error) {
	if len(a) < len(b) {
		a, b = b, a
	}
	out := make(Shape, len(a))
	copy(out, a)
	off := len(a) - len(b)
	for i, d := range b {
		switch {
		case a[off+i] == d || d == Static(1):
		case a[off+i] == Static(1):
			out[off+i] = d
		default:
			return nil, fmt.Errorf("%v and %v do not fit each other at axis %d: sizes must be equal, or one of them 1", a, b, off+i)
		}
	}
	return out, nil
}

// Unary applies fn to each element of x.
func (g *Graph) Unary(fn UnaryFn, x Value) Value { return g.Apply(Unary, UnaryAttr{fn}, x) }

// Binary applies fn to x and y, broadcast to a common shape.
func (g *Graph) Binary(fn BinaryFn, x, y Value) Value { return g.Apply(Binary, BinaryAttr{fn}, x, y) }

// Add computes x + y.
func (g *Graph) Add(x, y Value) Value { return g.Binary(Add, x, y) }

// Sub computes x - y.
func (g *Graph) Sub(x, y Value) Value { return g.Binary(Sub, x, y) }

// Mul computes x · y, element by element.
func (g *Graph) Mul(x, y Value) Value { return g.Binary(Mul, x, y) }

// Div computes x / y.
func (g *Graph) Div(x, y Value) Value { return g.Binary(Div, x, y) }

// Scale computes c·x.
func (g *Graph) Scale(x Value, c float64) Value {
	return g.Mul(x, g.Const(c, Type{g.Type(x).DType, Shape{}}))
}

// AddScalar computes x + c.
func (g *Graph) AddScalar(x Value, c float64) Value {
	return g.Add(x, g.Const(c, Type{g.Type(x).DType, Shape{}}))
}

// Compare evaluates the relation fn between x and y, element by element.
func (g *Graph) Compare(fn CompareFn, x, y Value) Value {
	return g.Apply(Compare, CompareAttr{fn}, x, y)
}

// Where selects x if c is true and y otherwise, element by element.
func (g *Graph) Where(c, x, y Value) Value { return g.Apply(Where, nil, c, x, y) }

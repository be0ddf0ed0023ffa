package graph

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"unsafe"

	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// End is the end of an axis, for [Tensor.Slice].
const End = math.MaxInt

// identity distinguishes host tensors by address, size, type and shape.
type identity struct {
	data  *byte
	bytes int
	dtype tensor.DType
	shape string
}

func identityOf(t tensor.Tensor) identity {
	return identity{unsafe.SliceData(t.Data), len(t.Data), t.DType, fmt.Sprint(t.Shape)}
}

// Value adds a host tensor to the graph as an unnamed input. Its bytes are not copied but read by each evaluation that
// depends on it, so they may change in between. Adding the same memory twice returns the same value.
func (g *Graph) Value(t tensor.Tensor) Tensor {
	if err := t.Check(); err != nil {
		return g.Fail(fmt.Errorf("value: %w", err))
	}
	id := identityOf(t)
	if v, ok := g.known[id]; ok && len(t.Data) > 0 {
		return g.Of(v)
	}
	name := ""
	for i := len(g.values) + 1; ; i++ {
		name = fmt.Sprintf("value.%d", i)
		if _, taken := g.ir.Lookup(name); !taken {
			break
		}
	}
	v := g.ir.Param(name, ir.Type{DType: t.DType, Shape: ir.ShapeOf(t.Shape...)})
	if v == 0 {
		return g.Of(0)
	}
	if g.values == nil {
		g.values, g.known = map[ir.Value]tensor.Tensor{}, map[identity]ir.Value{}
	}
	g.values[v], g.known[id] = t, v
	return g.Of(v)
}

// Set replaces the data of a value. The new data must have the same type and shape.
func (g *Graph) Set(value Tensor, t tensor.Tensor) error {
	was, ok := g.values[value.v]
	if value.g != g || !ok {
		return fmt.Errorf("graph: %w: set of what is no value of this graph", ir.ErrGraph)
	}
	if err := t.Check(); err != nil {
		return fmt.Errorf("graph: set: %w", err)
	}
	if t.DType != was.DType || !slices.Equal(t.Shape, was.Shape) {
		return fmt.Errorf("graph: %w: set of a value %v%v, found %v%v", ir.ErrGraph, was.DType, was.Shape, t.DType, t.Shape)
	}
	delete(g.known, identityOf(was))
	g.values[value.v], g.known[identityOf(t)] = t, value.v
	return nil
}

// Data returns the host tensor of a value.
func (t Tensor) Data() (tensor.Tensor, bool) {
	if t.g == nil {
		return tensor.Tensor{}, false
	}
	data, ok := t.g.values[t.v]
	return data, ok
}

// Floats adds a copy of numbers to the graph.
func (g *Graph) Floats(numbers []float32, shape ...int) Tensor {
	t, err := tensor.FromFloat32s(numbers, shape...)
	if err != nil {
		return g.Fail(fmt.Errorf("floats: %w", err))
	}
	return g.Value(t)
}

// Zeros returns an f32 tensor of zeros.
func (g *Graph) Zeros(shape ...int) Tensor { return g.Const(0, ir.ShapeOf(shape...)...) }

// Ones returns an f32 tensor of ones.
func (g *Graph) Ones(shape ...int) Tensor { return g.Const(1, ir.ShapeOf(shape...)...) }

// Key adds a key for random operations such as dropout. The random numbers are a function of seed, step, stream and
// element.
func (g *Graph) Key(seed uint64, step uint32) Tensor {
	data := binary.LittleEndian.AppendUint64(nil, seed)
	return g.Value(tensor.Tensor{DType: tensor.U32, Shape: []int{3}, Data: binary.LittleEndian.AppendUint32(data, step)})
}

// slice resolves negative indices and slices an axis.
func (t Tensor) slice(axis, start, end int) Tensor {
	if t.v != 0 {
		s := t.Type().Shape
		if axis < 0 {
			axis += len(s)
		}
		if axis >= 0 && axis < len(s) {
			start, end = place(start, s[axis].N), place(end, s[axis].N)
		}
	}
	return t.of(t.g.ir.Slice(t.v, axis, start, end))
}

// Index returns element i of an axis, which is removed. axis and i may count from the end.
func (t Tensor) Index(axis, i int) Tensor {
	if t.v == 0 {
		return t
	}
	s := t.Type().Shape
	if axis < 0 {
		axis += len(s)
	}
	if axis < 0 || axis >= len(s) || s[axis].Var != 0 || i < -s[axis].N || i >= s[axis].N {
		return t.g.Fail(fmt.Errorf("index: element %d of axis %d of %v", i, axis, s))
	}
	at := place(i, s[axis].N)
	return t.of(t.g.ir.Reshape(t.g.ir.Slice(t.v, axis, at, at+1), slices.Delete(slices.Clone(s), axis, axis+1)))
}

// place resolves an index on an axis of n elements, which may count from the end.
func place(i, n int) int {
	switch {
	case i == End:
		return n
	case i < 0:
		return i + n
	}
	return i
}

package nn

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/graph/exec"
	"github.com/lorafuse/lorafuse/internal/suggest"
	"github.com/lorafuse/lorafuse/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// Names of the inputs that models of text declare, and of the axis of tokens.
// Whoever runs a model feeds what it declares by these names; see
// [Builder.Inputs].
const (
	Tokens    = "tokens"    // i32 [tokens]: ids
	Positions = "positions" // i32 [tokens]: place in its own text
	Lo        = "lo"        // i32 [tokens]: the first key that a token sees
	Hi        = "hi"        // i32 [tokens]: the key behind the last that it sees
	Labels    = "labels"    // i32 [tokens]: what is to be predicted at a token
	Offset    = "offset"    // i32 [1]: where new rows go into the cache
	RandomKey = "key"       // u32 [3]: see ir.RandomKey
)

// Input is an array that every run of a model is given.
type Input struct {
	Name  string
	Param string // of the graph, that holds it
	Type  ir.Type
}

// Derived is a table that the host computes and a model reads, such as rotary
// frequencies.
type Derived struct {
	Name  string // of the param
	Shape []int  // f32
	// Values are the elements for texts of so many tokens.
	Values func(length int) []float32
	// Until is the length up to which the values are those of any shorter text;
	// 0 where they never depend on it.
	Until int
}

// Changes reports whether the values depend on the length of the text.
func (d Derived) Changes() bool { return d.Until > 0 }

// Axis is a dimension whose size is set for each run. How large it gets is said
// by Options.Bounds.
func (b *Builder) Axis(name string) ir.Dim {
	most, ok := b.bounds[name]
	if !ok {
		most = b.otherBounds
	}
	if most == 0 {
		known := slices.Sorted(maps.Keys(b.bounds))
		b.G.Fail(fmt.Errorf("%w: the model reads an axis of %q%s, and there are bounds for %s", ErrInput, name, suggest.DidYouMean(name, known), list(known)))
		most = 1
	}
	return b.G.Bound(name, most)
}

// list writes names, or that there are none.
func list(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// Input declares an array that every run is given; asking twice gives the same one.
func (b *Builder) Input(name string, d tensor.DType, shape ...ir.Dim) graph.Tensor {
	in := Input{name, "input." + name, ir.Type{DType: d, Shape: shape}}
	if !slices.ContainsFunc(b.inputs, func(x Input) bool { return x.Name == name }) {
		b.inputs = append(b.inputs, in)
	}
	return b.G.Of(b.G.IR().Param(in.Param, in.Type))
}

// Derived declares a table that the host computes; asking twice gives the same one.
func (b *Builder) Derived(d Derived) graph.Tensor {
	if !slices.ContainsFunc(b.derived, func(x Derived) bool { return x.Name == d.Name }) {
		b.derived = append(b.derived, d)
	}
	return b.G.Of(b.G.IR().Param(d.Name, ir.Type{DType: tensor.F32, Shape: ir.ShapeOf(d.Shape...)}))
}

// Inputs lists what was declared, in that order.
func (b *Builder) Inputs() []Input { return slices.Clone(b.inputs) }

// Tables lists the derived tables, in the order of their declaration.
func (b *Builder) Tables() []Derived { return slices.Clone(b.derived) }

// Text is what models of text read: tokens one behind the other without padding.
// Token i sees the keys [Lo[i], Hi[i]): of the same tokens, or, with a cache, of
// the cache.
type Text struct {
	Tokens, Positions, Lo, Hi graph.Tensor // i32 [n]
}

// Text declares the inputs of a model of text.
func (b *Builder) Text() Text {
	n := b.Axis(Tokens)
	return Text{
		Tokens:    b.Input(Tokens, tensor.I32, n),
		Positions: b.Input(Positions, tensor.I32, n),
		Lo:        b.Input(Lo, tensor.I32, n),
		Hi:        b.Input(Hi, tensor.I32, n),
	}
}

// Arrays are what a run is given, by name: a batch.
type Arrays interface {
	// Array gives the bytes of an array.
	Array(name string) (data []byte, ok bool)
}

// Feed sets the inputs that e reads, and the sizes of their outer axes. Errors:
// ErrInput, where an array is missing, or not as long as the others.
func (s *Store) Feed(ctx context.Context, e *exec.Executable, inputs []Input, from Arrays) error {
	sized := uint64(0) // axes that were set
	for _, in := range inputs {
		if !e.Uses(in.Param) {
			continue
		}
		data, ok := from.Array(in.Name)
		if !ok {
			return fmt.Errorf("%w: the model reads %q %v, which it is not given", ErrInput, in.Name, in.Type)
		}
		if err := in.size(e, len(data), &sized); err != nil {
			return err
		}
		if err := s.Set(ctx, in.Param, data); err != nil {
			return err
		}
	}
	return nil
}

// size sets the outer axis of the input by the bytes that it is given. sized has
// a bit for each axis that another input has set.
func (in Input) size(e *exec.Executable, bytes int, sized *uint64) error {
	row, outer := in.Type, ir.Static(1)
	if len(row.Shape) > 0 && row.Shape[0].Var != 0 {
		outer, row.Shape = row.Shape[0], row.Shape[1:]
	}
	each := outer.N * row.Bytes(nil)
	if each == 0 || bytes%each != 0 || outer.Var == 0 && bytes != each {
		return fmt.Errorf("%w: %q %v is given %d bytes", ErrInput, in.Name, in.Type, bytes)
	}
	if outer.Var == 0 {
		return nil
	}
	n := bytes / each
	if *sized>>outer.Var&1 == 1 {
		if now := e.Dim(outer.Var); now != n {
			return fmt.Errorf("%w: %q has %d rows where the arrays before it have %d", ErrInput, in.Name, n, now)
		}
		return nil
	}
	*sized |= 1 << outer.Var
	if err := e.SetDim(e.Program().Bounds[outer.Var].Name, n); err != nil {
		return fmt.Errorf("%w: %q: %w", ErrInput, in.Name, err)
	}
	return nil
}

// SetTables sets derived tables to their values for texts of so many tokens.
func (s *Store) SetTables(ctx context.Context, tables []Derived, length int) error {
	for _, t := range tables {
		if err := s.SetFloat32s(ctx, t.Name, t.Values(length)); err != nil {
			return err
		}
	}
	return nil
}

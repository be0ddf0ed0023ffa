package nn

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/suggest"
	"github.com/lorafuse/lorafuse/tensor"
)

// These are the names of the inputs that text models declare, and of the axis of tokens.
// Callers pass arrays by these names; see [Builder.Inputs].
const (
	Tokens     = "tokens"      // i32 [tokens]: ids
	Positions  = "positions"   // i32 [tokens]: place in its own text
	Places     = "places"      // i32 [tokens]: see [Builder.Places]
	KeyStart   = "lo"          // i32 [tokens]: the first key that a token sees
	KeyEnd     = "hi"          // i32 [tokens]: end (exclusive) of the keys that a token sees
	End        = "end"         // i32 [tokens]: end (exclusive) of the keys of its own text
	Labels     = "labels"      // i32 [tokens]: the label of a token
	StepLabels = "step labels" // f32: how many labels the step has that the batch is part of
	Types      = "types"       // i32 [tokens]: which of two joined texts a token is of, as the tokenizer has it
	Classes    = "classes"     // i32 [texts]: the class of a text
	Values     = "values"      // f32 [texts, n]: regression targets or multi-label values of a text
	ReadToken  = "read token"  // i32 [texts]: the token whose state a text is judged by
	Offset     = "offset"      // i32 [1]: the cache row at which new rows start
	CacheRows  = "cache rows"  // i32 [tokens]: the row of the cache that a token has, or -1; see Cache.Page
	Pages      = "pages"       // i32 [pages], an axis of its own: the pages of the cache that hold the keys; see Cache.Page
	Adapters   = "adapters"    // i32 [tokens]: which of several adapters a token has, or -1; see Builder.Adapters
	RandomKey  = "key"         // u32 [3]: see ir.RandomKey
)

// Documents is the axis of arrays with one row for each document of a batch.
const Documents = "documents"

// Input is an array that every run of a model is given.
type Input struct {
	Name  string
	Param string // of the graph, that holds it
	Type  ir.Type

	from func(given Arrays) (data []byte, ok bool) // nil unless derived from other arrays
}

// Array returns the bytes of the input from the arrays of a run. ok is false if an array that
// it needs is missing.
func (in Input) Array(given Arrays) (data []byte, ok bool) {
	if in.from != nil {
		return in.from(given)
	}
	return given.Array(in.Name)
}

// Derived is a table that the host computes and a model reads, such as rotary
// frequencies.
type Derived struct {
	Name  string // of the param
	Shape []int  // f32
	// Values returns the elements for texts of length tokens.
	Values func(length int) []float32
	// Until is the length up to which the values are equal to the values of any shorter text.
	// Zero means that they never depend on it.
	Until int
	// Reread reports that a text is read again when it becomes longer than Until. All longer texts
	// have the same values. If it is not set, tokens that were read before keep their values.
	Reread bool
}

// Type returns the type of the param.
func (d Derived) Type() ir.Type { return ir.Type{DType: tensor.F32, Shape: ir.ShapeOf(d.Shape...)} }

// Changes reports whether the values depend on the length of the text.
func (d Derived) Changes() bool { return d.Until > 0 }

// Axis returns a dimension whose size is set for each run. Options.Bounds gives its maximum.
func (b *Builder) Axis(name string) ir.Dim { return b.G.Bound(name, b.Size(name)) }

// Size returns the bound of an axis, which is its size if the size is the same in all runs of
// a program.
func (b *Builder) Size(name string) int {
	most, ok := b.bounds[name]
	if !ok {
		most = b.otherBounds
	}
	if most == 0 {
		known := slices.Sorted(maps.Keys(b.bounds))
		b.G.Fail(fmt.Errorf("%w: the model reads an axis of %q%s, and there are bounds for %s", ErrInput, name, suggest.DidYouMean(name, known), list(known)))
		most = 1
	}
	return most
}

// list joins names with commas, or returns "none".
func list(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// Input declares an input that every run must provide. Repeated calls return the same tensor.
func (b *Builder) Input(name string, d tensor.DType, shape ...ir.Dim) graph.Tensor {
	return b.input(Input{Name: name, Type: ir.Type{DType: d, Shape: shape}})
}

func (b *Builder) input(in Input) graph.Tensor {
	in.Param = "input." + in.Name
	if !slices.ContainsFunc(b.inputs, func(x Input) bool { return x.Name == in.Name }) {
		b.inputs = append(b.inputs, in)
	}
	return b.G.Of(b.G.IR().Param(in.Param, in.Type))
}

// Derived declares a table that the host computes. Repeated calls return the same tensor.
func (b *Builder) Derived(d Derived) graph.Tensor {
	if !slices.ContainsFunc(b.derived, func(x Derived) bool { return x.Name == d.Name }) {
		b.derived = append(b.derived, d)
	}
	return b.G.Of(b.G.IR().Param(d.Name, d.Type()))
}

// Inputs returns the declared inputs in order of declaration.
func (b *Builder) Inputs() []Input { return slices.Clone(b.inputs) }

// Tables lists the derived tables, in the order of their declaration.
func (b *Builder) Tables() []Derived { return slices.Clone(b.derived) }

// Text holds the inputs of text models: tokens of all texts, concatenated without padding.
// Token i sees the keys [KeyStart[i], KeyEnd[i]) of the same tokens or, with a cache, of the cache.
type Text struct {
	Tokens, Positions, KeyStart, KeyEnd graph.Tensor // i32 [n]
}

// Text declares the inputs of a model of text.
func (b *Builder) Text() Text { return b.text(KeyEnd) }

// Document declares the inputs of a model whose tokens see all of their own text, including
// later tokens. With a cache it fails with ErrInput, since later tokens would change the keys
// and values of earlier ones.
func (b *Builder) Document() Text {
	if b.cache != nil {
		b.G.Fail(fmt.Errorf("%w: a cache of keys and values, and the model attends in both directions", ErrInput))
	}
	return b.text(End)
}

// Near returns a text in which a token sees only keys less than window tokens away. It sees no
// keys outside of its text, as in [Builder.Document], from whose inputs the inputs are
// derived.
func (b *Builder) Near(in Text, window int) Text {
	bound := func(of string, at func(i, bound int) int) graph.Tensor {
		return b.input(Input{
			Name: fmt.Sprintf("%s within %d", of, window), Type: ir.Type{DType: tensor.I32, Shape: ir.Shape{b.Axis(Tokens)}},
			from: func(given Arrays) ([]byte, bool) {
				bounds, ok := given.Array(of)
				out := make([]byte, 0, len(bounds))
				for i := 0; i < len(bounds); i += 4 {
					out = binary.NativeEndian.AppendUint32(out, uint32(at(i/4, int(int32(binary.NativeEndian.Uint32(bounds[i:]))))))
				}
				return out, ok
			},
		})
	}
	in.KeyStart = bound(KeyStart, func(i, lo int) int { return max(lo, i-window+1) })
	in.KeyEnd = bound(End, func(i, end int) int { return min(end, i+window) })
	return in
}

// text declares a text whose tokens see the keys up to the input named hi.
func (b *Builder) text(hi string) Text {
	n := b.Axis(Tokens)
	return Text{
		Tokens:    b.Input(Tokens, tensor.I32, n),
		Positions: b.Input(Positions, tensor.I32, n),
		KeyStart:  b.Input(KeyStart, tensor.I32, n),
		KeyEnd:    b.Input(hi, tensor.I32, n),
	}
}

// Places declares the position IDs, i32 [tokens], of an embedding of positions with a row for
// padding. Padding tokens use that row, and the other tokens count up from it.
func (b *Builder) Places(padding int) graph.Tensor {
	return b.input(Input{
		Name: Places, Type: ir.Type{DType: tensor.I32, Shape: ir.Shape{b.Axis(Tokens)}},
		from: func(given Arrays) ([]byte, bool) { return places(given, uint32(padding)) },
	})
}

func places(given Arrays, padding uint32) ([]byte, bool) {
	tokens, has := given.Array(Tokens)
	positions, ok := given.Array(Positions)
	if !has || !ok || len(positions) != len(tokens) {
		return nil, false
	}
	rows, row := make([]byte, 0, len(tokens)), padding
	for i := 0; i < len(tokens); i += 4 {
		if binary.NativeEndian.Uint32(positions[i:]) == 0 { // a text begins
			row = padding
		}
		place := padding
		if binary.NativeEndian.Uint32(tokens[i:]) != padding {
			row++
			place = row
		}
		rows = binary.NativeEndian.AppendUint32(rows, place)
	}
	return rows, true
}

// Arrays holds the arrays of a run, a batch, by name.
type Arrays interface {
	// Array returns the bytes of an array.
	Array(name string) (data []byte, ok bool)
}

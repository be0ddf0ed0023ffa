// Package nn builds models from named layers. A model calls b.Linear("self_attn.q_proj", x).
// The builder looks up the weight by its full name, asks the adapter for its contribution to
// that layer, and emits the graph. Models know nothing of LoRA, and adapters know nothing of
// models.
package nn

import (
	"errors"
	"fmt"
	"slices"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// Errors that building a model may wrap.
var (
	ErrMissing = errors.New("missing tensor")
	ErrShape   = errors.New("wrong shape")
	// ErrInput reports that the arrays of a run do not match the inputs of the model.
	ErrInput = errors.New("wrong input")
	// ErrStream reports that two places of a model would draw the same random numbers.
	ErrStream = errors.New("shared random stream")
)

// Weights finds the tensors of a checkpoint by their full names. Errors:
// ErrMissing, with the nearest names.
type Weights interface {
	Weight(name string) (Weight, error)
	Has(name string) bool
}

// Blank is a Weights that has every tensor a model asks for. Use it to build a model from its
// configuration alone.
type Blank interface {
	Weights
	// Blank returns a tensor of the expected shape, in which -1 is any size.
	Blank(name string, shape []int) Weight
}

// Kind is the way a module lays out its weight.
type Kind uint8

// The kinds of modules.
const (
	KindLinear    Kind = iota // weight [out, in]
	KindEmbedding             // weight [in, out]: a row for each token
	KindNorm                  // weight [out], or a row for each of Count heads
	KindParameter             // a parameter that is not a layer's weight: [out, in], or a stack of them
	KindConv1D                // weight [in, out]: a linear layer of GPT-2
)

// Module is a layer with parameters, as adapters target it.
type Module struct {
	Name    string // full name, such as model.layers.0.self_attn.q_proj
	Kind    Kind
	In, Out int
	Bias    bool
	// InputEmbedding and OutputEmbedding mark the ends of a language model.
	InputEmbedding, OutputEmbedding bool
	// Padding is the row of an embedding that gets no gradient, or -1.
	Padding int
	// TiedTo is the module whose weight this one shares, if any.
	TiedTo string
	// Count is the number of matrices [out, in] that a KindParameter stacks, or of the rows of a KindNorm. Parts lists the
	// weights of the checkpoint whose rows are concatenated to form it.
	Count int
	Parts []string
	// Transposed reports that a KindParameter is stored as [in, out], or as a stack of such matrices.
	Transposed bool
}

// Adapter modifies a model's layers. Methods return the plain layer if the adapter has nothing
// to add.
type Adapter interface {
	// Param may replace a frozen parameter with a trained one. name is the name of the module
	// followed by .weight or .bias.
	Param(b *Builder, m Module, name string, frozen graph.Tensor) graph.Tensor
	// Linear returns x Wᵀ + bias plus the adapter's contribution; bias may be the zero Tensor.
	Linear(b *Builder, m Module, x, w, bias graph.Tensor) (y graph.Tensor, ok bool)
	// Embedding returns the rows ids of w plus the adapter's contribution.
	Embedding(b *Builder, m Module, ids, w graph.Tensor) (y graph.Tensor, ok bool)
	// Stack returns ys plus the adapter's contribution. Concatenated, the columns of ys are
	// the product of each row of x and the matrix of m, a KindParameter, selected by index.
	Stack(b *Builder, m Module, x, index graph.Tensor, ys ...graph.Tensor) []graph.Tensor
	// Choose builds layer for rows that have parameters of their own. layer builds it with the
	// parameters that its builder provides, see [Builder.Part].
	Choose(b *Builder, m Module, layer func(*Builder) graph.Tensor) (y graph.Tensor, ok bool)
}

// Builder emits one model into a graph.
type Builder struct {
	*state
	prefix  string
	adapter Adapter
	slot    int   // of the params that are the adapter's own
	rows    *rows // relates the input rows of layers to tokens; nil means one row per token
}

type state struct {
	G           *graph.Graph
	weights     Weights
	otherBounds int
	bounds      map[string]int
	slots       []string
	training    bool
	rowKeys     bool
	cache       *Cache
	precompute  bool

	inputs      []Input
	derived     []Derived
	modules     []Module
	used        []string
	isUsed      map[string]bool
	isTrained   map[string]bool // by the names of their params
	constants   map[string]*tensor.Tensor
	trained     []Trained
	precomputed []precomputed
	segment     int
	routings    []routing
}

// Trained is a parameter that training changes.
type Trained struct {
	Name  string // in the file of the adapter
	Param string // of the graph
	Shape []int
	DType tensor.DType // f32 if it is trained
}

// Options configure how a model is built.
type Options struct {
	// Bounds are the maximum sizes of the axes that the model reads, by name. OtherBounds is
	// the maximum for axes not in Bounds. Zero means that such an axis is an error.
	Bounds      map[string]int
	OtherBounds int
	Adapter     Adapter
	// Slots are the name prefixes of an adapter's own params, so that a device can hold
	// several adapters. The first belongs to the adapter; an adapter whose rows differ has one
	// prefix for each part, see [Builder.Part].
	Slots    []string
	Training bool // dropout acts
	// RowKeys makes dropout use a random key for each token, together with the token's number
	// in its own run (ir.RowKeys), instead of one key for all tokens.
	RowKeys bool
	Cache   *Cache // keys and values of earlier tokens, for decoding
	// Precompute reads values that depend only on parameters from params that another program
	// writes, see [Builder.Precomputation].
	Precompute bool
}

// NewBuilder starts a model in g.
func NewBuilder(g *graph.Graph, w Weights, o Options) *Builder {
	s := &state{G: g, weights: w, slots: o.Slots, bounds: o.Bounds, otherBounds: o.OtherBounds, training: o.Training, rowKeys: o.RowKeys, cache: o.Cache, precompute: o.Precompute, constants: map[string]*tensor.Tensor{}, isUsed: map[string]bool{}, isTrained: map[string]bool{}}
	return &Builder{state: s, adapter: o.Adapter}
}

// Sub returns the builder of a part of the model. Its names are prefixed with the formatted
// name and a dot.
func (b *Builder) Sub(format string, args ...any) *Builder {
	c := *b
	c.prefix += fmt.Sprintf(format, args...) + "."
	return &c
}

// Name returns the full name of a part of b.
func (b *Builder) Name(name string) string { return b.prefix + name }

// Segment starts a new segment (a layer) of the forward pass. With activation checkpointing
// only values that cross segments are kept.
func (b *Builder) Segment() {
	b.segment++
	b.G.SetSegment(b.segment)
}

// Segments returns the number of segments so far.
func (b *Builder) Segments() int { return b.segment }

// EndSegments ends the last segment.
func (b *Builder) EndSegments() { b.G.SetSegment(0) }

// Training reports whether dropout acts.
func (b *Builder) Training() bool { return b.training }

// RowKeys reports whether dropout draws by a key for each token.
func (b *Builder) RowKeys() bool { return b.rowKeys }

// Key returns the random key of the step, an input of models that draw random numbers.
func (b *Builder) Key() graph.Tensor {
	if b.rowKeys {
		t := ir.RowKeys(b.Axis(Tokens))
		return b.Input(RandomKey, t.DType, t.Shape...)
	}
	return b.Input(RandomKey, ir.RandomKey.DType, ir.RandomKey.Shape...)
}

// Modules lists the modules in the order in which the model was built.
func (b *Builder) Modules() []Module { return slices.Clone(b.modules) }

// Used lists the names of the checkpoint's tensors that the graph reads.
func (b *Builder) Used() []string { return slices.Clone(b.used) }

// Trained lists the trained parameters in the order in which they were met.
func (b *Builder) Trained() []Trained { return slices.Clone(b.trained) }

// TrainFor restricts the trained parameters to the ones that loss depends on. The others get
// no gradient and keep their values. It fails if none is left.
func (b *Builder) TrainFor(loss graph.Tensor) {
	if !loss.Valid() || len(b.trained) == 0 {
		return
	}
	nodes, first := b.G.IR().Nodes, b.trained[0].Name
	reached := make([]bool, loss.Value()+1)
	reached[loss.Value()] = true
	for v := loss.Value(); v > 0; v-- {
		if reached[v] {
			for _, in := range nodes[v].In {
				reached[in] = true
			}
		}
	}
	b.trained = slices.DeleteFunc(b.trained, func(t Trained) bool {
		v, ok := b.G.IR().Lookup(t.Param)
		return !ok || int(v) >= len(reached) || !reached[v]
	})
	if len(b.trained) == 0 {
		b.G.Fail(fmt.Errorf("the loss depends on nothing that is trained, such as %q", first))
	}
}

// Constants returns the values of an adapter's params that are fixed.
func (b *Builder) Constants() map[string]*tensor.Tensor { return b.constants }

// Has reports whether the checkpoint has a tensor of that name.
func (b *Builder) Has(name string) bool { return b.weights.Has(name) }

// Frozen returns the named tensor of the checkpoint as a param of the graph. A weight in 8-bit
// floats is converted to f32. shape is the expected shape; -1 allows any size.
func (b *Builder) Frozen(name string, shape ...int) graph.Tensor {
	w, err := b.weight(name, shape)
	if err != nil {
		return b.G.Fail(err)
	}
	fits := len(w.Shape) == len(shape)
	for i := 0; fits && i < len(shape); i++ {
		fits = shape[i] < 0 || shape[i] == w.Shape[i]
	}
	if !fits {
		return b.G.Fail(fmt.Errorf("%w: tensor %q is %v, expected %v from config.json", ErrShape, name, w.Shape, shape))
	}
	switch d := w.DType; {
	case d == tensor.F32, d == tensor.F16, d == tensor.BF16, d == tensor.F8E4M3, d.Quantized():
	default:
		return b.G.Fail(fmt.Errorf("tensor %q has elements of type %v; supported: F32, F16, BF16", name, w.DType))
	}
	if !b.isUsed[name] {
		b.isUsed[name] = true
		b.used = append(b.used, name)
	}
	param := b.G.Of(b.G.IR().Param(name, ir.Type{DType: w.DType, Shape: ir.ShapeOf(w.Shape...)}))
	if isFloat8(w.DType) {
		return b.widened(name, param, w.Block)
	}
	return param
}

func (b *Builder) weight(name string, shape []int) (Weight, error) {
	if blank, ok := b.weights.(Blank); ok {
		return blank.Blank(name, shape), nil
	}
	return b.weights.Weight(name)
}

// Train returns the trained f32 parameter with the given name. Repeated calls return the same
// one.
func (b *Builder) Train(name string, shape ...int) graph.Tensor {
	return b.TrainedAs(tensor.F32, name, shape...)
}

// TrainedAs returns an adapter parameter that this graph does not train, in the adapter's
// element type. It is otherwise like Train.
func (b *Builder) TrainedAs(d tensor.DType, name string, shape ...int) graph.Tensor {
	param := b.own(name)
	if !b.isTrained[param] {
		b.isTrained[param] = true
		b.trained = append(b.trained, Trained{name, param, slices.Clone(shape), d})
	}
	return b.G.Of(b.G.IR().Param(param, ir.Type{DType: d, Shape: ir.ShapeOf(shape...)}))
}

// Constant returns a param of an adapter with a fixed value.
func (b *Builder) Constant(name string, t *tensor.Tensor) graph.Tensor {
	name = b.own(name)
	b.constants[name] = t
	return b.G.Of(b.G.IR().Param(name, ir.Type{DType: t.DType, Shape: ir.ShapeOf(t.Shape...)}))
}

// Own returns a param of an adapter that is neither trained nor fixed: its value may be another in
// each run.
func (b *Builder) Own(name string, d tensor.DType, shape ...int) graph.Tensor {
	return b.G.Of(b.G.IR().Param(b.own(name), ir.Type{DType: d, Shape: ir.ShapeOf(shape...)}))
}

// own returns the name of a param in the adapter's slot.
func (b *Builder) own(name string) string {
	if b.slot < len(b.slots) {
		return b.slots[b.slot] + name
	}
	if b.slot > 0 {
		b.G.Fail(fmt.Errorf("part %d of an adapter, and there are slots for %d", b.slot, len(b.slots)))
	}
	return name
}

// param returns a parameter of a module, possibly trained.
func (b *Builder) param(m Module, what string, stored string, shape ...int) graph.Tensor {
	p := b.Frozen(stored, shape...)
	if b.adapter != nil && p.Valid() {
		p = b.adapter.Param(b, m, m.Name+"."+what, p)
	}
	return p
}

package model

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/nn"
)

// decoder holds the keys of config.json that decoders share. An architecture embeds it and
// emits its own layers.
type decoder struct {
	Intermediate            int
	Heads, KVHeads, HeadDim int
	NormEps                 float32
	Activation              ir.Activation
	RoPE                    RoPE
	// Bidirectional reports that a token attends to all tokens of its text: the model embeds
	// and classifies texts, and generates none.
	Bidirectional bool `json:",omitempty"`

	within string // the name of the decoder in a multimodal model, empty if it is a model by itself
	called names  // of its parts, if they are not the usual ones
}

// names are the names of the parts of a decoder.
type names struct {
	Body      string // the decoder without its head
	Layers    string // the list of layers
	Embedding string // the input embedding
}

// names returns the names of the parts.
func (d *decoder) names() names {
	if d.called != (names{}) {
		return d.called
	}
	return names{Body: "model", Layers: "layers", Embedding: "embed_tokens"}
}

// decoder reads the keys that decoders share, except for the rotary embedding.
func (f *Fields) decoder(c *Config) decoder {
	d := decoder{
		Intermediate: f.Need("intermediate_size"),
		Heads:        f.Need("num_attention_heads"),
		NormEps:      float32(f.Float("rms_norm_eps", 1e-6)),
	}
	d.KVHeads = f.Int("num_key_value_heads", d.Heads)
	if f.err == nil && d.Heads < 1 {
		f.Fail("num_attention_heads", d.Heads, "1 or more")
	}
	if f.err != nil {
		return d
	}
	d.HeadDim = f.Int("head_dim", c.HiddenSize/d.Heads)
	d.Bidirectional = f.Null(isCausal) || !f.Bool(isCausal, true) // as transformers has it
	d.Activation = f.activation("hidden_act", "silu")
	return d
}

// defaults are values that a class of transformers has if config.json lacks the keys. An
// explicit null means none.
type defaults struct {
	MaxPositions int
	Tied         bool
	BOS          int32   // -1: none
	EOS          []int32 // nil: none
	Padding      int     // -1: none
}

// defaults reads the keys of d.
func (f *Fields) defaults(c *Config, d defaults) {
	c.MaxPositions = f.Int("max_position_embeddings", d.MaxPositions)
	f.tie(c, d.Tied)
	if !f.given("bos_token_id") {
		c.BOS = d.BOS
	}
	if !f.given("eos_token_id") {
		c.EOS = d.EOS
	}
	if !f.given("pad_token_id") && d.Padding < c.VocabSize {
		c.Padding = d.Padding
	}
}

// isCausal is the key that makes any decoder of transformers bidirectional.
const isCausal = "is_causal"

// activation reads the name of an activation function.
func (f *Fields) activation(key, def string) ir.Activation {
	acts := map[string]ir.Activation{"silu": ir.SiLU, "swish": ir.SiLU, "gelu": ir.GELU, "gelu_pytorch_tanh": ir.GELUTanh, "gelu_new": ir.GELUTanh, "gelu_fast": ir.GELUTanh, "quick_gelu": ir.QuickGELU, "relu": ir.ReLU}
	name := f.String(key, def)
	act, ok := acts[name]
	if !ok {
		f.Unsupported(key, name, slices.Sorted(maps.Keys(acts)))
	}
	return act
}

// window converts a sliding_window of config.json. In a causal model it counts the keys up to
// and including the query, in a bidirectional one only the keys before it.
func (d *decoder) window(tokens int) int {
	if d.Bidirectional && tokens > 0 {
		return min(tokens, maxSize) + 1
	}
	return tokens
}

// kindWindow reads the window of the layers with sliding attention, 0 if none of kinds has it.
func (f *Fields) kindWindow(d *decoder, kinds []string, def int) int {
	if !slices.Contains(kinds, slidingAttention) {
		return 0
	}
	const key = "sliding_window"
	window := f.Int(key, def)
	if f.Null(key) || window < 1 {
		f.Fail(key, string(f.values[key]), "1 or more, since layers have sliding attention")
	}
	return d.window(window)
}

// slidingWindow reads the window of a model whose layers all have the same one, 0 for none.
func (f *Fields) slidingWindow(d *decoder, def int) int {
	const key = "sliding_window"
	window := f.Int(key, def)
	if window < 0 {
		f.Fail(key, window, "null or 1 and more")
	}
	return d.window(window)
}

// The values of layer_types.
const (
	fullAttention    = "full_attention"
	slidingAttention = "sliding_attention"
)

// layerTypes reads layer_types, nil if the key is missing.
func (f *Fields) layerTypes(layers int) []string {
	types := f.Strings("layer_types")
	if types == nil {
		return nil
	}
	if len(types) != layers {
		f.Fail("layer_types", fmt.Sprintf("%d entries", len(types)), fmt.Sprintf("%d, one for each layer", layers))
		return nil
	}
	for i, t := range types {
		if t == "attention" { // an early name
			t, types[i] = fullAttention, fullAttention
		}
		if t != fullAttention && t != slidingAttention {
			f.Unsupported("layer_types", t, []string{fullAttention, slidingAttention})
			return nil
		}
	}
	return types
}

// layerKinds reads layer_types. Without that key, every pattern-th layer has full attention and
// the others have sliding attention.
func (f *Fields) layerKinds(layers, pattern int) []string {
	if types := f.layerTypes(layers); types != nil || f.err != nil {
		return types
	}
	if pattern < 1 {
		f.Fail("sliding_window_pattern", pattern, "1 or more")
		return nil
	}
	types := make([]string, layers)
	for i := range types {
		if types[i] = slidingAttention; (i+1)%pattern == 0 {
			types[i] = fullAttention
		}
	}
	return types
}

// Check implements Family.
func (d *decoder) Check(*Config) error {
	if err := CheckSizes(Size{"num_attention_heads", d.Heads}, Size{"intermediate_size", d.Intermediate}, Size{"num_key_value_heads", d.KVHeads}, Size{"head_dim", d.HeadDim}); err != nil {
		return err
	}
	if d.Heads%d.KVHeads != 0 {
		return fmt.Errorf("%w: num_attention_heads %d is not a multiple of num_key_value_heads %d", ErrConfig, d.Heads, d.KVHeads)
	}
	if d.HeadDim%2 != 0 {
		return fmt.Errorf("%w: head_dim: found %d, expected an even number", ErrConfig, d.HeadDim)
	}
	if !(d.NormEps > 0) {
		return fmt.Errorf("%w: rms_norm_eps: found %v, expected more than 0", ErrConfig, d.NormEps)
	}
	return nil
}

// ContextFactor implements [LongContext]. It returns the factor of dynamic rotary scaling.
func (d *decoder) ContextFactor() float64 {
	if d.RoPE.Dynamic() {
		return d.RoPE.Factor
	}
	return 1
}

// enclose adds the name of the decoder in a multimodal model to its modules.
func (d *decoder) enclose() { d.within = wrappedText }

func (d *decoder) enclosed() bool { return d.within != "" }

// logitScale returns the factor of the logits of a text model, or 0, which is none, in a multimodal
// model: since version 4.52 transformers applies the head of these without it.
func (d *decoder) logitScale(factor float64) float64 {
	if d.enclosed() {
		return 0
	}
	return factor
}

// OtherNames implements [Renamer]: files name the weights of the body with or without its
// prefix, usually "model.". In files of multimodal models, depending on the version of transformers that
// wrote them, the decoder is in model, in language_model, or in both.
func (d *decoder) OtherNames(name string) []string {
	if d.within != "" {
		core := strings.TrimPrefix(strings.TrimPrefix(name, "model."), d.within+".")
		var names []string
		for _, prefix := range []string{"model.", "", "model." + d.within + ".", d.within + ".", d.within + ".model."} {
			if prefix+core != name {
				names = append(names, prefix+core)
			}
		}
		return names
	}
	body := d.names().Body + "."
	if s, ok := strings.CutPrefix(name, body); ok {
		return []string{s}
	}
	return []string{body + name}
}

// Skips implements [Skipper]: a body or a classifier of a language model reads no head.
func (d *decoder) Skips(c *Config) []Skip {
	if c.Part == AsSaved {
		return nil
	}
	return []Skip{{Names: languageHead, Why: "language head", Expected: true}}
}

var languageHead = regexp.MustCompile(`(^|\.)(lm_head|embed_out)\.`)

func (d *decoder) bidirectional() bool { return d.Bidirectional }

// project emits queries, keys and values: three linear layers of x.
func (d *decoder) project(b *nn.Builder, x graph.Tensor, bias bool) (q, k, v graph.Tensor) {
	q = b.Linear("q_proj", x, d.Heads*d.HeadDim, bias)
	k = b.Linear("k_proj", x, d.KVHeads*d.HeadDim, bias)
	v = b.Linear("v_proj", x, d.KVHeads*d.HeadDim, bias)
	return q, k, v
}

// headNorm applies RMSNorm to each head of x. The stored weight is the weight minus origin.
func (d *decoder) headNorm(b *nn.Builder, name string, x graph.Tensor, origin float64) graph.Tensor {
	return nn.PerHead(x, d.HeadDim, func(x graph.Tensor) graph.Tensor { return b.RMSNormFrom(name, x, d.NormEps, origin) })
}

// scores returns the attributes of attention with the usual scale. A query sees the keys less
// than window tokens away, or all keys if window is 0.
func (d *decoder) scores(window int) ir.AttentionAttr {
	return ir.AttentionAttr{
		Heads: d.Heads, KVHeads: d.KVHeads, HeadDim: d.HeadDim, Window: window,
		Scale: float32(1 / math.Sqrt(float64(d.HeadDim))),
	}
}

// gatedMLP is down(act(gate(x)) · up(x)), three linear layers around the activation function.
func (d *decoder) gatedMLP(b *nn.Builder, x graph.Tensor, bias bool) graph.Tensor {
	if !x.Valid() {
		return x
	}
	gate := b.Linear("gate_proj", x, d.Intermediate, bias)
	up := b.Linear("up_proj", x, d.Intermediate, bias)
	return b.Linear("down_proj", gate.GLU(up, d.Activation), x.Type().Last().N, bias)
}

// fusedMLP emits the gated MLP with gate and up as one linear layer. gateUp and down name its two
// layers.
func (d *decoder) fusedMLP(b *nn.Builder, x graph.Tensor, gateUp, down string) graph.Tensor {
	if !x.Valid() {
		return x
	}
	h := b.Linear(gateUp, x, 2*d.Intermediate, false)
	gate, up := h.Slice(1, 0, d.Intermediate), h.Slice(1, d.Intermediate, graph.End)
	return b.Linear(down, gate.GLU(up, d.Activation), x.Type().Last().N, false)
}

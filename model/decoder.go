package model

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/ir"
	"github.com/lorafuse/lorafuse/nn"
)

// Decoder is the body that Llama and its kin share: attention and a gated MLP in
// turns, with norms about them and rotary positions. An architecture fills in
// what its config.json says, and puts functions of its own in the place of parts
// that differ. It is a [Family].
type Decoder struct {
	Intermediate              int
	Heads, KVHeads, HeadDim   int
	NormEps                   float32
	Activation                ir.Activation
	AttentionBias, OutputBias bool // of q, k, v and of o
	MLPBias                   bool
	HeadNorm                  bool // a norm of each head of q and k
	// Windows bounds attention by layer: a query sees the keys less than so many tokens
	// away. Zero means no bound.
	Windows        []int
	RoPE           RoPE    // of all layers, but those of a kind that has another
	Norms          Norms   // of a layer
	Scale          float64 // of the scores; 0: 1/√HeadDim
	EmbeddingScale float64 // of the rows of the input embedding; 0: 1

	// Bidirectional reports that a query sees the keys on both sides, those of its whole
	// text: the model embeds and classifies texts, and continues none.
	Bidirectional bool `json:",omitempty"`
	// Within names the part of a larger model that the decoder is.
	Within string `json:",omitempty"`
	// NormOrigin is what the weights of norms are kept as differences from.
	NormOrigin float64
	// LayerTypes names the kind of each layer, and Ropes the rotary embedding of
	// a kind; where there are none, all layers have RoPE.
	LayerTypes []string
	Ropes      map[string]RoPE

	// MLP is the second half of a layer, between its norms; b is the builder of
	// the layer. nil: a gated MLP called mlp.
	MLP func(c *Config, b *nn.Builder, layer int, x graph.Tensor) graph.Tensor `json:"-"`
}

// Norms names the norms of a layer: of what goes into attention and MLP, and of
// what comes out of them before it is added. Empty names are no norms.
type Norms struct{ BeforeAttention, AfterAttention, BeforeMLP, AfterMLP string }

// decoder reads the keys that decoders share, but for those of the rotary embedding.
func (f *Fields) decoder(c *Config) *Decoder {
	d := &Decoder{
		Intermediate: f.Need("intermediate_size"),
		Heads:        f.Need("num_attention_heads"),
		NormEps:      float32(f.Float("rms_norm_eps", 1e-6)),
		Windows:      make([]int, max(0, c.Layers)),
		Norms:        Norms{BeforeAttention: "input_layernorm", BeforeMLP: "post_attention_layernorm"},
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

// isCausal is the key by which any decoder of transformers becomes bidirectional.
const isCausal = "is_causal"

// window is the bound of attention that config.json calls a sliding window of so many
// tokens: of the keys before a query it counts the query itself, on both sides it does not.
func (d *Decoder) window(tokens int) int {
	if d.Bidirectional && tokens > 0 {
		return min(tokens, maxSize) + 1
	}
	return tokens
}

// activation reads the name of an activation function.
func (f *Fields) activation(key, def string) ir.Activation {
	acts := map[string]ir.Activation{"silu": ir.SiLU, "swish": ir.SiLU, "gelu": ir.GELU, "gelu_pytorch_tanh": ir.GELUTanh, "gelu_new": ir.GELUTanh, "quick_gelu": ir.QuickGELU}
	name := f.String(key, def)
	act, ok := acts[name]
	if !ok {
		f.Unsupported(key, name, slices.Sorted(maps.Keys(acts)))
	}
	return act
}

// Check implements Family.
func (d *Decoder) Check(*Config) error {
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

// Stretch implements [Stretcher].
func (d *Decoder) Stretch() float64 {
	if d.RoPE.Dynamic() {
		return d.RoPE.Factor
	}
	return 1
}

// OtherNames implements [Renamer]: files have the names of the body or those of the
// model around it.
func (d *Decoder) OtherNames(name string) []string {
	if s, ok := strings.CutPrefix(name, "model."); ok {
		return []string{s}
	}
	return []string{"model." + name}
}

// Build implements Family.
func (d *Decoder) Build(c *Config, b *nn.Builder) Outputs {
	in, m := d.text(b), d.body(c, b)
	x := d.embed(c, m, in)
	return d.from(c, b, m, in, x, d.rotary(c, b, in.Positions)) // before the layers: tables are of no segment
}

// Skips implements [Skipper]: a body, and a classifier, is asked for without the head.
func (d *Decoder) Skips(c *Config) []Skip {
	if c.Part == AsSaved {
		return nil
	}
	return []Skip{{Names: languageHead, Why: "language head", Expected: true}}
}

var languageHead = regexp.MustCompile(`(^|\.)lm_head\.`)

func (d *Decoder) normOrigin() float64 { return d.NormOrigin }

func (d *Decoder) bidirectional() bool { return d.Bidirectional }

// text declares the inputs of the decoder.
func (d *Decoder) text(b *nn.Builder) nn.Text {
	if d.Bidirectional {
		return b.Document()
	}
	return b.Text()
}

// body is the builder of the decoder's own modules.
func (d *Decoder) body(c *Config, b *nn.Builder) *nn.Builder {
	if c.Part != Body { // a checkpoint of more than the body
		b = b.Sub("model")
	}
	if d.Within != "" {
		b = b.Sub("%s", d.Within)
	}
	return b
}

func (d *Decoder) embed(c *Config, m *nn.Builder, in nn.Text) graph.Tensor {
	x := m.Embedding(nn.Vocabulary, "embed_tokens", in.Tokens, c.VocabSize, c.HiddenSize, c.Padding)
	if d.EmbeddingScale != 0 {
		x = x.Scale(d.EmbeddingScale)
	}
	return x
}

// from builds what comes behind the embeddings x, with the cosines and sines of each layer.
func (d *Decoder) from(c *Config, b, m *nn.Builder, in nn.Text, x graph.Tensor, tables []graph.Tensor) Outputs {
	var out Outputs
	for i := range c.Layers {
		out.Hidden = append(out.Hidden, x)
		b.Segment()
		x = d.layer(c, m.Sub("layers.%d", i), in, x, tables[i], i)
	}
	b.EndSegments()
	x = d.norm(m, "norm", x)
	out.Hidden = append(out.Hidden, x)
	switch c.Part {
	case Body:
		return out
	case Classifier:
		c.classify(b, x, &out)
		return out
	}
	tied := ""
	if c.TiedEmbeddings {
		tied = strings.TrimSuffix("model."+d.Within, ".") + ".embed_tokens"
	}
	h := b.Head("lm_head", x, c.VocabSize, tied)
	if d.Bidirectional { // a token sees the next one: there is nothing to predict
		out.Head = &h
		return out
	}
	out.language(b, h)
	return out
}

func (d *Decoder) norm(b *nn.Builder, name string, x graph.Tensor) graph.Tensor {
	if name == "" {
		return x
	}
	return b.RMSNormFrom(name, x, d.NormEps, d.NormOrigin)
}

// rotary gives the cosines and sines of each layer.
func (d *Decoder) rotary(c *Config, b *nn.Builder, positions graph.Tensor) []graph.Tensor {
	tables, byName := make([]graph.Tensor, c.Layers), map[string]graph.Tensor{}
	for i := range tables {
		name, r := "", d.RoPE
		if d.Ropes != nil {
			name = d.LayerTypes[i]
			r = d.Ropes[name]
		}
		if _, ok := byName[name]; !ok {
			byName[name] = r.table(b, name, positions)
		}
		tables[i] = byName[name]
	}
	return tables
}

func (d *Decoder) layer(c *Config, b *nn.Builder, in nn.Text, x, table graph.Tensor, layer int) graph.Tensor {
	h := d.norm(b, d.Norms.BeforeAttention, x)
	h = d.attention(c, b.Sub("self_attn"), in, h, table, d.Windows[layer])
	x = d.norm(b, d.Norms.AfterAttention, h).Add(x)
	h = d.norm(b, d.Norms.BeforeMLP, x)
	if d.MLP != nil {
		h = d.MLP(c, b, layer, h)
	} else {
		h = d.gated(c, b.Sub("mlp"), h, d.Intermediate)
	}
	return d.norm(b, d.Norms.AfterMLP, h).Add(x)
}

func (d *Decoder) attention(c *Config, b *nn.Builder, in nn.Text, x, table graph.Tensor, window int) graph.Tensor {
	q := b.Linear("q_proj", x, d.Heads*d.HeadDim, d.AttentionBias)
	k := b.Linear("k_proj", x, d.KVHeads*d.HeadDim, d.AttentionBias)
	v := b.Linear("v_proj", x, d.KVHeads*d.HeadDim, d.AttentionBias)
	if d.HeadNorm {
		q = nn.PerHead(q, d.HeadDim, func(x graph.Tensor) graph.Tensor { return d.norm(b, "q_norm", x) })
		k = nn.PerHead(k, d.HeadDim, func(x graph.Tensor) graph.Tensor { return d.norm(b, "k_norm", x) })
	}
	q, k = q.RoPE(table, d.HeadDim), k.RoPE(table, d.HeadDim)
	scale := d.Scale
	if scale == 0 {
		scale = 1 / math.Sqrt(float64(d.HeadDim))
	}
	if d.Bidirectional && window > 0 {
		in, window = b.Near(in, window), 0
	}
	o := b.Attention(in, q, k, v, ir.AttentionAttr{
		Heads: d.Heads, KVHeads: d.KVHeads, HeadDim: d.HeadDim, Window: window, Scale: float32(scale),
	})
	return b.Linear("o_proj", o, c.HiddenSize, d.OutputBias)
}

// gated is a gated MLP of so many inner units.
func (d *Decoder) gated(c *Config, b *nn.Builder, x graph.Tensor, units int) graph.Tensor {
	gate := b.Linear("gate_proj", x, units, d.MLPBias)
	up := b.Linear("up_proj", x, units, d.MLPBias)
	return b.Linear("down_proj", gate.GLU(up, d.Activation), c.HiddenSize, d.MLPBias)
}

package model

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/nn"
)

func init() {
	// The encoder of T5 (Raffel et al. 2019, arXiv 1910.10683).
	Register("T5EncoderModel", Architecture{ModelType: "t5", Whole: true, Read: readT5})
}

// t5 is a [Family] with RMSNorm before attention and before a feed-forward block, and without
// biases. Attention scores are not scaled; all layers share a relative position bias.
// Attention is bidirectional; padding is visible only if passed as tokens.
type t5 struct {
	Intermediate   int
	Heads, HeadDim int
	NormEps        float32
	Activation     ir.Activation
	Gated          bool

	distances relative
}

// t5Length is the length to which texts are truncated if config.json does not set one. The
// architecture itself has no limit.
const t5Length = 2048

func readT5(c *Config, f *Fields) Family {
	c.DType = f.String("dtype", f.String("torch_dtype", ""))
	c.HiddenSize = f.Need("d_model")
	c.Layers = f.Need("num_layers")
	c.VocabSize = f.Need("vocab_size")
	c.MaxPositions = f.Int("n_positions", t5Length)
	if c.Layers > maxLayers {
		f.Fail("num_layers", c.Layers, fmt.Sprintf("%d at most", maxLayers))
	}
	c.EOS = f.IDs("eos_token_id")
	if pad := f.Int("pad_token_id", 0); pad >= 0 && pad < c.VocabSize {
		c.Padding = pad
	}
	t := &t5{
		Intermediate: f.Need("d_ff"),
		Heads:        f.Need("num_heads"),
		HeadDim:      f.Need("d_kv"),
		NormEps:      float32(f.Float("layer_norm_epsilon", 1e-6)),
	}
	t.distances = relative{
		name:     "relative_attention_bias",
		kinds:    f.Int("relative_attention_num_buckets", 32),
		farthest: f.Int("relative_attention_max_distance", 128),
	}
	t.distances.rows = t.distances.kinds
	t.feedForward(f)
	if f.Bool("is_decoder", false) {
		f.Unsupported("is_decoder", "true", []string{"false"})
	}
	return t
}

// feedForward reads which activation the feed-forward block has, and whether it is a gate.
func (t *t5) feedForward(f *Fields) {
	const key = "feed_forward_proj"
	name := f.String(key, "relu")
	act, gated := strings.CutPrefix(name, "gated-")
	t.Gated = gated
	switch {
	case act == "relu":
		t.Activation = ir.ReLU
	case act == "gelu" && gated, act == "gelu_new", act == "gelu_pytorch_tanh":
		t.Activation = ir.GELUTanh
	case act == "gelu":
		t.Activation = ir.GELU
	case act == "silu", act == "swish":
		t.Activation = ir.SiLU
	default:
		f.Unsupported(key, name, []string{"relu", "gelu", "gelu_new", "silu", "gated-gelu", "gated-relu", "gated-silu"})
	}
}

// Check implements Family.
func (t *t5) Check(*Config) error {
	if err := CheckSizes(Size{"d_ff", t.Intermediate}, Size{"num_heads", t.Heads}, Size{"d_kv", t.HeadDim}); err != nil {
		return err
	}
	if !(t.NormEps > 0) {
		return fmt.Errorf("%w: layer_norm_epsilon: found %v, expected more than 0", ErrConfig, t.NormEps)
	}
	return t.distances.check()
}

// OtherNames implements [Renamer]: some files have the embedding in the encoder alone.
func (t *t5) OtherNames(name string) []string {
	if name == "shared.weight" {
		return []string{"encoder.embed_tokens.weight"}
	}
	return nil
}

// Skips implements [Skipper]. It lists the tensors that transformers ignores.
func (t *t5) Skips(*Config) []Skip {
	return []Skip{
		{Names: regexp.MustCompile(`^(decoder|lm_head)\.`), Why: "decoder", Expected: true},
		{Names: regexp.MustCompile(`^encoder\.embed_tokens\.weight$`), Why: "copy of the embedding", Expected: true},
	}
}

// Build implements Family.
func (t *t5) Build(c *Config, b *nn.Builder) Outputs {
	in := b.Document()
	x := b.Embedding(nn.Vocabulary, "shared", in.Tokens, c.VocabSize, c.HiddenSize, c.Padding)
	m := b.Sub("encoder")
	bias := t.distances.bias(m.Sub("block.0.layer.0.SelfAttention"), t.Heads)
	var out Outputs
	for i := range c.Layers {
		out.Hidden = append(out.Hidden, x)
		b.Segment()
		x = t.attention(c, m.Sub("block.%d.layer.0", i), in, x, bias)
		x = t.forward(c, m.Sub("block.%d.layer.1", i), x)
	}
	b.EndSegments()
	x = m.RMSNorm("final_layer_norm", x, t.NormEps)
	out.Hidden = append(out.Hidden, x)
	return out
}

func (t *t5) attention(c *Config, b *nn.Builder, in nn.Text, x, bias graph.Tensor) graph.Tensor {
	h, self := b.RMSNorm("layer_norm", x, t.NormEps), b.Sub("SelfAttention")
	size := t.Heads * t.HeadDim
	q := self.Linear("q", h, size, false)
	k := self.Linear("k", h, size, false)
	v := self.Linear("v", h, size, false)
	o := b.Attention(in, q, k, v, ir.AttentionAttr{Heads: t.Heads, KVHeads: t.Heads, HeadDim: t.HeadDim, Scale: 1, Bias: ir.RelativeBias}, bias)
	return self.Linear("o", o, c.HiddenSize, false).Add(x)
}

func (t *t5) forward(c *Config, b *nn.Builder, x graph.Tensor) graph.Tensor {
	h, dense := b.RMSNorm("layer_norm", x, t.NormEps), b.Sub("DenseReluDense")
	if t.Gated {
		gate := dense.Linear("wi_0", h, t.Intermediate, false)
		up := dense.Linear("wi_1", h, t.Intermediate, false)
		h = gate.GLU(up, t.Activation)
	} else if h = dense.Linear("wi", h, t.Intermediate, false); h.Valid() {
		h = h.Activate(t.Activation)
	}
	return dense.Linear("wo", h, c.HiddenSize, false).Add(x)
}

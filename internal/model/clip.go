package model

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/nn"
)

func init() {
	// The text side of CLIP (Radford et al. 2021, arXiv 2103.00020), alone and with the
	// projection into the space of texts and pictures.
	for name, prefix := range map[string]string{"CLIPTextModel": "", "CLIPTextModelWithProjection": "text_model."} {
		Register(name, Architecture{ModelType: "clip_text_model", Whole: true, Read: func(c *Config, f *Fields) Family {
			return readCLIP(c, f, prefix)
		}})
	}
}

// Pooling is a [Family] whose output [Pooler] is read at a token other than the first.
type Pooling interface {
	// PoolAt returns the index of that token in a text.
	PoolAt(ids []int32) int
}

// clip is a [Family]: LayerNorm before attention and before a feed-forward block, and learned
// positions. Attention is causal.
type clip struct {
	Intermediate int
	Heads        int
	NormEps      float32
	Activation   ir.Activation
	Projection   int // size of the output Pooler; 0: size of the states
	End          int32

	prefix string // of all modules but the projection
}

// clipOldEnd is the wrong end-of-text id in config.json of the first CLIP models. With it, the
// end is the largest id of the text.
const clipOldEnd = 2

func readCLIP(c *Config, f *Fields, prefix string) Family {
	c.DType = f.String("dtype", f.String("torch_dtype", ""))
	if f.Has("text_config") { // of both sides
		dtype := c.DType
		f.enter("text_config")
		c.DType = f.String("dtype", dtype)
	}
	if f.Null(isCausal) || !f.Bool(isCausal, true) { // in transformers, its effect depends on the attention kernel
		f.Unsupported(isCausal, "false", []string{"true"})
	}
	c.HiddenSize = f.Int("hidden_size", 512)
	c.Layers = f.Int("num_hidden_layers", 12)
	c.VocabSize = f.Int("vocab_size", 49408)
	c.MaxPositions = f.Int("max_position_embeddings", 77)
	if c.Layers > maxLayers {
		f.Fail("num_hidden_layers", c.Layers, fmt.Sprintf("%d at most", maxLayers))
	}
	t := &clip{
		Intermediate: f.Int("intermediate_size", 2048),
		Heads:        f.Int("num_attention_heads", 8),
		NormEps:      float32(f.Float("layer_norm_eps", 1e-5)),
		Activation:   f.activation("hidden_act", "quick_gelu"),
		End:          49407,
		prefix:       prefix,
	}
	if ids := f.IDs("eos_token_id"); len(ids) > 0 {
		t.End = ids[0]
	}
	c.EOS = []int32{t.End}
	if prefix != "" {
		t.Projection = f.Int("projection_dim", 512)
	}
	return t
}

// Check implements Family.
func (t *clip) Check(c *Config) error {
	if err := CheckSizes(Size{"intermediate_size", t.Intermediate}, Size{"num_attention_heads", t.Heads}); err != nil {
		return err
	}
	switch {
	case c.HiddenSize%t.Heads != 0:
		return fmt.Errorf("%w: hidden_size %d is not a multiple of num_attention_heads %d", ErrConfig, c.HiddenSize, t.Heads)
	case !(t.NormEps > 0):
		return fmt.Errorf("%w: layer_norm_eps: found %v, expected more than 0", ErrConfig, t.NormEps)
	}
	if t.prefix != "" {
		return CheckSizes(Size{"projection_dim", t.Projection})
	}
	return nil
}

// OtherNames implements [Renamer]: transformers 4 had the prefix of the text side in all files.
func (t *clip) OtherNames(name string) []string {
	if s, ok := strings.CutPrefix(name, "text_model."); ok {
		return []string{s}
	}
	return []string{"text_model." + name}
}

// Skips implements [Skipper]: files may have both sides of CLIP.
func (t *clip) Skips(*Config) []Skip {
	return []Skip{{Names: regexp.MustCompile(`^(logit_scale|visual_projection\.weight|text_projection\.weight)$`), Why: "comparison of texts with pictures"}}
}

// PoolAt implements [Pooling]: it returns the index of the first end-of-text token, or 0 if
// there is none.
func (t *clip) PoolAt(ids []int32) int {
	if t.End == clipOldEnd {
		return slices.Index(ids, slices.Max(ids))
	}
	return max(0, slices.Index(ids, t.End))
}

// Build implements Family.
func (t *clip) Build(c *Config, b *nn.Builder) Outputs {
	in, m := b.Text(), b
	if t.prefix != "" {
		m = b.Sub("%s", strings.TrimSuffix(t.prefix, "."))
	}
	words := m.Sub("embeddings")
	x := words.Embedding(nn.Vocabulary, "token_embedding", in.Tokens, c.VocabSize, c.HiddenSize, -1)
	x = x.Add(words.Embedding(nn.Attributes, "position_embedding", in.Positions, c.MaxPositions, c.HiddenSize, -1))
	var out Outputs
	for i := range c.Layers {
		out.Hidden = append(out.Hidden, x)
		b.Segment()
		x = t.layer(c, m.Sub("encoder.layers.%d", i), in, x)
	}
	b.EndSegments()
	x = m.LayerNorm("final_layer_norm", x, t.NormEps)
	out.Hidden = append(out.Hidden, x)
	pooled := x
	if t.prefix != "" {
		pooled = b.Linear("text_projection", x, t.Projection, false)
	}
	out.Named = map[string]graph.Tensor{Pooler: pooled}
	return out
}

func (t *clip) layer(c *Config, b *nn.Builder, in nn.Text, x graph.Tensor) graph.Tensor {
	h, attn := b.LayerNorm("layer_norm1", x, t.NormEps), b.Sub("self_attn")
	k := attn.Linear("k_proj", h, c.HiddenSize, true)
	v := attn.Linear("v_proj", h, c.HiddenSize, true)
	q := attn.Linear("q_proj", h, c.HiddenSize, true)
	d := c.HiddenSize / t.Heads
	o := b.Attention(in, q, k, v, ir.AttentionAttr{Heads: t.Heads, KVHeads: t.Heads, HeadDim: d, Scale: float32(1 / math.Sqrt(float64(d)))})
	x = attn.Linear("out_proj", o, c.HiddenSize, true).Add(x)
	h, mlp := b.LayerNorm("layer_norm2", x, t.NormEps), b.Sub("mlp")
	if h = mlp.Linear("fc1", h, t.Intermediate, true); h.Valid() {
		h = h.Activate(t.Activation)
	}
	return mlp.Linear("fc2", h, c.HiddenSize, true).Add(x)
}

package model

import (
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/ir"
	"github.com/lorafuse/lorafuse/nn"
	"github.com/lorafuse/lorafuse/tensor"

	"math"
)

// FrequenciesParam is the param of the rotary frequencies, f32 [head_dim/2].
const FrequenciesParam = "rope.frequencies"

// Outputs are what building a model gives: the head, and the hidden states
// before the first layer, after each layer but the last, and after the final
// norm, as transformers lists them.
type Outputs struct {
	Head   nn.Head
	Hidden []graph.Tensor
}

// decoder builds a pre-norm transformer: the body of Llama and its kin.
func decoder(c *Config, b *nn.Builder, in nn.Inputs) Outputs {
	m := b.Sub("model")
	x := m.Embedding("embed_tokens", in.Tokens, c.VocabSize, c.HiddenSize, c.Padding)
	freqs := b.G.Param(FrequenciesParam, tensor.F32, ir.Static(c.RoPE.Dim/2))
	table := in.Positions.RoPETable(freqs, float32(c.RoPE.AttentionFactor))
	var out Outputs
	for i := range c.Layers {
		out.Hidden = append(out.Hidden, x)
		b.Segment()
		x = c.layer(m.Sub("layers.%d", i), in, x, table, c.Windows[i])
	}
	b.EndSegments()
	x = m.RMSNorm("norm", x, c.NormEps)
	out.Hidden = append(out.Hidden, x)
	tied := ""
	if c.TiedEmbeddings {
		tied = "model.embed_tokens"
	}
	out.Head = b.Head("lm_head", x, c.VocabSize, tied)
	return out
}

func (c *Config) layer(b *nn.Builder, in nn.Inputs, x, table graph.Tensor, window int) graph.Tensor {
	h := b.RMSNorm("input_layernorm", x, c.NormEps)
	x = c.attention(b.Sub("self_attn"), in, h, table, window).Add(x)
	h = b.RMSNorm("post_attention_layernorm", x, c.NormEps)
	return c.mlp(b.Sub("mlp"), h).Add(x)
}

func (c *Config) attention(b *nn.Builder, in nn.Inputs, x, table graph.Tensor, window int) graph.Tensor {
	q := b.Linear("q_proj", x, c.Heads*c.HeadDim, c.AttentionBias)
	k := b.Linear("k_proj", x, c.KVHeads*c.HeadDim, c.AttentionBias)
	v := b.Linear("v_proj", x, c.KVHeads*c.HeadDim, c.AttentionBias)
	if c.HeadNorm {
		q = b.HeadNorm("q_norm", q, c.HeadDim, c.NormEps)
		k = b.HeadNorm("k_norm", k, c.HeadDim, c.NormEps)
	}
	q, k = q.RoPE(table, c.HeadDim), k.RoPE(table, c.HeadDim)
	o := b.Attention(in, q, k, v, ir.AttentionAttr{
		Heads: c.Heads, KVHeads: c.KVHeads, HeadDim: c.HeadDim, Window: window,
		Scale: float32(1 / math.Sqrt(float64(c.HeadDim))),
	})
	return b.Linear("o_proj", o, c.HiddenSize, c.OutputBias)
}

func (c *Config) mlp(b *nn.Builder, x graph.Tensor) graph.Tensor {
	gate := b.Linear("gate_proj", x, c.IntermediateSize, c.MLPBias)
	up := b.Linear("up_proj", x, c.IntermediateSize, c.MLPBias)
	return b.Linear("down_proj", gate.GLU(up, c.Activation), c.HiddenSize, c.MLPBias)
}

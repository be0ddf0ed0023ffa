package dit

import (
	"math"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/tensor"
)

// joint is the joint sequence of text and image tokens, which attend to each other. The rows
// of a sample are its text tokens, then its image tokens; see layout.
type joint struct {
	stream         // of all tokens
	text, image    stream
	textRows       graph.Tensor // i32 [text tokens]: rows among all tokens
	imageRows      graph.Tensor
	table          graph.Tensor // rotary, f32 [rows, headDim]
	lo, hi         graph.Tensor // i32 [rows]: bounds of the keys of each token
	heads, headDim int
}

// newJoint declares the inputs that describe the joint sequence.
func newJoint(b *nn.Builder, heads, headDim int) joint {
	j := joint{
		stream: newStream(b, nn.Tokens), text: newStream(b, TextTokens), image: newStream(b, ImageTokens),
		heads: heads, headDim: headDim,
	}
	j.textRows = b.Input(TextRows, tensor.I32, j.text.rows())
	j.imageRows = b.Input(ImageRows, tensor.I32, j.image.rows())
	j.table = b.Input(Rotary, tensor.F32, j.rows(), ir.Static(headDim))
	j.lo, j.hi = b.Input(nn.KeyStart, tensor.I32, j.rows()), b.Input(nn.KeyEnd, tensor.I32, j.rows())
	return j
}

// join merges text and image values, [tokens, size] each, into the joint sequence.
func (j joint) join(text, image graph.Tensor) graph.Tensor {
	return j.spread(text, j.textRows).Add(j.spread(image, j.imageRows))
}

// spread scatters rows into the joint sequence; other rows are zero.
func (j joint) spread(x, rows graph.Tensor) graph.Tensor {
	g := x.Graph()
	return g.Of(g.IR().ScatterAddRows(x.Value(), rows.Value(), j.rows()))
}

// apart splits the joint sequence into text and image rows.
func (j joint) apart(x graph.Tensor) (text, image graph.Tensor) {
	return x.Gather(j.textRows), x.Gather(j.imageRows)
}

// attend computes attention among all tokens; q, k and v are [rows, heads·headDim]. It
// applies rotary embeddings to queries and keys first.
func (j joint) attend(q, k, v graph.Tensor) graph.Tensor {
	q, k = q.RoPEInterleaved(j.table, j.headDim), k.RoPEInterleaved(j.table, j.headDim)
	return q.Attention(k, v, j.lo, j.hi, ir.AttentionAttr{
		Heads: j.heads, KVHeads: j.heads, HeadDim: j.headDim, Scale: float32(1 / math.Sqrt(float64(j.headDim))),
	})
}

// normed returns the output of the linear layer called name with each head normalized by
// norm.
func (j joint) normed(b *nn.Builder, name, norm string, x graph.Tensor, eps float32) graph.Tensor {
	x = b.Linear(name, x, j.heads*j.headDim, true)
	return nn.PerHead(x, j.headDim, func(x graph.Tensor) graph.Tensor { return b.RMSNorm(norm, x, eps) })
}

// attention builds the joint attention of two streams, each with its own weights, named as in
// diffusers: to_q, to_k, to_v for images, add_q_proj, add_k_proj, add_v_proj for text, a norm
// per head, and the output layers to_out.0 and to_add_out (Esser et al. 2024, arXiv
// 2403.03206).
func (j joint) attention(b *nn.Builder, text, image graph.Tensor, eps float32) (textOut, imageOut graph.Tensor) {
	size := j.heads * j.headDim
	q := j.join(j.normed(b, "add_q_proj", "norm_added_q", text, eps), j.normed(b, "to_q", "norm_q", image, eps))
	k := j.join(j.normed(b, "add_k_proj", "norm_added_k", text, eps), j.normed(b, "to_k", "norm_k", image, eps))
	v := j.join(b.Linear("add_v_proj", text, size, true), b.Linear("to_v", image, size, true))
	text, image = j.apart(j.attend(q, k, v))
	return b.Linear("to_add_out", text, size, true), b.Linear("to_out.0", image, size, true)
}

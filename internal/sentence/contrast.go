package sentence

import (
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/tensor"
)

// Names of the inputs of a [Contrast], in addition to the inputs of embeddings, and of the axis of anchors.
const (
	Anchors       = "anchors"
	AnchorText    = "anchor_text"    // i32 [anchors]: index of the anchor's text
	CandidateText = "candidate_text" // i32 [candidates]: index of the candidate's text
	CandidateBias = "candidate_bias" // f32 [candidates]: 0, or a number far below all scores for an absent candidate
	CandidateOf   = "candidate_of"   // i32 [anchors]: the matching candidate of an anchor
)

// absent is the score bias of an absent candidate, whose share of the softmax is then 0.
const absent = -1e9

// Contrast is a contrastive loss for embeddings. Each row of a batch has an anchor, a matching text and optionally a
// non-matching one. Among all second and third texts of the batch, each anchor must find its own, by the cross-entropy
// of scaled cosines (van den Oord et al. 2018, arXiv 1807.03748). It equals MultipleNegativesRankingLoss of
// sentence-transformers.
type Contrast struct {
	Rows  int     // maximum per batch
	Texts int     // per row: 2 or 3
	Scale float64 // factor of the cosines, such as 20
}

// Bounds returns the maximum sizes of the axes for batches of tokens tokens.
func (c Contrast) Bounds(tokens int) map[string]int {
	return map[string]int{nn.Tokens: tokens, Texts: c.Rows * c.Texts, Anchors: c.Rows}
}

// Mark adds the inputs of embeddings and of the loss to a batch. The texts of each row must be consecutive.
func (c Contrast) Mark(b *data.Batch) {
	Mark(b)
	rows := b.Rows() / c.Texts
	anchors, own := make([]int32, rows), make([]int32, rows)
	most := max(rows, c.Rows) * (c.Texts - 1)
	texts, bias := make([]int32, most), make([]float32, most)
	for i := range bias {
		bias[i] = absent
	}
	for i := range rows {
		anchors[i], own[i] = int32(i*c.Texts), int32(i)
		for j := range c.Texts - 1 { // all second texts, then all third ones
			texts[j*rows+i], bias[j*rows+i] = int32(i*c.Texts+1+j), 0
		}
	}
	b.SetInts(AnchorText, anchors)
	b.SetInts(CandidateOf, own)
	b.SetInts(CandidateText, texts)
	b.SetFloats(CandidateBias, bias)
}

// Loss emits the loss of the embeddings of a batch [texts, size], summed over its anchors.
func (c Contrast) Loss(b *nn.Builder, vectors graph.Tensor) graph.Tensor {
	if !vectors.Valid() {
		return vectors
	}
	anchors, candidates := b.Axis(Anchors), ir.Static(c.Rows*(c.Texts-1))
	unit := Normalize(vectors)
	x := unit.Gather(b.Input(AnchorText, tensor.I32, anchors))
	y := unit.Gather(b.Input(CandidateText, tensor.I32, candidates))
	bias := b.Input(CandidateBias, tensor.F32, candidates)
	scores := b.G.Gemm([]ir.Product{{A: x.Value(), B: y.Value(), TB: true, Alpha: float32(c.Scale)}}, bias, graph.Tensor{})
	return scores.CrossEntropy(b.Input(CandidateOf, tensor.I32, anchors))
}

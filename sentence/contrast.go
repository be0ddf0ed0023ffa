package sentence

import (
	"github.com/lorafuse/lorafuse/data"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/ir"
	"github.com/lorafuse/lorafuse/nn"
	"github.com/lorafuse/lorafuse/tensor"
)

// Names of the inputs of a [Contrast], beside those of vectors, and of the axis of
// anchors.
const (
	Anchors       = "anchors"
	AnchorText    = "anchor_text"    // i32 [anchors]: the text that is the anchor
	CandidateText = "candidate_text" // i32 [candidates]: the text that is a candidate
	CandidateBias = "candidate_bias" // f32 [candidates]: 0, or, where there is none, a number far below all scores
	CandidateOf   = "candidate_of"   // i32 [anchors]: the candidate that belongs to an anchor
)

// absent is the score of a candidate that is not there: its share of a softmax is 0.
const absent = -1e9

// Contrast is the loss by which vectors learn what belongs together: each row of a
// batch is an anchor, a text that belongs to it and perhaps one that does not, and of
// all these second and third texts of the batch the anchor has to find its own, by the
// cross-entropy of scaled cosines (van den Oord et al. 2018, arXiv 1807.03748). It is
// MultipleNegativesRankingLoss of sentence-transformers.
type Contrast struct {
	Rows  int     // of a batch, at most
	Texts int     // of a row: 2 or 3
	Scale float64 // of cosines, such as 20
}

// Bounds are the axes of batches of so many tokens.
func (c Contrast) Bounds(tokens int) map[string]int {
	return map[string]int{nn.Tokens: tokens, Texts: c.Rows * c.Texts, Anchors: c.Rows}
}

// Mark adds to a batch of rows, whose texts lie one behind the other, what its vectors
// and the loss are made with.
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

// Loss emits the loss of the vectors of a batch [texts, size], summed over its anchors.
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

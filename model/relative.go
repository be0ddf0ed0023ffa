package model

import (
	"fmt"
	"math"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/nn"
	"github.com/lorafuse/lorafuse/tensor"
)

// relative is a bias of scores by how far a key lies from its query, which T5 and MPNet
// have: an embedding of kinds of distances, one number for each head.
type relative struct {
	name     string // of the embedding
	rows     int    // of the embedding, as many as kinds or more
	kinds    int
	farthest int // where the last kind begins
}

// check refuses what has no kinds of distances.
func (r relative) check() error {
	switch exact := r.kinds / 4; {
	case r.kinds < 4 || r.kinds%2 != 0 || r.kinds > maxSize:
		return fmt.Errorf("%w: relative_attention_num_buckets: found %d, expected an even number of 4 or more", ErrConfig, r.kinds)
	case r.farthest <= exact || r.farthest > 1<<16:
		return fmt.Errorf("%w: relative_attention_max_distance: found %d, expected more than a fourth of relative_attention_num_buckets, and 65536 at most", ErrConfig, r.farthest)
	}
	return nil
}

// bias is the bias of all heads as ir.RelativeBias has it, f32 [heads, 2·farthest+1]; b is
// the builder of the module that has the embedding.
func (r relative) bias(b *nn.Builder, heads int) graph.Tensor {
	of := b.Derived(nn.Derived{Name: "relative_positions", Shape: []int{2*r.farthest + 1}, Values: func(int) []float32 { return r.kindsOf() }})
	trained := len(b.Trained())
	bias := b.Embedding(nn.Attributes, r.name, of.Cast(tensor.I32), r.rows, heads, -1)
	if b.Training() && len(b.Trained()) > trained {
		return b.G.Fail(fmt.Errorf("%w: training of %s, which attention has no gradient for; leave it out of target_modules and modules_to_save", ErrUnsupported, r.name))
	}
	return bias.Transpose(1, 0)
}

// kindsOf are the kinds of the distances -farthest to farthest of a key from its query:
// half of them for keys before the query and for itself, half for those behind; of
// either, the first half are one distance each, and the others stretches that grow.
func (r relative) kindsOf() []float32 {
	half, exact := r.kinds/2, r.kinds/4
	kinds := make([]float32, 2*r.farthest+1)
	for i := range kinds {
		apart, kind := r.farthest-i, 0
		if apart < 0 {
			apart, kind = -apart, half
		}
		if apart >= exact {
			// The models' own arithmetic, which is that of float32.
			far := float32(math.Log(float64(float32(apart)/float32(exact)))) / float32(math.Log(float64(r.farthest)/float64(exact))) * float32(half-exact)
			apart = min(exact+int(far), half-1)
		}
		kinds[i] = float32(kind + apart)
	}
	return kinds
}

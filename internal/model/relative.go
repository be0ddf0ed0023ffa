package model

import (
	"fmt"
	"math"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/tensor"
)

// relative is a relative position bias of attention scores, as in T5 and MPNet: an embedding
// of distance buckets, with one number for each head.
type relative struct {
	name     string // of the embedding
	rows     int    // of the embedding, at least kinds
	kinds    int
	farthest int // distance at which the last bucket starts
}

// check validates the number of buckets and the maximum distance.
func (r relative) check() error {
	switch exact := r.kinds / 4; {
	case r.kinds < 4 || r.kinds%2 != 0 || r.kinds > maxSize:
		return fmt.Errorf("%w: relative_attention_num_buckets: found %d, expected an even number of 4 or more", ErrConfig, r.kinds)
	case r.farthest <= exact || r.farthest > 1<<16:
		return fmt.Errorf("%w: relative_attention_max_distance: found %d, expected more than a fourth of relative_attention_num_buckets, and 65536 at most", ErrConfig, r.farthest)
	}
	return nil
}

// bias returns the bias of all heads in the layout of ir.RelativeBias, f32 [heads,
// 2·farthest+1]. b is the builder of the module that has the embedding.
func (r relative) bias(b *nn.Builder, heads int) graph.Tensor {
	of := b.Derived(nn.Derived{Name: "relative_positions", Shape: []int{2*r.farthest + 1}, Values: func(int) []float32 { return r.kindsOf() }})
	trained := len(b.Trained())
	bias := b.Embedding(nn.Attributes, r.name, of.Cast(tensor.I32), r.rows, heads, -1)
	if b.Training() && len(b.Trained()) > trained {
		return b.G.Fail(fmt.Errorf("%w: training of %s, which attention has no gradient for; leave it out of target_modules and modules_to_save", ErrUnsupported, r.name))
	}
	return bias.Transpose(1, 0)
}

// kindsOf returns the buckets of the distances -farthest to farthest of a key from its query.
// Half of the buckets are for the query itself and keys before it, half for keys after it. In
// each half, the first half of the buckets hold one distance each, and the others hold ranges
// of growing size.
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

package model

import (
	"fmt"
	"math"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/nn"
	"github.com/lorafuse/lorafuse/tensor"
)

func init() {
	// MPNet (Song et al. 2020, arXiv 2004.09297): BERT without types, whose positions
	// begin behind the padding row, and whose scores have a bias by relative position.
	for _, head := range []string{"Model", "ForMaskedLM", "ForSequenceClassification"} {
		Register("MPNet"+head, Architecture{ModelType: "mpnet", Read: readMPNet})
	}
}

// The model knows no others, whatever config.json says.
const (
	mpnetPadding  = 1   // its row
	mpnetBuckets  = 32  // kinds of relative positions
	mpnetFarthest = 128 // where the last kind begins
)

func readMPNet(c *Config, f *Fields) Family {
	e := f.encoder(c, "mpnet.")
	rows := f.Int("relative_attention_num_buckets", mpnetBuckets)
	if rows < mpnetBuckets {
		f.Fail("relative_attention_num_buckets", rows, "32 or more")
	}
	c.Padding = mpnetPadding
	e.from(c, mpnetPadding)
	e.Attention = func(c *Config, b *nn.Builder, x graph.Tensor, look look) graph.Tensor {
		self := b.Sub("attn")
		q := self.Linear("q", x, c.HiddenSize, true)
		k := self.Linear("k", x, c.HiddenSize, true)
		v := self.Linear("v", x, c.HiddenSize, true)
		o := self.Linear("o", look(q, k, v), c.HiddenSize, true)
		if !o.Valid() {
			return o
		}
		return b.LayerNorm("LayerNorm", o.Add(x), e.NormEps)
	}
	e.Bias = func(_ *Config, b *nn.Builder) graph.Tensor {
		kinds := b.Derived(nn.Derived{Name: "relative_positions", Shape: []int{2*mpnetFarthest + 1}, Values: func(int) []float32 { return mpnetKinds() }})
		const name = "relative_attention_bias"
		trained := len(b.Trained())
		bias := b.Embedding(nn.Attributes, name, kinds.Cast(tensor.I32), rows, e.Heads, -1)
		if b.Training() && len(b.Trained()) > trained {
			return b.G.Fail(fmt.Errorf("%w: training of %s, which attention has no gradient for; leave it out of target_modules and modules_to_save", ErrUnsupported, name))
		}
		return bias.Transpose(1, 0)
	}
	return e
}

// mpnetKinds are the kinds of the relative positions -128 to 128: half of them for
// keys before the query and for itself, half for those behind; of either, the first
// half are one position each, and the others stretches that grow.
func mpnetKinds() []float32 {
	const half, exact = mpnetBuckets / 2, mpnetBuckets / 4
	kinds := make([]float32, 2*mpnetFarthest+1)
	for i := range kinds {
		apart, kind := mpnetFarthest-i, 0
		if apart < 0 {
			apart, kind = -apart, half
		}
		if apart >= exact {
			// The model's own arithmetic, which is that of float32.
			far := float32(math.Log(float64(float32(apart)/exact))) / float32(math.Log(mpnetFarthest/exact)) * (half - exact)
			apart = min(exact+int(far), half-1)
		}
		kinds[i] = float32(kind + apart)
	}
	return kinds
}

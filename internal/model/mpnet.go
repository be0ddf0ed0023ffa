package model

import (
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/nn"
)

func init() {
	// MPNet (Song et al. 2020, arXiv 2004.09297) is BERT without token types. Its positions
	// start after the padding row, and its scores have a relative position bias.
	for _, head := range []string{"Model", "ForMaskedLM", "ForSequenceClassification"} {
		Register("MPNet"+head, Architecture{ModelType: "mpnet", Read: readMPNet})
	}
}

// These values are fixed; config.json does not set them.
const (
	mpnetPadding  = 1   // the padding row
	mpnetBuckets  = 32  // number of distance buckets
	mpnetFarthest = 128 // distance at which the last bucket starts
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
	kinds := relative{name: "relative_attention_bias", rows: rows, kinds: mpnetBuckets, farthest: mpnetFarthest}
	e.Bias = func(_ *Config, b *nn.Builder) graph.Tensor { return kinds.bias(b, e.Heads) }
	return e
}

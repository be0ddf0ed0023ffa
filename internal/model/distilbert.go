package model

import (
	"regexp"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/nn"
)

func init() {
	// DistilBERT (Sanh et al. 2019, arXiv 1910.01108) is BERT without token types and pooler.
	for _, head := range []string{"Model", "ForMaskedLM", "ForSequenceClassification"} {
		Register("DistilBert"+head, Architecture{ModelType: "distilbert", Whole: true, Read: readDistilBert})
	}
}

var distilBertHeads = regexp.MustCompile(`^(vocab_transform|vocab_layer_norm|vocab_projector|pre_classifier)\.`)

func readDistilBert(c *Config, f *Fields) Family {
	for key, own := range map[string]string{
		"hidden_size": "dim", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads", "intermediate_size": "hidden_dim", "hidden_act": "activation",
	} {
		if f.Has(own) {
			f.values[key] = f.values[own]
		}
	}
	f.shared(c)
	e := f.encoder(c, "distilbert.")
	e.NormEps = 1e-12 // config.json does not set it
	e.OtherHeads = distilBertHeads
	e.Head = func(c *Config) []headLayer {
		relu := func(x graph.Tensor) graph.Tensor { return x.Activate(ir.ReLU) }
		dense := c.headLinear("pre_classifier", c.HiddenSize)
		dense.Then = relu
		return []headLayer{dense, c.headLinear("classifier", len(c.Classes.Names))}
	}
	e.States = func(c *Config, b *nn.Builder, in nn.Text) []graph.Tensor { return distilBertStates(e, c, b, in) }
	return e
}

func distilBertStates(e *Encoder, c *Config, b *nn.Builder, in nn.Text) []graph.Tensor {
	x := e.embed(c, b.Sub("embeddings"), in)
	a := e.heads(c)
	return e.layers(c, b.Sub("transformer"), "layer", x, func(b *nn.Builder, _ int, x graph.Tensor) graph.Tensor {
		self, ffn := b.Sub("attention"), b.Sub("ffn")
		q := self.Linear("q_lin", x, c.HiddenSize, true)
		k := self.Linear("k_lin", x, c.HiddenSize, true)
		v := self.Linear("v_lin", x, c.HiddenSize, true)
		h := self.Linear("out_lin", b.Attention(in, q, k, v, a), c.HiddenSize, true)
		x = b.LayerNorm("sa_layer_norm", h.Add(x), e.NormEps)
		h = ffn.Linear("lin1", x, e.Intermediate, true)
		if h.Valid() {
			h = h.Activate(e.Activation)
		}
		h = ffn.Linear("lin2", h, c.HiddenSize, true)
		return b.LayerNorm("output_layer_norm", h.Add(x), e.NormEps)
	})
}

package model

import (
	"math"
)

func init() {
	// Gemma 3, the language model (Gemma Team 2025, arXiv 2503.19786): most
	// layers slide and have a rotary base of their own, four norms a layer whose
	// weights are kept as differences from one, and embeddings times √hidden_size.
	Register("Gemma3ForCausalLM", Architecture{ModelType: "gemma3_text", Read: readGemma3})
	Register("Gemma3TextModel", Architecture{ModelType: "gemma3_text", Read: readGemma3})
	Register("Gemma3TextForSequenceClassification", Architecture{ModelType: "gemma3_text", Read: readGemma3})
}

func readGemma3(c *Config, f *Fields) Family {
	f.gemmaDefaults(c)
	d := f.decoder(c)
	if !f.Has("head_dim") {
		d.HeadDim = 256
	}
	d.Activation = f.activation("hidden_activation", "gelu_pytorch_tanh")
	d.AttentionBias = f.Bool("attention_bias", false)
	d.OutputBias = d.AttentionBias
	d.HeadNorm = true
	d.EmbeddingScale = math.Sqrt(float64(c.HiddenSize))
	if query := f.Float("query_pre_attn_scalar", 256); query > 0 {
		d.Scale = 1 / math.Sqrt(query)
	} else {
		f.Fail("query_pre_attn_scalar", query, "more than 0")
	}
	d.Norms = Norms{
		BeforeAttention: "input_layernorm", AfterAttention: "post_attention_layernorm",
		BeforeMLP: "pre_feedforward_layernorm", AfterMLP: "post_feedforward_layernorm",
	}
	d.NormOrigin = 1
	f.gemmaLayers(c, d)
	for _, key := range []string{"attn_logit_softcapping", "final_logit_softcapping"} {
		if f.Has(key) {
			f.Unsupported(key, f.Float(key, 0), []string{"null"})
		}
	}
	return d
}

// gemmaDefaults takes the values that a Gemma means where config.json has no such key.
func (f *Fields) gemmaDefaults(c *Config) {
	c.TiedEmbeddings = f.Bool("tie_word_embeddings", true)
	c.MaxPositions = f.Int("max_position_embeddings", 131072)
	if _, given := f.values["pad_token_id"]; !given {
		c.Padding = 0
	}
	if _, given := f.values["eos_token_id"]; !given {
		c.EOS = []int32{1}
	}
	if _, given := f.values["bos_token_id"]; !given {
		c.BOS = 2
	}
}

// gemmaLayers reads which layers slide, and the rotary embedding of either kind.
func (f *Fields) gemmaLayers(c *Config, d *Decoder) {
	window, pattern := f.Int("sliding_window", 4096), f.Int("sliding_window_pattern", 6)
	types := f.layerTypes(len(d.Windows))
	if window < 1 {
		f.Fail("sliding_window", window, "1 or more")
	}
	if pattern < 1 {
		f.Fail("sliding_window_pattern", pattern, "1 or more")
		return
	}
	if types == nil {
		types = make([]string, len(d.Windows))
		for i := range types {
			if types[i] = slidingAttention; (i+1)%pattern == 0 {
				types[i] = fullAttention
			}
		}
	}
	if f.Bool("use_bidirectional_attention", false) {
		// The window is split between both sides, and is_causal: false counts the query.
		window = d.window(window/2 + 1)
		d.Bidirectional = true
	} else {
		window = d.window(window)
	}
	ropes := map[string]RoPE{
		fullAttention:    f.ropeOf(c, fullAttention, plainRoPE(c, d.HeadDim, 1e6)),
		slidingAttention: f.ropeOf(c, slidingAttention, plainRoPE(c, d.HeadDim, f.Float("rope_local_base_freq", 10000))),
	}
	if !f.Has("rope_parameters") { // transformers 4 scaled full attention alone
		ropes[fullAttention] = f.rope(c, d.HeadDim, 1e6)
	}
	d.RoPE, d.Ropes, d.LayerTypes = ropes[fullAttention], ropes, types
	for i, t := range types {
		if t == slidingAttention {
			d.Windows[i] = window
		}
	}
}

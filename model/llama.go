package model

func init() {
	// Llama 2 and 3 (Touvron et al. 2023, arXiv 2307.09288).
	Register("LlamaForCausalLM", Architecture{ModelType: "llama", Read: readLlama})
	Register("LlamaModel", Architecture{ModelType: "llama", Read: readLlama})
	Register("LlamaForSequenceClassification", Architecture{ModelType: "llama", Read: readLlama})
}

func readLlama(c *Config, f *Fields) Family {
	d := f.decoder(c)
	d.RoPE = f.rope(c, d.HeadDim, 10000)
	d.AttentionBias = f.Bool("attention_bias", false)
	d.OutputBias = d.AttentionBias
	d.MLPBias = f.Bool("mlp_bias", false)
	if tp := f.Int("pretraining_tp", 1); tp > 1 {
		f.Unsupported("pretraining_tp", tp, []string{"1"})
	}
	return d
}

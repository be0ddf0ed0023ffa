package model

func init() {
	// Llama 2 and 3 (Touvron et al. 2023, arXiv 2307.09288).
	Register("LlamaForCausalLM", Architecture{
		ModelType: "llama",
		Configure: func(c *Config, f *Fields) {
			c.AttentionBias = f.bool("attention_bias", false)
			c.OutputBias = c.AttentionBias
			c.MLPBias = f.bool("mlp_bias", false)
			if tp := f.int("pretraining_tp", 1); tp > 1 {
				f.unsupported("pretraining_tp", tp, []string{"1"})
			}
		},
		Build: decoder,
	})
}

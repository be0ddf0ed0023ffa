package model

func init() {
	// Qwen2 and Qwen2.5 (Yang et al. 2024, arXiv 2407.10671): biases on q, k
	// and v.
	Register("Qwen2ForCausalLM", Architecture{
		ModelType: "qwen2",
		Configure: func(c *Config, f *Fields) {
			c.AttentionBias = true
			f.layerWindows(c)
		},
		Build: decoder,
	})
	// Qwen3 (Yang et al. 2025, arXiv 2505.09388): no biases, and a norm on
	// each head of q and k.
	Register("Qwen3ForCausalLM", Architecture{
		ModelType: "qwen3",
		Configure: func(c *Config, f *Fields) {
			if !f.has("head_dim") {
				c.HeadDim, c.RoPE.Dim = 128, 128
			}
			c.AttentionBias = f.bool("attention_bias", false)
			c.OutputBias = c.AttentionBias
			c.HeadNorm = true
			f.layerWindows(c)
		},
		Build: decoder,
	})
}

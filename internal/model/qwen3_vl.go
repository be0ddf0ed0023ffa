package model

import "github.com/lorafuse/lorafuse/internal/nn"

func init() {
	// This is the text model of Qwen3-VL (Bai et al. 2025, arXiv 2511.21631), which is Qwen3
	// without windows. The features of its vision tower are also added to the first layers, but
	// only at image tokens.
	registerDecoder("qwen3_vl_text", readQwen3VLText, "Qwen3VLTextModel")
	registerWrapper("qwen3_vl", readQwen3VL, "Qwen3VLForConditionalGeneration", "Qwen3VLModel")
	registerDecoder("qwen3_vl_moe_text", readQwen3VLMoEText, "Qwen3VLMoeTextModel")
	registerWrapper("qwen3_vl_moe", readQwen3VLMoE, "Qwen3VLMoeForConditionalGeneration", "Qwen3VLMoeModel")
}

func readQwen3VL(c *Config, f *Fields) Family {
	m := f.wrapped(c, "qwen3_vl_text")
	f.tie(c, false)
	return m
}

func readQwen3VLText(c *Config, f *Fields) Family {
	f.oneAxis()
	m := &qwen3{decoder: f.decoder(c), Windows: make([]int, max(0, c.Layers))}
	if !f.Has("head_dim") {
		m.HeadDim = 128
	}
	m.RoPE = f.rope(c, m.HeadDim, 500000)
	m.AttentionBias = f.Bool("attention_bias", false)
	return m
}

func readQwen3VLMoE(c *Config, f *Fields) Family {
	m := f.wrapped(c, "qwen3_vl_moe_text")
	f.tie(c, false)
	return m
}

// readQwen3VLMoEText reads a Qwen3-MoE without windows. Files have its experts transposed, which
// transformers tells from their shapes.
func readQwen3VLMoEText(c *Config, f *Fields) Family {
	f.oneAxis()
	m := &qwen3MoE{decoder: f.decoder(c), AttentionBias: f.Bool("attention_bias", false), Plain: f.plainLayers(c)}
	m.RoPE = f.rope(c, m.HeadDim, 500000)
	m.Mixture = f.mixture(nn.Experts{
		Count: 60, Chosen: 4, Units: f.Int("moe_intermediate_size", 1408), Activation: m.Activation, Normalized: true, Layout: nn.Layout{Order: nn.ByShape},
	})
	return m
}

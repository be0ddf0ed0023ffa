package model

func init() {
	// LLaVA (Liu et al. 2023, arXiv 2304.08485) and Pixtral (Agrawal et al. 2024, arXiv
	// 2410.07073): any language model with a vision tower.
	registerWrapper("llava", readLlava, "LlavaForConditionalGeneration", "LlavaModel")
	// LLaVA-NeXT (Liu et al. 2024, "LLaVA-NeXT: Improved reasoning, OCR, and world knowledge") and
	// Granite Vision (Granite Vision Team 2025, arXiv 2502.09927).
	registerWrapper("llava_next", readLlavaNext, "LlavaNextForConditionalGeneration", "LlavaNextModel")
	// Aya Vision (Dash et al. 2025, arXiv 2505.08751).
	registerWrapper("aya_vision", readAyaVision, "AyaVisionForConditionalGeneration", "AyaVisionModel")
}

func readLlava(c *Config, f *Fields) Family {
	m := f.wrapped(c, "llama")
	f.tieEither(c)
	return m
}

func readLlavaNext(c *Config, f *Fields) Family {
	m := f.wrapped(c, "llama")
	f.tie(c, c.TiedEmbeddings)
	return m
}

func readAyaVision(c *Config, f *Fields) Family {
	m := f.wrapped(c, "cohere2")
	f.tie(c, true)
	return m
}

package model

func init() {
	// LLaVA (Liu et al. 2023, arXiv 2304.08485) and Pixtral (Agrawal et al. 2024, arXiv
	// 2410.07073): any language model with a vision tower.
	registerWrapper("llava", readLlava, "LlavaForConditionalGeneration", "LlavaModel")
}

func readLlava(c *Config, f *Fields) Family {
	m := f.wrapped(c, "llama")
	f.tieEither(c)
	return m
}

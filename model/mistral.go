package model

func init() {
	// Mistral 7B (Jiang et al. 2023, arXiv 2310.06825): a Llama whose queries
	// see a window of keys.
	Register("MistralForCausalLM", Architecture{ModelType: "mistral", Read: readMistral})
	Register("MistralModel", Architecture{ModelType: "mistral", Read: readMistral})
	Register("MistralForSequenceClassification", Architecture{ModelType: "mistral", Read: readMistral})
}

func readMistral(c *Config, f *Fields) Family {
	d := f.decoder(c)
	d.RoPE = f.rope(c, d.HeadDim, 10000)
	window := 0
	if _, given := f.values["sliding_window"]; !given {
		window = 4096
	}
	f.slide(d, f.Int("sliding_window", window))
	return d
}

// slide gives all layers one window, 0 for none.
func (f *Fields) slide(d *Decoder, window int) {
	if window < 0 {
		f.Fail("sliding_window", window, "null or 1 and more")
	}
	for i := range d.Windows {
		d.Windows[i] = d.window(window)
	}
}

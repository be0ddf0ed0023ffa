package model

import "fmt"

func init() {
	// Qwen2 and Qwen2.5 (Yang et al. 2024, arXiv 2407.10671): biases on q, k
	// and v.
	Register("Qwen2ForCausalLM", Architecture{ModelType: "qwen2", Read: readQwen2})
	Register("Qwen2Model", Architecture{ModelType: "qwen2", Read: readQwen2})
	Register("Qwen2ForSequenceClassification", Architecture{ModelType: "qwen2", Read: readQwen2})
	// Qwen3 (Yang et al. 2025, arXiv 2505.09388): no biases, and a norm on
	// each head of q and k.
	Register("Qwen3ForCausalLM", Architecture{ModelType: "qwen3", Read: readQwen3})
	Register("Qwen3Model", Architecture{ModelType: "qwen3", Read: readQwen3})
	Register("Qwen3ForSequenceClassification", Architecture{ModelType: "qwen3", Read: readQwen3})
}

func readQwen2(c *Config, f *Fields) Family {
	d := f.decoder(c)
	d.RoPE = f.rope(c, d.HeadDim, 10000)
	d.AttentionBias = true
	f.qwenWindows(d, 28)
	return d
}

func readQwen3(c *Config, f *Fields) Family {
	d := f.decoder(c)
	if !f.Has("head_dim") {
		d.HeadDim = 128
	}
	d.RoPE = f.rope(c, d.HeadDim, 10000)
	d.AttentionBias = f.Bool("attention_bias", false)
	d.OutputBias = d.AttentionBias
	d.HeadNorm = true
	f.qwenWindows(d, 28)
	return d
}

// qwenWindows reads which layers slide: those of layer_types, or those from
// max_window_layers on, which is from where it is missing.
func (f *Fields) qwenWindows(d *Decoder, from int) {
	window := f.Int("sliding_window", 4096)
	if !f.Bool("use_sliding_window", false) {
		window = 0
	}
	from = f.Int("max_window_layers", from)
	types := f.layerTypes(len(d.Windows))
	for i := range d.Windows {
		slides := i >= from && window > 0
		if types != nil {
			slides = types[i] == slidingAttention
			if slides && window <= 0 {
				f.Fail("layer_types", types[i], "sliding_window and use_sliding_window with it")
			}
		}
		if slides {
			d.Windows[i] = d.window(window)
		}
	}
}

// The kinds of layers that layer_types names.
const (
	fullAttention    = "full_attention"
	slidingAttention = "sliding_attention"
)

// layerTypes reads the kind of each layer, nil where the key is missing.
func (f *Fields) layerTypes(layers int) []string {
	types := f.Strings("layer_types")
	if types == nil {
		return nil
	}
	if len(types) != layers {
		f.Fail("layer_types", fmt.Sprintf("%d entries", len(types)), fmt.Sprintf("%d, one for each layer", layers))
		return nil
	}
	for _, t := range types {
		if t != fullAttention && t != slidingAttention {
			f.Unsupported("layer_types", t, []string{fullAttention, slidingAttention})
			return nil
		}
	}
	return types
}

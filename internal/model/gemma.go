package model

import (
	"math"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/nn"
)

// gemma holds the keys of config.json that the Gemma models share. Gemma 1 has no scale and no
// layer types.
type gemma struct {
	decoder
	AttentionBias bool
	Scale         float64  `json:",omitempty"` // of the scores
	LayerTypes    []string `json:",omitempty"` // by layer
	Window        int      `json:",omitempty"` // of the layers with sliding attention
}

// gemma reads the keys that all versions have.
func (f *Fields) gemma(c *Config, maxPositions int) gemma {
	c.TiedEmbeddings = f.Bool("tie_word_embeddings", true)
	c.MaxPositions = f.Int("max_position_embeddings", maxPositions)
	if _, given := f.values["pad_token_id"]; !given {
		c.Padding = 0
	}
	if _, given := f.values["eos_token_id"]; !given {
		c.EOS = []int32{1}
	}
	if _, given := f.values["bos_token_id"]; !given {
		c.BOS = 2
	}
	m := gemma{decoder: f.decoder(c)}
	if !f.Has("head_dim") {
		m.HeadDim = 256
	}
	m.AttentionBias = f.Bool("attention_bias", false)
	return m
}

// gemmaLayers reads the keys of Gemma 2 and 3. Unless layer_types is given, every pattern-th
// layer has full attention and the others have sliding attention.
func (f *Fields) gemmaLayers(c *Config, maxPositions, pattern int) gemma {
	m := f.gemma(c, maxPositions)
	m.Activation = f.activation("hidden_activation", "gelu_pytorch_tanh")
	query := f.Float("query_pre_attn_scalar", 256)
	if !(query > 0) {
		f.Fail("query_pre_attn_scalar", query, "more than 0")
	}
	m.Scale = 1 / math.Sqrt(query)
	if m.Window = f.Int("sliding_window", 4096); m.Window < 1 {
		f.Fail("sliding_window", m.Window, "1 or more")
	}
	if m.LayerTypes = f.layerTypes(max(0, c.Layers)); m.LayerTypes == nil {
		m.LayerTypes = make([]string, max(0, c.Layers))
		for i := range m.LayerTypes {
			if m.LayerTypes[i] = slidingAttention; (i+1)%pattern == 0 {
				m.LayerTypes[i] = fullAttention
			}
		}
	}
	return m
}

// norm applies RMSNorm. The stored weight is the weight minus 1.
func (m *gemma) norm(b *nn.Builder, name string, x graph.Tensor) graph.Tensor {
	return b.RMSNormFrom(name, x, m.NormEps, 1)
}

func (m *gemma) normOrigin() float64 { return 1 }

// scores returns the attributes of attention in layer i.
func (m *gemma) scores(i int) ir.AttentionAttr {
	window := 0
	if m.LayerTypes[i] == slidingAttention {
		window = m.Window
	}
	a := m.decoder.scores(window)
	a.Scale = float32(m.Scale)
	return a
}

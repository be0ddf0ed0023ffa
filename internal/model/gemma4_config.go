package model

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

func readGemma4(c *Config, f *Fields) Family {
	f.defaults(c, defaults{MaxPositions: 131072, Tied: true, BOS: 2, EOS: []int32{1}, Padding: 0})
	f.addDefaults(`{"num_key_value_heads": 4, "head_dim": 256}`)
	m := &gemma4{decoder: f.decoder(c)}
	m.Activation = f.activation("hidden_activation", "gelu_pytorch_tanh")
	m.AttentionBias = f.Bool("attention_bias", false)
	m.LayerTypes = f.layerKinds(max(0, c.Layers), 6)
	if n := len(m.LayerTypes); n > 0 {
		m.LayerTypes[n-1] = fullAttention // as transformers has it
	}
	m.Window = f.kindWindow(&m.decoder, m.LayerTypes, 512)
	m.KeysAreValues = f.Bool("attention_k_eq_v", false)
	m.Shared, m.DoubleMLP = f.Int("num_kv_shared_layers", 0), f.Bool("use_double_wide_mlp", false)
	m.PerLayer, m.PerLayerVocab = f.Int("hidden_size_per_layer_input", 256), f.Int("vocab_size_per_layer_input", 262144)
	if f.Has("final_logit_softcapping") {
		m.LogitCap = f.softCap("final_logit_softcapping", 0)
	}
	if f.Bool("enable_moe_block", false) {
		f.Unsupported("enable_moe_block", true, []string{"false"})
	}
	if both := f.String("use_bidirectional_attention", "vision"); both != "vision" { // images are left out
		f.Unsupported("use_bidirectional_attention", both, []string{"null", "vision"})
	}
	m.heads(c, f)
	m.RoPE = f.ropeOf(c, slidingAttention, plainRoPE(c, m.HeadDim, 10000))
	m.GlobalRoPE = f.proportionalRoPE(c, fullAttention, m.globalHeadDim())
	return m
}

// heads reads the sizes of heads: of the layers with full attention, or by layer.
func (m *gemma4) heads(c *Config, f *Fields) {
	m.LayerHeads = make([]layerHeads, len(m.LayerTypes))
	global := layerHeads{m.KVHeads, f.Int("global_head_dim", 512)}
	if m.KeysAreValues {
		global.KVHeads = f.Int("num_global_key_value_heads", m.KVHeads)
	}
	const key = "per_layer_config"
	layers := f.Object(key)
	for i, kind := range m.LayerTypes {
		h := layerHeads{m.KVHeads, m.HeadDim}
		switch {
		case f.Has(key):
			own := layers.Object(strconv.Itoa(i))
			own.Only("head_dim", "num_key_value_heads")
			h = layerHeads{own.Int("num_key_value_heads", h.KVHeads), own.Int("head_dim", h.HeadDim)}
			if own.err != nil && f.err == nil {
				f.err = fmt.Errorf("%s: %d: %w", key, i, own.err)
			}
		case kind == fullAttention:
			h = global
		}
		if h.HeadDim < 2 || h.HeadDim%2 != 0 || h.KVHeads < 1 || m.Heads%h.KVHeads != 0 {
			f.Fail(key, fmt.Sprintf("%d heads of %d elements in layer %d", h.KVHeads, h.HeadDim, i), "an even size, and a divisor of num_attention_heads")
		}
		m.LayerHeads[i] = h
		first := m.LayerHeads[slices.Index(m.LayerTypes, kind)]
		if h.HeadDim != first.HeadDim || kind == slidingAttention && h.HeadDim != m.HeadDim {
			f.Fail(key, fmt.Sprintf("head_dim %d in layer %d", h.HeadDim, i), "one size for all layers of a type")
		}
	}
	if m.Shared < 0 || m.Shared >= max(1, c.Layers) {
		f.Fail("num_kv_shared_layers", m.Shared, "0 or more, and fewer than num_hidden_layers")
		return
	}
	for i := len(m.LayerTypes) - m.Shared; i < len(m.LayerTypes); i++ {
		if from := m.source(i); from < 0 || m.LayerHeads[from] != m.LayerHeads[i] {
			f.Fail("num_kv_shared_layers", m.Shared, "for each of them a layer of its type and sizes with keys of its own")
		}
	}
}

func (m *gemma4) globalHeadDim() int {
	if i := slices.Index(m.LayerTypes, fullAttention); i >= 0 {
		return m.LayerHeads[i].HeadDim
	}
	return m.HeadDim
}

// proportionalRoPE reads rope_parameters of a layer type, of which the first part of the pairs of a
// head may be rotated.
func (f *Fields) proportionalRoPE(c *Config, layerType string, headDim int) RoPE {
	const key, proportional = "rope_parameters", "proportional"
	if !f.Has(key) {
		r := plainRoPE(c, headDim, 1e6)
		r.Type, r.Rotated = proportional, headDim/8
		return r
	}
	s := f.Object(key).Object(layerType)
	if s.String("rope_type", "default") != proportional {
		return f.ropeOf(c, layerType, plainRoPE(c, headDim, 1e6))
	}
	r := plainRoPE(c, headDim, s.Float("rope_theta", 1e6))
	share := s.Float(rotaryShare, 1)
	r.Type, r.Factor, r.Rotated = proportional, s.Float("factor", 1), int(math.Floor(share*float64(headDim)/2))
	if s.err != nil && f.err == nil {
		f.err = fmt.Errorf("%s.%s: %w", key, layerType, s.err)
	}
	if !(share >= 0) || share > 1 {
		f.Fail(rotaryShare, share, "0 to 1")
	}
	return r.check(f, key)
}

// Check implements Family.
func (m *gemma4) Check(c *Config) error {
	if m.PerLayer != 0 {
		if err := CheckSizes(Size{"hidden_size_per_layer_input", m.PerLayer}, Size{"vocab_size_per_layer_input", m.PerLayerVocab}); err != nil {
			return err
		}
	}
	return m.decoder.Check(c)
}

// Skips implements [Skipper]: files may hold keys of layers that use those of others.
func (m *gemma4) Skips(c *Config) []Skip {
	own := m.decoder.Skips(c)
	var numbers []string
	for i := len(m.LayerTypes) - m.Shared; i < len(m.LayerTypes); i++ {
		numbers = append(numbers, strconv.Itoa(i))
	}
	if numbers == nil {
		return own
	}
	names := regexp.MustCompile(`(^|\.)layers\.(` + strings.Join(numbers, "|") + `)\.self_attn\.[kv]_(proj|norm)\.`)
	return append(own, Skip{Names: names, Why: "layer uses the keys of another", Expected: true})
}

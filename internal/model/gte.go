package model

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
)

func init() {
	// GTE v1.5 and multilingual (Zhang et al. 2024, arXiv 2407.19669): its own code calls the
	// classes New, and transformers calls them Gte.
	for _, head := range []string{"Model", "ForMaskedLM", "ForSequenceClassification"} {
		Register("Gte"+head, Architecture{ModelType: "gte", Read: readGTE})
		Register("New"+head, Architecture{ModelType: "new", Read: readGTE})
	}
}

func readGTE(c *Config, f *Fields) Family {
	for key, def := range ordered(map[string]string{"position_embedding_type": "rope", "layer_norm_type": "layer_norm"}) {
		if s := f.String(key, def); s != def {
			f.Unsupported(key, s, []string{def})
		}
	}
	for _, key := range []string{"logn_attention_scale", "logn_attention_clip1"} {
		if f.Bool(key, false) {
			f.Unsupported(key, true, []string{"false"})
		}
	}
	if s := f.Object("rope_scaling"); s.String("rope_type", s.String("type", "")) == "ntk" {
		f.fixedNTK(c, s)
	}
	m := f.rotary(c, "gte.", 160000)
	m.Types = f.Int("type_vocab_size", 1)
	m.QKVOBias, m.DownBias = true, true
	m.Prefixes = []string{"new."}
	m.StoredNames = strings.NewReplacer("layers.", "encoder.layer.", "self_attn.", "attention.", "post_attention_layernorm.", "attn_ln.", "post_mlp_layernorm.", "mlp_ln.")
	m.StoredLayers = "encoder.layer"
	m.Fused = []fusedLayer{
		{"attention.qkv_proj", []string{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}},
		{"mlp.up_gate_proj", []string{"mlp.up_proj", "mlp.gate_proj"}},
	}
	m.Settings = m.rotarySettings
	return m.Encoder
}

// fixedNTK rewrites the rotary scaling of the model's own code, in which the base θ of d rotated
// elements is multiplied by the factor f and all frequencies are divided by f^(2/d), as linear
// scaling (https://kexue.fm/archives/9706, formula 6).
func (f *Fields) fixedNTK(c *Config, s *Fields) {
	s.Only("type", "rope_type", "factor")
	factor, heads := s.Float("factor", 1), f.Int("num_attention_heads", 1)
	if s.err != nil && f.err == nil {
		f.err = fmt.Errorf("rope_scaling: %w", s.err)
	}
	if heads < 1 || c.HiddenSize < heads || !(factor > 0) {
		f.Fail("rope_scaling", string(f.values["rope_scaling"]), "a factor of more than 0, and num_attention_heads of at most hidden_size")
		return
	}
	theta, d := f.Float("rope_theta", 10000), float64(c.HiddenSize/heads)
	f.values["rope_theta"], _ = json.Marshal(theta * factor)
	f.values["rope_scaling"], _ = json.Marshal(map[string]any{"rope_type": "linear", "factor": math.Pow(factor, 2/d)})
}

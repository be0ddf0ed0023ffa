package model

import (
	"regexp"
	"strconv"

	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/nn"
)

func init() {
	for _, name := range []string{"GPT2LMHeadModel", "GPT2Model", "GPT2ForSequenceClassification"} {
		Register(name, Architecture{ModelType: "gpt2", Whole: true, Read: readGPT2})
	}
}

// gpt2 is GPT-2 (Radford et al. 2019): learned positions, and linear layers whose weights are
// stored transposed. q, k and v are one of them.
type gpt2 struct {
	decoder
	ScaleByHead  bool // scores are divided by √head_dim
	ScaleByLayer bool // and by the number of the layer, from 1
}

func readGPT2(c *Config, f *Fields) Family {
	f.addDefaults(`{"n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "vocab_size": 50257,
		"bos_token_id": 50256, "eos_token_id": 50256, "tie_word_embeddings": true}`)
	for key, own := range map[string]string{
		"hidden_size": "n_embd", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head", "max_position_embeddings": "n_positions", "hidden_act": "activation_function",
	} {
		if f.given(own) {
			f.values[key] = f.values[own]
		} else {
			delete(f.values, key)
		}
	}
	for _, key := range []string{"num_key_value_heads", "head_dim"} { // which are none of its keys
		delete(f.values, key)
	}
	f.shared(c)
	if inner := "intermediate_size"; f.Has("n_inner") {
		f.values[inner] = f.values["n_inner"]
	} else {
		f.values[inner] = []byte(strconv.Itoa(4 * c.HiddenSize))
	}
	m := &gpt2{decoder: f.decoder(c)}
	m.called = names{Body: "transformer", Layers: "h", Embedding: "wte"}
	m.NormEps = float32(f.Float("layer_norm_epsilon", 1e-5))
	m.Activation = f.activation("hidden_act", "gelu_new")
	m.ScaleByHead = f.Bool("scale_attn_weights", true)
	m.ScaleByLayer = f.Bool("scale_attn_by_inverse_layer_idx", false)
	if f.Bool("add_cross_attention", false) {
		f.Unsupported("add_cross_attention", true, []string{"false"})
	}
	if m.Heads > 0 && c.HiddenSize%m.Heads != 0 {
		f.Fail("n_embd", c.HiddenSize, "a multiple of n_head")
	}
	return m
}

// causalMasks are buffers of early files of GPT-2 and GPT-NeoX.
var causalMasks = Skip{Names: regexp.MustCompile(`(^|\.)(attn|attention)\.(bias|masked_bias)$`), Why: "causal mask", Expected: true}

// Skips implements [Skipper].
func (m *gpt2) Skips(c *Config) []Skip {
	return append(m.decoder.Skips(c), causalMasks)
}

// Build implements Family.
func (m *gpt2) Build(c *Config, b *nn.Builder) Outputs {
	l, d := m.language(c, b), c.HiddenSize
	x := l.body.Embedding(nn.Vocabulary, l.names.Embedding, l.Tokens, c.VocabSize, d, -1)
	x = x.Add(l.body.Embedding(nn.Attributes, "wpe", l.Positions, c.MaxPositions, d, -1))
	x = l.layers(x, func(b *nn.Builder, i int, x graph.Tensor) graph.Tensor {
		scores := m.scores(0)
		if !m.ScaleByHead {
			scores.Scale = 1
		}
		if m.ScaleByLayer {
			scores.Scale /= float32(i + 1)
		}
		a, mlp := b.Sub("attn"), b.Sub("mlp")
		qkv := a.Conv1D("c_attn", b.LayerNorm("ln_1", x, m.NormEps), 3*d)
		if !qkv.Valid() {
			return qkv
		}
		h := l.attention(a, qkv.Slice(1, 0, d), qkv.Slice(1, d, 2*d), qkv.Slice(1, 2*d, 3*d), scores)
		x = a.Conv1D("c_proj", h, d).Add(x)
		h = mlp.Conv1D("c_fc", b.LayerNorm("ln_2", x, m.NormEps), m.Intermediate)
		if !h.Valid() {
			return h
		}
		return mlp.Conv1D("c_proj", h.Activate(m.Activation), d).Add(x)
	})
	return l.outputs(l.body.LayerNorm("ln_f", x, m.NormEps))
}

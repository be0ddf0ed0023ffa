package llamacpp

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/gguf"
	"github.com/lorafuse/lorafuse/internal/model"
)

// settings holds the settings of a family of package model, with its defaults
// applied, by the names of its exported fields.
type settings struct {
	Intermediate, Heads, KVHeads, HeadDim int
	NormEps                               float64
	Activation                            int
	RoPE, LocalRoPE                       model.RoPE
	Bidirectional                         bool

	Window     int
	Windows    []int
	LayerTypes []string

	Scale, ScoreCap, LogitCap              float64 // Gemma
	Embedding, Residual, Attention, Logits float64 // Granite
	LogitScale                             float64 // Cohere
	HeadNorms                              bool    // Cohere
	Beta                                   float64 // Ministral 3
	Step                                   int
	Everywhere                             bool // EXAONE 4
	Rotary                                 json.RawMessage
	Plain                                  []bool
	Experts                                struct {
		Count, Chosen, Units int
		Normalized           bool
	}
}

// activations has the names of activation functions, by their numbers in package ir.
var activations = []string{"silu", "gelu", "gelu_tanh", "quick_gelu", "relu"}

// exporter computes the metadata of a model.
type exporter struct {
	arch   *architecture
	config *model.Config
	fields *model.Fields // of config.json
	settings
	keys []gguf.KeyValue
	// context is the longest text, shorter than the model's if llama.cpp has no
	// windows for the architecture.
	context int
	extra   []Extra
	err     error
}

// Extra is a tensor of a GGUF file that is computed from the configuration.
type Extra struct {
	Name   string
	Values []float32
}

func (e *exporter) fail(format string, args ...any) {
	if e.err == nil {
		e.err = fmt.Errorf("%w: %s", ErrUnsupported, fmt.Sprintf(format, args...))
	}
}

// unless rejects a setting that llama.cpp does not compute.
func (e *exporter) unless(ok bool, key string, found any, expected string) {
	if !ok {
		e.fail("%s: found %v, which llama.cpp does not compute for %s; supported: %s", key, found, e.arch.name, expected)
	}
}

// add adds a key of the architecture.
func (e *exporter) add(key string, value any) {
	e.keys = append(e.keys, gguf.KeyValue{Key: e.arch.name + "." + key, Value: value})
}

func (e *exporter) addInt(key string, n int) { e.add(key, gguf.U32(n)) }

func (e *exporter) addFloat(key string, x float64) { e.add(key, float32(x)) }

// newExporter reads the settings of a model.
func newExporter(m *model.Model) (*exporter, error) {
	raw, err := os.ReadFile(filepath.Join(m.Dir, "config.json"))
	if err != nil {
		return nil, err
	}
	fields, err := model.ParseFields(raw)
	if err != nil {
		return nil, err
	}
	a, err := ofClass(m.Config.Architecture, fields.Object("text_config").String("model_type", ""))
	if err != nil {
		return nil, err
	}
	e := &exporter{arch: a, config: m.Config, fields: fields, context: m.Config.MaxLength()}
	family, err := json.Marshal(m.Config.Family)
	if err == nil {
		err = json.Unmarshal(family, &e.settings)
	}
	return e, err
}

// metadata computes the keys that follow from the configuration.
func (e *exporter) metadata() {
	c, want := e.config, e.arch.activation
	if want == "" {
		want = "silu"
	}
	e.unless(!e.Bidirectional, "is_causal", false, "true")
	got := fmt.Sprint(e.Activation)
	if e.Activation < len(activations) {
		got = activations[e.Activation]
	}
	e.unless(got == want, "hidden_act", got, want)
	e.unless(!e.arch.square || e.Heads*e.HeadDim == c.HiddenSize, "head_dim", e.HeadDim, "hidden_size / num_attention_heads")
	e.unless(!e.arch.tiedOnly || c.TiedEmbeddings, "tie_word_embeddings", c.TiedEmbeddings, "true")
	e.addInt("block_count", c.Layers)
	e.addInt("embedding_length", c.HiddenSize)
	e.addInt("feed_forward_length", e.Intermediate)
	e.addInt("attention.head_count", e.Heads)
	e.addInt("attention.head_count_kv", e.KVHeads)
	e.addInt("attention.key_length", e.HeadDim)
	e.addInt("attention.value_length", e.HeadDim)
	e.addInt("vocab_size", c.VocabSize)
	if strings.HasPrefix(e.arch.name, "co") { // Cohere has LayerNorm
		e.addFloat("attention.layer_norm_epsilon", e.NormEps)
	} else {
		e.addFloat("attention.layer_norm_rms_epsilon", e.NormEps)
	}
	e.arch.settings(e)
	e.addInt("context_length", e.context)
}

// plain adds the rotary embedding of a model without further settings.
func (e *exporter) plain() { e.rotary(e.RoPE, "") }

// windowed shortens the context to the window of a model, since llama.cpp computes full
// attention: in shorter texts there is no difference.
func (e *exporter) windowed() {
	windows := append([]int{e.Window}, e.Windows...)
	for _, w := range windows {
		if w > 0 {
			e.context = min(e.context, w)
		}
	}
	if e.arch.name == "qwen2vl" || e.arch.name == "qwen3vl" {
		e.add("rope.dimension_sections", e.sections())
	}
	e.plain()
}

// qwen3vl adds the number of layers that read images, which the file of a vision tower must match.
func (e *exporter) qwen3vl() {
	e.addInt("n_deepstack_layers", len(e.fields.Object("vision_config").Ints("deepstack_visual_indexes", 8, 16, 24)))
	e.windowed()
}

// ministral3 adds the scale of queries, which grows with their positions.
func (e *exporter) ministral3() {
	e.unless(e.RoPE.Type == "yarn" && e.Step == int(e.RoPE.Original), "rope_parameters: rope_type", e.RoPE.Type, "yarn")
	e.addFloat("attention.temperature_scale", e.Beta)
	e.windowed()
}

// sections returns how many of the rotated pairs have the time, height and width of images as
// position. For texts these are the same.
func (e *exporter) sections() []int32 {
	half := int32(e.HeadDim / 2)
	if e.arch.name == "qwen3vl" {
		// They take turns. With the sizes of config.json the last two pairs would have position 0
		// (ggml_mrope_cache_init).
		each := (half + 2) / 3
		return []int32{each, each, each, 0}
	}
	for _, key := range []string{"rope_scaling", "rope_parameters"} {
		if given := e.fields.Object(key).Ints("mrope_section"); len(given) == 3 {
			return []int32{int32(given[0]), int32(given[1]), int32(given[2]), 0}
		}
	}
	return []int32{half / 4, half * 3 / 8, half - half/4 - half*3/8, 0}
}

func (e *exporter) experts() {
	e.unless(e.Experts.Normalized, "norm_topk_prob", false, "true")
	e.addInt("expert_count", e.Experts.Count)
	e.addInt("expert_used_count", e.Experts.Chosen)
	e.windowed()
}

// expertsOnly adds the settings of a model whose layers all have experts.
func (e *exporter) expertsOnly() {
	e.unless(!slices.Contains(e.Plain, true), "mlp_only_layers, decoder_sparse_step", "layers without experts", "experts in every layer")
	e.addInt("expert_feed_forward_length", e.Experts.Units)
	e.experts()
}

// sliding adds the window and the layers that have it.
func (e *exporter) sliding() {
	sliding := make([]bool, e.config.Layers)
	any := false
	for i := range sliding {
		sliding[i] = i < len(e.LayerTypes) && e.LayerTypes[i] == "sliding_attention"
		any = any || sliding[i]
	}
	if any {
		e.addInt("attention.sliding_window", e.Window)
		e.add("attention.sliding_window_pattern", sliding)
	}
}

// queryScale rejects scales of attention scores that llama.cpp does not compute for Gemma. It
// scales by head or, for models with layersOfLargest layers, by hidden size.
func (e *exporter) queryScale(layersOfLargest int) {
	per := e.HeadDim
	if e.config.Layers == layersOfLargest {
		per = e.config.HiddenSize / e.Heads
	}
	scalar := 1 / (e.Scale * e.Scale)
	e.unless(scalar > float64(per)-1e-3*float64(per) && scalar < float64(per)+1e-3*float64(per), "query_pre_attn_scalar", fmt.Sprintf("%.6g", scalar), fmt.Sprint(per))
}

func (e *exporter) gemma2() {
	e.queryScale(46)
	e.unless(e.ScoreCap > 0, "attn_logit_softcapping", "null", "a number")
	e.unless(e.LogitCap > 0, "final_logit_softcapping", "null", "a number")
	e.addFloat("attn_logit_softcapping", e.ScoreCap)
	e.addFloat("final_logit_softcapping", e.LogitCap)
	e.sliding()
	e.plain()
}

func (e *exporter) gemma3() {
	e.queryScale(62)
	e.sliding()
	e.unless(e.LocalRoPE.Type == "default", "rope_parameters.sliding_attention", e.LocalRoPE.Type, "default")
	e.addFloat("rope.freq_base_swa", e.LocalRoPE.Theta)
	e.plain()
}

func (e *exporter) olmo3() {
	e.sliding()
	e.unless(e.LocalRoPE.Type == "default" && e.LocalRoPE.Theta == e.RoPE.Theta, "rope_parameters.sliding_attention",
		fmt.Sprintf("%s, rope_theta %v", e.LocalRoPE.Type, e.LocalRoPE.Theta), fmt.Sprintf("default, rope_theta %v", e.RoPE.Theta))
	e.plain()
}

func (e *exporter) phi3() {
	if e.Window > 0 {
		e.context = min(e.context, e.Window)
	}
	e.plain()
}

func (e *exporter) granite() {
	e.addFloat("attention.scale", e.Attention)
	e.addFloat("embedding_scale", e.Embedding)
	e.addFloat("residual_scale", e.Residual)
	e.addFloat("logit_scale", e.Logits)
	e.plain()
}

func (e *exporter) smollm3() {
	var rotary []bool
	if json.Unmarshal(e.Rotary, &rotary) == nil {
		for i, r := range rotary {
			e.unless(r == ((i+1)%4 != 0), "no_rope_layers", string(e.Rotary), "every fourth layer")
		}
	}
	e.windowed()
}

func (e *exporter) exaone4() {
	full := !slices.Contains(e.LayerTypes, "sliding_attention")
	e.unless(full || e.config.Layers == 64, "layer_types", "sliding_attention", "full_attention, or 64 layers")
	e.unless(!full || e.Everywhere, "sliding_window", "full attention without positions", "null")
	e.sliding()
	e.plain()
}

func (e *exporter) glm() { e.plain() }

func (e *exporter) cohere() {
	e.unless(e.HeadNorms == (e.config.Layers >= 64), "use_qk_norm", e.HeadNorms, "norms of heads in models of 64 layers or more, and only there")
	e.addFloat("logit_scale", e.LogitScale)
	e.plain()
}

func (e *exporter) cohere2() {
	e.unless(slices.Contains(e.LayerTypes, "sliding_attention"), "layer_types", "full_attention", "sliding_attention in some layers")
	e.addFloat("logit_scale", e.LogitScale)
	e.sliding()
	e.plain()
}

package llamacpp

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/suggest"
)

// architecture is a row of the table: an architecture of llama.cpp and the classes of
// transformers that it computes.
type architecture struct {
	name    string
	classes []string
	// imported is the class of transformers for files of this architecture, empty if
	// they are not read.
	imported string
	// pairs reports that llama.cpp rotates neighbouring elements, where transformers
	// rotates the halves of a head: the rows of q and k are reordered.
	pairs bool
	// origin is added to the stored weights of norms.
	origin float32
	// layers maps the modules of a layer to their names in GGUF files.
	layers map[string]string
	// tiedOnly reports that the output matrix is always the embedding, untiedOnly that it is
	// written even if it is the embedding.
	tiedOnly, untiedOnly bool
	// square reports that heads times head_dim must be hidden_size.
	square bool
	// biases lists the modules of a layer that may have one.
	biases []string
	// activation is the only one; empty means silu.
	activation string
	// settings adds the metadata of the architecture, or rejects a setting.
	settings func(e *exporter)
	// read adds keys of config.json for an imported file.
	read func(i *importer)
}

// llamaLayers are the names of a Llama's layer. Other tables change some.
var llamaLayers = map[string]string{
	"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
	"self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
	"mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}

var (
	qkv       = []string{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}
	allBiases = []string{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}
)

// with returns llamaLayers with changes, given as pairs; an empty name removes a module.
func with(pairs ...string) map[string]string {
	layers := map[string]string{}
	for k, v := range llamaLayers {
		layers[k] = v
	}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] == "" {
			delete(layers, pairs[i])
			continue
		}
		layers[pairs[i]] = pairs[i+1]
	}
	return layers
}

var (
	headNorms  = []string{"self_attn.q_norm", "attn_q_norm", "self_attn.k_norm", "attn_k_norm"}
	sandwich   = []string{"post_attention_layernorm", "post_attention_norm", "pre_feedforward_layernorm", "ffn_norm", "post_feedforward_layernorm", "post_ffw_norm"}
	afterNorms = []string{"input_layernorm", "", "post_attention_layernorm", "post_attention_norm", "post_feedforward_layernorm", "post_ffw_norm"}
	experts    = []string{"mlp.gate", "ffn_gate_inp", "mlp.experts.gate", "ffn_gate_exps", "mlp.experts.up", "ffn_up_exps", "mlp.experts.down", "ffn_down_exps"}
)

// architectures is the table.
var architectures = []architecture{
	{
		name: "llama", classes: []string{"LlamaForCausalLM", "LlavaForConditionalGeneration/llama", "LlavaNextForConditionalGeneration/llama"}, imported: "LlamaForCausalLM", pairs: true,
		layers: llamaLayers, biases: allBiases, settings: (*exporter).plain, read: (*importer).llama,
	},
	{
		name: "llama", classes: []string{"MistralForCausalLM", "Mistral3ForConditionalGeneration/mistral", "LlavaForConditionalGeneration/mistral", "LlavaNextForConditionalGeneration/mistral"},
		pairs: true, layers: llamaLayers, settings: (*exporter).windowed,
	},
	{
		name: "llama", classes: []string{"MixtralForCausalLM"}, imported: "MixtralForCausalLM", pairs: true,
		layers: with(experts...), settings: (*exporter).experts, read: (*importer).mixtral,
	},
	{
		name: "qwen2", classes: []string{"Qwen2ForCausalLM", "LlavaForConditionalGeneration/qwen2", "LlavaNextForConditionalGeneration/qwen2"}, imported: "Qwen2ForCausalLM",
		layers: llamaLayers, biases: qkv, square: true, settings: (*exporter).windowed, read: (*importer).plain,
	},
	{
		name: "qwen3", classes: []string{"Qwen3ForCausalLM"}, imported: "Qwen3ForCausalLM",
		layers: with(headNorms...), settings: (*exporter).windowed, read: (*importer).plain,
	},
	{
		name: "qwen3moe", classes: []string{"Qwen3MoeForCausalLM"}, imported: "Qwen3MoeForCausalLM",
		layers: with(append(headNorms, experts...)...), settings: (*exporter).expertsOnly, read: (*importer).qwen3moe,
	},
	{
		name: "gemma", classes: []string{"GemmaForCausalLM"}, imported: "GemmaForCausalLM", origin: 1, tiedOnly: true, activation: "gelu_tanh",
		layers: llamaLayers, settings: (*exporter).plain, read: (*importer).plain,
	},
	{
		name: "gemma2", classes: []string{"Gemma2ForCausalLM"}, imported: "Gemma2ForCausalLM", origin: 1, tiedOnly: true, activation: "gelu_tanh",
		layers: with(sandwich...), settings: (*exporter).gemma2, read: (*importer).gemma2,
	},
	{
		name: "gemma3", classes: []string{"Gemma3ForCausalLM", "Gemma3ForConditionalGeneration", "LlavaForConditionalGeneration/gemma3_text"}, imported: "Gemma3ForCausalLM", origin: 1, activation: "gelu_tanh",
		layers: with(append(headNorms, sandwich...)...), settings: (*exporter).gemma3, read: (*importer).gemma3,
	},
	{
		name: "olmo2", classes: []string{"Olmo2ForCausalLM"}, imported: "Olmo2ForCausalLM", untiedOnly: true, square: true,
		layers: with(append(headNorms, afterNorms...)...), settings: (*exporter).plain, read: (*importer).plain,
	},
	{
		name: "olmo2", classes: []string{"Olmo3ForCausalLM"}, untiedOnly: true, square: true,
		layers: with(append(headNorms, afterNorms...)...), settings: (*exporter).olmo3,
	},
	{
		name: "phi3", classes: []string{"Phi3ForCausalLM"}, square: true,
		layers: with("self_attn.qkv_proj", "attn_qkv", "mlp.gate_up_proj", "ffn_up"), settings: (*exporter).phi3,
	},
	{
		name: "granite", classes: []string{"GraniteForCausalLM"}, pairs: true, biases: allBiases,
		layers: llamaLayers, settings: (*exporter).granite,
	},
	{
		name: "smollm3", classes: []string{"SmolLM3ForCausalLM"}, pairs: true,
		layers: llamaLayers, settings: (*exporter).smollm3,
	},
	{
		name: "exaone4", classes: []string{"Exaone4ForCausalLM"}, square: true,
		layers: with(append(headNorms, afterNorms...)...), settings: (*exporter).exaone4,
	},
	{
		name: "glm4", classes: []string{"Glm4ForCausalLM"}, biases: qkv,
		layers: with("mlp.gate_up_proj", "ffn_up", "post_self_attn_layernorm", "post_attention_norm", "post_mlp_layernorm", "post_ffw_norm"), settings: (*exporter).glm,
	},
	{
		name: "chatglm", classes: []string{"GlmForCausalLM"}, biases: qkv, square: true,
		layers: with("mlp.gate_up_proj", "ffn_up"), settings: (*exporter).glm,
	},
	{
		name: "command-r", classes: []string{"CohereForCausalLM"}, tiedOnly: true, square: true,
		layers: with(append(headNorms, "post_attention_layernorm", "")...), settings: (*exporter).cohere,
	},
	{
		name: "cohere2", classes: []string{"Cohere2ForCausalLM"}, tiedOnly: true, square: true,
		layers: with("post_attention_layernorm", ""), settings: (*exporter).cohere2,
	},
	{
		name: "qwen2vl", classes: []string{"Qwen2VLForConditionalGeneration", "Qwen2_5_VLForConditionalGeneration"}, square: true, biases: qkv,
		layers: llamaLayers, settings: (*exporter).windowed,
	},
	{
		name: "qwen3vl", classes: []string{"Qwen3VLForConditionalGeneration"},
		layers: with(headNorms...), settings: (*exporter).qwen3vl,
	},
	{
		name: "mistral3", classes: []string{"Ministral3ForCausalLM", "Mistral3ForConditionalGeneration/ministral3"}, pairs: true,
		layers: llamaLayers, settings: (*exporter).ministral3,
	},
}

// Classes lists the classes of transformers that can be written.
func Classes() []string {
	var all []string
	for _, a := range architectures {
		for _, class := range a.classes {
			name, _, _ := strings.Cut(class, "/")
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Architectures lists the architectures of llama.cpp that are read.
func Architectures() []string {
	var all []string
	for _, a := range architectures {
		if a.imported != "" {
			all = append(all, a.name)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// ofClass returns the row of a class. text is the model_type of the text part of a
// multimodal class.
func ofClass(class, text string) (*architecture, error) {
	for i := range architectures {
		a := &architectures[i]
		if slices.Contains(a.classes, class) || slices.Contains(a.classes, class+"/"+text) {
			return a, nil
		}
	}
	if text != "" {
		class += "/" + text
	}
	return nil, fmt.Errorf("%w: architecture %q%s; supported: %s", ErrUnsupported, class, suggest.DidYouMean(class, Classes()), strings.Join(Classes(), ", "))
}

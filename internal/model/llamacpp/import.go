package llamacpp

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/lorafuse/lorafuse/internal/gguf"
	"github.com/lorafuse/lorafuse/internal/suggest"
	"github.com/lorafuse/lorafuse/internal/weights"
)

// importer makes the configuration of a model of the metadata of a file.
type importer struct {
	file          *gguf.File
	arch          *architecture
	config        map[string]any
	contextLength int
	heads         int
	kvHeads       int
	count         int // of experts
	err           error
}

func (i *importer) fail(format string, args ...any) {
	i.add(fmt.Errorf("%w: "+format, append([]any{ErrUnsupported}, args...)...))
}

func (i *importer) add(err error) {
	if i.err == nil {
		i.err = err
	}
}

// key returns the name of a key of the architecture.
func (i *importer) key(name string) string { return i.arch.name + "." + name }

// need returns an integer that every file has, the same for all layers.
func (i *importer) need(name string) int {
	n, err := i.file.Int(i.key(name))
	if errors.Is(err, gguf.ErrValue) {
		layers, _ := i.file.Int(i.key("block_count"))
		all, manyErr := i.file.Ints(i.key(name), layers)
		if manyErr != nil {
			err = manyErr
		} else if slices.Max(all) == slices.Min(all) {
			n, err = all[0], nil
		} else {
			i.fail("%s: found %v, expected the same for all layers", i.key(name), all)
			return 1
		}
	}
	if err == nil && (n < 1 || n > 1<<30) {
		i.fail("%s: found %d, expected 1 or more", i.key(name), n)
	}
	i.add(err)
	return n
}

func (i *importer) int(name string, fallback int) int {
	if !i.file.Has(i.key(name)) {
		return fallback
	}
	n, err := i.file.Int(i.key(name))
	i.add(err)
	return n
}

func (i *importer) float(name string, fallback float64) float64 {
	if !i.file.Has(i.key(name)) {
		return fallback
	}
	x, err := i.file.Float(i.key(name))
	i.add(err)
	return x
}

func (i *importer) text(name, fallback string) string {
	if !i.file.Has(i.key(name)) {
		return fallback
	}
	s, err := i.file.Text(i.key(name))
	i.add(err)
	return s
}

// newImporter finds the row of the table for a file.
func newImporter(f *gguf.File) (*importer, error) {
	name, err := f.Text("general.architecture")
	if err != nil {
		return nil, err
	}
	if kind, err := f.Text("general.type"); err == nil && kind != "model" {
		return nil, fmt.Errorf("%w: general.type %q, expected a model", ErrUnsupported, kind)
	}
	experts := f.Has(name + ".expert_count")
	if n, err := f.Int(name + ".expert_count"); err == nil && n == 0 {
		experts = false
	}
	for k := range architectures {
		a := &architectures[k]
		_, mixture := a.layers["mlp.gate"]
		if a.name == name && a.imported != "" && mixture == experts {
			return &importer{file: f, arch: a, config: map[string]any{}}, nil
		}
	}
	return nil, fmt.Errorf("%w: architecture %q%s; supported: %s", ErrUnsupported, name, suggest.DidYouMean(name, Architectures()), strings.Join(Architectures(), ", "))
}

// read makes config.json.
func (i *importer) read() {
	c := i.config
	c["architectures"] = []string{i.arch.imported}
	c["model_type"] = modelTypes[i.arch.imported]
	c["dtype"] = "float32"
	hidden := i.need("embedding_length")
	i.contextLength, i.heads = i.need("context_length"), i.need("attention.head_count")
	i.kvHeads = i.heads
	if i.file.Has(i.key("attention.head_count_kv")) {
		i.kvHeads = i.need("attention.head_count_kv")
	}
	embedding, err := i.file.Tensor("token_embd.weight")
	i.add(err)
	layers, units := i.need("block_count"), i.need("feed_forward_length")
	if i.err != nil {
		return
	}
	head := i.int("attention.key_length", hidden/i.heads)
	if v := i.int("attention.value_length", head); v != head {
		i.fail("%s: found %d, expected the length of keys, %d", i.key("attention.value_length"), v, head)
	}
	c["hidden_size"], c["max_position_embeddings"], c["vocab_size"] = hidden, i.contextLength, embedding.Shape[0]
	c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"] = i.heads, i.kvHeads, head
	c["num_hidden_layers"], c["intermediate_size"] = layers, units
	c["rms_norm_eps"] = i.float("attention.layer_norm_rms_epsilon", 1e-6)
	c["tie_word_embeddings"] = !i.file.HasTensor("output.weight")
	var factors []float32
	if i.file.HasTensor(ropeFactors) {
		t, err := i.file.Tensor(ropeFactors)
		i.add(err)
		if err == nil {
			factors = make([]float32, t.Elements())
			i.add(i.file.Float32s(factors, t, 0))
		}
	}
	c["rope_parameters"] = i.ropeConfig(head, factors)
	i.specialTokens()
	i.arch.read(i)
}

// modelTypes has the model_type of the classes that are read.
var modelTypes = map[string]string{
	"LlamaForCausalLM": "llama", "MixtralForCausalLM": "mixtral", "Qwen2ForCausalLM": "qwen2", "Qwen3ForCausalLM": "qwen3",
	"Qwen3MoeForCausalLM": "qwen3_moe", "GemmaForCausalLM": "gemma", "Gemma2ForCausalLM": "gemma2", "Gemma3ForCausalLM": "gemma3_text", "Olmo2ForCausalLM": "olmo2",
}

// specialTokens adds the ids of the tokens that begin and end texts.
func (i *importer) specialTokens() {
	i.config["bos_token_id"], i.config["pad_token_id"] = nil, nil
	var eos []int
	for _, s := range []string{"bos", "padding", "eos", "eot", "eom"} {
		id, err := i.file.Int("tokenizer.ggml." + s + "_token_id")
		switch {
		case err != nil:
		case s == "bos":
			i.config["bos_token_id"] = id
		case s == "padding":
			i.config["pad_token_id"] = id
		case !slices.Contains(eos, id):
			eos = append(eos, id)
		}
	}
	i.config["eos_token_id"] = eos
}

func (i *importer) plain() {}

func (i *importer) llama() {
	i.config["attention_bias"] = i.file.HasTensor("blk.0.attn_q.bias")
	i.config["mlp_bias"] = i.file.HasTensor("blk.0.ffn_gate.bias")
}

func (i *importer) mixtral() {
	i.count = i.need("expert_count")
	i.config["num_local_experts"], i.config["num_experts_per_tok"] = i.count, i.need("expert_used_count")
	i.config["sliding_window"] = nil
}

func (i *importer) qwen3moe() {
	i.count = i.need("expert_count")
	i.config["num_experts"], i.config["num_experts_per_tok"] = i.count, i.need("expert_used_count")
	i.config["moe_intermediate_size"], i.config["norm_topk_prob"] = i.need("expert_feed_forward_length"), true
}

// gemmaLayers adds the window, the layers that have it, and the scale of scores.
func (i *importer) gemmaLayers(pattern, layersOfLargest, window int) {
	layers, hidden, head := i.config["num_hidden_layers"].(int), i.config["hidden_size"].(int), i.config["head_dim"].(int)
	scalar := head
	if layers == layersOfLargest {
		scalar = hidden / i.heads
	}
	i.config["query_pre_attn_scalar"] = scalar
	i.config["sliding_window"] = i.int("attention.sliding_window", window)
	types := make([]string, layers)
	given := i.file.Has(i.key("attention.sliding_window_pattern"))
	var sliding []int
	if n, err := i.file.Int(i.key("attention.sliding_window_pattern")); err == nil {
		pattern, given = n, false
	} else if given {
		sliding, err = i.file.Ints(i.key("attention.sliding_window_pattern"), layers)
		i.add(err)
	}
	for k := range types {
		slides := pattern > 0 && k%pattern < pattern-1
		if given && i.err == nil {
			slides = sliding[k] != 0
		}
		if types[k] = "full_attention"; slides && i.config["sliding_window"].(int) > 0 {
			types[k] = "sliding_attention"
		}
	}
	i.config["layer_types"] = types
	if i.config["sliding_window"].(int) < 1 {
		i.config["sliding_window"] = i.contextLength
	}
}

func (i *importer) gemma2() {
	i.gemmaLayers(2, 46, 4096)
	i.config["attn_logit_softcapping"] = i.float("attn_logit_softcapping", 50)
	i.config["final_logit_softcapping"] = i.float("final_logit_softcapping", 30)
}

func (i *importer) gemma3() {
	i.gemmaLayers(6, 62, 0)
	i.config["rope_parameters"] = map[string]any{
		"full_attention":    i.config["rope_parameters"],
		"sliding_attention": map[string]any{"rope_type": "default", "rope_theta": i.float("rope.freq_base_swa", 10000)},
	}
	if soft := i.float("final_logit_softcapping", 0); soft != 0 {
		i.fail("%s: found %v, expected none", i.key("final_logit_softcapping"), soft)
	}
}

var blockName = regexp.MustCompile(`^blk\.(\d+)\.(.+)\.(weight|bias)$`)

// tensors returns where the weights of the model are in the file. Every tensor of the
// file must have a place.
func (i *importer) tensors() (list []weights.GGUFTensor) {
	modules := map[string]string{}
	for module, name := range i.arch.layers {
		modules[name] = module
	}
	for k := range i.file.Tensors {
		t := &i.file.Tensors[k]
		x := weights.GGUFTensor{From: t.Name}
		m := blockName.FindStringSubmatch(t.Name)
		switch {
		case t.Name == "token_embd.weight":
			x.Name = "model.embed_tokens.weight"
		case t.Name == "output_norm.weight":
			x.Name, x.Origin = "model.norm.weight", i.arch.origin
		case t.Name == "output.weight":
			x.Name = "lm_head.weight"
		case t.Name == ropeFactors:
			continue
		case m != nil && modules[m[2]] != "":
			module := modules[m[2]]
			prefix := "model.layers." + m[1] + "."
			if part, ok := strings.CutPrefix(module, "mlp.experts."); ok {
				list = append(list, i.experts(prefix, part, t)...)
				continue
			}
			x.Name = prefix + module + "." + m[3]
			if strings.HasSuffix(m[2], "_norm") {
				x.Origin = i.arch.origin
			}
			if i.arch.pairs && m[2] == "attn_q" {
				x.Pairs = i.heads
			} else if i.arch.pairs && m[2] == "attn_k" {
				x.Pairs = i.kvHeads
			}
		default:
			i.fail("tensor %q of architecture %s", t.Name, i.arch.name)
			return nil
		}
		list = append(list, x)
	}
	return list
}

// experts returns the matrices of a stack.
func (i *importer) experts(prefix, part string, t *gguf.Tensor) (list []weights.GGUFTensor) {
	if len(t.Shape) != 3 || t.Shape[0] != i.count {
		i.fail("tensor %q: found shape %v, expected %d experts", t.Name, t.Shape, i.count)
		return nil
	}
	name := part + "_proj"
	if i.arch.imported == "MixtralForCausalLM" {
		name = map[string]string{"gate": "w1", "up": "w3", "down": "w2"}[part]
	}
	for k := range i.count {
		list = append(list, weights.GGUFTensor{Name: prefix + "mlp.experts." + strconv.Itoa(k) + "." + name + ".weight", From: t.Name, Expert: k, Experts: i.count})
	}
	return list
}

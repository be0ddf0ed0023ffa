// Package checkpoint writes Llama checkpoints of random weights: models to
// measure with, for all programs that read the folders of Hugging Face.
package checkpoint

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/philox"
	"github.com/lorafuse/lorafuse/internal/suggest"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// Shape describes a Llama model with untied embeddings.
type Shape struct {
	Name                  string `json:"name"`
	Hidden, Layers, Inter int
	Heads, KVHeads, Vocab int
	Positions             int // max_position_embeddings
}

// Shapes lists the shapes of the published figures: one for quick checks, one that partly fits into caches, a wide one
// of two layers, and one of 1.1 billion parameters; for GPUs two with the sizes of Qwen2.5 and one with the sizes of
// Llama 3.1.
var Shapes = []Shape{
	{"tiny", 64, 2, 192, 4, 2, 320, 8192},
	{"small", 512, 8, 1408, 8, 4, 8192, 8192},
	{"wide", 2048, 2, 5632, 32, 4, 32000, 8192},
	{"large", 2048, 16, 8192, 32, 8, 32000, 8192},
	{"qwen-0.5b", 896, 24, 4864, 14, 2, 151936, 8192},
	{"qwen-7b", 3584, 28, 18944, 28, 4, 152064, 8192},
	{"llama-8b", 4096, 32, 14336, 32, 8, 128256, 8192},
}

// ByName returns the shape of that name. The error suggests the nearest name.
func ByName(name string) (Shape, error) {
	names := make([]string, len(Shapes))
	for i, s := range Shapes {
		if names[i] = s.Name; s.Name == name {
			return s, nil
		}
	}
	return Shape{}, fmt.Errorf("checkpoint: found size %q, expected one of %s%s", name, strings.Join(names, ", "), suggest.DidYouMean(name, names))
}

// String describes the shape briefly.
func (s Shape) String() string {
	return fmt.Sprintf("%s: %d×%d, MLP %d, vocabulary %d", s.Name, s.Hidden, s.Layers, s.Inter, s.Vocab)
}

// HeadDim returns the size of a head.
func (s Shape) HeadDim() int { return s.Hidden / s.Heads }

type matrix struct {
	name    string
	out, in int
}

// linears returns the linear layers of one decoder layer.
func (s Shape) linears() []matrix {
	kv := s.KVHeads * s.HeadDim()
	return []matrix{
		{"self_attn.q_proj", s.Hidden, s.Hidden}, {"self_attn.k_proj", kv, s.Hidden}, {"self_attn.v_proj", kv, s.Hidden},
		{"self_attn.o_proj", s.Hidden, s.Hidden}, {"mlp.gate_proj", s.Inter, s.Hidden}, {"mlp.up_proj", s.Inter, s.Hidden},
		{"mlp.down_proj", s.Hidden, s.Inter},
	}
}

// LinearNames lists the weights of all linear layers in the order in which a
// token meets them, the head last.
func (s Shape) LinearNames() []string {
	var names []string
	for i := range s.Layers {
		for _, l := range s.linears() {
			names = append(names, fmt.Sprintf("model.layers.%d.%s.weight", i, l.name))
		}
	}
	return append(names, "lm_head.weight")
}

// LinearParams returns the number of weights of all linear layers, including the head.
func (s Shape) LinearParams() int {
	n := s.Vocab * s.Hidden
	for _, l := range s.linears() {
		n += s.Layers * l.out * l.in
	}
	return n
}

// LoRAParams returns the number of adapter weights of a rank on all linear layers except the head.
func (s Shape) LoRAParams(rank int) int {
	n := 0
	for _, l := range s.linears() {
		n += s.Layers * rank * (l.out + l.in)
	}
	return n
}

// config returns the content of config.json.
func (s Shape) config() ([]byte, error) {
	text, err := json.MarshalIndent(map[string]any{
		"architectures": []string{"LlamaForCausalLM"}, "model_type": "llama", "dtype": "bfloat16", "hidden_act": "silu",
		"hidden_size": s.Hidden, "num_hidden_layers": s.Layers, "intermediate_size": s.Inter, "head_dim": s.HeadDim(),
		"num_attention_heads": s.Heads, "num_key_value_heads": s.KVHeads, "vocab_size": s.Vocab,
		"max_position_embeddings": s.Positions, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": false,
		"attention_bias": false, "mlp_bias": false, "bos_token_id": nil, "eos_token_id": 0, "pad_token_id": 1,
	}, "", "  ")
	return append(text, '\n'), err
}

// entries lists the tensors, all bf16.
func (s Shape) entries() []safetensors.Entry {
	entries := []safetensors.Entry{
		random("model.embed_tokens.weight", s.Vocab, s.Hidden), ones("model.norm.weight", s.Hidden), random("lm_head.weight", s.Vocab, s.Hidden),
	}
	for i := range s.Layers {
		layer := fmt.Sprintf("model.layers.%d.", i)
		for _, l := range s.linears() {
			entries = append(entries, random(layer+l.name+".weight", l.out, l.in))
		}
		entries = append(entries, ones(layer+"input_layernorm.weight", s.Hidden), ones(layer+"post_attention_layernorm.weight", s.Hidden))
	}
	return entries
}

// WeightsFile is the file with the weights in the folder that Write makes.
const WeightsFile = "model.safetensors"

// Write makes the folder dir, if need be, with config.json and the weights:
// normal with deviation 0.02, and norms of ones. There is no tokenizer.
func (s Shape) Write(dir string) error {
	if s.Heads < 1 || s.KVHeads < 1 || s.Hidden%s.Heads != 0 || s.Heads%s.KVHeads != 0 || s.HeadDim()%2 != 0 {
		return fmt.Errorf("checkpoint: %d heads and %d of keys in %d channels do not go together", s.Heads, s.KVHeads, s.Hidden)
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	config, err := s.config()
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), config, 0o666); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	if err := safetensors.WriteFile(filepath.Join(dir, WeightsFile), s.entries(), map[string]string{"format": "pt"}); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}

func ones(name string, n int) safetensors.Entry {
	data := make([]byte, 2*n)
	for i := range n {
		data[2*i], data[2*i+1] = 0x80, 0x3f
	}
	return safetensors.Entry{Name: name, DType: safetensors.BF16, Shape: []int{n}, Data: data}
}

func random(name string, dims ...int) safetensors.Entry {
	e := safetensors.Entry{Name: name, DType: safetensors.BF16, Shape: dims}
	e.Write = func(w io.Writer) error {
		n, err := e.Size()
		if err != nil {
			return err
		}
		return writeNormal(w, n, name)
	}
	return e
}

// deviation is the standard deviation of the weights, typical of initialization.
const deviation = 0.02

// writeNormal writes n bytes of bf16. Each name has its own block of random numbers, and each piece of a tensor starts
// at another offset in it.
func writeNormal(w io.Writer, n int64, name string) error {
	const numbers = 1 << 17
	seed := uint64(0)
	for _, c := range []byte(name) {
		seed = seed*31 + uint64(c)
	}
	stream := philox.NewStream(seed, 0, 0)
	count := int(min(n/2, numbers))
	floats := make([]float32, count)
	for i := range floats {
		floats[i] = float32(deviation * stream.Normal(uint64(i)))
	}
	block := make([]byte, 2*count)
	if err := tensor.FromFloat32(block, floats, tensor.BF16); err != nil {
		return err
	}
	block = slices.Concat(block, block)
	for piece := uint64(0); n > 0; piece++ {
		at := 2 * (int(stream.Word(piece)) % count)
		k := min(n, int64(2*count))
		if _, err := w.Write(block[at : at+int(k)]); err != nil {
			return err
		}
		n -= k
	}
	return nil
}

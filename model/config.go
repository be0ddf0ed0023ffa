package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/suggest"
	"github.com/lorafuse/lorafuse/ir"
)

// ErrUnsupported is wrapped where a checkpoint asks for what is not supported;
// the message names it and lists what is.
var ErrUnsupported = errors.New("unsupported model")

// ErrConfig is wrapped where config.json is wrong.
var ErrConfig = errors.New("bad config.json")

// Config is what a decoder-only language model is made of, read from
// config.json as transformers 4 or 5 writes it.
type Config struct {
	Architecture string // such as LlamaForCausalLM
	ModelType    string // such as llama
	DType        string // of the weights, as the file calls it

	HiddenSize, IntermediateSize int
	Layers                       int
	Heads, KVHeads, HeadDim      int
	VocabSize                    int
	MaxPositions                 int
	NormEps                      float32
	Activation                   ir.Activation
	TiedEmbeddings               bool
	AttentionBias, OutputBias    bool // of q, k, v and of o
	MLPBias                      bool
	HeadNorm                     bool  // RMSNorm of each head of q and k
	Windows                      []int // keys that a query of each layer sees at most, 0 for all
	RoPE                         RoPE
	// Padding is the row of the embedding that gets no gradient, or -1.
	Padding int
	// Quantized says that bitsandbytes has quantised weights of the files.
	Quantized bool
	// EOS ends a generated text; BOS begins one, -1 if there is none.
	EOS []int32
	BOS int32
}

// maxLayers keeps a wrong number from taking all memory.
const maxLayers = 1 << 14

// ReadConfig reads dir/config.json, and dir/generation_config.json if there is
// one. Errors: ErrConfig and ErrUnsupported, with the key and what was expected.
func ReadConfig(dir string) (*Config, error) {
	path := filepath.Join(dir, "config.json")
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	c, err := ParseConfig(raw)
	if err != nil {
		return nil, fmt.Errorf("model: %s: %w", path, err)
	}
	path = filepath.Join(dir, "generation_config.json")
	if raw, err = os.ReadFile(path); errors.Is(err, os.ErrNotExist) {
		return c, nil
	} else if err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	f, err := parseFields(raw)
	if err != nil {
		return nil, fmt.Errorf("model: %s: %w", path, err)
	}
	if ids := f.ids("eos_token_id"); len(ids) > 0 {
		c.EOS = ids
	}
	if ids := f.ids("bos_token_id"); len(ids) > 0 {
		c.BOS = ids[0]
	}
	if f.err != nil {
		return nil, fmt.Errorf("model: %s: %w", path, f.err)
	}
	return c, nil
}

// ParseConfig reads the contents of a config.json.
func ParseConfig(raw []byte) (*Config, error) {
	f, err := parseFields(raw)
	if err != nil {
		return nil, err
	}
	c := &Config{BOS: -1, Padding: -1}
	arch := f.strings("architectures")
	c.ModelType = f.string("model_type", "")
	switch {
	case f.err != nil:
		return nil, f.err
	case len(arch) > 0:
		c.Architecture = arch[0]
	default:
		for name, a := range registry {
			if a.ModelType == c.ModelType {
				c.Architecture = name
			}
		}
	}
	a, ok := registry[c.Architecture]
	if !ok {
		name := c.Architecture
		if name == "" {
			name = c.ModelType
		}
		return nil, fmt.Errorf("%w: architecture %q%s; supported: %s", ErrUnsupported, name, suggest.DidYouMean(name, Architectures()), strings.Join(Architectures(), ", "))
	}
	f.decoder(c)
	if a.Configure != nil {
		a.Configure(c, f)
	}
	f.quantization(c)
	if f.err == nil {
		f.err = c.check()
	}
	if f.err != nil {
		return nil, f.err
	}
	return c, nil
}

// decoder reads the keys that all supported architectures share.
func (f *Fields) decoder(c *Config) {
	c.DType = f.string("dtype", f.string("torch_dtype", ""))
	c.HiddenSize = f.need("hidden_size")
	c.IntermediateSize = f.need("intermediate_size")
	c.Layers = f.need("num_hidden_layers")
	c.Heads = f.need("num_attention_heads")
	c.KVHeads = f.int("num_key_value_heads", c.Heads)
	c.VocabSize = f.need("vocab_size")
	c.MaxPositions = f.int("max_position_embeddings", 2048)
	c.NormEps = float32(f.float("rms_norm_eps", 1e-6))
	c.TiedEmbeddings = f.bool("tie_word_embeddings", false)
	if f.err != nil {
		return
	}
	if c.Heads < 1 {
		f.fail("num_attention_heads", c.Heads, "1 or more")
		return
	}
	c.HeadDim = f.int("head_dim", c.HiddenSize/c.Heads)
	acts := map[string]ir.Activation{"silu": ir.SiLU, "swish": ir.SiLU, "gelu": ir.GELU, "gelu_pytorch_tanh": ir.GELUTanh, "gelu_new": ir.GELUTanh}
	name := f.string("hidden_act", "silu")
	act, ok := acts[name]
	if !ok {
		f.unsupported("hidden_act", name, slices.Sorted(maps.Keys(acts)))
		return
	}
	c.Activation = act
	if c.Layers > maxLayers {
		f.fail("num_hidden_layers", c.Layers, fmt.Sprintf("%d at most", maxLayers))
		return
	}
	c.Windows = make([]int, max(0, c.Layers))
	c.EOS = f.ids("eos_token_id")
	if ids := f.ids("bos_token_id"); len(ids) > 0 {
		c.BOS = ids[0]
	}
	if ids := f.ids("pad_token_id"); len(ids) > 0 && ids[0] >= 0 && int(ids[0]) < c.VocabSize {
		c.Padding = int(ids[0])
	}
	c.RoPE = f.rope(c)
}

func (c *Config) check() error {
	for _, v := range []struct {
		key string
		n   int
	}{
		{"hidden_size", c.HiddenSize}, {"intermediate_size", c.IntermediateSize}, {"num_hidden_layers", c.Layers},
		{"num_key_value_heads", c.KVHeads}, {"head_dim", c.HeadDim}, {"vocab_size", c.VocabSize}, {"max_position_embeddings", c.MaxPositions},
	} {
		if v.n < 1 || v.n > 1<<30 {
			return fmt.Errorf("%w: %s: found %d, expected 1 or more", ErrConfig, v.key, v.n)
		}
	}
	if c.Heads%c.KVHeads != 0 {
		return fmt.Errorf("%w: num_attention_heads %d is not a multiple of num_key_value_heads %d", ErrConfig, c.Heads, c.KVHeads)
	}
	if c.HeadDim%2 != 0 {
		return fmt.Errorf("%w: head_dim: found %d, expected an even number", ErrConfig, c.HeadDim)
	}
	if !(c.NormEps > 0) {
		return fmt.Errorf("%w: rms_norm_eps: found %v, expected more than 0", ErrConfig, c.NormEps)
	}
	return nil
}

// layerWindows reads which layers slide, as Qwen2 and its kin say it.
func (f *Fields) layerWindows(c *Config) {
	window := f.int("sliding_window", 4096)
	if !f.bool("use_sliding_window", false) {
		window = 0
	}
	from := f.int("max_window_layers", 28)
	types := f.strings("layer_types")
	if types != nil && len(types) != c.Layers {
		f.fail("layer_types", fmt.Sprintf("%d entries", len(types)), fmt.Sprintf("%d, one for each layer", c.Layers))
		return
	}
	for i := range c.Windows {
		slides := i >= from && window > 0
		if types != nil {
			switch types[i] {
			case "full_attention":
				slides = false
			case "sliding_attention":
				slides = true
				if window <= 0 {
					f.fail("layer_types", types[i], "sliding_window and use_sliding_window with it")
					return
				}
			default:
				f.unsupported("layer_types", types[i], []string{"full_attention", "sliding_attention"})
				return
			}
		}
		if slides {
			c.Windows[i] = window
		}
	}
}

// quantization reads whether weights are stored quantised, and by what.
func (f *Fields) quantization(c *Config) {
	const key = "quantization_config"
	if !f.has(key) || f.err != nil {
		return
	}
	q, err := parseFields(f.values[key])
	if err != nil {
		f.fail(key, string(f.values[key]), "an object")
		return
	}
	method := q.string("quant_method", "")
	if method == "" && (q.bool("load_in_4bit", false) || q.bool("load_in_8bit", false)) {
		method = "bitsandbytes" // as it was written at first
	}
	if f.err = q.err; f.err != nil {
		return
	}
	if c.Quantized = method == "bitsandbytes"; !c.Quantized {
		f.err = fmt.Errorf("%w: %s: quant_method %q; supported: bitsandbytes; or use the unquantised checkpoint", ErrUnsupported, key, method)
	}
}

// Fields are the keys of a JSON object; the first wrong one is kept as err.
type Fields struct {
	values map[string]json.RawMessage
	err    error
}

func parseFields(raw []byte) (*Fields, error) {
	f := &Fields{}
	if err := json.Unmarshal(raw, &f.values); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if f.values == nil {
		return nil, fmt.Errorf("%w: found null, expected an object", ErrConfig)
	}
	return f, nil
}

func (f *Fields) has(key string) bool {
	v, ok := f.values[key]
	return ok && string(v) != "null"
}

func (f *Fields) fail(key string, found, expected any) {
	if f.err == nil {
		f.err = fmt.Errorf("%w: %s: found %v, expected %v", ErrConfig, key, found, expected)
	}
}

func (f *Fields) unsupported(key string, found any, supported []string) {
	if f.err == nil {
		f.err = fmt.Errorf("%w: %s %q; supported: %s", ErrUnsupported, key, found, strings.Join(supported, ", "))
	}
}

func read[T any](f *Fields, key, expected string, def T) T {
	if !f.has(key) {
		return def
	}
	var v T
	if json.Unmarshal(f.values[key], &v) != nil {
		f.fail(key, string(f.values[key]), expected)
		return def
	}
	return v
}

func (f *Fields) int(key string, def int) int { return read(f, key, "an integer", def) }
func (f *Fields) float(key string, def float64) float64 {
	return read(f, key, "a number", def)
}
func (f *Fields) bool(key string, def bool) bool { return read(f, key, "true or false", def) }
func (f *Fields) string(key, def string) string  { return read(f, key, "a string", def) }
func (f *Fields) strings(key string) []string {
	return read(f, key, "a list of strings", []string(nil))
}

func (f *Fields) need(key string) int {
	if !f.has(key) {
		f.fail(key, "nothing", "an integer")
		return 0
	}
	return f.int(key, 0)
}

// ids reads one token id or a list of them.
func (f *Fields) ids(key string) []int32 {
	if !f.has(key) {
		return nil
	}
	var one int32
	if json.Unmarshal(f.values[key], &one) == nil {
		return []int32{one}
	}
	return read(f, key, "a token id or a list of them", []int32(nil))
}

package model

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/internal/suggest"
)

// ErrUnsupported reports that a checkpoint needs an unsupported feature. The message names the
// feature and lists the supported ones.
var ErrUnsupported = errors.New("unsupported model")

// ErrConfig reports an invalid config.json.
var ErrConfig = errors.New("bad config.json")

// ErrAdapter reports that a folder holds an adapter instead of a model.
var ErrAdapter = errors.New("folder is an adapter, expected a model")

// checkAdapter fails with ErrAdapter, and names the base model, if dir holds an adapter of PEFT.
func checkAdapter(dir string) error {
	const file, key = "adapter_config.json", "base_model_name_or_path"
	raw, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return nil
	}
	base := "its " + file + " names no base model"
	if f, err := ParseFields(raw); err == nil {
		if name := f.String(key, ""); name != "" {
			base = fmt.Sprintf("its base model is %q", name)
		}
	}
	return fmt.Errorf("%s: %w; %s", filepath.Clean(dir), ErrAdapter, base)
}

// Config holds the settings that models share, read from a config.json of transformers 4 or 5,
// or of diffusers. Family holds the settings of one architecture. For models of diffusers,
// fields about tokens are not set.
type Config struct {
	Architecture string // such as LlamaForCausalLM, or FluxTransformer2DModel
	ModelType    string // such as llama; nothing for models of diffusers
	Diffusers    bool   // the configuration is one of diffusers
	// Part is the part of the architecture that the model is. Unless another one was asked
	// for, it is Body for an architecture without a head, Classifier for one with a
	// classification head, and otherwise AsSaved.
	Part  Part   `json:"-"`
	DType string // of the weights, as the file calls it

	HiddenSize   int
	Layers       int
	VocabSize    int
	MaxPositions int
	// TiedEmbeddings reports that the head shares the weight of the input embedding.
	TiedEmbeddings bool
	// tiedUnlessStored reports that config.json does not say so, and that the checkpoint may
	// store a head of its own.
	tiedUnlessStored bool
	// Padding is the row of the embedding that gets no gradient, or -1.
	Padding int
	// Quantized reports that the files hold weights quantized by bitsandbytes.
	Quantized bool
	float8    *float8Config // weights in 8-bit floats, as quantization_config has them
	packed    *packedConfig // those of GPTQ or AWQ
	// EOS ends a generated text; BOS begins one, -1 if there is none.
	EOS []int32
	BOS int32
	// Classes are the labels of the classification head. Without a head they are the ones that
	// config.json names, if any.
	Classes Classes `json:"-"`
	// Deviation is the standard deviation of newly initialized weights: initializer_range.
	Deviation float64 `json:"-"`

	Family Family
}

// Family holds the settings of an architecture, read from config.json, and builds its model.
type Family interface {
	// Check validates the settings. Errors: ErrConfig.
	Check(c *Config) error
	// Build emits the graph.
	Build(c *Config, b *nn.Builder) Outputs
}

// LongContext is a Family whose texts may be longer than MaxPositions.
type LongContext interface {
	// ContextFactor returns the maximum length of texts as a multiple of MaxPositions; 1 means that
	// they may not be longer.
	ContextFactor() float64
}

// Renamer is a Family whose weights have other names in some files.
type Renamer interface {
	// OtherNames lists the names that a weight may have in place of name.
	OtherNames(name string) []string
}

// MaxLength returns the maximum number of tokens that the model supports:
// max_position_embeddings, multiplied by the factor of dynamic rotary scaling if there is one.
// It is limited to 32-bit positions.
func (c *Config) MaxLength() int {
	if s, ok := c.Family.(LongContext); ok {
		return int(min(float64(c.MaxPositions)*s.ContextFactor(), math.MaxInt32))
	}
	return c.MaxPositions
}

// className is the key of diffusers' config.json that names the architecture.
const className = "_class_name"

// maxLayers keeps a wrong number from taking all memory.
const maxLayers = 1 << 14

// maxSize is the maximum of any size setting; the product of two does not overflow.
const maxSize = 1 << 30

// ReadConfig reads dir/config.json and, if it exists, dir/generation_config.json. Errors:
// ErrConfig and ErrUnsupported, with the key and the expected value.
func ReadConfig(dir string) (*Config, error) {
	path := filepath.Join(dir, "config.json")
	raw, err := os.ReadFile(path)
	if err != nil {
		if adapter := checkAdapter(dir); adapter != nil {
			return nil, fmt.Errorf("model: %w", adapter)
		}
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
	f, err := ParseFields(raw)
	if err != nil {
		return nil, fmt.Errorf("model: %s: %w", path, err)
	}
	if ids := f.IDs("eos_token_id"); len(ids) > 0 {
		c.EOS = ids
	}
	if ids := f.IDs("bos_token_id"); len(ids) > 0 {
		c.BOS = ids[0]
	}
	if f.err != nil {
		return nil, fmt.Errorf("model: %s: %w", path, f.err)
	}
	return c, nil
}

// ParseConfig reads the contents of a config.json.
func ParseConfig(raw []byte) (*Config, error) {
	f, err := ParseFields(raw)
	if err != nil {
		return nil, err
	}
	c := &Config{BOS: -1, Padding: -1}
	arch := f.Strings("architectures")
	c.ModelType = f.String("model_type", "")
	class := f.String(className, "")
	switch {
	case f.err != nil:
		return nil, f.err
	case class != "":
		c.Architecture = class
	case len(arch) > 0:
		c.Architecture = arch[0]
	default:
		c.Architecture = ofType(c.ModelType)
	}
	a, ok := registry[c.Architecture]
	if !ok {
		name := c.Architecture
		if name == "" {
			name = c.ModelType
		}
		names := alternatives(name, class != "")
		return nil, fmt.Errorf("%w: architecture %q%s; nearest of the %d supported ones of its kind: %s; docs/models.md lists all", ErrUnsupported, name, suggest.DidYouMean(name, names), len(names), strings.Join(nearest(name, names), ", "))
	}
	if c.Diffusers = class != ""; !c.Diffusers && !a.Whole {
		f.shared(c)
	}
	if f.err == nil {
		c.Family = a.Read(c, f)
	}
	switch {
	case c.Diffusers:
		c.ModelType = ""
	case isBody(c.Architecture):
		c.Part = Body
	case strings.HasSuffix(c.Architecture, classifierSuffix):
		c.Part = Classifier
	}
	c.readClasses(f)
	f.quantization(c)
	if f.err == nil {
		f.err = c.check()
	}
	if f.err != nil {
		return nil, f.err
	}
	return c, nil
}

// shared reads the keys that all architectures have.
func (f *Fields) shared(c *Config) {
	c.DType = f.String("dtype", f.String("torch_dtype", ""))
	c.HiddenSize = f.Need("hidden_size")
	c.Layers = f.Need("num_hidden_layers")
	c.VocabSize = f.Need("vocab_size")
	c.MaxPositions = f.Int("max_position_embeddings", 2048)
	c.TiedEmbeddings = f.Bool("tie_word_embeddings", false)
	if c.Layers > maxLayers {
		f.Fail("num_hidden_layers", c.Layers, fmt.Sprintf("%d at most", maxLayers))
	}
	c.EOS = f.IDs("eos_token_id")
	if ids := f.IDs("bos_token_id"); len(ids) > 0 {
		c.BOS = ids[0]
	}
	if ids := f.IDs("pad_token_id"); len(ids) > 0 && ids[0] >= 0 && int(ids[0]) < c.VocabSize {
		c.Padding = int(ids[0])
	}
}

// Size is a setting of config.json that must be at least 1.
type Size struct {
	Key string
	N   int
}

// CheckSizes refuses numbers that are no sizes. Errors: ErrConfig.
func CheckSizes(sizes ...Size) error {
	for _, v := range sizes {
		if v.N < 1 || v.N > maxSize {
			return fmt.Errorf("%w: %s: found %d, expected 1 to %d", ErrConfig, v.Key, v.N, maxSize)
		}
	}
	return nil
}

func (c *Config) check() error {
	if c.Diffusers {
		return c.Family.Check(c)
	}
	err := CheckSizes(Size{"hidden_size", c.HiddenSize}, Size{"num_hidden_layers", c.Layers},
		Size{"vocab_size", c.VocabSize}, Size{"max_position_embeddings", c.MaxPositions})
	if err != nil {
		return err
	}
	return c.Family.Check(c)
}

// quantization reads the quantization method of stored weights, if any.
func (f *Fields) quantization(c *Config) {
	const key = "quantization_config"
	if mlx := f.Object("quantization"); f.err == nil && mlx.Has("bits") && mlx.Has("group_size") {
		f.err = fmt.Errorf("%w: quantization: weights of mlx-lm with %d bits; use the model that they were made of, or what mlx_lm.convert --dequantize makes of them", ErrUnsupported, mlx.Int("bits", 0))
		return
	}
	if !f.Has(key) || f.err != nil {
		return
	}
	q, err := ParseFields(f.values[key])
	if err != nil {
		f.Fail(key, string(f.values[key]), "an object")
		return
	}
	method := q.String("quant_method", "")
	if method == "" && (q.Bool("load_in_4bit", false) || q.Bool("load_in_8bit", false)) {
		method = "bitsandbytes" // early files do not name the method
	}
	if f.err = q.err; f.err != nil {
		return
	}
	if _, ok := c.Family.(*gptOSS); ok && method == "mxfp4" {
		return // only experts are, see mxfp4.go
	}
	if read := packedMethods[method]; read != nil {
		if c.packed = read(q); q.err != nil {
			f.err = fmt.Errorf("%s: %w", key, q.err)
		}
		return
	}
	switch method {
	case "bitsandbytes":
		c.Quantized = true
	case "fp8":
		c.float8 = q.fineGrained()
	case "compressed-tensors":
		c.float8 = q.compressedTensors()
	default:
		f.err = fmt.Errorf("%w: %s: quant_method %q%s; supported: awq, bitsandbytes, compressed-tensors, fp8, gptq; or use the unquantised checkpoint", ErrUnsupported, key, method, quantizerOf(method))
	}
	if q.err != nil {
		f.err = fmt.Errorf("%s: %w", key, q.err)
	}
}

// quantizerOf returns a note on the tool that writes weights of a quant_method.
func quantizerOf(method string) string {
	tools := map[string]string{"exl2": "ExLlamaV2", "exl3": "ExLlamaV3", "hqq": "HQQ", "aqlm": "AQLM", "quanto": "Quanto", "torchao": "torchao", "vptq": "VPTQ", "spqr": "SpQR", "higgs": "HIGGS", "bitnet": "BitNet", "eetq": "EETQ", "quark": "AMD Quark", "modelopt": "NVIDIA ModelOpt", "fbgemm_fp8": "FBGEMM", "auto-round": "AutoRound", "qqq": "QQQ"}
	if tool := tools[method]; tool != "" {
		return " (of " + tool + ")"
	}
	return ""
}

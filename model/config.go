package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/lorafuse/lorafuse/internal/suggest"
	"github.com/lorafuse/lorafuse/nn"
)

// ErrUnsupported is wrapped where a checkpoint asks for what is not supported;
// the message names it and lists what is.
var ErrUnsupported = errors.New("unsupported model")

// ErrConfig is wrapped where config.json is wrong.
var ErrConfig = errors.New("bad config.json")

// Config is what all models share, read from config.json as transformers 4 or 5
// writes it. What is one family's own is in Family.
type Config struct {
	Architecture string // such as LlamaForCausalLM
	ModelType    string // such as llama
	// Part is how much of it the model is: Body where the architecture has no head,
	// Classifier where its head is one, else AsSaved, unless another was asked for.
	Part  Part   `json:"-"`
	DType string // of the weights, as the file calls it

	HiddenSize   int
	Layers       int
	VocabSize    int
	MaxPositions int
	// TiedEmbeddings says that the head shares the weight of the input embedding.
	TiedEmbeddings bool
	// Padding is the row of the embedding that gets no gradient, or -1.
	Padding int
	// Quantized says that bitsandbytes has quantised weights of the files.
	Quantized bool
	// EOS ends a generated text; BOS begins one, -1 if there is none.
	EOS []int32
	BOS int32
	// Classes are those of the head of a classifier, or what config.json says of one
	// that there may be.
	Classes Classes `json:"-"`
	// Deviation is that of weights which begin as random numbers: initializer_range.
	Deviation float64 `json:"-"`

	Family Family
}

// Family is what an architecture reads of config.json for itself; it builds the
// model.
type Family interface {
	// Check says what is wrong with the numbers. Errors: ErrConfig.
	Check(c *Config) error
	// Stretch is by how much texts may be longer than MaxPositions: 1 mostly.
	Stretch() float64
	// Build emits the graph.
	Build(c *Config, b *nn.Builder) Outputs
}

// Renamer is a Family whose weights have other names in some files.
type Renamer interface {
	// OtherNames lists the names that a weight may have in place of name.
	OtherNames(name string) []string
}

// MaxLength is the number of tokens that the model can take: its
// max_position_embeddings, and with dynamic rotary scaling as many times more
// as its factor says, as far as positions are numbers of 32 bits.
func (c *Config) MaxLength() int {
	if s := c.Family.Stretch(); s > 1 {
		return int(min(float64(c.MaxPositions)*s, math.MaxInt32))
	}
	return c.MaxPositions
}

// maxLayers keeps a wrong number from taking all memory.
const maxLayers = 1 << 14

// maxSize is the largest number of a kind that a model can have: the product of
// two does not overflow.
const maxSize = 1 << 30

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
		c.Architecture = ofType(c.ModelType)
	}
	a, ok := registry[c.Architecture]
	if !ok {
		name := c.Architecture
		if name == "" {
			name = c.ModelType
		}
		return nil, fmt.Errorf("%w: architecture %q%s; supported: %s", ErrUnsupported, name, suggest.DidYouMean(name, Architectures()), strings.Join(Architectures(), ", "))
	}
	f.shared(c)
	if f.err == nil {
		c.Family = a.Read(c, f)
	}
	switch {
	case strings.HasSuffix(c.Architecture, bodySuffix):
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
	c.DType = f.string("dtype", f.string("torch_dtype", ""))
	c.HiddenSize = f.need("hidden_size")
	c.Layers = f.need("num_hidden_layers")
	c.VocabSize = f.need("vocab_size")
	c.MaxPositions = f.int("max_position_embeddings", 2048)
	c.TiedEmbeddings = f.bool("tie_word_embeddings", false)
	if c.Layers > maxLayers {
		f.fail("num_hidden_layers", c.Layers, fmt.Sprintf("%d at most", maxLayers))
	}
	c.EOS = f.ids("eos_token_id")
	if ids := f.ids("bos_token_id"); len(ids) > 0 {
		c.BOS = ids[0]
	}
	if ids := f.ids("pad_token_id"); len(ids) > 0 && ids[0] >= 0 && int(ids[0]) < c.VocabSize {
		c.Padding = int(ids[0])
	}
}

// size is a number of config.json that must be 1 or more.
type size struct {
	key string
	n   int
}

func checkSizes(sizes ...size) error {
	for _, v := range sizes {
		if v.n < 1 || v.n > maxSize {
			return fmt.Errorf("%w: %s: found %d, expected 1 to %d", ErrConfig, v.key, v.n, maxSize)
		}
	}
	return nil
}

func (c *Config) check() error {
	err := checkSizes(size{"hidden_size", c.HiddenSize}, size{"num_hidden_layers", c.Layers},
		size{"vocab_size", c.VocabSize}, size{"max_position_embeddings", c.MaxPositions})
	if err != nil {
		return err
	}
	return c.Family.Check(c)
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
		f.err = fmt.Errorf("%w: %s %q; supported: %s", ErrUnsupported, key, fmt.Sprint(found), strings.Join(supported, ", "))
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

// object reads a nested object: an empty one where the key is missing.
func (f *Fields) object(key string) *Fields {
	return &Fields{values: read(f, key, "an object", map[string]json.RawMessage(nil))}
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

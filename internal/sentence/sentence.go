// Package sentence computes sentence embeddings as configured by a sentence-transformers folder: token selection,
// pooling (a [Transform]) and the layers after it. [Read] reads a folder.
package sentence

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/suggest"
)

// Errors that reading a folder may wrap.
var (
	// ErrFile is the error for an invalid file of sentence-transformers.
	ErrFile = errors.New("bad sentence-transformers file")
	// ErrUnsupported is the error for an unsupported module or setting, which the message names.
	ErrUnsupported = errors.New("unsupported sentence-transformers module")
	// ErrPrompt is the error for an unknown prompt name.
	ErrPrompt = errors.New("unknown prompt")
)

// Transform describes how a text becomes an embedding.
type Transform struct {
	// Pooling lists the pooling modes. The results of several modes are concatenated.
	Pooling []Mode
	// Steps are applied after pooling, in order.
	Steps []Step
	// MaxLength is the number of tokens to which texts are truncated, including special tokens. Zero means the limit of
	// the model.
	MaxLength int
	LowerCase bool // lower-case texts before tokenization
	// Prompts are texts that may be prepended, by name. DefaultPrompt is the name of the one used by default, or empty.
	Prompts       map[string]string
	DefaultPrompt string
	// ExcludePrompt excludes the tokens of the prompt from pooling.
	ExcludePrompt bool
}

// Step is a step after pooling: a dense layer, or normalization to length 1 if Dense is nil.
type Step struct{ Dense *Dense }

// Dense is a linear layer with an activation.
type Dense struct {
	Name       string // name of its folder
	In, Out    int
	Activation string // for example Tanh
	Weight     []float32
	Bias       []float32 // nil without a bias
}

// Size returns the number of elements of an embedding, for a model with hidden states of size hidden.
func (t *Transform) Size(hidden int) int {
	n := hidden * len(t.Pooling)
	for _, s := range t.Steps {
		if s.Dense != nil {
			n = s.Dense.Out
		}
	}
	return n
}

// Prompt returns the prompt called name, or the default one if name is empty. It fails with ErrPrompt.
func (t *Transform) Prompt(name string) (string, error) {
	if name == "" {
		name = t.DefaultPrompt
	}
	if name == "" {
		return "", nil
	}
	prompt, ok := t.Prompts[name]
	if !ok {
		names := slices.Sorted(maps.Keys(t.Prompts))
		has := "none"
		if len(names) > 0 {
			has = strings.Join(names, ", ")
		}
		return "", fmt.Errorf("sentence: %w: %q%s; the model has %s", ErrPrompt, name, suggest.DidYouMean(name, names), has)
	}
	return prompt, nil
}

// Files of a folder.
const (
	modulesFile   = "modules.json"
	settingsFile  = "config_sentence_transformers.json"
	tokenizerFile = "tokenizer_config.json"
	moduleConfig  = "config.json"
)

// textFiles are the files with tokenization settings; all but the first are of old versions.
var textFiles = []string{
	"sentence_bert_config.json", "sentence_roberta_config.json", "sentence_distilbert_config.json", "sentence_camembert_config.json",
	"sentence_albert_config.json", "sentence_xlm-roberta_config.json", "sentence_xlnet_config.json",
}

// Read reads the transform of the model folder dir. Without modules.json, an embedding is the mean of the token states,
// or the last state of a causal language model, as in sentence-transformers. It fails with ErrFile, ErrUnsupported, and
// errors of packages os and weights.
func Read(dir string) (*Transform, error) {
	t := &Transform{}
	if err := t.modules(dir); err != nil {
		return nil, fmt.Errorf("sentence: %s: %w", dir, err)
	}
	for _, read := range []func(string) error{t.texts, t.settings} {
		if err := read(dir); err != nil {
			return nil, fmt.Errorf("sentence: %s: %w", dir, err)
		}
	}
	return t, nil
}

// unlisted sets the pooling for a folder without modules.json.
func (t *Transform) unlisted(dir string) error {
	var model struct {
		Architectures []string
		Causal        json.RawMessage `json:"is_causal"`
	}
	_, err := readJSON(filepath.Join(dir, moduleConfig), &model)
	t.Pooling = []Mode{Mean}
	if a := model.Architectures; len(a) > 0 && (strings.HasSuffix(a[0], "ForCausalLM") || strings.HasSuffix(a[0], "LMHeadModel")) && !slices.Contains([]string{"false", "null"}, string(model.Causal)) {
		t.Pooling = []Mode{Last}
	}
	return err
}

// modules reads modules.json and the folders listed in it.
func (t *Transform) modules(dir string) error {
	var listed []struct {
		Type, Path string
	}
	if found, err := readJSON(filepath.Join(dir, modulesFile), &listed); err != nil {
		return err
	} else if !found {
		return t.unlisted(dir)
	}
	for i, m := range listed {
		kind := m.Type[strings.LastIndexByte(m.Type, '.')+1:]
		if !filepath.IsLocal(m.Path) && m.Path != "" {
			return fmt.Errorf("%w: %s: module %d has the path %q, expected a folder beside it", ErrFile, modulesFile, i, m.Path)
		}
		var err error
		switch {
		case (kind == "Transformer") != (i == 0), (kind == "Pooling") != (i == 1):
			err = fmt.Errorf("%w: %s: module %d is %q; supported: Transformer, Pooling, and then any of Dense, Normalize", ErrUnsupported, modulesFile, i, m.Type)
		case kind == "Transformer" && m.Path != "":
			err = fmt.Errorf("%w: %s: the model lies in the folder %q, expected it beside %s", ErrUnsupported, modulesFile, m.Path, modulesFile)
		case kind == "Pooling":
			err = t.pooling(filepath.Join(dir, m.Path))
		case kind == "Dense":
			err = t.dense(dir, m.Path)
		case kind == "Normalize":
			t.Steps = append(t.Steps, Step{})
		case kind != "Transformer":
			err = fmt.Errorf("%w: %s: %q; supported: Transformer, Pooling, Dense, Normalize", ErrUnsupported, modulesFile, m.Type)
		}
		if err != nil {
			return err
		}
	}
	if len(t.Pooling) == 0 {
		return fmt.Errorf("%w: %s lists no Pooling", ErrFile, modulesFile)
	}
	return nil
}

// texts reads the tokenization settings.
func (t *Transform) texts(dir string) error {
	var c struct {
		MaxLength *int   `json:"max_seq_length"`
		LowerCase bool   `json:"do_lower_case"`
		Task      string `json:"transformer_task"`
	}
	for _, name := range textFiles {
		found, err := readJSON(filepath.Join(dir, name), &c)
		if err != nil {
			return err
		}
		if !found {
			continue
		}
		if c.Task != "" && c.Task != "feature-extraction" {
			return fmt.Errorf("%w: %s: transformer_task %q; supported: feature-extraction", ErrUnsupported, name, c.Task)
		}
		break
	}
	t.LowerCase = c.LowerCase
	if c.MaxLength != nil {
		if t.MaxLength = *c.MaxLength; t.MaxLength < 1 {
			return fmt.Errorf("%w: max_seq_length: found %d, expected 1 or more", ErrFile, t.MaxLength)
		}
		return nil
	}
	var words struct {
		MaxLength float64 `json:"model_max_length"` // larger than any integer if unset
	}
	if _, err := readJSON(filepath.Join(dir, tokenizerFile), &words); err != nil {
		return err
	}
	if n := words.MaxLength; n >= 1 && n <= math.MaxInt32 {
		t.MaxLength = int(n)
	}
	return nil
}

// settings reads the prompts.
func (t *Transform) settings(dir string) error {
	var c struct {
		Prompts       map[string]*string `json:"prompts"`
		DefaultPrompt string             `json:"default_prompt_name"`
	}
	if _, err := readJSON(filepath.Join(dir, settingsFile), &c); err != nil {
		return err
	}
	t.Prompts, t.DefaultPrompt = map[string]string{}, c.DefaultPrompt
	for name, prompt := range c.Prompts {
		if prompt != nil {
			t.Prompts[name] = *prompt
		}
	}
	if _, err := t.Prompt(""); err != nil {
		return fmt.Errorf("%w: %s: default_prompt_name: %w", ErrFile, settingsFile, err)
	}
	return nil
}

// readJSON reads a JSON file and reports whether it exists.
func readJSON(path string, to any) (found bool, err error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := json.Unmarshal(raw, to); err != nil {
		return false, fmt.Errorf("%w: %s: %w", ErrFile, filepath.Base(path), err)
	}
	return true, nil
}

// Digest returns a hash of everything that determines embeddings, including the weights of layers.
func (t *Transform) Digest() [sha256.Size]byte {
	h := sha256.New()
	fmt.Fprintln(h, t.Pooling, t.LowerCase)
	for _, s := range t.Steps {
		if d := s.Dense; d != nil {
			fmt.Fprintln(h, d.In, d.Out, d.Activation, d.Weight, d.Bias)
		} else {
			fmt.Fprintln(h, "normalize")
		}
	}
	return [sha256.Size]byte(h.Sum(nil))
}

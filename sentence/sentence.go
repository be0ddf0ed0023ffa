// Package sentence makes one vector of a text, as a folder of sentence-transformers
// says: which tokens of it are read, how the states of its tokens become one vector
// (a [Transform]), and what comes behind.
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
	// ErrFile: a file of sentence-transformers is wrong.
	ErrFile = errors.New("bad sentence-transformers file")
	// ErrUnsupported: it asks for what is not supported; the message names it.
	ErrUnsupported = errors.New("unsupported sentence-transformers module")
	// ErrPrompt: there is no such prompt.
	ErrPrompt = errors.New("unknown prompt")
)

// Transform says how a text becomes a vector.
type Transform struct {
	// Pooling are the ways in which the states of a text become one vector; the
	// results of several stand one behind the other.
	Pooling []Mode
	// Steps come behind pooling, in this order.
	Steps []Step
	// MaxLength is the number of tokens that a text is cut to, special ones
	// included; 0: nothing says so but the model.
	MaxLength int
	LowerCase bool // of texts before they become tokens
	// Prompts are what may be put before a text, by name, and DefaultPrompt names
	// the one that is where nobody asks for another, if any.
	Prompts       map[string]string
	DefaultPrompt string
	// ExcludePrompt says that the tokens of the prompt have no part in pooling.
	ExcludePrompt bool
}

// Step is one of what comes behind pooling: a layer, or, without one, bringing
// vectors to length 1.
type Step struct{ Dense *Dense }

// Dense is a linear layer with an activation.
type Dense struct {
	Name       string // of its folder
	In, Out    int
	Activation string // such as Tanh
	Weight     []float32
	Bias       []float32 // nil without one
}

// Size is the number of elements of a vector, of a model whose states have so many.
func (t *Transform) Size(hidden int) int {
	n := hidden * len(t.Pooling)
	for _, s := range t.Steps {
		if s.Dense != nil {
			n = s.Dense.Out
		}
	}
	return n
}

// Prompt is what is put before a text: the prompt called name, or, where name is
// empty, the default one. Errors: ErrPrompt.
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

// The files of a folder.
const (
	modulesFile   = "modules.json"
	settingsFile  = "config_sentence_transformers.json"
	tokenizerFile = "tokenizer_config.json"
	moduleConfig  = "config.json"
)

// textFiles say how texts become tokens; all but the first are of old versions.
var textFiles = []string{
	"sentence_bert_config.json", "sentence_roberta_config.json", "sentence_distilbert_config.json", "sentence_camembert_config.json",
	"sentence_albert_config.json", "sentence_xlm-roberta_config.json", "sentence_xlnet_config.json",
}

// Read reads what dir says. Without modules.json a vector is the mean of the states,
// or the last state of a model that continues texts, as sentence-transformers has it.
// Errors: ErrFile, ErrUnsupported, and those of packages os and weights.
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

// unlisted takes the pooling for a folder without modules.json.
func (t *Transform) unlisted(dir string) error {
	var model struct {
		Architectures []string
		Causal        json.RawMessage `json:"is_causal"`
	}
	_, err := readJSON(filepath.Join(dir, moduleConfig), &model)
	t.Pooling = []Mode{Mean}
	if a := model.Architectures; len(a) > 0 && strings.HasSuffix(a[0], "ForCausalLM") && !slices.Contains([]string{"false", "null"}, string(model.Causal)) {
		t.Pooling = []Mode{Last}
	}
	return err
}

// modules reads modules.json and the folders that it names.
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

// texts reads how texts become tokens.
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
		MaxLength float64 `json:"model_max_length"` // a number beyond all integers where there is none
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

// readJSON reads a file, and tells whether there is one.
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

// Digest is a hash of what vectors are made by, weights of layers included.
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

package sentence

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/weights"
	"github.com/lorafuse/lorafuse/tensor"
)

// Mode is a pooling mode: how the token states of a text become one embedding.
type Mode string

// Pooling modes, named as in pooling_mode.
const (
	First        Mode = "cls"                  // the state of the first token
	Max          Mode = "max"                  // the maximum of each element
	Mean         Mode = "mean"                 // the mean
	MeanRoot     Mode = "mean_sqrt_len_tokens" // the sum divided by the root of the number of tokens
	WeightedMean Mode = "weightedmean"         // the mean, with weight i for token i
	Last         Mode = "lasttoken"            // the state of the last token
)

// Modes returns all modes.
func Modes() []Mode { return []Mode{First, Max, Mean, MeanRoot, WeightedMean, Last} }

// ParseMode parses the name of a mode. It fails with ErrUnsupported.
func ParseMode(name string) (Mode, error) {
	if !slices.Contains(Modes(), Mode(name)) {
		return "", fmt.Errorf("%w: pooling_mode %q; supported: %s", ErrUnsupported, name, joined(Modes()))
	}
	return Mode(name), nil
}

func joined[T ~string](names []T) string {
	var s []string
	for _, n := range names {
		s = append(s, string(n))
	}
	return strings.Join(s, ", ")
}

// poolingConfig is config.json of a Pooling module. pooling_mode is a name or a list of names; in files without it each
// mode has its own key.
type poolingConfig struct {
	Mode          any   `json:"pooling_mode"`
	IncludePrompt *bool `json:"include_prompt"`
	First         bool  `json:"pooling_mode_cls_token"`
	Max           bool  `json:"pooling_mode_max_tokens"`
	Mean          bool  `json:"pooling_mode_mean_tokens"`
	MeanRoot      bool  `json:"pooling_mode_mean_sqrt_len_tokens"`
	WeightedMean  bool  `json:"pooling_mode_weightedmean_tokens"`
	Last          bool  `json:"pooling_mode_lasttoken"`
}

func (t *Transform) pooling(dir string) error {
	var c poolingConfig
	path := filepath.Join(filepath.Base(dir), moduleConfig)
	if found, err := readJSON(filepath.Join(dir, moduleConfig), &c); err != nil {
		return err
	} else if !found {
		return fmt.Errorf("%w: %s is missing", ErrFile, path)
	}
	t.ExcludePrompt = c.IncludePrompt != nil && !*c.IncludePrompt
	names, ok := c.Mode.([]any)
	if name, one := c.Mode.(string); one {
		names, ok = []any{name}, true
	}
	if c.Mode != nil && (!ok || len(names) == 0) {
		return fmt.Errorf("%w: %s: pooling_mode: found %v, expected a name or a list of them", ErrFile, path, c.Mode)
	}
	for _, name := range names {
		mode, err := ParseMode(fmt.Sprint(name))
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		t.Pooling = append(t.Pooling, mode)
	}
	if names != nil {
		return nil
	}
	for i, on := range []bool{c.First, c.Max, c.Mean, c.MeanRoot, c.WeightedMean, c.Last} { // in the order of Modes
		if on {
			t.Pooling = append(t.Pooling, Modes()[i])
		}
	}
	if t.Pooling == nil {
		t.Pooling = []Mode{Mean}
	}
	return nil
}

// dense reads a Dense module and its weights.
func (t *Transform) dense(dir, name string) error {
	c := struct {
		In         int    `json:"in_features"`
		Out        int    `json:"out_features"`
		Bias       *bool  `json:"bias"`
		Activation string `json:"activation_function"`
		Residual   bool   `json:"use_residual"`
		Input      string `json:"module_input_name"`
		Output     string `json:"module_output_name"`
	}{Activation: "Tanh"}
	path := filepath.Join(name, moduleConfig)
	if found, err := readJSON(filepath.Join(dir, path), &c); err != nil {
		return err
	} else if !found {
		return fmt.Errorf("%w: %s is missing", ErrFile, path)
	}
	d := &Dense{Name: name, In: c.In, Out: c.Out, Activation: c.Activation[strings.LastIndexByte(c.Activation, '.')+1:]}
	switch {
	case d.In < 1 || d.Out < 1 || d.In > 1<<24 || d.Out > 1<<24:
		return fmt.Errorf("%w: %s: in_features %d and out_features %d, expected 1 or more", ErrFile, path, d.In, d.Out)
	case c.Residual:
		return fmt.Errorf("%w: %s: use_residual true; supported: false", ErrUnsupported, path)
	case c.Input != "" && c.Input != "sentence_embedding", c.Output != "" && c.Output != "sentence_embedding":
		return fmt.Errorf("%w: %s: from %q to %q; supported: sentence_embedding", ErrUnsupported, path, c.Input, c.Output)
	}
	if _, ok := activations[d.Activation]; !ok {
		return fmt.Errorf("%w: %s: activation_function %q; supported: %s", ErrUnsupported, path, c.Activation, joined(slices.Sorted(maps.Keys(activations))))
	}
	set, err := weights.Open(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	defer set.Close()
	if d.Weight, err = floats(set, "linear.weight", d.Out, d.In); err == nil && (c.Bias == nil || *c.Bias) {
		d.Bias, err = floats(set, "linear.bias", d.Out)
	}
	for _, other := range set.Names() { // sentence-transformers refuses others too
		if err == nil && other != "linear.weight" && (other != "linear.bias" || d.Bias == nil) {
			err = fmt.Errorf("%w: tensor %q is not read: bias is %v in %s", ErrFile, other, d.Bias != nil, path)
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	t.Steps = append(t.Steps, Step{d})
	return nil
}

// floats returns the elements of a tensor, which must have the given shape.
func floats(set *weights.Set, name string, shape ...int) ([]float32, error) {
	v, err := set.Lookup(name)
	if err != nil {
		return nil, err
	}
	if !slices.Equal(v.Shape, shape) {
		return nil, fmt.Errorf("%w: tensor %q is %v, expected %v", ErrFile, name, v.Shape, shape)
	}
	d, err := tensor.ParseDType(v.DType.String())
	if err != nil {
		return nil, fmt.Errorf("tensor %q: %w", name, err)
	}
	var out []float32
	err = v.WithBytes(func(data []byte) (err error) {
		x := tensor.Tensor{DType: d, Shape: shape, Data: data}
		out, err = x.Float32s()
		return err
	})
	return out, err
}

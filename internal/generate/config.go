package generate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/lorafuse/lorafuse/internal/generate/sample"
)

// Config holds the sampling settings of a model's generation_config.json. Missing settings are
// nil. [model.Config] reads the end tokens.
type Config struct {
	DoSample     bool     `json:"do_sample"`
	Temperature  *float64 `json:"temperature"`
	TopK         *int     `json:"top_k"`
	TopP         *float64 `json:"top_p"`
	MinP         *float64 `json:"min_p"`
	Repetition   *float64 `json:"repetition_penalty"`
	MaxNewTokens *int     `json:"max_new_tokens"`

	Ignored []string `json:"-"` // settings that would change the text and are not honoured
}

// DefaultMaxNewTokens is the length of an answer that neither a caller nor the file limits. That of
// transformers, 20, is not useful.
const DefaultMaxNewTokens = 256

// Sampling returns the sampler, and the maximum tokens of an answer, with the settings that are
// given, or else those of the file, or else the defaults of transformers. Decoding is greedy unless
// the file has do_sample or a setting of sampling is given, and if a temperature of 0 is given.
func (c Config) Sampling(given Config) (s sample.Sampler, maxNewTokens int, err error) {
	s.RepetitionPenalty = first(1, given.Repetition, c.Repetition)
	asked := given.Temperature != nil || given.TopK != nil || given.TopP != nil || given.MinP != nil
	if (c.DoSample || asked) && first(1, given.Temperature) != 0 {
		s.Temperature = first(1, given.Temperature, c.Temperature)
		s.TopK = first(50, given.TopK, c.TopK)
		s.TopP = first(1, given.TopP, c.TopP)
		s.MinP = first(0, given.MinP, c.MinP)
	}
	maxNewTokens = first(DefaultMaxNewTokens, given.MaxNewTokens, c.MaxNewTokens)
	if maxNewTokens < 1 {
		return s, 0, fmt.Errorf("max_new_tokens: found %d, expected 1 or more", maxNewTokens)
	}
	return s, maxNewTokens, s.Validate()
}

// first returns the first of the values that is set, or else normal.
func first[T any](normal T, values ...*T) T {
	for _, v := range values {
		if v != nil {
			return *v
		}
	}
	return normal
}

// neutral are settings of transformers that are not honoured, with the values
// at which they do nothing.
var neutral = map[string][]string{
	"num_beams": {"1"}, "num_beam_groups": {"1"}, "penalty_alpha": {"0", "0.0"}, "no_repeat_ngram_size": {"0"},
	"typical_p": {"1", "1.0"}, "epsilon_cutoff": {"0", "0.0"}, "eta_cutoff": {"0", "0.0"}, "top_h": nil,
	"bad_words_ids": nil, "sequence_bias": nil, "suppress_tokens": nil, "begin_suppress_tokens": nil,
	"forced_bos_token_id": nil, "forced_eos_token_id": nil, "min_length": {"0"}, "min_new_tokens": {"0"},
	"encoder_repetition_penalty": {"1", "1.0"}, "exponential_decay_length_penalty": nil, "guidance_scale": {"1", "1.0"},
	"watermarking_config": nil, "dola_layers": nil,
}

// ReadConfig reads the file in the model's folder. If there is none, the settings are empty.
// Errors name the file.
func ReadConfig(dir string) (c Config, err error) {
	path := filepath.Join(dir, "generation_config.json")
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return c, err
	}
	var all map[string]json.RawMessage
	if err = json.Unmarshal(raw, &c); err == nil {
		err = json.Unmarshal(raw, &all)
	}
	if err != nil {
		return c, fmt.Errorf("%s: %w", path, err)
	}
	for key, values := range neutral {
		if v, ok := all[key]; ok && string(v) != "null" && !slices.Contains(values, string(v)) {
			c.Ignored = append(c.Ignored, fmt.Sprintf("%s: %s", key, v))
		}
	}
	slices.Sort(c.Ignored)
	return c, nil
}

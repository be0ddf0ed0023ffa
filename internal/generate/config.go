package generate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
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

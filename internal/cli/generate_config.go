package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/lorafuse/lorafuse/generate/sample"
)

// What transformers takes where neither flag nor file says anything; it has no
// useful default for the number of tokens.
const (
	defaultTopK      = 50
	defaultNewTokens = 256
)

// generationConfig is what generation_config.json says of choosing tokens; its
// end tokens are the model's business.
type generationConfig struct {
	DoSample     bool     `json:"do_sample"`
	Temperature  *float64 `json:"temperature"`
	TopK         *int     `json:"top_k"`
	TopP         *float64 `json:"top_p"`
	MinP         *float64 `json:"min_p"`
	Repetition   *float64 `json:"repetition_penalty"`
	MaxNewTokens *int     `json:"max_new_tokens"`

	ignored []string // settings that would change the text and are not honoured
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

// readGenerationConfig reads the file in the model's folder; one that is
// missing says nothing.
func readGenerationConfig(dir string) (*generationConfig, error) {
	path := filepath.Join(dir, "generation_config.json")
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &generationConfig{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("generate: %w", err)
	}
	g, all := &generationConfig{}, map[string]json.RawMessage{}
	if err := errors.Join(json.Unmarshal(raw, g), json.Unmarshal(raw, &all)); err != nil {
		return nil, fmt.Errorf("generate: %s: %w", path, err)
	}
	for key, values := range neutral {
		if v, ok := all[key]; ok && string(v) != "null" && !slices.Contains(values, string(v)) {
			g.ignored = append(g.ignored, fmt.Sprintf("%s: %s", key, v))
		}
	}
	slices.Sort(g.ignored)
	return g, nil
}

// settle works out how tokens are chosen from the flags and the file.
func (w *writer) settle(dir string) error {
	g, err := readGenerationConfig(dir)
	if err != nil {
		return err
	}
	for _, s := range g.ignored {
		w.app.note("note     generation_config.json: %s is not honoured", s)
	}
	f := w.flags
	w.newTokens = or(f.given("max-new-tokens"), f.newTokens, g.MaxNewTokens, defaultNewTokens)
	w.sampler = sample.Sampler{Seed: f.seed, RepetitionPenalty: or(f.given("repetition-penalty"), f.repetition, g.Repetition, 1)}
	asked := f.given("temperature") || f.given("top-k") || f.given("top-p") || f.given("min-p")
	if g.DoSample && !(f.given("temperature") && f.temperature == 0) || asked && !(f.given("temperature") && f.temperature == 0) {
		w.sampler.Temperature = or(f.given("temperature"), f.temperature, g.Temperature, 1)
		w.sampler.TopK = or(f.given("top-k"), f.topK, g.TopK, defaultTopK)
		w.sampler.TopP = or(f.given("top-p"), f.topP, g.TopP, 1)
		w.sampler.MinP = or(f.given("min-p"), f.minP, g.MinP, 0)
	}
	if w.newTokens < 1 {
		return fmt.Errorf("generate: max_new_tokens: found %d, expected 1 or more", w.newTokens)
	}
	if f.given("repetition-penalty") && f.repetition <= 0 {
		return fmt.Errorf("generate: --repetition-penalty: found %v, expected more than 0", f.repetition)
	}
	if err := w.sampler.Validate(); err != nil {
		return fmt.Errorf("generate: %w", err)
	}
	return nil
}

// or is the flag's value if it was given, else that of the file, else the
// default.
func or[T any](given bool, flag T, file *T, byDefault T) T {
	switch {
	case given:
		return flag
	case file != nil:
		return *file
	}
	return byDefault
}

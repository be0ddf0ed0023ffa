package cli

import (
	"fmt"

	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/generate/sample"
)

// Defaults of transformers for settings that neither flag nor file gives. Its default for the number of tokens is not
// useful.
const (
	defaultTopK      = 50
	defaultNewTokens = 256
)

// settle works out how tokens are chosen from the flags and the file.
func (w *writer) settle(dir string) error {
	g, err := generate.ReadConfig(dir)
	if err != nil {
		return fmt.Errorf("generate: %w", err)
	}
	for _, s := range g.Ignored {
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

// or returns the flag's value if given, else the file's value if present, else the default.
func or[T any](given bool, flag T, file *T, byDefault T) T {
	switch {
	case given:
		return flag
	case file != nil:
		return *file
	}
	return byDefault
}

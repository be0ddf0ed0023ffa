package serve

import (
	"fmt"
	"path/filepath"

	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/generate/sample"
)

// readDefaults returns the sampling defaults of generation_config.json. Like vLLM, and unlike
// transformers, a server samples regardless of do_sample.
func readDefaults(dir string) (generate.Config, error) {
	d, err := generate.ReadConfig(dir)
	if err != nil {
		return d, fmt.Errorf("serve: %w", err)
	}
	path := filepath.Join(dir, "generation_config.json")
	if d.MaxNewTokens != nil && *d.MaxNewTokens < 1 {
		return d, fmt.Errorf("serve: %s: max_new_tokens: found %d, expected 1 or more", path, *d.MaxNewTokens)
	}
	// Settings that the file omits are off.
	said := sample.Sampler{Temperature: of(d.Temperature, 0), TopK: of(d.TopK, 0), TopP: of(d.TopP, 0), MinP: of(d.MinP, 0), RepetitionPenalty: of(d.Repetition, 0)}
	if err := said.Validate(); err != nil {
		return d, fmt.Errorf("serve: %s: %w", path, err)
	}
	return d, nil
}

// of returns *p, or normal if p is nil.
func of[T any](p *T, normal T) T {
	if p == nil {
		return normal
	}
	return *p
}

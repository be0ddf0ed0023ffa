package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/lorafuse/lorafuse/generate/sample"
)

// defaults are what generation_config.json says for requests that say nothing. Like vLLM,
// and unlike transformers, a server samples whatever do_sample says.
type defaults struct {
	Temperature *float64 `json:"temperature"`
	TopK        *int     `json:"top_k"`
	TopP        *float64 `json:"top_p"`
	MinP        *float64 `json:"min_p"`
	Repetition  *float64 `json:"repetition_penalty"`
	MaxTokens   *int     `json:"max_new_tokens"`
}

func readDefaults(dir string) (defaults, error) {
	var d defaults
	path := filepath.Join(dir, "generation_config.json")
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return d, nil
	}
	if err != nil {
		return d, fmt.Errorf("serve: %w", err)
	}
	if err := json.Unmarshal(raw, &d); err != nil {
		return d, fmt.Errorf("serve: %s: %w", path, err)
	}
	if d.MaxTokens != nil && *d.MaxTokens < 1 {
		return d, fmt.Errorf("serve: %s: max_new_tokens: found %d, expected 1 or more", path, *d.MaxTokens)
	}
	// As far as it says anything: what it leaves out is off.
	said := sample.Sampler{Temperature: of(d.Temperature, 0), TopK: of(d.TopK, 0), TopP: of(d.TopP, 0), MinP: of(d.MinP, 0), RepetitionPenalty: of(d.Repetition, 0)}
	if err := said.Validate(); err != nil {
		return d, fmt.Errorf("serve: %s: %w", path, err)
	}
	return d, nil
}

// of is what a pointer leads to, or what is normal.
func of[T any](p *T, normal T) T {
	if p == nil {
		return normal
	}
	return *p
}

// Package flow implements the arithmetic of flow matching: noise levels σ for sampling and
// training, their distribution and loss weights, the Euler step, guidance, and random
// numbers. A noisy sample is x(σ) = (1 − σ)·image + σ·noise; models learn its velocity, noise
// − image (Lipman et al. 2022, arXiv 2210.02747; Esser et al. 2024, arXiv 2403.03206).
// Results are rounded to float32 at the same points as in diffusers.
package flow

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/lorafuse/lorafuse/internal/suggest"
)

// ErrSchedule is wrapped if a schedule or one of its settings is invalid or unsupported.
var ErrSchedule = errors.New("wrong schedule")

// ConfigFile is the configuration file in the folder of a scheduler.
const ConfigFile = "scheduler_config.json"

// class is the only supported scheduler.
const class = "FlowMatchEulerDiscreteScheduler"

// Schedule holds the noise levels for sampling and training that scheduler_config.json of
// diffusers configures.
type Schedule struct {
	// Levels is the number of noise levels in training. Timesteps range from 0 to Levels.
	Levels int
	// Shift s shifts levels towards noise, σ·s/(1 + (s − 1)·σ), in training, and in sampling
	// unless Dynamic is set.
	Shift float64
	// Dynamic shifts sampling levels by the size of the image (see Mu), and leaves training
	// levels unshifted.
	Dynamic               bool
	BaseShift, MaxShift   float64
	BaseTokens, MaxTokens int
	// Linear uses µ instead of e^µ as the dynamic shift.
	Linear bool
	// Terminal is the level at which the last step begins, reached by stretching. Zero means
	// no stretching.
	Terminal float64
	// Spacing is the spacing of levels between the first and the last.
	Spacing Spacing
	// Inverted makes levels rise from 0 to 1.
	Inverted bool
}

// Spacing is the spacing of sampling levels between the first and the last.
type Spacing string

// Spacings. Even levels are evenly spaced before the shift. The others replace the shifted
// levels: Karras et al. 2022 (arXiv 2206.00364, ρ = 7), even ratios, and a beta distribution
// (Lee et al. 2024, arXiv 2407.12173).
const (
	Even        Spacing = ""
	Karras      Spacing = "karras"
	Exponential Spacing = "exponential"
	Beta        Spacing = "beta"
)

// Open reads the schedule in the folder of a scheduler. Errors: I/O errors, and errors of
// Parse.
func Open(dir string) (*Schedule, error) {
	path := filepath.Join(dir, ConfigFile)
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("flow: %w", err)
	}
	s, err := Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("%w (%s)", err, path)
	}
	return s, nil
}

// Parse parses scheduler_config.json. Unsupported settings are errors: an unknown key is
// ignored only if it is null or false. Errors: ErrSchedule.
func Parse(raw []byte) (*Schedule, error) {
	c := &keys{left: map[string]json.RawMessage{}}
	if err := json.Unmarshal(raw, &c.left); err != nil {
		return nil, fmt.Errorf("flow: %w: not a JSON object: %w", ErrSchedule, err)
	}
	if name := get(c, "_class_name", "a string", class); name != class {
		c.fail("flow: %w: _class_name %q, the only one supported is %s", ErrSchedule, name, class)
	}
	s := &Schedule{
		Levels:     get(c, "num_train_timesteps", "an integer", 1000),
		Shift:      get(c, "shift", "a number", 1.0),
		Dynamic:    get(c, "use_dynamic_shifting", "true or false", false),
		BaseShift:  get(c, "base_shift", "a number", 0.5),
		MaxShift:   get(c, "max_shift", "a number", 1.15),
		BaseTokens: get(c, "base_image_seq_len", "an integer", 256),
		MaxTokens:  get(c, "max_image_seq_len", "an integer", 4096),
		Terminal:   get(c, "shift_terminal", "a number", 0.0),
		Inverted:   get(c, "invert_sigmas", "true or false", false),
	}
	switch kind := get(c, "time_shift_type", "a string", "exponential"); kind {
	case "exponential":
	case "linear":
		s.Linear = true
	default:
		c.fail("flow: %w: time_shift_type: %s", ErrSchedule, suggest.Expected(kind, []string{"exponential", "linear"}))
	}
	for _, spacing := range []Spacing{Karras, Exponential, Beta} {
		if !get(c, fmt.Sprintf("use_%s_sigmas", spacing), "true or false", false) {
			continue
		}
		if s.Spacing != Even {
			c.fail("flow: %w: use_%s_sigmas and use_%s_sigmas are both true, expected at most one", ErrSchedule, s.Spacing, spacing)
		}
		s.Spacing = spacing
	}
	c.rest()
	if c.err != nil {
		return nil, c.err
	}
	return s, s.check()
}

// check returns an error for values that yield no valid levels.
func (s *Schedule) check() error {
	switch {
	case s.Levels < 1 || s.Levels > 1<<20:
		return fmt.Errorf("flow: %w: num_train_timesteps: found %d, expected 1 to %d", ErrSchedule, s.Levels, 1<<20)
	case !(s.Shift > 0):
		return fmt.Errorf("flow: %w: shift: found %v, expected a number above 0", ErrSchedule, s.Shift)
	case s.Terminal < 0 || s.Terminal >= 1:
		return fmt.Errorf("flow: %w: shift_terminal: found %v, expected at least 0 and less than 1", ErrSchedule, s.Terminal)
	case s.Dynamic && s.BaseTokens == s.MaxTokens:
		return fmt.Errorf("flow: %w: base_image_seq_len and max_image_seq_len are both %d, expected two sizes to shift between", ErrSchedule, s.MaxTokens)
	}
	return nil
}

// keys holds the keys of a config that have not been read, and the first error.
type keys struct {
	left map[string]json.RawMessage
	err  error
}

func (c *keys) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
}

// get returns the value of a key, or def if it is missing or null.
func get[T any](c *keys, key, expected string, def T) T {
	raw, ok := c.left[key]
	delete(c.left, key)
	if !ok || string(raw) == "null" {
		return def
	}
	v := def
	if json.Unmarshal(raw, &v) != nil {
		c.fail("flow: %w: %s: found %s, expected %s", ErrSchedule, key, raw, expected)
	}
	return v
}

// rest returns an error for unread keys that are not null or false.
func (c *keys) rest() {
	for _, key := range slices.Sorted(maps.Keys(c.left)) {
		raw := string(c.left[key])
		if raw == "null" || raw == "false" || key[:min(1, len(key))] == "_" {
			continue
		}
		c.fail("flow: %w: %s: found %s, which is not supported, expected null or false", ErrSchedule, key, raw)
	}
}

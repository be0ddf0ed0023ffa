package lora

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/suggest"
)

// Validate reports the first setting that is wrong in itself (ErrConfig) or
// that asks for something which this package does not compute
// (ErrUnsupported). A setting that no check here refuses is honoured.
func (c *Config) Validate() error {
	for _, check := range []func() error{
		c.validateKind, c.validateScale, c.validateModules, c.validateTokens,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return c.method().validate(c)
}

var (
	taskTypes = []string{"CAUSAL_LM", "FEATURE_EXTRACTION", "QUESTION_ANS", "SEQ_2_SEQ_LM", "SEQ_CLS", "TOKEN_CLS"}
	biasModes = []string{"none", "all", "lora_only"}
)

func (c *Config) validateKind() error {
	if !knownType(c.PeftType) {
		return unsupported("peft_type", "found %q, expected one of %s", c.PeftType, strings.Join(peftTypes(), ", "))
	}
	if t := c.TaskType; t != nil && !slices.Contains(taskTypes, *t) {
		return configError("task_type", "%q is none of %s%s", *t, strings.Join(taskTypes, ", "), suggest.DidYouMean(*t, taskTypes))
	}
	if !slices.Contains(biasModes, c.Bias) {
		return configError("bias", "%q is none of %s", c.Bias, strings.Join(biasModes, ", "))
	}
	return nil
}

func (c *Config) validateScale() error {
	if err := validRank(c.R); err != nil {
		return configError("r", "%w", err)
	}
	if err := validAlpha(c.LoraAlpha); err != nil {
		return configError("lora_alpha", "%w", err)
	}
	if !(c.LoraDropout >= 0 && c.LoraDropout <= 1) {
		return configError("lora_dropout", "a probability lies in [0, 1], found %v", c.LoraDropout)
	}
	for _, rule := range c.RankPattern {
		if err := validRank(rule.R); err != nil {
			return configError("rank_pattern", "%q: %w", rule.Key, err)
		}
		if _, err := suffixMatch(rule.Key); err != nil {
			return configError("rank_pattern", "%w", err)
		}
	}
	for _, rule := range c.AlphaPattern {
		if err := validAlpha(rule.Alpha); err != nil {
			return configError("alpha_pattern", "%q: %w", rule.Key, err)
		}
		if _, err := suffixMatch(rule.Key); err != nil {
			return configError("alpha_pattern", "%w", err)
		}
	}
	return nil
}

// Bounds of ranks and alphas. No layer is as wide as the maximum rank, and a rank above
// the width has no benefit. Within the bounds of alpha, the scale is a finite f32 other
// than zero for every rank.
const (
	maxRank            = 1 << 16
	minAlpha, maxAlpha = 1e-30, 1e30
)

func validRank(r int) error {
	switch {
	case r <= 0:
		return fmt.Errorf("the rank must be at least 1, found %d", r)
	case r > maxRank:
		return fmt.Errorf("the rank must be at most %d, found %d", maxRank, r)
	}
	return nil
}

func validAlpha(a float64) error {
	switch {
	case math.IsNaN(a) || math.IsInf(a, 0):
		return errNotFiniteAlpha
	case a == 0:
		return errZeroAlpha
	case math.Abs(a) < minAlpha || math.Abs(a) > maxAlpha:
		return fmt.Errorf("alpha must lie between %g and %g, found %g", minAlpha, maxAlpha, a)
	}
	return nil
}

func (c *Config) validateModules() error {
	for _, s := range []struct {
		key string
		set ModuleSet
	}{{"target_modules", c.TargetModules}, {"exclude_modules", c.ExcludeModules}} {
		if s.set.Pattern != "" && s.set.Names != nil {
			return configError(s.key, "both a pattern and a list are given")
		}
		if slices.Contains(s.set.Names, "") {
			return configError(s.key, "the list has an empty name in it")
		}
		if s.set.Pattern == "" || (s.key == "target_modules" && s.set.isAllLinear()) {
			continue
		}
		if _, err := fullMatch(s.set.Pattern); err != nil {
			return configError(s.key, "%w", err)
		}
	}
	if slices.Contains(c.TargetParameters, "") {
		return configError("target_parameters", "the list has an empty name in it")
	}
	for _, m := range c.ModulesToSave {
		if m == "" {
			return configError("modules_to_save", "the list has an empty name in it")
		}
		if _, err := savedPattern(m); err != nil {
			return configError("modules_to_save", "%w", err)
		}
	}
	return c.validateLayers()
}

func (c *Config) validateLayers() error {
	if c.LayersToTransform == nil {
		if len(c.LayersPattern) > 0 {
			return configError("layers_pattern", "layers_to_transform must be set with it")
		}
		return nil
	}
	if c.TargetModules.Pattern != "" {
		return configError("layers_to_transform", "it needs target_modules to be a list, found the pattern %q", c.TargetModules.Pattern)
	}
	for _, l := range c.LayersToTransform {
		if l < 0 {
			return configError("layers_to_transform", "a layer cannot be %d", l)
		}
	}
	for _, p := range c.LayersPattern {
		if _, err := layerPattern(p); err != nil {
			return configError("layers_pattern", "%w", err)
		}
	}
	return nil
}

func (c *Config) validateTokens() error {
	const key = "trainable_token_indices"
	for i, t := range c.TrainableTokenIndices {
		if len(t.Tokens) == 0 {
			return configError(key, "no tokens are given")
		}
		if t.Module == "" && len(c.TrainableTokenIndices) > 1 {
			return configError(key, "an embedding without a name among others")
		}
		if slices.Contains(c.ModulesToSave, t.Module) {
			return configError(key, "%q is in modules_to_save already, which trains all of it", t.Module)
		}
		for _, o := range c.TrainableTokenIndices[:i] {
			if o.Module == t.Module {
				return configError(key, "%q is given twice", t.Module)
			}
		}
		seen := map[int]bool{}
		for _, n := range t.Tokens {
			if n < 0 {
				return configError(key, "token %d is negative", n)
			}
			if seen[n] {
				return configError(key, "token %d is given twice", n)
			}
			seen[n] = true
		}
	}
	return nil
}

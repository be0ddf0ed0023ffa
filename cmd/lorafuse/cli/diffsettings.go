package cli

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/lorafuse/lorafuse/lora"
)

// settingDiff is a setting of two adapters that differs.
type settingDiff struct {
	Key string `json:"key"`
	A   string `json:"a"`
	B   string `json:"b"`
}

// diffSettings compares the settings of two adapters that affect results besides the tensors. For other paths it
// returns nothing.
func diffSettings(pathA, pathB string) ([]settingDiff, error) {
	var settings [2][]settingDiff
	for i, path := range []string{pathA, pathB} {
		if !exists(filepath.Join(path, lora.WeightsFile)) || !exists(filepath.Join(path, lora.ConfigFile)) {
			return nil, nil
		}
		c, err := lora.ReadConfig(path)
		if err != nil {
			return nil, err
		}
		settings[i] = effective(c)
	}
	var out []settingDiff
	for i, a := range settings[0] {
		if b := settings[1][i]; a.A != b.A {
			out = append(out, settingDiff{a.Key, a.A, b.A})
		}
	}
	return out, nil
}

// effective returns the settings that affect results.
func effective(c *lora.Config) []settingDiff {
	begin := c.InitLoraWeights
	if slices.Contains([]lora.InitMethod{lora.InitDefault, lora.InitGaussian, lora.InitRandom, ""}, begin) {
		begin = lora.InitDefault // initializations that do not change the base
	}
	var out []settingDiff
	for _, s := range []struct {
		key   string
		value any
	}{
		{"r", c.R}, {"lora_alpha", c.LoraAlpha}, {"rank_pattern", c.RankPattern}, {"alpha_pattern", c.AlphaPattern},
		{"use_rslora", c.UseRSLoRA}, {"use_dora", c.UseDoRA}, {"init_lora_weights", begin},
		{"trainable_token_indices", c.TrainableTokenIndices},
	} {
		out = append(out, settingDiff{Key: s.key, A: fmt.Sprint(s.value)})
	}
	return out
}

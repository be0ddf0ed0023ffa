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
	var out []settingDiff
	for i, path := range []string{pathA, pathB} {
		if !exists(filepath.Join(path, lora.WeightsFile)) || !exists(filepath.Join(path, lora.ConfigFile)) {
			return nil, nil
		}
		c, err := lora.ReadConfig(path)
		if err != nil {
			return nil, err
		}
		for _, x := range effective(c) {
			at := slices.IndexFunc(out, func(d settingDiff) bool { return d.Key == x.Key })
			if at < 0 {
				at, out = len(out), append(out, settingDiff{Key: x.Key})
			}
			*[]*string{&out[at].A, &out[at].B}[i] = fmt.Sprint(x.Value)
		}
	}
	return slices.DeleteFunc(out, func(d settingDiff) bool { return d.A == d.B }), nil
}

// effective returns the settings that affect results.
func effective(c *lora.Config) []lora.Setting {
	begin := c.InitLoraWeights
	if slices.Contains([]lora.InitMethod{lora.InitDefault, lora.InitGaussian, lora.InitRandom, ""}, begin) {
		begin = lora.InitDefault // initializations that do not change the base
	}
	return slices.Concat([]lora.Setting{
		{Key: "r", Value: c.R}, {Key: "lora_alpha", Value: c.LoraAlpha}, {Key: "rank_pattern", Value: c.RankPattern},
		{Key: "alpha_pattern", Value: c.AlphaPattern}, {Key: "use_rslora", Value: c.UseRSLoRA},
	}, c.VariantSettings(), []lora.Setting{
		{Key: "init_lora_weights", Value: begin}, {Key: "trainable_token_indices", Value: c.TrainableTokenIndices},
	})
}

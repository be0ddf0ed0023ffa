package config

import "github.com/lorafuse/lorafuse/lora"

// LoRA returns the adapter block as the configuration to create and save the adapter with. Properties that depend on
// the model, such as the existence of targets, are checked later.
func (a Adapter) LoRA() *lora.Config {
	c := lora.DefaultConfig()
	if a.TaskType != "" {
		c.TaskType = &a.TaskType
	}
	c.R, c.LoraAlpha, c.LoraDropout = a.R, a.LoraAlpha, a.LoraDropout
	c.UseRSLoRA, c.UseDoRA, c.LoraBias, c.FanInFanOut = a.UseRSLora, a.UseDora, a.LoraBias, a.FanInFanOut
	c.Bias = a.Bias
	c.InitLoraWeights = lora.InitMethod(a.InitLoraWeights)
	c.TargetModules = lora.ModuleSet{Names: a.TargetModules.List, Pattern: a.TargetModules.Expr}
	c.ExcludeModules = lora.ModuleSet{Names: a.ExcludeModules.List, Pattern: a.ExcludeModules.Expr}
	c.TargetParameters = a.TargetParameters
	c.ModulesToSave, c.LayersPattern, c.LayersToTransform = a.ModulesToSave, a.LayersPattern, a.LayersToTransform
	for _, p := range a.RankPattern {
		c.RankPattern = append(c.RankPattern, lora.RankRule{Key: p.Name, R: p.Value})
	}
	for _, p := range a.AlphaPattern {
		c.AlphaPattern = append(c.AlphaPattern, lora.AlphaRule{Key: p.Name, Alpha: p.Value})
	}
	if len(a.TrainableTokenIndices.IDs) > 0 {
		c.TrainableTokenIndices = []lora.TokenRows{{Tokens: a.TrainableTokenIndices.IDs}}
	}
	for _, m := range a.TrainableTokenIndices.ByModule {
		c.TrainableTokenIndices = append(c.TrainableTokenIndices, lora.TokenRows{Module: m.Module, Tokens: m.IDs})
	}
	return c
}

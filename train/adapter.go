package train

import (
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/train/config"
)

// adapterConfig is PEFT's configuration of the adapter that a run trains.
func adapterConfig(c *config.Config) *lora.Config {
	a, l := c.Adapter, lora.DefaultConfig()
	l.BaseModelNameOrPath = new(c.Model)
	if a.TaskType != "" {
		l.TaskType = new(a.TaskType)
	}
	l.R, l.LoraAlpha, l.LoraDropout = a.R, a.LoraAlpha, a.LoraDropout
	l.UseRSLoRA, l.UseDoRA, l.LoraBias, l.Bias = a.UseRSLora, a.UseDora, a.LoraBias, a.Bias
	l.FanInFanOut, l.InitLoraWeights = a.FanInFanOut, lora.InitMethod(a.InitLoraWeights)
	l.TargetModules = moduleSet(a.TargetModules)
	l.ExcludeModules = moduleSet(a.ExcludeModules)
	l.LayersToTransform = a.LayersToTransform
	l.LayersPattern = a.LayersPattern
	l.ModulesToSave = a.ModulesToSave
	for _, p := range a.RankPattern {
		l.RankPattern = append(l.RankPattern, lora.RankRule{Key: p.Name, R: p.Value})
	}
	for _, p := range a.AlphaPattern {
		l.AlphaPattern = append(l.AlphaPattern, lora.AlphaRule{Key: p.Name, Alpha: p.Value})
	}
	if ids := a.TrainableTokenIndices.IDs; len(ids) > 0 {
		l.TrainableTokenIndices = append(l.TrainableTokenIndices, lora.TokenRows{Tokens: ids})
	}
	for _, m := range a.TrainableTokenIndices.ByModule {
		l.TrainableTokenIndices = append(l.TrainableTokenIndices, lora.TokenRows{Module: m.Module, Tokens: m.IDs})
	}
	return l
}

func moduleSet(n config.Names) lora.ModuleSet {
	return lora.ModuleSet{Names: n.List, Pattern: n.Expr}
}

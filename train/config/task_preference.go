package config

import "github.com/lorafuse/lorafuse/internal/data"

// TaskPreference is the task of learning which of two answers is preferred.
const TaskPreference Task = "preference"

var preference = definition{
	name: TaskPreference, adapter: "CAUSAL_LM", texts: true, chats: true, samples: true, shared: true,
	doc:     "direct preference optimization (DPO) on two answers to a prompt (rows of prompt, chosen and rejected). The reference is the model without an adapter, even with init_adapter; it is computed once per row, before the first step.",
	section: "For task: preference. The loss of a row is -log sigmoid(reward of chosen - reward of rejected); the reward of an answer is beta times the difference of its log-probabilities with and without the adapter. It equals TRL's DPOTrainer with loss_type sigmoid, without label smoothing and with ref_model None.",
	rows:    func(_ *Config, o *data.Options) { o.Rows = data.PreferenceRows },
}

// Preference configures the training on preferences.
type Preference struct {
	Beta float64 `yaml:"beta" default:"0.1" range:"(0,10000]" also:"dpo_beta" doc:"Factor of the rewards: the larger, the closer the adapter stays to the model without it."`
}

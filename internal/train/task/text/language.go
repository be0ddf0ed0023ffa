package text

import (
	"context"

	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/train/config"
)

func init() {
	train.Register(config.TaskLanguage, train.Task{Open: language, Try: train.TryWith("generate", `--prompt "..."`), Card: generates})
}

// generates describes adapters of language models.
var generates = train.Card{Pipeline: "text-generation", Library: "transformers", Serves: true, Python: `from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained({base}, dtype="auto"), {adapter})
tokenizer = AutoTokenizer.from_pretrained({base})
`}

// language opens a run that learns to predict each token from those before it.
func language(ctx context.Context, s *train.Setup) (*train.Material, error) {
	t, err := openLanguage(ctx, s)
	if err != nil {
		return nil, err
	}
	return t.material(nil)
}

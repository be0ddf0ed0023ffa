package train

import (
	"errors"
	"fmt"

	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/sentence"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tokenizer"
	"github.com/lorafuse/lorafuse/train/config"
)

// ErrTask is wrapped if the data or the model do not suit the task.
var ErrTask = errors.New("not what the task needs")

// part returns the part of a checkpoint that a task trains.
func part(task config.Task) model.Part {
	if task == config.Embed {
		return model.Body
	}
	return model.AsSaved
}

// reading sets the options for reading rows for the task.
func (t *texts) reading(m *model.Config, o *data.Options, tok *tokenizer.Tokenizer) error {
	switch t.cfg.Task {
	case config.Classify:
		o.Texts, o.Types, o.MaxLength = tok, m.TokenTypes(), min(o.MaxLength, m.MaxLength())
		return nil
	case config.Language, config.Prefer:
		return nil
	}
	transform, err := sentence.Read(t.dir)
	if err != nil {
		return fmt.Errorf("train: %w", err)
	}
	if transform.LowerCase {
		tok = tok.Lowercased()
	}
	t.transform, o.Rows, o.Texts = transform, data.PairRows, tok
	o.MaxLength = transform.Longest(min(o.MaxLength, m.MaxLength()))
	if specials := tok.Specials(); o.MaxLength <= specials {
		return fmt.Errorf("train: data.max_length: texts have at most %d tokens, expected more than the %d special ones of each", o.MaxLength, specials)
	}
	t.longest = o.MaxLength
	return nil
}

// targets places an adapter for the task.
func (r *Run) targets(c *lora.Config, target lora.Model) (*lora.Placement, error) {
	switch r.cfg.Task {
	case config.Classify:
		c = r.pooling(c)
	case config.Diffuse:
		c = r.attention(c)
	}
	return lora.NewPlacement(c, target)
}

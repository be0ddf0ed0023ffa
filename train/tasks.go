package train

import (
	"errors"
	"fmt"
	"slices"

	"github.com/lorafuse/lorafuse/data"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/model"
	"github.com/lorafuse/lorafuse/sentence"
	"github.com/lorafuse/lorafuse/tokenizer"
	"github.com/lorafuse/lorafuse/train/config"
)

// ErrTask is wrapped where data or model are none that the task can be learned with.
var ErrTask = errors.New("not what the task needs")

// part is how much of a checkpoint a task trains.
func part(task config.Task) model.Part {
	if task == config.Embed {
		return model.Body
	}
	return model.AsSaved
}

// reading says how rows are read for the task.
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

// pooler is a module of BERT that the states of a text do not go through.
const pooler = "pooler.dense"

// targets plans an adapter for the task: what vectors do not depend on gets none.
func (r *Run) targets(c *lora.Config, target lora.Model) (*lora.Placement, error) {
	switch r.cfg.Task {
	case config.Classify:
		c = r.pooling(c)
	case config.Diffuse:
		c = r.attention(c)
	}
	p, err := lora.NewPlacement(c, target)
	if err != nil || r.cfg.Task != config.Embed {
		return p, err
	}
	if _, ok := p.Target(pooler); !ok {
		return p, nil
	}
	c = c.Clone()
	if s := &c.ExcludeModules; s.Pattern != "" {
		s.Pattern = "(" + s.Pattern + `)|pooler\.dense`
	} else {
		s.Names = append(slices.Clone(s.Names), pooler)
	}
	r.observer.note("note     %s is left out (exclude_modules): vectors do not depend on it", pooler)
	return lora.NewPlacement(c, target)
}

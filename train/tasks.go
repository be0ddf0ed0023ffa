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

// reading says how rows are read for the task, of the model in dir.
func (r *Run) reading(dir string, m *model.Config, o *data.Options, tok *tokenizer.Tokenizer) error {
	switch r.cfg.Task {
	case config.Classify:
		o.Texts, o.Types, o.MaxLength = tok, m.TokenTypes(), min(o.MaxLength, m.MaxLength())
		return nil
	case config.Language, config.Prefer:
		return nil
	}
	t, err := sentence.Read(dir)
	if err != nil {
		return fmt.Errorf("train: %w", err)
	}
	if t.LowerCase {
		tok = tok.Lowercased()
	}
	r.transform, o.Rows, o.Texts = t, data.PairRows, tok
	o.MaxLength = t.Longest(min(o.MaxLength, m.MaxLength()))
	if specials := tok.Specials(); o.MaxLength <= specials {
		return fmt.Errorf("train: data.max_length: texts have at most %d tokens, expected more than the %d special ones of each", o.MaxLength, specials)
	}
	r.longest = o.MaxLength
	return nil
}

// task is what the rows that were read are to teach.
func (r *Run) task() (Task, error) {
	switch r.cfg.Task {
	case config.Classify:
		return Classification{r.model.Config, r.documents()}, nil
	case config.Language:
		return NextToken{}, nil
	case config.Prefer:
		return Preference{r.cfg.Preference.Beta, r.documents() / r.trainSet.Texts()}, nil
	}
	texts := r.trainSet.Texts()
	if r.eval != nil {
		if is := r.evalSet.Texts(); is != texts {
			return nil, fmt.Errorf("train: data.eval: %w: found rows of %d texts, expected %d as in data.train", ErrTask, is, texts)
		}
	}
	if texts == 2 && r.cfg.BatchSize == 1 {
		return nil, fmt.Errorf("train: batch_size: %w: found 1, expected 2 or more for task: embedding: the negatives of a row are the other rows of its micro-batch", ErrTask)
	}
	return Embedding{sentence.Contrast{Rows: r.documents() / texts, Texts: texts, Scale: r.cfg.Embedding.Scale}, r.transform, r.longest}, nil
}

// documents is how many a batch has at most.
func (r *Run) documents() int {
	n := r.train.MaxDocuments()
	if r.eval != nil {
		n = max(n, r.eval.MaxDocuments())
	}
	return n
}

// pooler is a module of BERT that the states of a text do not go through.
const pooler = "pooler.dense"

// targets plans an adapter for the task: what vectors do not depend on gets none.
func (r *Run) targets(c *lora.Config, target lora.Model) (*lora.Placement, error) {
	if r.cfg.Task == config.Classify {
		c = r.pooling(c)
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

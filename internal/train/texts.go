package train

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/sentence"
	"github.com/lorafuse/lorafuse/train/config"
)

// texts is the material of the tasks of language.
type texts struct {
	*Run
	dir        string // of the model, with its tokenizer
	set        *data.Dataset
	evalSet    *data.Dataset // nil without evaluation
	loader     *data.Loader
	evalLoader *data.Loader // likewise
	documents  int          // of a batch, at most

	transform *sentence.Transform // of task: embedding
	longest   int                 // tokens of a text there
}

// rows implements material.
func (t *texts) rows() (train, eval Rows) {
	if t.evalLoader == nil {
		return t.loader, nil
	}
	return t.loader, t.evalLoader
}

// cut implements material.
func (t *texts) cut(n int) (_ material, err error) {
	if n == 1 {
		return t, nil
	}
	c := *t
	l := t.cfg.LoaderConfig()
	l.BatchSize, l.Accumulation = l.BatchSize/n, l.Accumulation*n
	if c.loader, err = data.NewLoader(t.set, l); err != nil {
		return nil, err
	}
	if t.evalLoader != nil {
		c.evalLoader, err = data.Sequential(t.evalSet, max(1, t.evalRows()/n))
	}
	return &c, err
}

// loss implements material.
func (t *texts) loss() (l Loss, err error) {
	switch t.cfg.Task {
	case config.Classify:
		return Classification{t.model.Config, t.documents}.Loss(), nil
	case config.Language:
		return l, nil
	case config.Prefer:
		return Preference{t.cfg.Preference.Beta, t.documents / t.set.Texts()}.Loss(), nil
	}
	each := t.set.Texts()
	if t.evalLoader != nil {
		if is := t.evalSet.Texts(); is != each {
			return l, fmt.Errorf("train: data.eval: %w: found rows of %d texts, expected %d as in data.train", ErrTask, is, each)
		}
	}
	if each == 2 && t.cfg.BatchSize == 1 {
		return l, fmt.Errorf("train: batch_size: %w: found 1, expected 2 or more for task: embedding: the negatives of a row are the other rows of its micro-batch", ErrTask)
	}
	return Embedding{sentence.Contrast{Rows: t.documents / each, Texts: each, Scale: t.cfg.Embedding.Scale}, t.transform, t.longest}.Loss(), nil
}

// bind implements material: it records the keys of the task and the final rows,
// independent of their source. The source is recorded to explain differences.
func (t *texts) bind(r *Run) {
	c := r.cfg
	switch c.Task {
	case config.Embed:
		digest := t.transform.Digest()
		r.bind("embedding.scale", c.Embedding.Scale)
		r.bind("sentence-transformers files", fmt.Sprintf("sha256 %x", digest[:8]))
	case config.Prefer:
		r.bind("preference.beta", c.Preference.Beta)
	case config.Classify:
		classes := r.model.Config.Classes
		r.bind("classification.labels", fmt.Sprintf("%q", classes.Names))
		r.bind("classification.problem", classes.Problem)
		r.bind("config.json initializer_range", r.model.Config.Deviation)
	}
	r.bind("data.packing", c.Data.Packing)
	if c.Data.Packing { // else it shows in the rows
		r.bind("data.max_length", c.Data.MaxLength)
	}
	r.bind("data.length_bucketing", c.Data.LengthBucketing)
	digest := t.set.Digest()
	r.settings["data.train"] = fmt.Sprintf("rows %x", digest[:8])
	if c.EarlyStopping.Patience > 0 && t.evalSet != nil {
		digest := t.evalSet.Digest()
		r.settings["data.eval"] = fmt.Sprintf("rows %x", digest[:8])
	}
	by := map[string]string{
		"data.format": string(c.Data.Format), "data.train_on": string(c.Data.TrainOn), "data.on_too_long": string(c.Data.OnTooLong),
		"data.max_length": fmt.Sprint(c.Data.MaxLength), "data.document_separator": fmt.Sprintf("%q", c.Data.DocumentSeparator),
	}
	own := t.textFiles()
	for _, name := range tokenizerFiles {
		dir := t.dir
		if slices.Contains(own, name) {
			dir = c.InitAdapter
		}
		by[name] = fileHash(filepath.Join(dir, name))
	}
	if c.Data.ChatTemplate != "" {
		by["data.chat_template"] = fileHash(c.Data.ChatTemplate)
	}
	r.progress.RowsBy = by
}

// begin implements material: it computes the reference of preferences.
func (t *texts) begin(ctx context.Context, l *loop) error { return t.refer(ctx, l) }

// after implements material.
func (t *texts) after(context.Context, *loop, int) error { return nil }

// Package text has the training tasks that read texts, a file for each.
package text

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/tokenizer"
	"github.com/lorafuse/lorafuse/tokenizer/chat"
	"github.com/lorafuse/lorafuse/train/config"
)

// texts are the rows of a run.
type texts struct {
	*train.Setup
	cfg        *config.Config
	dir        string // of the model, with its tokenizer
	set        *data.Dataset
	evalSet    *data.Dataset // nil without evaluation
	loader     *data.Loader
	evalLoader *data.Loader // likewise
	documents  int          // of a batch, at most

	tok      *tokenizer.Tokenizer // nil for files of tokens
	template *chat.Template       // nil without
	sampler  *sampler             // nil without samples

	settings, rowsBy map[string]string // see train.Material
}

// open resolves the model of a run.
func open(ctx context.Context, s *train.Setup) (*texts, error) {
	dir, err := s.Resolve(ctx)
	return &texts{Setup: s, cfg: s.Config(), dir: dir}, err
}

// openLanguage opens a language model, and reads its rows.
func openLanguage(ctx context.Context, s *train.Setup) (*texts, error) {
	t, err := open(ctx, s)
	if err != nil {
		return nil, err
	}
	if err := s.OpenModel(t.dir, model.AsSaved, model.NextToken); err != nil {
		return nil, err
	}
	return t, t.load(ctx, s.Model().Config, t.cfg.DataOptions(), nil)
}

// material returns the material of a run. complete, if not nil, adds what its task does
// differently, also if micro-batches are cut.
func (t *texts) material(complete func(t *texts, m *train.Material) error) (*train.Material, error) {
	m := &train.Material{Train: t.loader, Settings: t.settings, RowsBy: t.rowsBy, Save: t.copyFiles}
	if t.evalLoader != nil {
		m.Eval = t.evalLoader
	}
	if files := t.ownFiles(); len(files) > 0 {
		m.Notes = append(m.Notes, "note     used and saved with the adapter, from init_adapter: "+strings.Join(files, ", "))
	}
	m.Cut = func(n int) (*train.Material, error) {
		if n == 1 {
			return m, nil
		}
		c, err := t.cut(n)
		if err != nil {
			return nil, err
		}
		return c.material(complete)
	}
	if err := t.addSampler(m); err != nil {
		return nil, err
	}
	if complete == nil {
		return m, nil
	}
	return m, complete(t, m)
}

// cut returns the rows in micro-batches that are cut into n parts each.
func (t *texts) cut(n int) (_ *texts, err error) {
	c := *t
	l := t.cfg.LoaderConfig()
	l.BatchSize, l.Accumulation = l.BatchSize/n, l.Accumulation*n
	if c.loader, err = data.NewLoader(t.set, l); err != nil {
		return nil, err
	}
	if t.evalLoader != nil {
		c.evalLoader, err = data.Sequential(t.evalSet, max(1, t.cfg.EvalRows()/n))
	}
	return &c, err
}

// setting records a setting that affects results.
func (t *texts) setting(key string, v any) { t.settings[key] = fmt.Sprint(v) }

// identify records the rows, independent of their source. The source is recorded to explain
// differences.
func (t *texts) identify() {
	c := t.cfg
	t.settings = map[string]string{}
	t.setting("data.packing", c.Data.Packing)
	if c.Data.Packing { // else it shows in the rows
		t.setting("data.max_length", c.Data.MaxLength)
	}
	t.setting("data.length_bucketing", c.Data.LengthBucketing)
	if len(c.Data.Mix) > 0 {
		t.setting("data.mix", c.Data.Mix)
	}
	digest := t.set.Digest()
	t.setting("data.train", fmt.Sprintf("rows %x", digest[:8]))
	if c.EarlyStopping.Patience > 0 && t.evalSet != nil {
		digest := t.evalSet.Digest()
		t.setting("data.eval", fmt.Sprintf("rows %x", digest[:8]))
	}
	t.rowsBy = map[string]string{
		"data.format": string(c.Data.Format), "data.train_on": string(c.Data.TrainOn), "data.on_too_long": string(c.Data.OnTooLong),
		"data.max_length": fmt.Sprint(c.Data.MaxLength), "data.document_separator": fmt.Sprintf("%q", c.Data.DocumentSeparator),
	}
	own := t.ownFiles()
	for _, name := range tokenizerFiles {
		dir := t.dir
		if slices.Contains(own, name) {
			dir = c.InitAdapter
		}
		t.rowsBy[name] = fileHash(filepath.Join(dir, name))
	}
	switch {
	case slices.Contains(chat.BuiltIn(), c.Data.ChatTemplate):
		t.rowsBy["data.chat_template"] = c.Data.ChatTemplate
	case c.Data.ChatTemplate != "":
		t.rowsBy["data.chat_template"] = fileHash(c.Data.ChatTemplate)
	}
}

package train

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/tokenizer"
	"github.com/lorafuse/lorafuse/tokenizer/chat"
	"github.com/lorafuse/lorafuse/train/config"
)

// loadData reads and tokenises the data files for the model in dir, and makes the run
// use them. It returns the training rows.
func (r *Run) loadData(ctx context.Context, dir string, m *model.Config, o data.Options) (*data.Dataset, error) {
	t := &texts{Run: r, dir: dir}
	if err := t.load(ctx, m, o); err != nil {
		return nil, err
	}
	r.use(t)
	return t.set, nil
}

// load reads and tokenises the files for a model.
func (t *texts) load(ctx context.Context, m *model.Config, o data.Options) (err error) {
	c := t.cfg
	o.VocabSize, o.Files = m.VocabSize, t.files
	if !onlyTokens(c) {
		tok, err := t.tokenizer(t.dir, m.VocabSize)
		if err != nil {
			return fmt.Errorf("train: %w", err)
		}
		o.Tokenizer = tok
		if err := t.reading(m, &o, tok); err != nil {
			return err
		}
		template, err := chat.Find(c.Data.ChatTemplate, tok.SpecialTokens(), t.textDirs(t.dir)...)
		if err != nil {
			return fmt.Errorf("train: data.chat_template: %w", err)
		}
		if template != nil {
			o.Template = data.Chat(template)
		}
	}
	load := func(files []string, task string) (*data.Dataset, error) {
		o.Progress = func(p data.Progress) {
			if t.observer.Load != nil {
				t.observer.Load(task, p.Bytes, p.Size)
			}
		}
		return data.Load(ctx, files, o)
	}
	set, err := load(c.Data.Train, "reading training data")
	if err != nil {
		return err
	}
	t.set = set
	t.noteStats("training", set.Stats())
	if o.Rows == data.LabelledRows {
		o.Classes = set.Classes()
	}
	if t.loader, err = data.NewLoader(set, c.LoaderConfig()); err != nil {
		return err
	}
	if longest, most := set.Stats().Longest, m.MaxPositions; longest > most {
		t.observer.note("note     rows of up to %d tokens are longer than max_position_embeddings %d of the model", longest, most)
	}
	t.documents = t.loader.MaxDocuments()
	if len(c.Data.Eval) == 0 {
		return nil
	}
	if set, err = load(c.Data.Eval, "reading evaluation data"); err != nil {
		return err
	}
	t.evalSet = set
	t.noteStats("evaluation", set.Stats())
	if t.evalLoader, err = data.Sequential(set, t.evalRows()); err != nil {
		return err
	}
	t.documents = max(t.documents, t.evalLoader.MaxDocuments())
	return nil
}

// tokenizer reads the tokenizer of init_adapter or, if it has none, of the model in dir,
// which has rows embeddings.
func (r *Run) tokenizer(dir string, rows int) (*tokenizer.Tokenizer, error) {
	if r.base != nil && !slices.Contains(r.textFiles(), tokenizerFiles[0]) {
		return r.base.readTokenizer()
	}
	return tokenizer.LoadAdapted(r.cfg.InitAdapter, dir, rows)
}

// textFiles lists the files of a tokenizer and of a chat template in init_adapter.
func (r *Run) textFiles() []string {
	if r.cfg.InitAdapter == "" {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(tokenizerFiles), func(name string) bool {
		_, err := os.Stat(filepath.Join(r.cfg.InitAdapter, name))
		return err != nil
	})
}

// textDirs returns the folders to search for the tokenizer and the chat template:
// init_adapter, if set, then the model's dir.
func (r *Run) textDirs(dir string) []string {
	if r.cfg.InitAdapter == "" {
		return []string{dir}
	}
	return []string{r.cfg.InitAdapter, dir}
}

// copyTexts copies the tokenizer and the chat template of init_adapter to the adapter in dir,
// which was trained with them.
func (r *Run) copyTexts(dir string) error {
	for _, name := range r.textFiles() {
		raw, err := os.ReadFile(filepath.Join(r.cfg.InitAdapter, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), raw, 0o666); err != nil {
			return err
		}
	}
	return nil
}

func (r *Run) noteStats(what string, s data.Stats) {
	if s.Truncated > 0 || s.Dropped > 0 {
		r.observer.note("note     %s data: %d rows truncated, %d dropped for their length", what, s.Truncated, s.Dropped)
	}
}

// onlyTokens reports whether no file needs a tokenizer.
func onlyTokens(c *config.Config) bool {
	if c.Data.Format != data.FormatAuto {
		return c.Data.Format == data.FormatTokens
	}
	return !slices.ContainsFunc(slices.Concat(c.Data.Train, c.Data.Eval), func(f string) bool {
		return strings.ToLower(filepath.Ext(f)) != ".safetensors"
	})
}

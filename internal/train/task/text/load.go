package text

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/model/hub"
	"github.com/lorafuse/lorafuse/tokenizer"
	"github.com/lorafuse/lorafuse/tokenizer/chat"
	"github.com/lorafuse/lorafuse/train/config"
)

// tokenizerFiles are the files of a model that can affect its tokens.
var tokenizerFiles = []string{"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "chat_template.jinja", "chat_template.json"}

// load reads and tokenises the files for a model. adjust, if not nil, changes the options for
// rows that are read with the tokenizer.
func (t *texts) load(ctx context.Context, m *model.Config, o data.Options, adjust func(o *data.Options, tok *tokenizer.Tokenizer) error) (err error) {
	c := t.cfg
	o.VocabSize, o.Files = m.VocabSize, t.Data().Files
	if !onlyTokens(c) {
		tok, err := t.tokenizer(m.VocabSize)
		if err != nil {
			return fmt.Errorf("train: %w", err)
		}
		o.Tokenizer, t.tok = tok, tok
		if adjust != nil {
			if err := adjust(&o, tok); err != nil {
				return err
			}
		}
		template, err := chat.Find(c.Data.ChatTemplate, tok.SpecialTokens(), t.dirs()...)
		if err != nil {
			return fmt.Errorf("train: data.chat_template: %w", err)
		}
		if template != nil {
			o.Template, t.template = data.Chat(template), template
		}
	}
	if o.Files == nil {
		o.Resolve = hub.DataFiles(ctx, t.Hub())
	}
	load := func(files []string, task string) (*data.Dataset, error) {
		o.Progress = func(p data.Progress) { t.Progress(task, p.Bytes, p.Size) }
		set, err := data.Load(ctx, files, o)
		if err != nil {
			return nil, err
		}
		for _, line := range set.Report() {
			t.Note("data     %s", line)
		}
		return set, nil
	}
	set, err := load(c.Data.Train, "reading training data")
	if err != nil {
		return err
	}
	var part *data.Dataset // to evaluate on
	if c.Data.EvalFraction > 0 {
		if set, part, err = set.Split(c.Data.EvalFraction, c.Seed); err != nil {
			return fmt.Errorf("train: data: %w", err)
		}
		t.Note("note     %d of %d rows are left out of training, for evaluation", part.Len(), part.Len()+set.Len())
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
		t.Note("note     rows of up to %d tokens are longer than max_position_embeddings %d of the model", longest, most)
	}
	t.documents = t.loader.MaxDocuments()
	if !c.Evaluates() {
		t.identify()
		return nil
	}
	if part == nil {
		if part, err = load(c.Data.Eval, "reading evaluation data"); err != nil {
			return err
		}
		t.noteStats("evaluation", part.Stats())
	}
	t.evalSet = part
	if t.evalLoader, err = data.Sequential(part, c.EvalRows()); err != nil {
		return err
	}
	t.documents = max(t.documents, t.evalLoader.MaxDocuments())
	t.identify()
	return nil
}

// tokenizer reads the tokenizer of init_adapter or, if it has none, of the model, which has
// rows embeddings.
func (t *texts) tokenizer(rows int) (*tokenizer.Tokenizer, error) {
	if base := t.Base(); base != nil && !slices.Contains(t.ownFiles(), tokenizerFiles[0]) {
		return base.Tokenizer()
	}
	return tokenizer.LoadAdapted(t.cfg.InitAdapter, t.dir, rows)
}

// ownFiles lists the files of a tokenizer and of a chat template in init_adapter.
func (t *texts) ownFiles() []string {
	if t.cfg.InitAdapter == "" {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(tokenizerFiles), func(name string) bool {
		_, err := os.Stat(filepath.Join(t.cfg.InitAdapter, name))
		return err != nil
	})
}

// dirs returns the folders to search for the tokenizer and the chat template: init_adapter,
// if set, then the model's.
func (t *texts) dirs() []string {
	if t.cfg.InitAdapter == "" {
		return []string{t.dir}
	}
	return []string{t.cfg.InitAdapter, t.dir}
}

// copyFiles copies the tokenizer and the chat template to the adapter in dir, which was trained with them: those of
// init_adapter, or else of the model. A template of the configuration takes precedence.
func (t *texts) copyFiles(dir string) error {
	own := t.ownFiles()
	for _, name := range tokenizerFiles {
		from := t.dir
		if slices.Contains(own, name) {
			from = t.cfg.InitAdapter
		}
		raw, err := os.ReadFile(filepath.Join(from, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), raw, 0o666); err != nil {
			return err
		}
	}
	if t.cfg.Data.ChatTemplate == "" {
		return nil
	}
	source, err := chat.Source(t.cfg.Data.ChatTemplate)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "chat_template.jinja"), []byte(source), 0o666)
}

// fileHash returns the identity of a file's contents.
func fileHash(path string) string {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "missing"
	}
	if err != nil {
		return "unreadable"
	}
	sum := sha256.Sum256(raw)
	return fmt.Sprintf("sha256 %x", sum[:8])
}

func (t *texts) noteStats(what string, s data.Stats) {
	if s.Truncated > 0 || s.Dropped > 0 {
		t.Note("note     %s data: %d rows truncated, %d dropped for their length", what, s.Truncated, s.Dropped)
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

package merge

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/lorafuse/lorafuse/tokenizer"
	"github.com/lorafuse/lorafuse/tokenizer/chat"
)

// tokenizerFiles lists the files of a tokenizer. Every adapter with a tokenizer has the first
// one.
var tokenizerFiles = []string{
	"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json", "vocab.txt", "merges.txt", "tokenizer.model",
}

// copyTexts replaces the model's tokenizer and chat template, which are already in dir, with
// those of the adapter, if it has them. Trainers such as TRL save both next to an adapter.
func (w *writer) copyTexts(dir string) error {
	if w.adapter == "" { // created in memory
		return nil
	}
	template, err := chat.Load(w.adapter)
	ownTemplate := err == nil
	if err != nil && !errors.Is(err, chat.ErrNoTemplate) {
		return err
	}
	_, err = os.Stat(filepath.Join(w.adapter, tokenizerFiles[0]))
	ownTokenizer := err == nil
	if ownTokenizer {
		if _, err := tokenizer.LoadAdapted(w.adapter, w.model.Dir, w.model.Config.VocabSize); err != nil {
			return err
		}
		if err := replaceFiles(dir, w.adapter, tokenizerFiles); err != nil {
			return err
		}
	}
	if !ownTemplate && ownTokenizer { // the model's template may have been in a replaced file
		template, err = chat.Load(w.model.Dir)
		if errors.Is(err, chat.ErrNoTemplate) {
			return nil
		} else if err != nil {
			return err
		}
	}
	if !ownTemplate && !ownTokenizer {
		return nil
	}
	if err := os.RemoveAll(filepath.Join(dir, "additional_chat_templates")); err != nil {
		return err
	}
	return template.Save(dir)
}

// replaceFiles removes the named files from a folder and copies the ones that exist in from.
func replaceFiles(to, from string, names []string) error {
	for _, name := range names {
		if err := os.Remove(filepath.Join(to, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		data, err := os.ReadFile(filepath.Join(from, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, name), data, 0o666); err != nil {
			return err
		}
	}
	return nil
}

package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/lorafuse/lorafuse/tokenizer"
	"github.com/lorafuse/lorafuse/tokenizer/chat"
)

// chatTemplate gives the chat template in file, or that of the model in dir
// where file is empty; nil where the model has none.
func chatTemplate(dir, file string, t *tokenizer.Tokenizer) (*chat.Template, error) {
	if file == "" {
		template, err := chat.Load(dir)
		if errors.Is(err, chat.ErrNoTemplate) || errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return template, err
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("--chat-template: %w", err)
	}
	template, err := chat.New(string(raw), specialTokens(t))
	if err != nil {
		return nil, fmt.Errorf("--chat-template %s: %w", file, err)
	}
	return template, nil
}

// specialTokens are those that templates know by name.
func specialTokens(t *tokenizer.Tokenizer) map[string]string {
	tokens := map[string]string{}
	for name, get := range map[string]func() (int32, bool){"bos_token": t.BOS, "eos_token": t.EOS, "pad_token": t.PAD, "unk_token": t.UNK} {
		if id, ok := get(); ok {
			if s, ok := t.Token(id); ok {
				tokens[name] = s
			}
		}
	}
	return tokens
}

package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/lorafuse/lorafuse/tokenizer/chat"
)

// converse answers line by line, with the whole conversation as context. The KV cache holds the conversation, so only
// new tokens are prefilled.
func (w *writer) converse(ctx context.Context) error {
	if w.texts.Template == nil {
		_, err := w.chatPrompt(nil)
		return err
	}
	lines, prompt := bufio.NewReader(w.app.in), w.app.in.terminal()
	var messages []chat.Message
	for {
		if prompt {
			fmt.Fprint(w.app.err, "> ")
		}
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) && line == "" {
			return nil
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("standard input: %w", err)
		}
		text := strings.TrimSpace(line)
		if dir, ok := strings.CutPrefix(text+" ", "/adapter "); ok {
			err := w.setAdapter(ctx, strings.TrimSpace(dir))
			if err != nil && (!prompt || ctx.Err() != nil) {
				return err
			}
			if err != nil {
				w.app.note("note     the adapter stays as it was: %v", err)
			}
			continue
		}
		switch text {
		case "":
			continue
		case "/exit":
			return nil
		case "/new":
			messages = nil
			continue
		default:
			messages = append(messages, chat.Message{Role: "user", Content: text})
		}
		ids, err := w.chatPrompt(messages)
		if err != nil {
			return err
		}
		r, err := w.stream(ctx, ids)
		if err != nil {
			return err
		}
		messages = append(messages, chat.Message{Role: "assistant", Content: r.Text})
	}
}

// setAdapter switches to the adapter in a folder, with its tokenizer and chat template, or to none.
func (w *writer) setAdapter(ctx context.Context, dir string) error {
	next, err := w.session.model.Adapt(dir)
	if err != nil {
		return err
	}
	texts, err := next.Texts("--chat-template", w.flags.template)
	began := time.Now()
	if err == nil {
		err = w.generator.SetAdapter(ctx, next.State)
	}
	if err != nil {
		return errors.Join(err, next.Close())
	}
	if w.model != w.session.model {
		w.model.Close()
	}
	w.model, w.texts = next, texts
	if dir == "" {
		dir = "none"
	}
	w.app.note("adapter  %s, in %s", dir, seconds(time.Since(began)))
	return nil
}

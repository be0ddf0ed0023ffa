package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tokenizer/chat"
)

// converse answers line by line, with the whole conversation as context. The KV cache holds the conversation, so only
// new tokens are prefilled.
func (w *writer) converse(ctx context.Context) error {
	if w.template == nil {
		_, err := w.chatPrompt(conversation{})
		return err
	}
	lines, prompt := bufio.NewReader(w.app.in), w.app.in.terminal()
	var c conversation
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
			c.Messages = nil
			continue
		default:
			c.Messages = append(c.Messages, chat.Message{Role: "user", Content: text})
		}
		ids, err := w.chatPrompt(c)
		if err != nil {
			return err
		}
		r, err := w.stream(ctx, ids)
		if err != nil {
			return err
		}
		c.Messages = append(c.Messages, chat.Message{Role: "assistant", Content: r.Text})
	}
}

// setAdapter switches to the adapter in a folder, or to none.
func (w *writer) setAdapter(ctx context.Context, dir string) error {
	s := w.session
	var adapter *lora.Adapter
	var state *lora.State
	if dir != "" {
		a, p, err := w.app.openAdapter(dir, s.model)
		if err != nil {
			return err
		}
		adapter = a
		if state, err = p.StateOf(a, s.model); err != nil {
			a.Close()
			return err
		}
		state.KeepTypes(a)
	}
	began := time.Now()
	if err := w.generator.SetAdapter(ctx, state); err != nil {
		if adapter != nil {
			adapter.Close()
		}
		return err
	}
	if s.adapter != nil {
		s.adapter.Close()
	}
	s.adapter, s.state = adapter, state
	if adapter == nil {
		dir = "none"
	}
	w.app.note("adapter  %s, in %s", dir, seconds(time.Since(began)))
	return nil
}

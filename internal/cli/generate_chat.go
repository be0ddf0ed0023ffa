package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/lorafuse/lorafuse/tokenizer/chat"
)

// typed is a line of the input, or why there are no more.
type typed struct {
	text string
	err  error
}

// converse answers line by line, with all that was said before. The cache
// holds the conversation, so only what is new is read.
func (w *writer) converse(ctx context.Context) error {
	if w.template == nil {
		_, err := w.chatPrompt(conversation{})
		return err
	}
	lines, prompt := w.lines(), isTerminal(w.app.in)
	var c conversation
	for {
		if prompt {
			fmt.Fprint(w.app.err, "> ")
		}
		var line typed
		select {
		case <-ctx.Done():
			return ctx.Err()
		case line = <-lines:
		}
		if errors.Is(line.err, io.EOF) {
			return nil
		}
		if line.err != nil {
			return fmt.Errorf("standard input: %w", line.err)
		}
		switch text := strings.TrimSpace(line.text); text {
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

// lines reads the input beside the conversation, so that an interruption need
// not wait for a line.
func (w *writer) lines() <-chan typed {
	lines := make(chan typed)
	go func() {
		r := bufio.NewReader(w.app.in)
		for {
			text, err := r.ReadString('\n')
			if text != "" {
				lines <- typed{text: text}
			}
			if err != nil {
				lines <- typed{err: err}
				return
			}
		}
	}()
	return lines
}

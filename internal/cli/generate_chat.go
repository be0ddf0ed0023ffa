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

// converse answers line by line, with all that was said before. The cache
// holds the conversation, so only what is new is read.
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
		switch text := strings.TrimSpace(line); text {
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

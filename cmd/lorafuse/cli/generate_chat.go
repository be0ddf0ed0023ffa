package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/lorafuse/lorafuse/internal/fsatomic"
	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/suggest"
	"github.com/lorafuse/lorafuse/tokenizer/chat"
)

// converse answers messages, with the whole conversation as context. The KV cache holds the conversation, so only new
// tokens are prefilled.
func (w *writer) converse(ctx context.Context) error {
	if w.texts.Template == nil {
		_, err := w.chatPrompt(nil)
		return err
	}
	d := &dialog{writer: w, lines: bufio.NewReader(w.app.in), prompt: w.app.in.terminal()}
	for {
		text, err := d.read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("standard input: %w", err)
		}
		if text == "" {
			continue
		}
		if strings.HasPrefix(text, "/") {
			quit, err := d.command(ctx, text)
			if err != nil && (!d.prompt || ctx.Err() != nil) {
				return err
			}
			if err != nil {
				w.app.note("note     %v", err)
			}
			if quit {
				return nil
			}
			continue
		}
		if err := d.answer(ctx, text); err != nil {
			return err
		}
	}
}

// dialog is a chat in progress.
type dialog struct {
	*writer
	lines    *bufio.Reader
	prompt   bool // the input is a terminal
	messages []chat.Message
}

// block is the line before and after a message of several lines.
const block = `"""`

// read reads a message or a command: a line, lines that end with a backslash and the line after them, or the lines of a
// block.
func (d *dialog) read() (string, error) {
	var text strings.Builder
	within := false
	for first := true; ; first = false {
		switch {
		case !d.prompt:
		case first:
			fmt.Fprint(d.app.err, "> ")
		default:
			fmt.Fprint(d.app.err, ". ")
		}
		line, err := d.lines.ReadString('\n')
		if err != nil && (line == "" && text.Len() == 0 || !errors.Is(err, io.EOF)) {
			return "", err
		}
		line = strings.TrimRight(line, "\r\n")
		ended := err != nil
		switch bare := strings.TrimSpace(line); {
		case bare == block && (first || within):
			if within || ended {
				return strings.TrimSuffix(text.String(), "\n"), nil
			}
			within = true
			continue
		case within:
			text.WriteString(line + "\n")
		case strings.HasSuffix(line, `\`) && !ended:
			text.WriteString(strings.TrimSuffix(line, `\`) + "\n")
			continue
		default:
			text.WriteString(line)
			return strings.TrimSpace(text.String()), nil
		}
		if ended {
			return strings.TrimSuffix(text.String(), "\n"), nil
		}
	}
}

// chatCommands are the commands of a chat.
var chatCommands = []string{"/adapter", "/exit", "/new", "/quit", "/reset", "/save", "/system"}

// command runs a command, and reports whether it ends the chat.
func (d *dialog) command(ctx context.Context, text string) (quit bool, err error) {
	name, rest, _ := strings.Cut(text, " ")
	rest = strings.TrimSpace(rest)
	switch name {
	case "/quit", "/exit":
		return true, nil
	case "/reset", "/new":
		d.messages = nil
	case "/system":
		d.flags.system, d.messages = rest, nil
	case "/adapter":
		if err := d.setAdapter(ctx, rest); err != nil {
			return false, fmt.Errorf("the adapter stays as it was: %w", err)
		}
	case "/save":
		return false, d.save(rest)
	default:
		return false, fmt.Errorf("chat: unknown command: %s", suggest.Expected(name, chatCommands))
	}
	return false, nil
}

// save writes the conversation as a list of messages.
func (d *dialog) save(file string) error {
	if file == "" {
		return errors.New("chat: /save: the name of a file is missing")
	}
	messages := d.messages
	if d.flags.system != "" {
		messages = append([]chat.Message{{Role: "system", Content: d.flags.system}}, messages...)
	}
	var text bytes.Buffer
	if err := encode(&text, messages, "  "); err != nil {
		return err
	}
	if err := fsatomic.WriteFile(file, text.Bytes()); err != nil {
		return err
	}
	d.app.note("saved    %d messages in %s", len(messages), file)
	return nil
}

// answer answers a message. An interrupt stops the answer, whose beginning stays in the conversation.
func (d *dialog) answer(ctx context.Context, text string) error {
	asked := append(d.messages, chat.Message{Role: "user", Content: text})
	ids, err := d.chatPrompt(asked)
	if err != nil {
		return err
	}
	during, cancel := context.WithCancel(ctx)
	defer cancel()
	onInterrupt(ctx, cancel)
	var r generate.Result
	if d.flags.json {
		if r, err = d.generate(during, ids, nil); err == nil {
			err = d.app.out.jsonLine(newAnswer(ids, r))
		}
	} else {
		r, err = d.stream(during, ids)
	}
	if d.prompt {
		onInterrupt(ctx, func() { fmt.Fprint(d.app.err, "\n(/quit or Ctrl-D ends the chat)\n> ") })
	} else {
		onInterrupt(ctx, nil)
	}
	if err != nil && (during.Err() == nil || ctx.Err() != nil) {
		return err
	}
	if err != nil {
		d.app.note("note     stopped")
		if r.Text == "" {
			return nil
		}
	}
	d.messages = append(asked, chat.Message{Role: "assistant", Content: r.Text})
	return nil
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

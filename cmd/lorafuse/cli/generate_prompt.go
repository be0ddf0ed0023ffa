package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/tokenizer/chat"
)

// conversation is a chat as a file holds it.
type conversation struct {
	Messages []chat.Message    `json:"messages"`
	Tools    []json.RawMessage `json:"tools"`
}

// singlePrompt returns the token IDs of --prompt, --chat or standard input.
func (w *writer) singlePrompt() ([]int32, error) {
	f := w.flags
	if f.chat != "" {
		c, err := w.readChat()
		if err != nil {
			return nil, err
		}
		return w.chatPrompt(c.Messages, c.Tools...)
	}
	text := f.prompt
	if !f.given("prompt") {
		raw, err := io.ReadAll(w.app.in)
		if err != nil {
			return nil, fmt.Errorf("standard input: %w", err)
		}
		text = strings.TrimSuffix(strings.TrimSuffix(string(raw), "\n"), "\r")
	}
	return w.textPrompt(text)
}

// textPrompt returns the token IDs of a text to continue. With a system message, the text becomes the first message of
// a chat.
func (w *writer) textPrompt(text string) ([]int32, error) {
	if w.flags.system != "" {
		return w.chatPrompt([]chat.Message{{Role: "user", Content: text}})
	}
	ids, err := w.texts.Prompt(text, !w.flags.raw)
	if err != nil {
		return nil, fmt.Errorf("generate: %w", err)
	}
	return ids, nil
}

// chatPrompt returns the token IDs of a conversation up to the beginning of the next answer.
func (w *writer) chatPrompt(messages []chat.Message, tools ...json.RawMessage) ([]int32, error) {
	if s := w.flags.system; s != "" && (len(messages) == 0 || messages[0].Role != "system") {
		messages = append([]chat.Message{{Role: "system", Content: s}}, messages...)
	}
	var list []any
	for _, t := range tools {
		list = append(list, t)
	}
	ids, err := w.texts.Chat(context.Background(), messages, list...)
	if errors.Is(err, chat.ErrNoTemplate) {
		return nil, fmt.Errorf("generate: %w; --chat-template gives one, --prompt needs none", err)
	} else if err != nil {
		return nil, fmt.Errorf("generate: %w", err)
	}
	return ids, nil
}

// readChat reads messages.json: a list of messages, or an object that holds it.
func (w *writer) readChat() (conversation, error) {
	var c conversation
	var raw []byte
	var err error
	name := w.flags.chat
	if name == "-" {
		name = "standard input"
		raw, err = io.ReadAll(w.app.in)
	} else {
		raw, err = os.ReadFile(name)
	}
	if err != nil {
		return c, fmt.Errorf("generate: --chat: %w", err)
	}
	if t := bytes.TrimSpace(raw); len(t) > 0 && t[0] == '[' {
		err = json.Unmarshal(raw, &c.Messages)
	} else {
		err = json.Unmarshal(raw, &c)
	}
	if err != nil {
		return c, fmt.Errorf(`generate: --chat %s: expected [{"role": "user", "content": "..."}]: %w`, name, err)
	}
	if len(c.Messages) == 0 {
		return c, fmt.Errorf("generate: --chat %s: there are no messages", name)
	}
	return c, nil
}

// answer is the output of `generate --json`.
type answer struct {
	Prompt          *string         `json:"prompt,omitempty"`
	Messages        json.RawMessage `json:"messages,omitempty"`
	Text            string          `json:"text"`
	IDs             []int32         `json:"ids"`
	Finish          generate.Finish `json:"finish"`
	PromptTokens    int             `json:"prompt_tokens"`
	NewTokens       int             `json:"new_tokens"`
	PromptSeconds   float64         `json:"prompt_seconds"`
	TokensPerSecond float64         `json:"tokens_per_second"`
	// Load describes how the weights were uploaded to a device with its own memory. With --prompts it is printed to
	// standard error only.
	Load *backend.LoadStats `json:"load,omitempty"`
}

func newAnswer(prompt []int32, r generate.Result) *answer {
	return &answer{
		Text: r.Text, IDs: append([]int32{}, r.IDs...), Finish: r.Finish, PromptTokens: len(prompt), NewTokens: len(r.IDs),
		PromptSeconds: r.PromptTime.Seconds(), TokensPerSecond: r.TokensPerSecond(),
	}
}

package serve

import (
	"strings"
	"time"

	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/serve/batching"
)

// Statuses of responses and items.
const (
	inProgress = "in_progress"
	completed  = "completed"
	incomplete = "incomplete"
	cancelled  = "cancelled"
	failed     = "failed"
)

// responseEvent is an event of a streamed response.
type responseEvent struct {
	Type      string             `json:"type"`
	Sequence  int                `json:"sequence_number"`
	Response  *response          `json:"response,omitempty"`
	Output    *int               `json:"output_index,omitempty"`
	ItemID    string             `json:"item_id,omitempty"`
	Content   *int               `json:"content_index,omitempty"`
	Item      *item              `json:"item,omitempty"`
	Part      *part              `json:"part,omitempty"`
	Delta     *string            `json:"delta,omitempty"`
	Text      *string            `json:"text,omitempty"`
	Name      string             `json:"name,omitempty"`
	Arguments *string            `json:"arguments,omitempty"`
	Logprobs  *[]positionLogprob `json:"logprobs,omitempty"`
}

// responseWriter builds the output of a response from the tokens of its answer, and its events.
type responseWriter struct {
	server   *Server
	exchange *exchange
	response *response
	emit     func(e *responseEvent) error // nil if the response is not streamed

	sequence int // number of events
	thinking *thinking
	thoughts int // tokens of reasoning
	draft    draft
	kind     string          // type of the open item, or empty
	call     int             // index of the open call
	text     strings.Builder // of the open item
	held     []positionLogprob
}

// newResponseWriter returns the writer of a response to an exchange.
func (s *Server) newResponseWriter(x *exchange, r *response) *responseWriter {
	w := &responseWriter{server: s, exchange: x, response: r}
	w.thinking = newThinking(x.conversation.format.thinking, x.conversation.text)
	if x.wish.grammar != nil {
		w.thinking.state = doneThinks // constrained from the start
	}
	return w
}

// send writes an event.
func (w *responseWriter) send(e responseEvent) error {
	if w.emit == nil {
		return nil
	}
	e.Sequence = w.sequence
	w.sequence++
	return w.emit(&e)
}

// begin writes the first events, once.
func (w *responseWriter) begin() error {
	if w.sequence > 0 {
		return nil
	}
	if err := w.send(responseEvent{Type: "response.created", Response: w.response}); err != nil {
		return err
	}
	return w.send(responseEvent{Type: "response.in_progress", Response: w.response})
}

// take processes a token.
func (w *responseWriter) take(t batching.Token) error {
	if err := w.begin(); err != nil {
		return err
	}
	last := t.Finish != ""
	thought := w.thinking.state == thinks
	reasoning, rest := w.thinking.push(t.Text, last)
	if thought || w.thinking.state == thinks || reasoning != "" {
		w.thoughts++
	} else if w.exchange.wish.logprobs && (!last || t.Text != "") {
		w.held = append(w.held, w.server.positionLogprob(t.Logprobs, w.exchange.wish.top))
	}
	if reasoning != "" {
		if err := w.write(reasoningItem, reasoning); err != nil {
			return err
		}
	}
	for _, d := range w.draft.take(w.exchange.tools, rest, last) {
		if d.Content != nil && *d.Content != "" {
			if err := w.write(messageItem, *d.Content); err != nil {
				return err
			}
		}
		for _, c := range d.Calls {
			if err := w.writeCall(c); err != nil {
				return err
			}
		}
	}
	if !last {
		return nil
	}
	if w.kind == "" && len(w.response.Output) == 0 {
		if err := w.open(messageItem, item{}); err != nil {
			return err
		}
	}
	return w.end(t.Finish)
}

// at returns the index and the ID of the open item.
func (w *responseWriter) at() (*int, string) {
	i := len(w.response.Output) - 1
	return &i, w.response.Output[i].ID
}

// last returns the open item.
func (w *responseWriter) last() *item { return &w.response.Output[len(w.response.Output)-1] }

// open adds an item of a kind to the output.
func (w *responseWriter) open(kind string, x item) error {
	if err := w.close(completed); err != nil {
		return err
	}
	w.kind, x.Type, x.Status = kind, kind, inProgress
	var p part
	switch kind {
	case messageItem:
		x.ID, x.Role, x.Content, p = newItemID("msg"), "assistant", []part{}, newPart(outputText, "")
	case reasoningItem:
		x.ID, x.Summary, x.Content, p = newItemID("rs"), []part{}, []part{}, newPart(reasoningText, "")
	case callItem:
		x.ID, x.Arguments = newItemID("fc"), pointer("")
	}
	w.response.Output = append(w.response.Output, x)
	w.text.Reset()
	i, id := w.at()
	if err := w.send(responseEvent{Type: "response.output_item.added", Output: i, Item: &x}); err != nil || kind == callItem {
		return err
	}
	return w.send(responseEvent{Type: "response.content_part.added", Output: i, ItemID: id, Content: pointer(0), Part: &p})
}

// write adds a text to the open item of a kind, or to a new one.
func (w *responseWriter) write(kind, text string) error {
	if w.kind != kind {
		if err := w.open(kind, item{}); err != nil {
			return err
		}
	}
	w.text.WriteString(text)
	i, id := w.at()
	e := responseEvent{Type: "response.reasoning_text.delta", Output: i, ItemID: id, Content: pointer(0), Delta: &text}
	if kind == messageItem {
		e.Type, e.Logprobs = "response.output_text.delta", w.logprobs()
	}
	return w.send(e)
}

// logprobs moves the held log-probabilities to the response, and returns them.
func (w *responseWriter) logprobs() *[]positionLogprob {
	x := w.last()
	if len(x.Content) == 0 {
		x.Content = []part{newPart(outputText, "")}
	}
	x.Content[0].Logprobs = append(x.Content[0].Logprobs, w.held...)
	held := append([]positionLogprob{}, w.held...)
	w.held = nil
	return &held
}

// writeCall adds a part of a call.
func (w *responseWriter) writeCall(c toolCall) error {
	w.held = nil
	if w.kind != callItem || *c.Index != w.call {
		w.call = *c.Index
		if err := w.open(callItem, item{CallID: c.ID, Name: c.Function.Name}); err != nil {
			return err
		}
	}
	if c.Function.Arguments == "" {
		return nil
	}
	w.text.WriteString(c.Function.Arguments)
	i, id := w.at()
	return w.send(responseEvent{Type: "response.function_call_arguments.delta", Output: i, ItemID: id, Delta: &c.Function.Arguments})
}

// close ends the open item, if any.
func (w *responseWriter) close(status string) error {
	if w.kind == "" {
		return nil
	}
	x, text := w.last(), w.text.String()
	x.Status = status
	i, id := w.at()
	e := responseEvent{Output: i, ItemID: id}
	kind := w.kind
	w.kind = ""
	if kind == callItem {
		x.Arguments = &text
		e.Type, e.Name, e.Arguments = "response.function_call_arguments.done", x.Name, &text
		if err := w.send(e); err != nil {
			return err
		}
	} else {
		e.Type, e.Content, e.Text = "response.reasoning_text.done", pointer(0), &text
		if kind == messageItem {
			e.Type = "response.output_text.done"
			w.logprobs()
			e.Logprobs = &x.Content[0].Logprobs
			x.Content[0].Text = text
		} else {
			x.Content = []part{newPart(reasoningText, text)}
		}
		if err := w.send(e); err != nil {
			return err
		}
		p := x.Content[0]
		if err := w.send(responseEvent{Type: "response.content_part.done", Output: i, ItemID: id, Content: pointer(0), Part: &p}); err != nil {
			return err
		}
	}
	done := *x
	return w.send(responseEvent{Type: "response.output_item.done", Output: i, Item: &done})
}

// end ends the response.
func (w *responseWriter) end(finish generate.Finish) error {
	if finish == generate.FinishLength {
		w.response.Incomplete = &incompleteDetails{"max_output_tokens"}
		return w.stop(incomplete)
	}
	w.response.Completed = pointer(time.Now().Unix())
	return w.stop(completed)
}

// stop ends the response with a status.
func (w *responseWriter) stop(status string) error {
	item := completed
	if status != completed {
		item = incomplete
	}
	u, r := w.exchange.usage, w.response
	err := w.begin()
	r.Status = status
	r.Usage = &responseUsage{Input: u.Prompt, InputDetails: *u.Details, Output: u.Answer, OutputDetails: outputDetails{w.thoughts}, Total: u.Total}
	if err != nil {
		return err
	}
	if err := w.close(item); err != nil {
		return err
	}
	kind := "response." + status
	if status == cancelled {
		kind = "response.incomplete" // the stream has no event for it
	}
	return w.send(responseEvent{Type: kind, Response: r})
}

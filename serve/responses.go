package serve

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/internal/serve/batching"
	"github.com/lorafuse/lorafuse/internal/serve/tools"
	"github.com/lorafuse/lorafuse/internal/serve/web"
	"github.com/lorafuse/lorafuse/tokenizer/chat"
)

// response is a response of POST /v1/responses.
type response struct {
	ID              string             `json:"id"`
	Object          string             `json:"object"`
	Created         int64              `json:"created_at"`
	Completed       *int64             `json:"completed_at"`
	Status          string             `json:"status"`
	Background      bool               `json:"background"`
	Error           *responseError     `json:"error"`
	Incomplete      *incompleteDetails `json:"incomplete_details"`
	Instructions    *string            `json:"instructions"`
	MaxOutputTokens *int               `json:"max_output_tokens"`
	Model           string             `json:"model"`
	Output          []item             `json:"output"`
	Parallel        bool               `json:"parallel_tool_calls"`
	Previous        *string            `json:"previous_response_id"`
	Reasoning       responseReasoning  `json:"reasoning"`
	Store           bool               `json:"store"`
	Temperature     float64            `json:"temperature"`
	Text            responseText       `json:"text"`
	ToolChoice      json.RawMessage    `json:"tool_choice"`
	Tools           json.RawMessage    `json:"tools"`
	TopLogprobs     int                `json:"top_logprobs"`
	TopP            float64            `json:"top_p"`
	Truncation      string             `json:"truncation"`
	Usage           *responseUsage     `json:"usage"`
	User            *string            `json:"user"`
	Metadata        map[string]string  `json:"metadata"`
}

type responseError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

type incompleteDetails struct {
	Reason string `json:"reason"`
}

type responseReasoning struct {
	Effort  *string `json:"effort"`
	Summary *string `json:"summary"`
}

type responseText struct {
	Format    json.RawMessage `json:"format"`
	Verbosity string          `json:"verbosity"`
}

// responseUsage holds the token counts of a response.
type responseUsage struct {
	Input         int           `json:"input_tokens"`
	InputDetails  details       `json:"input_tokens_details"`
	Output        int           `json:"output_tokens"`
	OutputDetails outputDetails `json:"output_tokens_details"`
	Total         int           `json:"total_tokens"`
}

type outputDetails struct {
	Reasoning int `json:"reasoning_tokens"`
}

// responseRequest is the body of POST /v1/responses.
type responseRequest struct {
	samplingRequest
	templateRequest
	toolRequest
	Input        json.RawMessage   `json:"input"`
	Instructions *string           `json:"instructions"`
	Previous     *string           `json:"previous_response_id"`
	Store        *bool             `json:"store"`
	MaxTokens    *int              `json:"max_output_tokens" in:"1,"`
	TopLogprobs  int               `json:"top_logprobs" in:"0,logprobs"`
	Include      []string          `json:"include" expected:"a list of strings"`
	Truncation   string            `json:"truncation" one:"disabled"`
	Metadata     map[string]string `json:"metadata" expected:"an object of strings"`
	Text         struct {
		Format json.RawMessage `json:"format"`
	} `json:"text"`
	Reasoning struct {
		Effort *string `json:"effort"`
	} `json:"reasoning"`

	// Fields of chat completions that have another name here.
	ChatMost      *json.RawMessage `json:"max_tokens"`
	ChatMostNewer *json.RawMessage `json:"max_completion_tokens"`
	ChatLogprobs  *json.RawMessage `json:"logprobs"`
}

// withLogprobs is the value of include for log-probabilities.
const withLogprobs = "message.output_text.logprobs"

// check returns an error for fields that responses do not have.
func (r *responseRequest) check() error {
	switch {
	case r.N != 1:
		return web.Faulty("n", "found %d; a response has one answer", r.N)
	case r.PromptLogprobs != nil:
		return web.Faulty("prompt_logprobs", "not supported; /v1/chat/completions has them")
	case r.ChatMost != nil:
		return web.Faulty("max_tokens", "not supported; max_output_tokens is")
	case r.ChatMostNewer != nil:
		return web.Faulty("max_completion_tokens", "not supported; max_output_tokens is")
	case r.ChatLogprobs != nil:
		return web.Faulty("logprobs", "not supported; include: [%q] and top_logprobs are", withLogprobs)
	case r.Previous != nil && *r.Previous == "":
		return web.Faulty("previous_response_id", "is empty")
	}
	return checkInclude(r.Include)
}

// checkInclude returns an error for values of include that responses do not have.
func checkInclude(include []string) error {
	for _, name := range include {
		if name != withLogprobs {
			return web.Faulty("include", "found %.100q, expected %s", name, withLogprobs)
		}
	}
	return nil
}

// shapes returns the constraint in text.format, and the field as the response repeats it.
func (r *responseRequest) shapes() ([]answerShape, json.RawMessage, error) {
	const name = "text.format"
	if r.Text.Format == nil {
		return nil, json.RawMessage(`{"type":"text"}`), nil
	}
	var values map[string]json.RawMessage
	if json.Unmarshal(r.Text.Format, &values) != nil || values == nil {
		return nil, nil, web.Faulty(name, "found %s, expected an object with a type", web.Brief(r.Text.Format))
	}
	var f struct {
		Type   string          `json:"type" one:"text|json_object|json_schema"`
		Schema json.RawMessage `json:"schema"`
	}
	if err := web.DecodeObject(&f, values, name+"."); err != nil {
		return nil, nil, err
	}
	shapes, err := formatShape(name, name+".schema", f.Type, f.Schema)
	return shapes, r.Text.Format, err
}

// effort sets the variables of the chat template that control reasoning.
func (r *responseRequest) effort(format chatFormat) error {
	if r.Reasoning.Effort == nil || format.template == nil {
		return nil
	}
	effort := *r.Reasoning.Effort
	source := format.template.Source(chat.Options{})
	set := func(name string, value any) (err error) {
		if r.Variables == nil {
			r.Variables = map[string]json.RawMessage{}
		}
		if r.Variables[name] == nil {
			r.Variables[name], err = json.Marshal(value)
		}
		return err
	}
	switch {
	case strings.Contains(source, "reasoning_effort"):
		return set("reasoning_effort", effort)
	case effort == "medium":
		return nil // the default
	case effort == "none" && strings.Contains(source, "enable_thinking"):
		return set("enable_thinking", false)
	case effort == "none" && format.thinking.end == "":
		return nil
	}
	return web.Faulty("reasoning.effort", "found %.60q, which the chat template of the model does not have%s", effort, useTemplateArgs)
}

// respond handles POST /v1/responses.
func (s *Server) respond(c *web.Call) error {
	r := responseRequest{samplingRequest: s.newSamplingRequest(), templateRequest: newConversationRequest().templateRequest, toolRequest: newToolRequest(), Truncation: "disabled"}
	if err := c.Decode(&r); err != nil {
		return err
	}
	if err := r.check(); err != nil {
		return err
	}
	t, err := s.writer(c, r.Model)
	if err != nil {
		return err
	}
	defer t.release()
	input, err := s.inputItems(c.Who, r.Input)
	if err != nil {
		return err
	}
	var before []item
	if r.Previous != nil {
		if before, err = s.responses.history(c.Who, *r.Previous, s.options.MaxLength); err != nil {
			return err
		}
	}
	messages, err := chatMessages(of(r.Instructions, ""), slices.Concat(before, input))
	if err != nil {
		return err
	}
	shapes, format, err := r.shapes()
	if err != nil {
		return err
	}
	if err := r.effort(s.formatOf(t)); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(c.Request.Context())
	defer cancel(nil)
	c.Request = c.Request.WithContext(ctx)
	x, err := s.exchange(c, t, &exchangeRequest{
		sampling: &r.samplingRequest, shapes: shapes, field: "input", tools: r.toolRequest, form: tools.Flat,
		conversation: conversationRequest{r.templateRequest, messages},
		logprobs:     r.TopLogprobs > 0 || len(r.Include) > 0, top: r.TopLogprobs, most: r.MaxTokens, mostField: "max_output_tokens",
	})
	if err != nil {
		return err
	}
	answer := &response{
		ID: newItemID("resp"), Object: "response", Created: c.Began.Unix(), Status: inProgress, Instructions: r.Instructions, MaxOutputTokens: r.MaxTokens,
		Model: t.name, Output: []item{}, Parallel: r.Parallel, Previous: r.Previous, Reasoning: responseReasoning{Effort: r.Reasoning.Effort},
		Store: s.responses.limit > 0, Temperature: r.Temperature, Text: responseText{format, "medium"}, ToolChoice: r.Choice, Tools: r.toolRequest.Tools,
		TopLogprobs: r.TopLogprobs, TopP: r.TopP, Truncation: r.Truncation, User: orNone(r.User), Metadata: r.Metadata,
	}
	if answer.ToolChoice == nil {
		answer.ToolChoice = json.RawMessage(`"auto"`)
	}
	if answer.Tools == nil {
		answer.Tools = json.RawMessage(`[]`)
	}
	if answer.Metadata == nil {
		answer.Metadata = map[string]string{}
	}
	stored, err := s.store(c, answer, r.Store, input, cancel)
	if err != nil {
		return err
	}
	return s.answerResponse(x, answer, stored, r.Stream)
}

// store stores a response in progress, unless the request does not want that. It returns nil if the
// response is not stored.
func (s *Server) store(c *web.Call, r *response, wanted *bool, input []item, cancel context.CancelCauseFunc) (*storedResponse, error) {
	if r.Store = r.Store && of(wanted, true); !r.Store {
		if of(wanted, false) {
			return nil, web.Faulty("store", "this server stores no responses")
		}
		return nil, nil
	}
	stored, err := s.responses.begin(c.Who.Name, r, input, cancel)
	if errors.Is(err, errNotStored) {
		if r.Store = false; wanted == nil {
			return nil, nil
		}
		f := web.Faulty("store", "the input is too large to be stored")
		f.Status, f.Code = http.StatusInsufficientStorage, "storage_limit_exceeded"
		return nil, f
	}
	return stored, err
}

// answerResponse runs an exchange and writes the response, whole or as events.
func (s *Server) answerResponse(x *exchange, r *response, stored *storedResponse, stream bool) error {
	defer func() {
		if stored != nil { // not ended: the handler panics
			_ = s.responses.end(stored, nil)
		}
	}()
	out := events{x.call}
	w := s.newResponseWriter(x, r)
	var idle func() error
	if stream {
		idle, w.emit = out.ping, func(e *responseEvent) error { return out.named(e.Type, e) }
	}
	err := x.run(idle, func(_ int, t batching.Token) error { return w.take(t) })
	ctx := x.call.Request.Context()
	switch {
	case err == nil:
	case errors.Is(context.Cause(ctx), errCancelled):
		err = w.stop(cancelled)
	case ctx.Err() != nil || errors.Is(err, web.ErrGone): // the client has disconnected
		w.emit = nil
		_ = w.stop(cancelled)
	case stream && w.sequence > 0:
		r.Error = &responseError{"server_error", x.call.Failed(err).Message}
		err = w.stop(failed)
	}
	if stored != nil {
		final := r
		if r.Status == inProgress {
			final = nil // refused: there is no response
		}
		endErr := s.responses.end(stored, final)
		stored = nil
		err = cmp.Or(err, endErr)
	}
	if err != nil || stream {
		return err
	}
	return x.call.JSON(r)
}

// getResponse handles GET /v1/responses/{id}.
func (s *Server) getResponse(c *web.Call) error {
	q := c.Request.URL.Query()
	for _, name := range []string{"stream", "starting_after"} {
		if v := q.Get(name); v != "" && v != "false" {
			return web.Faulty(name, "not supported: a response is streamed once, by the request that creates it")
		}
	}
	if err := checkInclude(slices.Concat(q["include"], q["include[]"])); err != nil {
		return err
	}
	body, err := s.responses.get(c.Who, c.Request.PathValue("id"))
	if err != nil {
		return err
	}
	return c.Bytes("application/json", body)
}

// deleteResponse handles DELETE /v1/responses/{id}.
func (s *Server) deleteResponse(c *web.Call) error {
	id := c.Request.PathValue("id")
	if err := s.responses.delete(c.Who, id); err != nil {
		return err
	}
	return c.JSON(struct {
		ID      string `json:"id"`
		Object  string `json:"object"`
		Deleted bool   `json:"deleted"`
	}{id, "response", true})
}

// cancelResponse handles POST /v1/responses/{id}/cancel.
func (s *Server) cancelResponse(c *web.Call) error {
	body, err := s.responses.cancel(c.Request.Context(), c.Who, c.Request.PathValue("id"))
	if err != nil {
		return err
	}
	return c.Bytes("application/json", body)
}

// listInputItems handles GET /v1/responses/{id}/input_items.
func (s *Server) listInputItems(c *web.Call) error {
	q := c.Request.URL.Query()
	n, err := limit(c, 20, 100)
	if err != nil {
		return err
	}
	if err := checkInclude(slices.Concat(q["include"], q["include[]"])); err != nil {
		return err
	}
	items, err := s.responses.inputs(c.Who, c.Request.PathValue("id"))
	if err != nil {
		return err
	}
	switch order := q.Get("order"); order {
	case "", "desc":
		slices.Reverse(items)
	case "asc":
	default:
		return web.Faulty("order", "found %.60q, expected asc or desc", order)
	}
	list, err := page(items, func(x item) string { return x.ID }, q.Get("after"), n, func(x item) item { return x })
	if err != nil {
		return err
	}
	return c.JSON(list)
}

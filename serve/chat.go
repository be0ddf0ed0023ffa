package serve

import (
	"github.com/lorafuse/lorafuse/internal/serve/batching"
	"github.com/lorafuse/lorafuse/internal/serve/web"
)

// chatAnswer is a chat completion, or a streamed chunk of one.
type chatAnswer struct {
	ID      string                   `json:"id"`
	Object  string                   `json:"object"`
	Created int64                    `json:"created"`
	Model   string                   `json:"model"`
	Choices []chatChoice             `json:"choices"`
	Usage   *usage                   `json:"usage,omitempty"`
	Prompt  []map[string]promptToken `json:"prompt_logprobs,omitempty"`
}

// chatChoice is one answer: it has a message, or a delta if streamed.
type chatChoice struct {
	Index    int           `json:"index"`
	Message  *chatMessage  `json:"message,omitempty"`
	Delta    *chatDelta    `json:"delta,omitempty"`
	Logprobs *chatLogprobs `json:"logprobs"`
	Finish   *string       `json:"finish_reason"`
}

// chatMessage is a message of the assistant.
type chatMessage struct {
	Role    string     `json:"role"`
	Content *string    `json:"content"`
	Calls   []toolCall `json:"tool_calls,omitempty"`
}

// chatDelta is a partial message of a streamed chat completion.
type chatDelta struct {
	Role    string     `json:"role,omitempty"`
	Content *string    `json:"content,omitempty"`
	Calls   []toolCall `json:"tool_calls,omitempty"`
}

// chatRequest is the body of POST /v1/chat/completions.
type chatRequest struct {
	samplingRequest
	conversationRequest
	toolRequest
	Logprobs            bool `json:"logprobs"`
	TopLogprobs         int  `json:"top_logprobs" in:"0,logprobs"`
	MaxCompletionTokens *int `json:"max_completion_tokens" in:"1,"`
	MaxTokens           *int `json:"max_tokens" in:"1,"`
}

// chat handles POST /v1/chat/completions.
func (s *Server) chat(c *web.Call) error {
	r := chatRequest{samplingRequest: s.newSamplingRequest(), conversationRequest: newConversationRequest(), toolRequest: newToolRequest()}
	if err := c.Decode(&r); err != nil {
		return err
	}
	t, err := s.writer(c, r.Model)
	if err != nil {
		return err
	}
	defer t.release()
	if r.TopLogprobs > 0 && !r.Logprobs {
		return web.Faulty("top_logprobs", "goes with logprobs: true")
	}
	most, param := r.MaxCompletionTokens, "max_completion_tokens"
	if most == nil {
		most, param = r.MaxTokens, "max_tokens"
	}
	x, err := s.exchange(c, t, &exchangeRequest{
		sampling: &r.samplingRequest, conversation: r.conversationRequest, field: "messages", tools: r.toolRequest,
		logprobs: r.Logprobs, top: r.TopLogprobs, most: most, mostField: param,
	})
	if err != nil {
		return err
	}
	answer := chatAnswer{ID: "chatcmpl-" + c.ID, Object: "chat.completion", Created: c.Began.Unix(), Model: t.name}
	if r.Stream {
		answer.Object = "chat.completion.chunk"
		return s.streamChat(x.work, answer, x.tools, r.usage())
	}
	return s.answerChat(x.work, answer, x.tools)
}

// usage reports whether a stream ends with the token counts.
func (r *samplingRequest) usage() bool { return r.StreamOptions != nil && r.StreamOptions.Usage }

// answerChat writes the complete chat completion after all answers have ended.
func (s *Server) answerChat(job *work, answer chatAnswer, u *toolUse) error {
	drafts := make([]draft, job.wish.n)
	answer.Choices = make([]chatChoice, job.wish.n)
	err := job.run(nil, func(i int, t batching.Token) error {
		x, d := &answer.Choices[i], &drafts[i]
		for _, delta := range d.take(u, t.Text, t.Finish != "") {
			d.add(delta)
		}
		x.Logprobs = s.addLogprob(job.wish, x.Logprobs, t)
		if t.Finish != "" {
			x.Index, x.Message, x.Finish = i, d.message(), pointer(d.reason(t.Finish))
		}
		return nil
	})
	if err != nil {
		return err
	}
	if job.wish.promptLogprobs >= 0 {
		answer.Prompt = s.promptLogprobs(job.prompt[0], job.wish.promptLogprobs)
	}
	answer.Usage = &job.usage
	return job.call.JSON(answer)
}

// addLogprob appends the log-probabilities of a token if the request wants them.
func (s *Server) addLogprob(w *wish, l *chatLogprobs, t batching.Token) *chatLogprobs {
	if !w.logprobs {
		return nil
	}
	if l == nil {
		l = &chatLogprobs{}
	}
	l.Content = append(l.Content, s.positionLogprob(t.Logprobs, w.top))
	return l
}

// streamChat writes the chat completion as server-sent events while tokens arrive.
func (s *Server) streamChat(job *work, answer chatAnswer, u *toolUse, usage bool) error {
	out := events{job.call}
	drafts := make([]draft, job.wish.n)
	held := make([]*chatLogprobs, job.wish.n) // of tokens whose text cannot be sent yet
	err := job.run(out.ping, func(i int, t batching.Token) error {
		send := func(delta chatDelta, finish *string) error {
			answer.Choices = []chatChoice{{Index: i, Delta: &delta, Logprobs: held[i], Finish: finish}}
			held[i] = nil
			return out.send(answer)
		}
		d := &drafts[i]
		if !d.begun {
			d.begun = true
			if err := send(chatDelta{Role: "assistant", Content: pointer("")}, nil); err != nil {
				return err
			}
		}
		held[i] = s.addLogprob(job.wish, held[i], t)
		deltas := d.take(u, t.Text, t.Finish != "")
		if t.Finish != "" && len(deltas) == 0 && held[i] != nil {
			deltas = []chatDelta{{Content: pointer("")}}
		}
		for _, delta := range deltas {
			if err := send(delta, nil); err != nil {
				return err
			}
		}
		if t.Finish == "" {
			return nil
		}
		return send(chatDelta{}, pointer(d.reason(t.Finish)))
	})
	if err == nil && usage {
		answer.Choices, answer.Usage = []chatChoice{}, &job.usage
		err = out.send(answer)
	}
	if err == nil {
		err = out.end()
	}
	return out.fail(err)
}

func pointer[T any](v T) *T { return &v }

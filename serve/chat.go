package serve

import "github.com/lorafuse/lorafuse/internal/serve/batching"

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

// chat handles POST /v1/chat/completions.
func (s *Server) chat(c *call) error {
	f, err := c.body()
	if err != nil {
		return err
	}
	t, err := s.writer(c, f)
	if err != nil {
		return err
	}
	defer t.release()
	ctx := c.request.Context()
	w := s.wish(ctx, f)
	k := s.conversation(f, s.formatOf(t))
	u := s.toolUse(ctx, f, w, k)
	w.logprobs = f.flag("logprobs", false)
	w.top = f.integer("top_logprobs", 0, 0, s.options.MaxTopLogprobs)
	if w.top > 0 && !w.logprobs {
		f.fault("top_logprobs", "goes with logprobs: true")
	}
	param := "max_completion_tokens"
	if !f.has(param) {
		param = "max_tokens"
	}
	most := f.integer(param, -1, 1, 1<<31-1)
	stream := streaming(f, w)
	if err := c.checkUnread(f); err != nil {
		return err
	}
	ids, err := s.prompt(ctx, k)
	if err != nil {
		return err
	}
	if err := s.room(w, len(ids), most, 0, param); err != nil {
		return err
	}
	job, err := s.work(c, t, w, [][]int32{ids})
	if err != nil {
		return err
	}
	answer := chatAnswer{ID: "chatcmpl-" + c.id, Object: "chat.completion", Created: c.began.Unix(), Model: t.name}
	if stream.on {
		answer.Object = "chat.completion.chunk"
		return s.streamChat(job, answer, u, stream)
	}
	return s.answerChat(job, answer, u)
}

// streamed holds the stream options of a request: whether to stream, and whether to send usage.
type streamed struct{ on, usage bool }

// streaming reads the stream options.
func streaming(f *fields, w *wish) streamed {
	o := f.object("stream_options")
	how := streamed{on: f.flag("stream", false), usage: o.flag("include_usage", false)}
	f.take(o)
	switch {
	case f.has("stream_options") && !how.on:
		f.fault("stream_options", "goes with stream: true")
	case how.on && w.promptLogprobs >= 0:
		f.fault("prompt_logprobs", "do not go with stream: true")
	}
	return how
}

// answerChat writes the complete chat completion after all answers have ended.
func (s *Server) answerChat(job *work, answer chatAnswer, u *toolUse) error {
	drafts := make([]draft, job.wish.n)
	answer.Choices = make([]chatChoice, job.wish.n)
	err := job.run(nil, func(i int, t batching.Token) error {
		x, d := &answer.Choices[i], &drafts[i]
		for _, delta := range d.take(u, t) {
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
	return job.call.json(answer)
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
func (s *Server) streamChat(job *work, answer chatAnswer, u *toolUse, how streamed) error {
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
		deltas := d.take(u, t)
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
	if err == nil && how.usage {
		answer.Choices, answer.Usage = []chatChoice{}, &job.usage
		err = out.send(answer)
	}
	if err == nil {
		err = out.end()
	}
	return out.fail(err)
}

func pointer[T any](v T) *T { return &v }

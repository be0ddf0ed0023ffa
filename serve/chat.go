package serve

import (
	"strings"

	"github.com/lorafuse/lorafuse/serve/batching"
)

// chatAnswer is the answer to a chat, whole or a part of one that is under way.
type chatAnswer struct {
	ID      string                   `json:"id"`
	Object  string                   `json:"object"`
	Created int64                    `json:"created"`
	Model   string                   `json:"model"`
	Choices []chatChoice             `json:"choices"`
	Usage   *usage                   `json:"usage,omitempty"`
	Prompt  []map[string]promptToken `json:"prompt_logprobs,omitempty"`
}

// chatChoice is one answer; it has a message, or, under way, what comes to it.
type chatChoice struct {
	Index    int           `json:"index"`
	Message  *chatMessage  `json:"message,omitempty"`
	Delta    *chatMessage  `json:"delta,omitempty"`
	Logprobs *chatLogprobs `json:"logprobs"`
	Finish   *string       `json:"finish_reason"`
}

// chatMessage is a message of the model, or what comes to one.
type chatMessage struct {
	Role    string  `json:"role,omitempty"`
	Content *string `json:"content,omitempty"`
}

// chat answers POST /v1/chat/completions.
func (s *Server) chat(c *call) error {
	f, err := c.body()
	if err != nil {
		return err
	}
	w := s.wish(f)
	k := s.conversation(f)
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
	for _, name := range []string{"functions", "function_call"} {
		f.refuse(name, "; tools and tool_choice are")
	}
	f.refuse("audio", ": the model writes text")
	if err := f.failed(); err != nil {
		return err
	}
	t, err := s.target(c, f)
	if err != nil {
		return err
	}
	defer t.release()
	ids, err := s.prompt(k)
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
		return s.streamChat(job, answer, stream)
	}
	return s.answerChat(job, answer)
}

// streamed says how an answer is to come.
type streamed struct{ on, usage bool }

// streaming reads whether an answer is wanted as it comes.
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

// answerChat answers when all is there.
func (s *Server) answerChat(job *work, answer chatAnswer) error {
	texts := make([]strings.Builder, job.wish.n)
	answer.Choices = make([]chatChoice, job.wish.n)
	err := job.run(nil, func(i int, t batching.Token) error {
		x := &answer.Choices[i]
		texts[i].WriteString(t.Text)
		x.Logprobs = s.addLogprob(job.wish, x.Logprobs, t)
		if t.Finish != "" {
			x.Finish = pointer(reason(t.Finish))
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i := range answer.Choices {
		x := &answer.Choices[i]
		x.Index, x.Message = i, &chatMessage{Role: "assistant", Content: pointer(texts[i].String())}
	}
	if job.wish.promptLogprobs >= 0 {
		answer.Prompt = s.promptLogprobs(job.prompt[0], job.wish.promptLogprobs)
	}
	answer.Usage = &job.usage
	return job.call.json(answer)
}

// addLogprob adds those of a token, if they are wanted.
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

// streamChat answers as it comes.
func (s *Server) streamChat(job *work, answer chatAnswer, how streamed) error {
	out := events{job.call}
	send := func(x chatChoice) error {
		answer.Choices = []chatChoice{x}
		return out.send(answer)
	}
	begun := make([]bool, job.wish.n)
	held := make([]*chatLogprobs, job.wish.n) // of tokens that have no text yet
	err := job.run(out.ping, func(i int, t batching.Token) error {
		if !begun[i] {
			begun[i] = true
			if err := send(chatChoice{Index: i, Delta: &chatMessage{Role: "assistant", Content: pointer("")}}); err != nil {
				return err
			}
		}
		held[i] = s.addLogprob(job.wish, held[i], t)
		if t.Text != "" || t.Finish != "" && held[i] != nil {
			x := chatChoice{Index: i, Delta: &chatMessage{Content: pointer(t.Text)}, Logprobs: held[i]}
			held[i] = nil
			if err := send(x); err != nil {
				return err
			}
		}
		if t.Finish == "" {
			return nil
		}
		return send(chatChoice{Index: i, Delta: &chatMessage{}, Finish: pointer(reason(t.Finish))})
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

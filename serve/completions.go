package serve

import (
	"strings"

	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/serve/batching"
	"github.com/lorafuse/lorafuse/internal/serve/web"
)

// textAnswer is the response to a completion request, or a streamed chunk of it.
type textAnswer struct {
	ID      string       `json:"id"`
	Object  string       `json:"object"`
	Created int64        `json:"created"`
	Model   string       `json:"model"`
	Choices []textChoice `json:"choices"`
	Usage   *usage       `json:"usage,omitempty"`
}

// textChoice is a completion, or a streamed part of one.
type textChoice struct {
	Index    int                      `json:"index"`
	Text     string                   `json:"text"`
	Logprobs *textLogprobs            `json:"logprobs"`
	Finish   *string                  `json:"finish_reason"`
	Prompt   []map[string]promptToken `json:"prompt_logprobs,omitempty"`
}

// completion is a text completion request.
type completion struct {
	*wish
	prompts []prompt
	tokens  [][]int32 // of the prompts
	// echo starts each answer with its prompt. only means that nothing but the prompt is wanted
	// (max_tokens 0).
	echo, only bool
}

// normalTokens is the default of max_tokens for completions.
const normalTokens = 16

// completionRequest is the body of POST /v1/completions.
type completionRequest struct {
	samplingRequest
	Prompt           prompts `json:"prompt"`
	Echo             bool    `json:"echo"`
	Logprobs         *int    `json:"logprobs" in:"0,logprobs"`
	AddSpecialTokens bool    `json:"add_special_tokens"`
	MaxTokens        *int    `json:"max_tokens" in:"0,"`
	BestOf           *int    `json:"best_of" in:"1,"`
}

// complete handles POST /v1/completions.
func (s *Server) complete(c *web.Call) error {
	r := completionRequest{samplingRequest: s.newSamplingRequest(), AddSpecialTokens: true}
	if err := c.Decode(&r); err != nil {
		return err
	}
	if err := r.Prompt.check("prompt", s.options.MaxAnswers); err != nil {
		return err
	}
	w, err := s.wish(c.Request.Context(), &r.samplingRequest)
	if err != nil {
		return err
	}
	q := completion{wish: w, prompts: r.Prompt, echo: r.Echo}
	q.logprobs, q.top = r.Logprobs != nil, of(r.Logprobs, 0)
	most := of(r.MaxTokens, -1)
	switch {
	case of(r.BestOf, q.n) != q.n:
		return web.Faulty("best_of", "found %d, expected n, which is %d", *r.BestOf, q.n)
	case most == 0 && !q.echo:
		return web.Faulty("max_tokens", "found 0, expected 1 or more, or echo: true")
	case len(q.prompts)*q.n > s.options.MaxAnswers:
		return web.Faulty("n", "found %d for each of %d prompts, expected %d answers or fewer altogether", q.n, len(q.prompts), s.options.MaxAnswers)
	}
	t, err := s.writer(c, r.Model)
	if err != nil {
		return err
	}
	defer t.release()
	longest := 0
	for i := range q.prompts {
		ids, err := s.encode(q.prompts[i], r.AddSpecialTokens)
		if err != nil {
			return err
		}
		if len(ids) == 0 {
			return web.Invalid("prompt", "prompt: it is empty, and the model has no token that begins a text")
		}
		q.tokens = append(q.tokens, ids)
		longest = max(longest, len(ids))
	}
	if q.only = most == 0; q.only {
		most = 1 // to read the prompt
	}
	if q.echo && q.logprobs && q.promptLogprobs < q.top {
		q.promptLogprobs = q.top
	}
	if err := s.room(q.wish, longest, most, normalTokens, "max_tokens"); err != nil {
		return err
	}
	job, err := s.work(c, t, q.wish, q.tokens)
	if err != nil {
		return err
	}
	answer := textAnswer{ID: "cmpl-" + c.ID, Object: "text_completion", Created: c.Began.Unix(), Model: t.name}
	if r.Stream {
		return s.streamText(job, answer, &q, r.usage())
	}
	return s.answerText(job, answer, &q, r.PromptLogprobs != nil)
}

// textState is an answer in progress.
type textState struct {
	text   strings.Builder
	tokens []generate.Logprobs // not yet written
	offset int                 // of the first of these tokens, in characters
	begun  bool
}

// take adds a token.
func (x *textState) take(q *completion, t batching.Token) {
	if q.only {
		return
	}
	x.text.WriteString(t.Text)
	if q.logprobs {
		x.tokens = append(x.tokens, t.Logprobs)
	}
}

// choice returns the part of an answer that is new since the last call.
func (s *Server) choice(job *work, q *completion, x *textState, i int, finish generate.Finish) (textChoice, error) {
	y := textChoice{Index: i}
	prompt := i / q.n
	if !x.begun && q.echo {
		p := q.prompts[prompt]
		if p.ids != nil {
			var err error
			if p.text, err = s.tokenizer.Decode(p.ids, q.skipSpecial); err != nil {
				return y, err
			}
		}
		y.Text = p.text
		if q.logprobs {
			y.Logprobs, x.offset = s.textLogprobs(job.prompt[prompt], q.top, 0, true)
		}
	}
	x.begun = true
	y.Text += x.text.String()
	x.text.Reset()
	if q.logprobs {
		var more *textLogprobs
		more, x.offset = s.textLogprobs(x.tokens, q.top, x.offset, false)
		x.tokens = nil
		y.Logprobs = y.Logprobs.join(more)
	}
	switch {
	case finish != "" && q.only:
		y.Finish = pointer(reason(generate.FinishLength))
	case finish != "":
		y.Finish = pointer(reason(finish))
	}
	return y, nil
}

// answerText writes the complete response after all answers have ended.
func (s *Server) answerText(job *work, answer textAnswer, q *completion, promptLogprobs bool) error {
	states := make([]textState, len(q.tokens)*q.n)
	finish := make([]generate.Finish, len(states))
	err := job.run(nil, func(i int, t batching.Token) error {
		states[i].take(q, t)
		finish[i] = t.Finish
		return nil
	})
	if err != nil {
		return err
	}
	for i := range states {
		x, err := s.choice(job, q, &states[i], i, finish[i])
		if err != nil {
			return err
		}
		if promptLogprobs {
			x.Prompt = s.promptLogprobs(job.prompt[i/q.n], q.promptLogprobs)
		}
		answer.Choices = append(answer.Choices, x)
	}
	answer.Usage = q.usage(job)
	return job.call.JSON(answer)
}

// usage returns the token counts of a request. Answer tokens are not counted if the request wants
// the prompt only.
func (q *completion) usage(job *work) *usage {
	u := job.usage
	if q.only {
		u.Answer, u.Total = 0, u.Prompt
	}
	return &u
}

// streamText writes the completions as server-sent events while tokens arrive.
func (s *Server) streamText(job *work, answer textAnswer, q *completion, usage bool) error {
	out := events{job.call}
	states := make([]textState, len(q.tokens)*q.n)
	err := job.run(out.ping, func(i int, t batching.Token) error {
		x := &states[i]
		x.take(q, t)
		if x.text.Len() == 0 && t.Finish == "" {
			return nil
		}
		y, err := s.choice(job, q, x, i, t.Finish)
		if err != nil {
			return err
		}
		answer.Choices = []textChoice{y}
		return out.send(answer)
	})
	if err == nil && usage {
		answer.Choices, answer.Usage = []textChoice{}, q.usage(job)
		err = out.send(answer)
	}
	if err == nil {
		err = out.end()
	}
	return out.fail(err)
}

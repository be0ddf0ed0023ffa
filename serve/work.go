package serve

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/lorafuse/lorafuse/internal/fork"
	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/serve/batching"
	"github.com/lorafuse/lorafuse/internal/serve/web"
)

// work holds the engine requests of an API request and their results.
type work struct {
	call     *web.Call
	engine   Engine
	model    string // name in the request
	wish     *wish
	requests []batching.Request // one per prompt

	usage  usage
	prompt map[int][]generate.Logprobs // log-probabilities of prompts
	times  batching.Times              // of the first answer to end
	finish generate.Finish             // of the last answer to end
}

// usage holds the token counts of a request.
type usage struct {
	Prompt  int      `json:"prompt_tokens"`
	Total   int      `json:"total_tokens"`
	Answer  int      `json:"completion_tokens"`
	Details *details `json:"prompt_tokens_details,omitempty"`
}

// details holds details of the prompt's token count.
type details struct {
	Cached int `json:"cached_tokens"`
}

// work returns the engine requests for prompts.
func (s *Server) work(c *web.Call, t *target, w *wish, prompts [][]int32) (*work, error) {
	job := &work{call: c, engine: s.options.Engine, model: t.name, wish: w, prompt: map[int][]generate.Logprobs{}}
	job.usage.Details = &details{}
	for _, ids := range prompts {
		answers, err := s.answers(w)
		if err != nil {
			return nil, err
		}
		job.requests = append(job.requests, batching.Request{
			Prompt: ids, Adapter: t.adapter, Lease: t.lease, Answers: answers, PromptLogprobs: w.promptLogprobs >= 0, Client: c.Client, Salt: s.salt(c, w.salt),
		})
		job.usage.Prompt += len(ids)
	}
	job.usage.Total = job.usage.Prompt
	return job, nil
}

// step is a token of an answer, the error that ends the request, or the end of a prompt's answers.
type step struct {
	prompt int
	token  batching.Token
	err    error
	last   bool
}

// run submits the requests to the engine. It calls each with every token, one at a time, and the
// index of its answer. If idle is not nil, it is called when no token has arrived for a while. The
// first error ends all requests.
func (j *work) run(idle func() error, each func(choice int, t batching.Token) error) error {
	defer j.log()
	ctx, cancel := context.WithCancel(j.call.Request.Context())
	var group fork.Group
	defer group.Wait()
	defer cancel()
	steps := make(chan step)
	send := func(x step) bool {
		select {
		case steps <- x:
			return true
		case <-ctx.Done():
			return false
		}
	}
	for i, r := range j.requests {
		group.Go(func() {
			defer send(step{last: true})
			for t, err := range j.engine.Submit(ctx, r) {
				if !send(step{prompt: i, token: t, err: err}) {
					return
				}
			}
		})
	}
	quiet := time.NewTicker(pingInterval)
	defer quiet.Stop()
	unfinished := len(j.requests) * j.wish.n
	for open := len(j.requests); open > 0; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-quiet.C:
			if idle != nil {
				if err := idle(); err != nil {
					return err
				}
			}
		case x := <-steps:
			quiet.Reset(pingInterval)
			if x.last {
				open--
				continue
			}
			if x.err != nil {
				return x.err
			}
			if x.token.Finish != "" {
				unfinished--
			}
			if err := j.take(x, each); err != nil {
				return err
			}
		}
	}
	if unfinished > 0 {
		return errEnded
	}
	return nil
}

// pingInterval is the interval of keep-alive comments.
const pingInterval = 15 * time.Second

// errEnded is the error for an answer that the engine ended early.
var errEnded = errors.New("the engine has ended an answer early")

// take counts a token and passes it on.
func (j *work) take(x step, each func(choice int, t batching.Token) error) error {
	if p := x.token.Prompt; len(p) > 0 {
		p = slices.Clone(p)
		p[0].ID = j.requests[x.prompt].Prompt[0] // the entry is zero; set its ID
		j.prompt[x.prompt] = p
	}
	switch x.token.Finish {
	case "":
	case generate.FinishError, generate.FinishCancelled:
		return errEnded
	default:
		if x.token.Answer == 0 {
			j.usage.Details.Cached += x.token.Times.Cached
		}
		if j.finish == "" {
			j.times = x.token.Times
		}
		j.finish = x.token.Finish
	}
	j.usage.Answer++
	j.usage.Total++
	return each(x.prompt*j.wish.n+x.token.Answer, x.token)
}

// log records the token counts and times of the request in the log.
func (j *work) log() {
	j.call.Note(
		slog.Int("prompt_tokens", j.usage.Prompt), slog.Int("cached_tokens", j.usage.Details.Cached), slog.Int("answer_tokens", j.usage.Answer),
		slog.String("finish", string(j.finish)),
		slog.Duration("queued", j.times.Queued), slog.Duration("prefill", j.times.Prefill), slog.Duration("decode", j.times.Decode),
	)
}

// reason returns OpenAI's finish_reason of an answer.
func reason(f generate.Finish) string {
	if f == generate.FinishLength {
		return "length"
	}
	return "stop"
}

package metrics

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/serve/batching"
)

// Watch wraps submit to count its requests. Refused requests do not count.
func (m *Metrics) Watch(submit batching.Submit) batching.Submit {
	return func(ctx context.Context, r batching.Request) iter.Seq2[batching.Token, error] {
		return func(yield func(batching.Token, error) bool) {
			w := watched{metrics: m, request: r, answers: make([]answer, len(r.Answers))}
			defer w.end(ctx)
			for t, err := range submit(ctx, r) {
				if err != nil {
					w.err = err
				} else {
					w.countToken(t)
				}
				if !yield(t, err) {
					return
				}
			}
		}
	}
}

// vLLM's finish reasons.
const (
	stopped = "stop"
	cut     = "length"
	aborted = "abort"
	failed  = "error"
)

var reasons = []string{stopped, cut, aborted, failed}

// refusals are the errors of requests that are not accepted.
var refusals = []error{batching.ErrQueue, batching.ErrClosed, batching.ErrRequest}

// watched is a request in progress.
type watched struct {
	metrics *Metrics
	request batching.Request
	answers []answer
	begun   bool // the first token has arrived
	err     error
}

// answer holds the counts of an answer.
type answer struct {
	tokens int
	last   time.Time // time of the latest token
	ended  bool
}

func (w *watched) countToken(t batching.Token) {
	m, now := w.metrics, time.Now()
	if !w.begun {
		w.begun = true
		m.promptTokens.Add(float64(len(w.request.Prompt)))
		m.prompts.Observe(float64(len(w.request.Prompt)))
	}
	if t.Answer < 0 || t.Answer >= len(w.answers) {
		return
	}
	a := &w.answers[t.Answer]
	if a.tokens++; a.tokens > 1 {
		observe(m.nextToken, now.Sub(a.last))
	}
	a.last = now
	m.answerTokens.Inc()
	if t.Finish != "" {
		w.finish(a, t)
	}
}

// finish records an answer at its last token.
func (w *watched) finish(a *answer, t batching.Token) {
	m, d := w.metrics, t.Times
	a.ended = true
	m.finished[reasonOf(t.Finish)].Inc()
	observe(m.firstToken, d.Queued+d.Prefill)
	observe(m.whole, d.Queued+d.Prefill+d.Decode)
	observe(m.queued, d.Queued)
	observe(m.prefilled, d.Prefill)
	observe(m.decoding, d.Decode)
	m.answers.Observe(float64(a.tokens))
	if a.tokens > 1 {
		observe(m.perToken, d.Decode/time.Duration(a.tokens-1))
	}
}

// end counts the answers without a last token, which were canceled or have failed.
func (w *watched) end(ctx context.Context) {
	if !w.begun && slices.ContainsFunc(refusals, func(no error) bool { return errors.Is(w.err, no) }) {
		return
	}
	reason := aborted
	if w.err != nil && ctx.Err() == nil && !errors.Is(w.err, context.Canceled) {
		reason = failed
	}
	for i := range w.answers {
		if a := &w.answers[i]; !a.ended {
			w.metrics.finished[reason].Inc()
		}
	}
}

// reasonOf returns vLLM's finish reason.
func reasonOf(f generate.Finish) string {
	switch f {
	case generate.FinishLength:
		return cut
	case generate.FinishCancelled:
		return aborted
	case generate.FinishError:
		return failed
	}
	return stopped
}

func observe(o prometheus.Observer, d time.Duration) { o.Observe(d.Seconds()) }

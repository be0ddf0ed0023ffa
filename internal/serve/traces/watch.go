package traces

import (
	"context"
	"errors"
	"iter"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"

	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/serve/batching"
)

// Watch wraps submit: each request adds its token counts to the span of the HTTP request, and child
// spans for queueing, prefill and decoding.
func (t *Traces) Watch(submit batching.Submit) batching.Submit {
	return func(ctx context.Context, r batching.Request) iter.Seq2[batching.Token, error] {
		q, ok := ctx.Value(key{}).(*request)
		if !ok {
			return submit(ctx, r)
		}
		return func(yield func(batching.Token, error) bool) {
			w := watched{traces: t, request: q, came: time.Now()}
			defer w.end(ctx, r)
			for token, err := range submit(ctx, r) {
				if err != nil {
					w.err = err
				} else {
					w.countToken(token)
				}
				if !yield(token, err) {
					return
				}
			}
		}
	}
}

// watched is an engine request in progress.
type watched struct {
	traces   *Traces
	request  *request
	came     time.Time
	first    time.Time // time of the first token
	tokens   int
	finished []string
	times    batching.Times // of the last answer to end
	err      error
}

func (w *watched) countToken(t batching.Token) {
	if w.tokens++; w.tokens == 1 {
		w.first = time.Now()
	}
	if t.Finish != "" {
		w.finished, w.times = append(w.finished, reasonOf(t.Finish)), t.Times
	}
}

// end records the result, also of a request that was canceled or has failed.
func (w *watched) end(ctx context.Context, r batching.Request) {
	q := w.request
	q.mu.Lock()
	if r.Adapter != "" {
		q.model = r.Adapter
	}
	if w.tokens > 0 {
		q.prompt += len(r.Prompt)
	}
	q.answer += w.tokens
	q.finished = append(q.finished, w.finished...)
	if r.Lease != nil {
		q.span.SetAttributes(attribute.String("lorafuse.adapter.version", r.Lease.Version().Digest().Short()))
	}
	if w.err != nil && ctx.Err() == nil && !errors.Is(w.err, context.Canceled) {
		q.span.RecordError(w.err)
		q.span.SetStatus(codes.Error, "")
	}
	q.mu.Unlock()
	switch {
	case len(w.finished) > 0:
		at := w.traces.phase(ctx, "queue", w.came, w.times.Queued)
		at = w.traces.phase(ctx, "prefill", at, w.times.Prefill)
		w.traces.phase(ctx, "decode", at, w.times.Decode)
	case w.tokens > 0: // only the time of the first token is known
		w.traces.phase(ctx, "decode", w.first, time.Since(w.first))
	default:
		w.traces.phase(ctx, "queue", w.came, time.Since(w.came))
	}
}

// reasonOf returns OpenAI's finish_reason of an answer.
func reasonOf(f generate.Finish) string {
	switch f {
	case generate.FinishLength:
		return "length"
	case generate.FinishCancelled, generate.FinishError:
		return "error"
	}
	return "stop"
}

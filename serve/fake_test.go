package serve_test

import (
	"context"
	"encoding/json"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/serve/batching"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/serve"
	"github.com/lorafuse/lorafuse/tokenizer"
	"github.com/lorafuse/lorafuse/tokenizer/chat"
)

const (
	folder   = "../testdata/lm/llama/model"
	adapters = "../testdata/lm/llama/adapters"
)

// engine answers with texts that a test gives it, by logits that make them the most
// likely: all else is as with a model.
type engine struct {
	t        testing.TB
	model    *model.Model
	words    *tokenizer.Tokenizer
	registry *lora.Registry
	root     string // of its adapters

	answers []string      // one for each answer to a prompt, then the end of the text
	refuse  error         // in place of all
	broken  error         // behind the first answer's third token
	gate    chan struct{} // nil, or each token waits for it

	mu       sync.Mutex
	requests []batching.Request
	left     chan struct{} // closed when a request ends before its answers do
}

func (e *engine) Adapters() *lora.Registry { return e.registry }

// Submit implements serve.Engine.
func (e *engine) Submit(ctx context.Context, r batching.Request) iter.Seq2[batching.Token, error] {
	return func(yield func(batching.Token, error) bool) {
		e.mu.Lock()
		e.requests = append(e.requests, r)
		e.mu.Unlock()
		if e.refuse != nil {
			yield(batching.Token{}, e.refuse)
			return
		}
		if err := e.answer(ctx, r, yield); err != nil {
			if e.left != nil {
				close(e.left)
			}
			yield(batching.Token{}, err)
		}
	}
}

func (e *engine) answer(ctx context.Context, r batching.Request, yield func(batching.Token, error) bool) error {
	vocab, eos := e.model.Config.VocabSize, e.model.Config.EOS
	for i, o := range r.Answers {
		a, err := generate.NewAnswer(vocab, eos, 500-len(r.Prompt), r.Prompt, o)
		if err != nil {
			return err
		}
		ids, err := e.words.Encode(e.answers[i%len(e.answers)], false)
		if err != nil {
			return err
		}
		for n := 0; a.Finish() == ""; n++ {
			if e.gate != nil {
				select {
				case <-e.gate:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			if e.broken != nil && n == 3 {
				return e.broken
			}
			next := eos[0]
			if n < len(ids) {
				next = ids[n]
			}
			logits := logitsFor(vocab, next)
			t, err := a.Next(logits)
			if err != nil {
				return err
			}
			out := batching.Token{Token: t, Answer: i, Finish: a.Finish()}
			if r.PromptLogprobs && i == 0 && n == 0 {
				out.Prompt = make([]generate.Logprobs, len(r.Prompt))
				for j := 1; j < len(r.Prompt); j++ {
					if out.Prompt[j], err = generate.NewLogprobs(logitsFor(vocab, r.Prompt[j]), r.Prompt[j], o.TopLogprobs); err != nil {
						return err
					}
				}
			}
			if out.Finish != "" {
				out.Times = batching.Times{Cached: 2, Queued: time.Millisecond}
			}
			if !yield(out, nil) {
				return context.Canceled
			}
		}
	}
	return nil
}

// logitsFor makes next the most likely, then the ids from 40 down.
func logitsFor(vocab int, next int32) []float32 {
	logits := make([]float32, vocab)
	for i := range logits {
		logits[i] = -float32(i)
		if i <= 40 {
			logits[i] = float32(i - 40)
		}
	}
	logits[next] = 2
	return logits
}

// last is the last request that came.
func (e *engine) last() batching.Request {
	e.mu.Lock()
	defer e.mu.Unlock()
	require.NotEmpty(e.t, e.requests)
	return e.requests[len(e.requests)-1]
}

// newEngine answers each prompt with the same texts.
func newEngine(t testing.TB, answers ...string) *engine {
	t.Helper()
	m, err := model.Open(folder)
	require.NoError(t, err)
	words, err := tokenizer.Load(folder)
	require.NoError(t, err)
	root := t.TempDir()
	require.NoError(t, os.CopyFS(root, os.DirFS(adapters)))
	r, err := lora.NewRegistry(m, m.Config.ModelType, m.Modules(), lora.RegistryOptions{Root: root, KeepVersions: 2})
	require.NoError(t, err)
	t.Cleanup(func() {
		r.Close()
		require.NoError(t, m.Close())
	})
	return &engine{t: t, model: m, words: words, registry: r, root: root, answers: answers}
}

// serving is a server with an engine, and changed options.
func serving(t testing.TB, e *engine, edits ...func(*serve.Options)) *serve.Server {
	t.Helper()
	chatml, err := os.ReadFile("../testdata/tokenizers/chat/chatml.jinja")
	require.NoError(t, err)
	template, err := chat.New(string(chatml), e.words.SpecialTokens())
	require.NoError(t, err)
	o := serve.Options{Engine: e, Model: e.model, Name: "base", Template: template, Logger: slog.New(slog.DiscardHandler), Version: "1.2.3"}
	for _, edit := range edits {
		edit(&o)
	}
	s, err := serve.New(o)
	require.NoError(t, err)
	return s
}

// request is one that JSON is sent with.
func request(method, path, body string) *http.Request {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	r.Header.Set("X-Request-Id", "me")
	return r
}

// ask gives the status and the body of an answer, in which times are 0.
func ask(t testing.TB, s http.Handler, method, path, body string) (int, string) {
	t.Helper()
	return send(t, s, request(method, path, body))
}

var created = regexp.MustCompile(`"created":\d+`)

func send(t testing.TB, s http.Handler, r *http.Request) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	b, err := io.ReadAll(w.Result().Body)
	require.NoError(t, err)
	return w.Code, created.ReplaceAllString(string(b), `"created":0`)
}

// reply decodes the body of an answer that must be one.
func reply[T any](t testing.TB, s http.Handler, path, body string) (v T) {
	t.Helper()
	code, text := ask(t, s, http.MethodPost, path, body)
	require.Equal(t, http.StatusOK, code, text)
	require.NoError(t, json.Unmarshal([]byte(text), &v), text)
	return v
}

func recorded(s http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

func template(t testing.TB, source string) *chat.Template {
	t.Helper()
	x, err := chat.New(source, nil)
	require.NoError(t, err)
	return x
}

package serve_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/serve/tuning"
	"github.com/lorafuse/lorafuse/internal/train"
	records "github.com/lorafuse/lorafuse/internal/train/events"
	"github.com/lorafuse/lorafuse/serve"
	"github.com/lorafuse/lorafuse/tokenizer/chat"
	"github.com/lorafuse/lorafuse/train/config"
)

// trainer makes runs of two steps an epoch that learn nothing.
type trainer struct{ gate chan struct{} } // nil, or each step waits for it

type trainingRun struct {
	*trainer
	config *config.Config
	o      train.Observer
}

func (x *trainer) New(_ context.Context, c *config.Config, o train.Observer) (tuning.Run, error) {
	return &trainingRun{x, c, o}, os.MkdirAll(c.OutputDir, 0o777)
}

func (*trainingRun) Close() {}

func (r *trainingRun) Train(ctx context.Context) (*train.Summary, error) {
	adapter := filepath.Join(r.config.OutputDir, train.AdapterDir)
	if err := os.CopyFS(adapter, os.DirFS(filepath.Join(adapters, "lora"))); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	steps := 2 * int(r.config.Epochs)
	for step := 1; step <= steps; step++ {
		if r.gate != nil {
			select {
			case <-r.gate:
			case <-ctx.Done():
				return nil, train.ErrInterrupted
			}
		}
		r.o.Step(train.Report{Step: step, Steps: steps, Loss: 1 / float64(step), LearningRate: 0.5, GradNorm: 2, TokensPerSecond: 100, Eval: new(0.25)})
		if step < steps && r.o.Save(step) {
			r.o.Saved(step, adapter)
		}
	}
	m, err := records.OpenMetrics(filepath.Join(r.config.OutputDir, "metrics.jsonl"), records.Fresh)
	if err != nil {
		return nil, err
	}
	return &train.Summary{Steps: steps, Tokens: 77, Adapter: adapter}, errors.Join(m.Write(records.Record{Step: 1}), m.Close())
}

// tunes is a server that trains as x does.
func tunes(t testing.TB, x *trainer, edits ...func(*serve.Options)) *serve.Server {
	t.Helper()
	return tunesIn(t, t.TempDir(), x, edits...)
}

// tunesIn is tunes in a folder.
func tunesIn(t testing.TB, dir string, x *trainer, edits ...func(*serve.Options)) *serve.Server {
	t.Helper()
	e := newEngine(t, "x")
	chatml, err := os.ReadFile("../testdata/tokenizers/chat/chatml.jinja")
	require.NoError(t, err)
	template, err := chat.New(string(chatml), e.words.SpecialTokens())
	require.NoError(t, err)
	service, err := tuning.Open(tuning.Options{
		Dir: dir, Name: "base", Model: e.model, MaxLength: 64, MaxFile: 4096,
		Data:   data.Options{Tokenizer: e.words, Template: data.Chat(template)},
		Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	service.Start(e.registry, x, 1)
	t.Cleanup(func() { require.NoError(t, service.Close()) })
	return serving(t, e, append([]func(*serve.Options){func(o *serve.Options) { o.Tuning = service }}, edits...)...)
}

// sendFile sends a file, with fields before it and behind it.
func sendFile(t testing.TB, s http.Handler, name, text string, fields ...[2]string) *httptest.ResponseRecorder {
	t.Helper()
	return recorded(s, fileRequest(t, name, text, fields...))
}

func fileRequest(t testing.TB, name, text string, fields ...[2]string) *http.Request {
	t.Helper()
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	for i, f := range fields {
		if i == len(fields)/2 && name != "" {
			part, err := w.CreateFormFile("file", name)
			require.NoError(t, err)
			_, err = io.WriteString(part, text)
			require.NoError(t, err)
		}
		require.NoError(t, w.WriteField(f[0], f[1]))
	}
	require.NoError(t, w.Close())
	r := httptest.NewRequest(http.MethodPost, "/v1/files", &body)
	r.Header.Set("Content-Type", w.FormDataContentType())
	return r
}

const chats = `{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}` + "\n"

// uploaded is the id of a file for fine-tuning.
func uploaded(t testing.TB, s http.Handler, text string) string {
	t.Helper()
	w := sendFile(t, s, "rows.jsonl", text, [2]string{"purpose", "fine-tune"})
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	return decoded(t, w.Body.String())["id"].(string)
}

// uploadedBy is uploaded with a key.
func uploadedBy(t testing.TB, s http.Handler, key string) string {
	t.Helper()
	r := fileRequest(t, "rows.jsonl", chats, [2]string{"purpose", "fine-tune"})
	r.Header.Set("Authorization", "Bearer "+key)
	w := recorded(s, r)
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	return decoded(t, w.Body.String())["id"].(string)
}

const (
	waitMost = time.Minute
	waitStep = time.Millisecond
)

// ended waits for the end of a job.
func ended(t testing.TB, s http.Handler, id string) map[string]any {
	t.Helper()
	for {
		code, text := ask(t, s, "GET", "/v1/fine_tuning/jobs/"+id, "")
		require.Equal(t, http.StatusOK, code, text)
		if j := decoded(t, text); j["finished_at"] != nil {
			return j
		}
		time.Sleep(time.Millisecond)
	}
}

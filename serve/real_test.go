package serve_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/serve/batching"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/serve"
)

// real is a server with an engine that computes, and adapters of all kinds.
func real(t testing.TB) (*engine, *serve.Server) {
	t.Helper()
	e, _, s := realEngine(t)
	return e, s
}

func realEngine(t testing.TB) (*engine, *batching.Engine, *serve.Server) {
	t.Helper()
	e := newEngine(t)
	dev := testdevice.Open(t, backend.Options{Threads: 1, BatchInvariant: true})
	b, err := batching.New(context.Background(), dev, e.model, batching.Options{Adapters: lora.RegistryOptions{Root: e.root}})
	require.NoError(t, err)
	t.Cleanup(b.Close)
	return e, b, serving(t, e, func(o *serve.Options) { o.Engine, o.Name, o.MaxLength = b, "small", b.MaxLength() })
}

// What openai-python sent when scripts/check_openai.py was run with --record is answered
// as it was.
func TestRecordedClients(t *testing.T) {
	_, s := real(t)
	file, err := os.Open("testdata/openai-python-3.57.0.jsonl")
	require.NoError(t, err)
	defer file.Close()
	n := 0
	for lines := bufio.NewScanner(file); lines.Scan(); n++ {
		var line struct {
			Method, Path string
			Headers      map[string]string
			Body         json.RawMessage
			Status       int
		}
		require.NoError(t, json.Unmarshal(lines.Bytes(), &line))
		r := httptest.NewRequest(line.Method, line.Path, bytes.NewReader(line.Body))
		for k, v := range line.Headers {
			r.Header.Set(k, v)
		}
		w := recorded(s, r)
		require.Equal(t, line.Status, w.Code, "%s\n%s", lines.Text(), w.Body)
		if strings.Contains(string(line.Body), `"stream": true`) && w.Code == http.StatusOK {
			assert.True(t, strings.HasSuffix(w.Body.String(), "data: [DONE]\n\n"), w.Body)
			assert.NotContains(t, w.Body.String(), `"error"`)
			continue
		}
		assert.True(t, json.Valid(w.Body.Bytes()), w.Body)
	}
	assert.Greater(t, n, 30)
}

// Requests for many adapters at the same time get what each adapter answers alone.
func TestManyAdapters(t *testing.T) {
	e, s := real(t)
	h := httptest.NewServer(s)
	defer h.Close()
	ids := []int32{60, 61, 62, 63, 64}
	want := map[string]string{}
	for _, name := range []string{"small", "lora", "dora", "rslora_all", "saved_head"} {
		var state *lora.State
		if name != "small" {
			var err error
			state, err = lora.LoadState(adapters+"/"+name, e.model, e.model.Config.ModelType, e.model.Modules())
			require.NoError(t, err)
		}
		g, err := generate.New(context.Background(), testdevice.Open(t, backend.Options{Threads: 1, BatchInvariant: true}), e.model, state, generate.Options{})
		require.NoError(t, err)
		r, err := g.Generate(context.Background(), ids, generate.GenerateOptions{MaxNewTokens: 20, Decoder: e.words.NewStream(true)}, nil)
		require.NoError(t, err)
		g.Close()
		want[name] = r.Text
	}
	var wg sync.WaitGroup
	for i := range 25 {
		for name, text := range want {
			wg.Go(func() {
				stream := i%2 == 0
				resp, err := http.Post(h.URL+"/v1/completions", "application/json", strings.NewReader(
					fmt.Sprintf(`{"model":%q,"prompt":[60,61,62,63,64],"max_tokens":20,"temperature":0,"stream":%v}`, name, stream)))
				if !assert.NoError(t, err) {
					return
				}
				defer resp.Body.Close()
				var got strings.Builder
				for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
					data := strings.TrimPrefix(lines.Text(), "data: ")
					if data == "" || data == "[DONE]" {
						continue
					}
					var x completion
					if assert.NoError(t, json.Unmarshal([]byte(data), &x), data) && assert.Len(t, x.Choices, 1, data) {
						got.WriteString(x.Choices[0].Text)
					}
				}
				assert.Equal(t, text, got.String(), "%q, stream %v", name, stream)
			})
		}
	}
	wg.Wait()
	http.DefaultClient.CloseIdleConnections()
}

// Clients that go at any moment leave nothing behind, and disturb nobody, while adapters
// are swapped.
func TestClientsComeAndGo(t *testing.T) {
	_, b, s := realEngine(t)
	h := httptest.NewServer(s)
	defer h.Close()
	const staying = `{"model":"lora","prompt":[60,61,62],"max_tokens":20,"temperature":0}`
	_, want := ask(t, s, "POST", "/v1/completions", staying)
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			body := fmt.Sprintf(`{"model":%q,"prompt":[%d,61,62],"n":2,"max_tokens":100,"ignore_eos":true,"stream":true}`, []string{"lora", "dora", "swapped", "small"}[i%4], 60+i)
			r, err := http.NewRequestWithContext(ctx, "POST", h.URL+"/v1/completions", strings.NewReader(body))
			if !assert.NoError(t, err) {
				return
			}
			r.Header.Set("Content-Type", "application/json")
			resp, err := http.DefaultClient.Do(r)
			if !assert.NoError(t, err) {
				return
			}
			defer resp.Body.Close()
			lines := bufio.NewScanner(resp.Body)
			for range i {
				lines.Scan()
			}
		})
		wg.Go(func() {
			dir := adapters + "/" + []string{"lora", "rslora_all", "patterns"}[i%3]
			_, err := b.Adapters().Load(context.Background(), "swapped", dir)
			assert.NoError(t, err)
			r := request("POST", "/v1/completions", staying)
			w := recorded(s, r)
			assert.Equal(t, http.StatusOK, w.Code)
			assert.Equal(t, textOf(want), textOf(w.Body.String()))
		})
	}
	wg.Wait()
	http.DefaultClient.CloseIdleConnections()
	h.Close() // waits for the last requests
	stats := b.Stats()
	assert.Zero(t, stats.Pages.Used)
	assert.Empty(t, stats.Running)
	assert.Empty(t, stats.Waiting)
	for _, info := range b.Adapters().List() {
		for _, v := range info.Versions {
			assert.Zero(t, v.Leases, info.Name)
		}
	}
}

// textOf is the text of a completion.
func textOf(body string) string {
	var x completion
	if err := json.Unmarshal([]byte(body), &x); err != nil || len(x.Choices) != 1 {
		return "no completion: " + body
	}
	return x.Choices[0].Text
}

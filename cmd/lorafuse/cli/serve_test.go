package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
)

// running is a server that a command line has started.
type running struct {
	t      *testing.T
	url    string
	client *http.Client
	cancel context.CancelFunc
	ended  chan int // gets the exit status

	mu  sync.Mutex
	log bytes.Buffer
	up  chan string // gets the address
}

// startServe runs `serve` on a free port until the test ends.
func startServe(t *testing.T, args ...string) *running {
	t.Helper()
	r, err := openServe(args...)
	t.Cleanup(func() { r.stop() })
	require.NoError(t, err)
	r.t = t
	return r
}

// openServe runs `serve` on a free port until it is stopped.
func openServe(args ...string) (*running, error) {
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{client: &http.Client{Transport: &http.Transport{}}, cancel: cancel, ended: make(chan int, 1), up: make(chan string, 1)}
	go func() {
		r.ended <- Run(ctx, append([]string{"serve", "--listen", "127.0.0.1:0", "--threads", "1"}, args...), strings.NewReader(""), io.Discard, r)
	}()
	select {
	case r.url = <-r.up:
		return r, nil
	case status := <-r.ended:
		r.ended <- status
		return r, fmt.Errorf("the server has not started: status %d: %s", status, r.logged())
	}
}

var servingAt = regexp.MustCompile(`serving"? "?url"?[=:]"?(https?://[0-9.:]+)`)

// Write takes the log.
func (r *running) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log.Write(p)
	if m := servingAt.FindSubmatch(bytes.ReplaceAll(p, []byte(`serving","`), []byte(`serving "`))); m != nil {
		r.up <- string(m[1])
	}
	return len(p), nil
}

func (r *running) logged() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.String()
}

// stop asks the server to end, and gives its status.
func (r *running) stop() int {
	r.cancel()
	status := <-r.ended
	r.ended <- status
	r.client.CloseIdleConnections()
	return status
}

// ask sends a request, with a body where there is one, and gives status and answer.
func (r *running) ask(path, body string, headers ...string) (int, string) {
	r.t.Helper()
	method, in := http.MethodGet, io.Reader(nil)
	if body != "" {
		method, in = http.MethodPost, strings.NewReader(body)
	}
	q, err := http.NewRequestWithContext(r.t.Context(), method, r.url+path, in)
	require.NoError(r.t, err)
	q.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		q.Header.Set(headers[i], headers[i+1])
	}
	a, err := r.client.Do(q)
	require.NoError(r.t, err)
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	require.NoError(r.t, err)
	return a.StatusCode, string(text)
}

// get is ask of what must be there.
func (r *running) get(path, body string, headers ...string) string {
	r.t.Helper()
	status, text := r.ask(path, body, headers...)
	require.Equal(r.t, http.StatusOK, status, text)
	return text
}

// completion is what is read of an answer.
type completion struct {
	Model   string
	Choices []struct {
		Text    string
		Message struct{ Content string }
		Finish  string `json:"finish_reason"`
	}
	Usage struct {
		Answer int `json:"completion_tokens"`
	}
}

// alone is what `generate` answers.
func alone(t *testing.T, prompt, adapter string) string {
	args := []string{"generate", "--model", llama, "--prompt", prompt, "--json", "-n", "12", "--temperature", "0", "--threads", "1"}
	if adapter != "" {
		args = append(args, "--adapter", adapter)
	}
	return decode[struct{ Text string }](t, succeed(t, args...)).Text
}

// The model and its adapters answer what each of them answers alone, all at once.
func TestServe(t *testing.T) {
	r := startServe(t, "--model", llama, "--name", "base", "--adapter", "a="+llamaLoRA, "--adapter", "b="+goldens+"/lm/llama/adapters/dora",
		"--chat-template", goldens+"/tokenizers/chat/chatml.jinja", "--max-texts", "4", "--max-batch-tokens", "32", "--cache-tokens", "1024", "--max-length", "100", "--backend", backend.CPU, "--devices", "all")
	assert.Equal(t, "", r.get("/health", ""))
	assert.Equal(t, "", r.get("/ready", ""))
	for _, line := range []string{"model=base", "adapters=\"[a b]\"", "cache_tokens=1024", "max_length=100", "devices=[cpu:0]"} {
		assert.Contains(t, r.logged(), line)
	}
	models := decode[struct{ Data []struct{ ID, Parent string } }](t, r.get("/v1/models", ""))
	assert.Equal(t, []struct{ ID, Parent string }{{"base", ""}, {"a", "base"}, {"b", "base"}}, models.Data)

	const prompt = "Once upon a time"
	want := map[string]string{"base": alone(t, prompt, ""), "a": alone(t, prompt, llamaLoRA), "b": alone(t, prompt, goldens+"/lm/llama/adapters/dora")}
	require.NotEqual(t, want["base"], want["a"])
	var wg sync.WaitGroup
	for range 4 {
		for name, text := range want {
			wg.Go(func() {
				_, raw := r.ask("/v1/completions", fmt.Sprintf(`{"model": %q, "prompt": %q, "max_tokens": 12, "temperature": 0}`, name, prompt))
				var c completion
				if assert.NoError(t, json.Unmarshal([]byte(raw), &c)) && assert.Len(t, c.Choices, 1, raw) {
					assert.Equal(t, text, c.Choices[0].Text, name)
					assert.Equal(t, name, c.Model)
				}
			})
		}
	}
	wg.Wait()
	c := decode[completion](t, r.get("/v1/chat/completions", `{"model": "a", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 5, "ignore_eos": true}`))
	require.Len(t, c.Choices, 1)
	assert.Equal(t, 5, c.Usage.Answer)
	assert.Equal(t, "length", c.Choices[0].Finish)

	p := expfmt.NewTextParser(model.LegacyValidation)
	page, err := p.TextToMetricFamilies(strings.NewReader(r.get("/metrics", "")))
	require.NoError(t, err)
	ended := 0.
	for _, m := range page["vllm:request_success_total"].GetMetric() {
		ended += m.GetCounter().GetValue()
	}
	assert.Equal(t, 13., ended)
	assert.EqualValues(t, 13, page["vllm:request_prompt_tokens"].GetMetric()[0].GetHistogram().GetSampleCount())
	assert.NotZero(t, page["vllm:iteration_tokens_total"].GetMetric()[0].GetHistogram().GetSampleCount())
	info := page["vllm:lora_requests_info"].GetMetric()
	require.Len(t, info, 1)
	assert.Contains(t, fmt.Sprint(info[0].GetLabel()), `"a,b"`)

	assert.Equal(t, ExitOK, r.stop())
	_, err = net.DialTimeout("tcp", strings.TrimPrefix(r.url, "http://"), time.Second)
	assert.Error(t, err, "nobody listens any more")
	assert.Contains(t, r.logged(), "msg=ended")
}

// A stream that is under way when the server is to end comes to its end.
func TestServeEndsStreams(t *testing.T) {
	r := startServe(t, "--model", llama)
	q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+"/v1/completions", strings.NewReader(`{"prompt": "Once", "max_tokens": 100, "n": 64, "ignore_eos": true, "stream": true}`))
	require.NoError(t, err)
	q.Header.Set("Content-Type", "application/json")
	a, err := r.client.Do(q)
	require.NoError(t, err)
	defer a.Body.Close()
	require.Equal(t, http.StatusOK, a.StatusCode)
	first := make([]byte, 10)
	_, err = io.ReadFull(a.Body, first)
	require.NoError(t, err)
	r.cancel()
	rest, err := io.ReadAll(a.Body)
	require.NoError(t, err)
	assert.Equal(t, 64, strings.Count(string(rest), `"finish_reason":"length"`))
	assert.True(t, strings.HasSuffix(string(rest), "data: [DONE]\n\n"))
	assert.Equal(t, ExitOK, r.stop())
}

// Adapters in a folder are there by their names, and can be loaded and unloaded by those
// who may.
func TestServeAdaptersDir(t *testing.T) {
	l := newLab(t)
	l.copy(llamaLoRA, "adapters/sql-v1")
	l.copy(goldens+"/lm/llama/adapters/dora", "adapters/sql-v2")
	warned := l.copy(llamaLoRA, "warned")
	l.setJSON(warned+"/adapter_config.json", map[string]any{"rank_pattern": map[string]int{"nothing": 4}})
	t.Setenv(envKey, "of-users")
	keys := l.file("admin.txt", "\nof-admins\nof-others\n")
	r := startServe(t, "--model", llama, "--adapter", "warned="+warned, "--adapters-dir", l.path("adapters"), "--allow-adapter-updates", "--admin-key-file", keys, "--max-adapters", "1", "--adapter-host-memory", "1GiB", "--log", "json")
	user, admin := "Bearer of-users", "Bearer of-admins"

	status, text := r.ask("/v1/models", "")
	assert.Equal(t, http.StatusUnauthorized, status, text)
	r.get("/health", "")
	assert.Contains(t, r.get("/metrics", ""), `vllm:lora_requests_info{max_lora="1",running_lora_adapters="",waiting_lora_adapters=""}`)
	for _, name := range []string{"sql-v1", "sql-v2"} {
		r.get("/v1/completions", `{"model": "`+name+`", "prompt": "Once", "max_tokens": 3}`, "Authorization", user)
		assert.Contains(t, r.get("/metrics", ""), `{max_lora="1",running_lora_adapters="`+name+`",waiting_lora_adapters=""}`)
	}
	load := `{"lora_name": "sql", "lora_path": "sql-v1"}`
	status, text = r.ask("/v1/load_lora_adapter", load, "Authorization", user)
	assert.Contains(t, []int{http.StatusUnauthorized, http.StatusForbidden}, status, text)
	assert.Equal(t, "Success: LoRA adapter 'sql' added successfully.", r.get("/v1/load_lora_adapter", load, "Authorization", admin))
	r.get("/v1/completions", `{"model": "sql", "prompt": "Once", "max_tokens": 3}`, "Authorization", user)
	assert.Equal(t, ExitOK, r.stop())
	assert.Regexp(t, `"msg":"note     adapter warned: .*nothing`, r.logged())
	for line := range strings.Lines(r.logged()) {
		assert.True(t, json.Valid([]byte(line)), line)
	}
}

// A collector gets a span for each request, at the end of the server at the latest.
func TestServeTraces(t *testing.T) {
	var mu sync.Mutex
	var said bytes.Buffer
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		io.Copy(&said, r.Body)
	}))
	defer collector.Close()
	r := startServe(t, "--model", llama, "--adapter", "a="+llamaLoRA, "--trace-url", collector.URL)
	r.get("/v1/completions", `{"model": "a", "prompt": "Once", "max_tokens": 3, "ignore_eos": true}`, "Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	r.get("/health", "")
	assert.Equal(t, ExitOK, r.stop())
	mu.Lock()
	defer mu.Unlock()
	assert.Equal(t, 4, strings.Count(said.String(), `"traceId":"4bf92f3577b34da6a3ce929d0e0e4736"`))
	for _, want := range []string{
		`"parentSpanId":"00f067aa0ba902b7"`, `"name":"prefill"`, `{"key":"gen_ai.request.model","value":{"stringValue":"a"}}`,
		`{"key":"gen_ai.usage.output_tokens","value":{"intValue":"3"}}`, `{"key":"lorafuse.adapter.version"`,
	} {
		assert.Contains(t, said.String(), want)
	}
	assert.NotContains(t, said.String(), "health")
}

// A model that makes vectors serves these alone.
func TestServeVectors(t *testing.T) {
	r := startServe(t, "--model", encoders+"/bert")
	body, err := json.Marshal(map[string]any{"input": embedTexts(t), "encoding_format": "float"})
	require.NoError(t, err)
	var got [][]float32
	for _, d := range decode[struct {
		Data []struct{ Embedding []float32 }
	}](t, r.get("/v1/embeddings", string(body))).Data {
		got = append(got, d.Embedding)
	}
	requireVectors(t, vectorsOf(t, encoders+"/bert/golden.safetensors", "embedding"), got)
	assert.Contains(t, r.get("/metrics", ""), `vllm:e2e_request_latency_seconds_count{engine="0",model_name="bert"} 1`)
	status, text := r.ask("/v1/completions", `{"prompt": "Once"}`)
	assert.Equal(t, http.StatusBadRequest, status, text)
	assert.Equal(t, ExitOK, r.stop())
}

// The page about serving names every flag, and no others.
func TestServePage(t *testing.T) {
	page := readText(t, "../../../docs/serve.md")
	_, table, ok := strings.Cut(page, "\n## Flags\n")
	require.True(t, ok)
	table, _, ok = strings.Cut(table, "\n## ")
	require.True(t, ok)
	flags, named := (&app{}).serve().Flags(), map[string]bool{}
	for _, m := range regexp.MustCompile("--([a-z][a-z-]*)").FindAllStringSubmatch(table, -1) {
		name := m[1]
		if f := flags.Lookup(name); f != nil { // perhaps under its former name
			name = f.Name
		}
		named[name] = true
	}
	all := map[string]bool{}
	flags.VisitAll(func(f *pflag.Flag) { all[f.Name] = true })
	assert.Equal(t, all, named)
}

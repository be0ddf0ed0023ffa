//go:build unix

package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// prey is a server in a process of its own, to be treated badly.
type prey struct {
	*running
	addr string
}

// newPrey starts one. Its log goes on being read.
func newPrey(t *testing.T, args ...string) *prey {
	c, _ := program(t, append([]string{"serve", "--model", llama, "--threads", "1", "--listen", "127.0.0.1:0"}, args...)...)
	r := &running{t: t, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4}}, up: make(chan string, 1)}
	c.Stderr = r
	c.Env = append(c.Env, "GOGC=25") // what is not in use any more is seen soon
	require.NoError(t, c.Start())
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	t.Cleanup(func() {
		r.client.CloseIdleConnections()
		c.Process.Signal(syscall.SIGTERM)
		assert.NoError(t, <-ended, "it ends as it should")
		if t.Failed() {
			t.Log(tail(r.logged(), 4000))
		}
	})
	select {
	case r.url = <-r.up:
	case err := <-ended:
		ended <- err
		require.NoError(t, err, r.logged())
	}
	return &prey{r, strings.TrimPrefix(r.url, "http://")}
}

func tail(s string, n int) string { return s[max(0, len(s)-n):] }

// state is what the server has in use.
type state struct{ goroutines, files, heap, pages, busy float64 }

func (p *prey) page() map[string]*dto.MetricFamily {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	page, err := parser.TextToMetricFamilies(strings.NewReader(p.get("/metrics", "")))
	require.NoError(p.t, err)
	return page
}

func (p *prey) state() state {
	page := p.page()
	of := func(name string) float64 {
		if page[name] == nil { // not on every system
			return 0
		}
		return page[name].GetMetric()[0].GetGauge().GetValue()
	}
	return state{of("go_goroutines"), of("process_open_fds"), of("go_memstats_heap_inuse_bytes"), of("vllm:kv_cache_usage_perc"), of("vllm:num_requests_running") + of("vllm:num_requests_waiting")}
}

// well requires that the server answers, and has no more in use than before.
func (p *prey) well(before state) {
	p.t.Helper()
	const body = `{"prompt": "Once", "max_tokens": 3, "temperature": 0, "ignore_eos": true}`
	require.Equal(p.t, 3, decode[completion](p.t, p.get("/v1/completions", body, "Authorization", "Bearer sesame")).Usage.Answer)
	var now state
	require.Eventually(p.t, func() bool {
		now = p.state()
		return now.goroutines <= before.goroutines+4 && now.files <= before.files+4 && now.heap <= before.heap+16<<20 && now.pages == 0 && now.busy == 0
	}, 2*time.Minute, 50*time.Millisecond, "before %+v, now %+v", &before, &now)
}

// refused requires that an answer is an error in OpenAI's form.
func refused(t *testing.T, status int, text string, want ...int) {
	t.Helper()
	require.Contains(t, want, status, text)
	var e struct {
		Error *struct{ Message, Type string }
	}
	require.NoError(t, json.Unmarshal([]byte(text), &e), text)
	require.NotNil(t, e.Error, text)
	require.NotEmpty(t, e.Error.Message)
	require.NotEmpty(t, e.Error.Type)
}

// raw writes bytes to the server, closes that side of the connection if it is to, and
// gives the connection.
func (p *prey) raw(t *testing.T, text string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", p.addr)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	_, err = io.WriteString(c, text)
	require.NoError(t, err)
	return c.(*net.TCPConn)
}

// post is the head of a request, and a part of its body.
func post(path string, length int, body string, headers ...string) string {
	return "POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAuthorization: Bearer sesame\r\n" +
		strings.Join(append(headers, ""), "\r\n") + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", length, body)
}

// answered reads an answer from a connection.
func answered(t *testing.T, c net.Conn) (int, string) {
	t.Helper()
	a, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	require.NoError(t, err)
	return a.StatusCode, string(text)
}

const (
	streamed = `{"prompt": "Once upon a time", "max_tokens": 110, "n": 32, "ignore_eos": true, "stream": true, "model": "a"}`
	asUser   = "Bearer sesame"
)

// TestServeFaults treats a real server as badly as clients, networks and disks do: each
// time there is an error in OpenAI's form or a closed connection, the server goes on
// answering, and what it had in use is free again.
func TestServeFaults(t *testing.T) {
	l := newLab(t)
	l.copy(llamaLoRA, "adapters/one")
	l.copy(goldens+"/lm/llama/adapters/dora", "adapters/two")
	require.NoError(t, os.Symlink(l.path("."), l.path("adapters/out")))
	l.copy(llamaLoRA, "outside")
	p := newPrey(t, "--adapter", "a="+llamaLoRA, "--api-key", "sesame", "--admin-key", "admin", "--adapters-dir", l.path("adapters"),
		"--allow-adapter-updates", "--max-texts", "8", "--max-queue", "64")
	ask := func(body string, headers ...string) (int, string) {
		return p.ask("/v1/completions", body, append([]string{"Authorization", asUser}, headers...)...)
	}
	admin := func(path, body string) (int, string) {
		return p.ask(path, body, "Authorization", "Bearer admin")
	}
	p.get("/v1/completions", `{"model": "a", "prompt": "Once", "max_tokens": 3}`, "Authorization", asUser)
	p.get("/v1/completions", `{"model": "one", "prompt": "Once", "max_tokens": 3}`, "Authorization", asUser)
	before := p.state()
	many := 300
	if os.Getenv("LORAFUSE_LONG") != "" {
		many = 10000 // where the limit of open files allows it
		var limit syscall.Rlimit
		require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
		if most := int(limit.Cur) - 1000; many > most {
			many = most
			t.Logf("%d connections: the limit of open files is %d", many, limit.Cur)
		}
	}

	t.Run("clients that go", func(t *testing.T) {
		var work sync.WaitGroup
		for i := range 24 {
			work.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				q, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/v1/completions", strings.NewReader(streamed))
				require.NoError(t, err)
				q.Header.Set("Content-Type", "application/json")
				q.Header.Set("Authorization", asUser)
				a, err := p.client.Do(q)
				require.NoError(t, err)
				defer a.Body.Close()
				require.Equal(t, http.StatusOK, a.StatusCode)
				_, err = io.ReadFull(a.Body, make([]byte, 1+100*i))
				require.NoError(t, err)
			})
		}
		work.Wait()
		p.well(before)
	})

	t.Run("clients that do not read", func(t *testing.T) {
		var stalled []net.Conn
		for range 8 {
			c := p.raw(t, post("/v1/completions", len(streamed), streamed))
			require.NoError(t, c.SetReadBuffer(4096))
			stalled = append(stalled, c)
		}
		_, err := io.ReadFull(stalled[0], make([]byte, 12))
		require.NoError(t, err)
		status, text := ask(`{"prompt": "Once", "max_tokens": 3}`)
		require.Equal(t, http.StatusOK, status, text)
		for _, c := range stalled {
			c.Close()
		}
		p.well(before)
	})

	t.Run("100 MB", func(t *testing.T) {
		const size = 100 << 20
		for _, length := range []int64{size, -1} { // told before, and not
			q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+"/v1/completions", io.LimitReader(spaces{}, size))
			require.NoError(t, err)
			q.ContentLength = length
			q.Header.Set("Content-Type", "application/json")
			q.Header.Set("Authorization", asUser)
			q.Header.Set("Expect", "100-continue")
			client := &http.Client{Transport: &http.Transport{ExpectContinueTimeout: time.Minute, DisableKeepAlives: true}}
			a, err := client.Do(q)
			if err != nil {
				require.Negative(t, length, "%v", err) // it may be cut while it is sent
				continue
			}
			text, err := io.ReadAll(a.Body)
			a.Body.Close()
			require.NoError(t, err)
			refused(t, a.StatusCode, string(text), http.StatusRequestEntityTooLarge)
		}
		p.well(before)
	})

	t.Run("half a request", func(t *testing.T) {
		c := p.raw(t, post("/v1/completions", 100, `{"prompt":`))
		require.NoError(t, c.CloseWrite())
		status, text := answered(t, c)
		refused(t, status, text, http.StatusBadRequest)
		var waits []net.Conn
		for range 50 { // of which nothing more comes
			waits = append(waits, p.raw(t, post("/v1/completions", 100, `{"prompt":`)),
				p.raw(t, strings.Replace(post("/v1/completions", 100, `{"prompt":`), "sesame", "wrong", 1)),
				p.raw(t, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-"))
		}
		status, text = ask(`{"prompt": "Once", "max_tokens": 3}`)
		require.Equal(t, http.StatusOK, status, text)
		for _, c := range waits {
			c.Close()
		}
		p.well(before)
	})

	t.Run("what is no request", func(t *testing.T) {
		for _, body := range []string{"{\"prompt\": \"\xff\xfe\"}", "{\"model\": \"\xc3\x28\"}", "\x00", "[]", "{", `{"prompt": 1e999}`, `{"prompt": [1, -1]}`, `{"prompt": [9999999999]}`, strings.Repeat("[", 1<<20)} {
			status, text := ask(body)
			refused(t, status, text, http.StatusBadRequest)
		}
		status, text := ask(`{"prompt": "Once"}`, "Content-Type", "text/plain")
		refused(t, status, text, http.StatusUnsupportedMediaType)
		c := p.raw(t, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 and so on\r\n\r\n") // TLS
		status, _ = answered(t, c)
		require.Equal(t, http.StatusBadRequest, status)
		p.well(before)
	})

	t.Run("wrong keys", func(t *testing.T) {
		for _, key := range []string{"", "Bearer", "Bearer wrong", "Basic sesame", "Bearer sesam", "Bearer sesame2", "Bearer " + strings.Repeat("x", 10000)} {
			status, text := ask(`{"prompt": "Once"}`, "Authorization", key)
			refused(t, status, text, http.StatusUnauthorized)
			status, text = p.ask("/v1/unload_lora_adapter", `{"lora_name": "a"}`, "Authorization", key)
			refused(t, status, text, http.StatusUnauthorized)
		}
		status, text := p.ask("/v1/unload_lora_adapter", `{"lora_name": "a"}`, "Authorization", asUser)
		refused(t, status, text, http.StatusUnauthorized)
		p.well(before)
	})

	t.Run("paths that lead out", func(t *testing.T) {
		for _, dir := range []string{"../outside", l.path("outside"), "one/../../outside", "out/outside", "/etc", "/", "..", ".", "one\x00", "//", strings.Repeat("../", 100) + "etc"} {
			body, err := json.Marshal(map[string]string{"lora_name": "x", "lora_path": dir})
			require.NoError(t, err)
			status, text := admin("/v1/load_lora_adapter", string(body))
			refused(t, status, text, http.StatusNotFound, http.StatusBadRequest)
		}
		for _, name := range []string{"../outside", "..", "a,b", "a\x00", "a@", "a@zz", "a@" + strings.Repeat("0", 65), strings.Repeat("a", 1000), "/", ".", "%2e%2e/outside"} {
			body, err := json.Marshal(map[string]any{"model": name, "prompt": "Once", "max_tokens": 1})
			require.NoError(t, err)
			status, text := ask(string(body))
			refused(t, status, text, http.StatusNotFound)
			body, err = json.Marshal(map[string]string{"lora_name": name, "lora_path": "one"})
			require.NoError(t, err)
			status, text = admin("/v1/load_lora_adapter", string(body))
			refused(t, status, text, http.StatusBadRequest)
		}
		status, text := ask(`{"model": "out", "prompt": "Once"}`) // as good a name as any, but a link that is not followed
		refused(t, status, text, http.StatusBadRequest)
		status, text = ask(`{"model": "out/outside", "prompt": "Once"}`)
		refused(t, status, text, http.StatusNotFound)
		p.well(before)
	})

	t.Run("folders that change", func(t *testing.T) {
		said := func(name string) string {
			status, text := ask(`{"model": "` + name + `", "prompt": "Once upon", "max_tokens": 8, "temperature": 0, "ignore_eos": true}`)
			require.Equal(t, http.StatusOK, status, text)
			return decode[completion](t, text).Choices[0].Text
		}
		one, two := said("one"), said("two")
		require.NotEqual(t, one, two)
		weights := l.path("adapters/one/adapter_model.safetensors")
		require.NoError(t, os.Truncate(weights, 1000))
		require.Equal(t, one, said("one"), "what was read stays")
		status, text := admin("/v1/load_lora_adapter", `{"lora_name": "new", "lora_path": "one"}`)
		refused(t, status, text, http.StatusBadRequest)
		require.NoError(t, os.RemoveAll(filepath.Dir(weights)))
		require.Equal(t, one, said("one"))
		status, text = admin("/v1/unload_lora_adapter", `{"lora_name": "one"}`)
		require.Equal(t, http.StatusOK, status, text)
		status, text = ask(`{"model": "one", "prompt": "Once", "max_tokens": 1}`)
		refused(t, status, text, http.StatusNotFound)
		require.NoError(t, os.Mkdir(filepath.Dir(weights), 0o755)) // and nothing in it
		status, text = ask(`{"model": "one", "prompt": "Once", "max_tokens": 1}`)
		refused(t, status, text, http.StatusBadRequest)
		require.NoError(t, os.Remove(filepath.Dir(weights)))
		l.copy(goldens+"/lm/llama/adapters/dora", "adapters/one")
		require.Equal(t, two, said("one"))
		require.Equal(t, two, said("two"))
		p.well(before)
	})

	t.Run("swaps", func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var work sync.WaitGroup
		for range 3 {
			work.Go(func() {
				for ctx.Err() == nil {
					status, text := ask(`{"model": "swapped", "prompt": "Once upon", "max_tokens": 20, "ignore_eos": true}`)
					assert.Contains(t, []int{http.StatusOK, http.StatusNotFound}, status, text)
				}
			})
		}
		for i := range 100 {
			status, text := admin("/v1/load_lora_adapter", fmt.Sprintf(`{"lora_name": "swapped", "lora_path": %q, "load_inplace": true}`, []string{"one", "two"}[i%2]))
			require.Equal(t, http.StatusOK, status, text)
			if i%5 == 0 {
				status, text = admin("/v1/unload_lora_adapter", `{"lora_name": "swapped"}`)
				require.Equal(t, http.StatusOK, status, text)
			}
		}
		stop()
		work.Wait()
		require.Len(t, p.page()["vllm:lora_requests_info"].GetMetric(), 1)
		p.well(before)
	})

	t.Run("many connections", func(t *testing.T) {
		idle := make([]net.Conn, many)
		for i := range idle {
			c, err := net.Dial("tcp", p.addr)
			require.NoError(t, err)
			idle[i] = c
		}
		status, text := ask(`{"prompt": "Once", "max_tokens": 3}`)
		require.Equal(t, http.StatusOK, status, text)
		for _, c := range idle {
			c.Close()
		}
		var work sync.WaitGroup
		for range 20 {
			work.Go(func() {
				for range many / 20 {
					c, err := net.Dial("tcp", p.addr)
					if assert.NoError(t, err) {
						c.Close()
					}
				}
			})
		}
		work.Wait()
		p.well(before)
	})

	t.Run("more than may wait", func(t *testing.T) {
		var mu sync.Mutex
		count := map[int]int{}
		var work sync.WaitGroup
		for range 200 {
			work.Go(func() {
				status, text := ask(`{"prompt": "Once", "max_tokens": 100, "ignore_eos": true}`)
				if status != http.StatusOK {
					refused(t, status, text, http.StatusTooManyRequests)
				}
				mu.Lock()
				count[status]++
				mu.Unlock()
			})
		}
		work.Wait()
		require.GreaterOrEqual(t, count[http.StatusOK], 64)
		p.well(before)
	})
}

// TestServeFullDisk: a log that has no room takes nothing from those who ask.
func TestServeFullDisk(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0") // a port that is free
	require.NoError(t, err)
	addr := l.Addr().String()
	l.Close()
	c, _ := program(t, "serve", "--model", llama, "--listen", addr)
	c.Stderr = full
	require.NoError(t, c.Start())
	defer func() {
		c.Process.Signal(syscall.SIGTERM)
		require.NoError(t, c.Wait())
	}()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	require.Eventually(t, func() bool {
		a, err := client.Get("http://" + addr + "/ready")
		if err != nil {
			return false
		}
		a.Body.Close()
		return a.StatusCode == http.StatusOK
	}, time.Minute, 20*time.Millisecond)
	for range 3 {
		a, err := client.Post("http://"+addr+"/v1/completions", "application/json", strings.NewReader(`{"prompt": "Once", "max_tokens": 3}`))
		require.NoError(t, err)
		a.Body.Close()
		require.Equal(t, http.StatusOK, a.StatusCode)
	}
}

// spaces are without end.
type spaces struct{}

func (spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

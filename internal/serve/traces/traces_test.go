package traces_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/serve/batching"
	"github.com/lorafuse/lorafuse/internal/serve/traces"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The messages of trace.proto and common.proto, as their JSON form has them: a name that
// is not here is not one of the protocol.
type (
	message struct {
		ResourceSpans []struct {
			Resource struct {
				Attributes []keyValue
			}
			ScopeSpans []struct {
				Scope     struct{ Name, Version string }
				Spans     []span
				SchemaURL string `json:"schemaUrl"`
			}
			SchemaURL string `json:"schemaUrl"`
		}
	}
	span struct {
		TraceID, SpanID, ParentSpanID, TraceState, Name string
		Flags                                           uint32
		Kind                                            int
		StartTimeUnixNano, EndTimeUnixNano              string
		Attributes                                      []keyValue
		DroppedAttributesCount                          uint32
		Events                                          []struct {
			TimeUnixNano, Name string
			Attributes         []keyValue
		}
		Status struct {
			Message string
			Code    int
		}
	}
	keyValue struct {
		Key   string
		Value struct {
			StringValue, IntValue *string
			BoolValue             *bool
			DoubleValue           *float64
			ArrayValue            *struct {
				Values []struct{ StringValue string }
			}
		}
	}
)

func nanos(t *testing.T, s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	require.NoError(t, err)
	return n
}

// values are attributes as text.
func values(t *testing.T, all []keyValue) map[string]string {
	m := map[string]string{}
	for _, a := range all {
		switch v := a.Value; {
		case v.StringValue != nil:
			m[a.Key] = *v.StringValue
		case v.IntValue != nil:
			nanos(t, *v.IntValue)
			m[a.Key] = *v.IntValue
		case v.ArrayValue != nil:
			for _, x := range v.ArrayValue.Values {
				m[a.Key] += x.StringValue + ";"
			}
		default:
			require.Fail(t, "no value", a.Key)
		}
	}
	return m
}

// collector keeps the spans that come, and answers with a status.
type collector struct {
	*httptest.Server
	t      *testing.T
	mu     sync.Mutex
	tries  int
	status func(try int) int
	spans  []span
	about  map[string]string
}

func newCollector(t *testing.T) *collector {
	c := &collector{t: t, status: func(int) int { return http.StatusOK }}
	c.Server = httptest.NewServer(c)
	t.Cleanup(c.Close)
	return c
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tries++
	if status := c.status(c.tries); status != http.StatusOK {
		w.WriteHeader(status)
		return
	}
	assert.Equal(c.t, "POST /v1/traces", r.Method+" "+r.URL.Path)
	assert.Equal(c.t, "application/json", r.Header.Get("Content-Type"))
	raw, err := io.ReadAll(r.Body)
	assert.NoError(c.t, err)
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	var m message
	if !assert.NoError(c.t, d.Decode(&m), string(raw)) {
		return
	}
	c.checkNames(raw)
	for _, r := range m.ResourceSpans {
		c.about = values(c.t, r.Resource.Attributes)
		for _, s := range r.ScopeSpans {
			assert.Equal(c.t, "lorafuse", s.Scope.Name)
			c.spans = append(c.spans, s.Spans...)
		}
	}
	io.WriteString(w, `{"partialSuccess":{}}`)
}

// checkNames requires names with their capital letters, which package json passes over.
func (c *collector) checkNames(raw []byte) {
	const names = " resourceSpans resource attributes key value stringValue intValue arrayValue values scopeSpans scope name version spans traceId spanId parentSpanId traceState flags kind startTimeUnixNano endTimeUnixNano status code events timeUnixNano "
	var walk func(x any)
	walk = func(x any) {
		switch x := x.(type) {
		case map[string]any:
			for k, v := range x {
				assert.Contains(c.t, names, " "+k+" ")
				walk(v)
			}
		case []any:
			for _, v := range x {
				walk(v)
			}
		}
	}
	var all any
	assert.NoError(c.t, json.Unmarshal(raw, &all))
	walk(all)
}

// played is a submit with some tokens, and an error behind them where there is one.
func played(err error, tokens ...batching.Token) batching.Submit {
	return func(context.Context, batching.Request) iter.Seq2[batching.Token, error] {
		return func(yield func(batching.Token, error) bool) {
			for _, t := range tokens {
				if !yield(t, nil) {
					return
				}
			}
			if err != nil {
				yield(batching.Token{}, err)
			}
		}
	}
}

// served gives the spans of one request to a server whose engine is submit.
func served(t *testing.T, c *collector, submit batching.Submit, path, parent string, status int) []span {
	t.Helper()
	tr, err := traces.New(traces.Options{URL: c.URL + "/", Model: "base", Version: "v1", Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	watched := tr.Watch(submit)
	h := tr.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		require.NoError(t, http.NewResponseController(w).Flush())
		for range watched(r.Context(), batching.Request{Prompt: make([]int32, 7), Adapter: "sql"}) {
		}
		if status != 0 {
			w.WriteHeader(status)
		}
	}))
	h = http.HandlerFunc(func(h http.Handler) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(unflushed{w}, r) }
	}(h))
	r := httptest.NewRequest("POST", path, nil)
	if parent != "" {
		r.Header.Set("Traceparent", parent)
		r.Header.Set("Tracestate", "vendor=1")
	}
	h.ServeHTTP(httptest.NewRecorder(), r)
	require.NoError(t, tr.Close(t.Context()))
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.spans
}

// unflushed can be flushed, and sends no header by that.
type unflushed struct{ http.ResponseWriter }

func (unflushed) Flush() {}

const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// A request has a span in the trace of who asks, with what it took, and one for each part
// of its time.
func TestSpans(t *testing.T) {
	c := newCollector(t)
	times := batching.Times{Queued: time.Second, Prefill: 2 * time.Second, Decode: 3 * time.Second}
	spans := served(t, c, played(nil, batching.Token{}, batching.Token{Finish: generate.FinishLength, Times: times}), "/v1/chat/completions", parent, 0)
	require.Len(t, spans, 4)
	assert.Equal(t, map[string]string{"service.name": "lorafuse", "service.version": "v1"}, c.about)
	root := spans[3] // ends last
	assert.Equal(t, "POST /v1/chat/completions", root.Name)
	assert.Equal(t, 2, root.Kind, "server")
	assert.Equal(t, "4bf92f3577b34da6a3ce929d0e0e4736", root.TraceID)
	assert.Equal(t, "00f067aa0ba902b7", root.ParentSpanID)
	assert.Equal(t, "vendor=1", root.TraceState)
	assert.EqualValues(t, 0x301, root.Flags, "sampled, its parent is of another process")
	assert.Zero(t, root.Status.Code)
	assert.Equal(t, map[string]string{
		"http.request.method": "POST", "url.path": "/v1/chat/completions", "http.response.status_code": "200",
		"gen_ai.operation.name": "chat", "gen_ai.provider.name": "lorafuse", "gen_ai.request.model": "sql", "gen_ai.response.model": "sql",
		"gen_ai.usage.input_tokens": "7", "gen_ai.usage.output_tokens": "2", "gen_ai.response.finish_reasons": "length;",
	}, values(t, root.Attributes))
	ids := map[string]bool{root.SpanID: true}
	at := nanos(t, spans[0].StartTimeUnixNano)
	assert.GreaterOrEqual(t, at, nanos(t, root.StartTimeUnixNano))
	for i, name := range []string{"queue", "prefill", "decode"} {
		s := spans[i]
		assert.Equal(t, name, s.Name)
		assert.Equal(t, 1, s.Kind, "internal")
		assert.Equal(t, [2]string{root.TraceID, root.SpanID}, [2]string{s.TraceID, s.ParentSpanID})
		assert.EqualValues(t, 0x101, s.Flags)
		assert.Equal(t, at, nanos(t, s.StartTimeUnixNano))
		at += int64(i+1) * int64(time.Second)
		assert.Equal(t, at, nanos(t, s.EndTimeUnixNano))
		assert.Regexp(t, "^[0-9a-f]{16}$", s.SpanID)
		ids[s.SpanID] = true
	}
	assert.Len(t, ids, 4)
}

// Without a traceparent a trace begins here; who does not want one, and what is no
// request for the model, has no spans.
func TestWhichSpans(t *testing.T) {
	c := newCollector(t)
	spans := served(t, c, played(nil), "/v1/completions", "", http.StatusBadRequest)
	require.Len(t, spans, 2)
	assert.Equal(t, "queue", spans[0].Name)
	assert.Empty(t, spans[1].ParentSpanID)
	assert.Regexp(t, "^[0-9a-f]{32}$", spans[1].TraceID)
	assert.Equal(t, "400", values(t, spans[1].Attributes)["http.response.status_code"])
	assert.Zero(t, spans[1].Status.Code, "it is the client's fault")

	require.Len(t, served(t, c, played(nil), "/v1/completions", strings.TrimSuffix(parent, "1")+"0", 0), 2, "no more")
	require.Len(t, served(t, c, played(nil), "/health", parent, 0), 2)
}

// What fails is said, and what it was.
func TestFailures(t *testing.T) {
	c := newCollector(t)
	spans := served(t, c, played(errors.New("broken"), batching.Token{}), "/v1/completions", parent, http.StatusInternalServerError)
	require.Len(t, spans, 2)
	assert.Equal(t, "decode", spans[0].Name)
	root := spans[1]
	assert.Equal(t, 2, root.Status.Code, "error")
	assert.Equal(t, "500", values(t, root.Attributes)["error.type"])
	require.Len(t, root.Events, 1)
	assert.Equal(t, "broken", values(t, root.Events[0].Attributes)["exception.message"])
}

// A collector that is busy is asked again; of one that refuses the log hears once.
func TestCollectorFails(t *testing.T) {
	c := newCollector(t)
	c.status = func(try int) int { return []int{0, http.StatusServiceUnavailable, http.StatusOK}[min(try, 2)] }
	require.Len(t, served(t, c, played(nil), "/v1/completions", "", 0), 2)
	require.Equal(t, 2, c.tries)

	c.status = func(int) int { return http.StatusBadRequest }
	var log bytes.Buffer
	tr, err := traces.New(traces.Options{URL: c.URL, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	h := tr.Handler(http.NotFoundHandler())
	for range 3000 { // some batches
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/v1/completions", nil))
	}
	require.NoError(t, tr.Close(t.Context()))
	require.Equal(t, 1, strings.Count(log.String(), "traces do not arrive"), log.String())
	require.Contains(t, log.String(), "400 Bad Request")
	require.Greater(t, c.tries, 3)

	for _, url := range []string{"", "127.0.0.1:4318", "ftp://x", "http://", "http://a b"} {
		_, err := traces.New(traces.Options{URL: url})
		require.ErrorContains(t, err, "expected the address of a collector")
	}
}

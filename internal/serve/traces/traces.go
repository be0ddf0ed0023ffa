// Package traces exports OpenTelemetry traces of requests. Each request has a span with the times
// of queueing, prefill and decoding, in the trace of its client.
//
// Spans are sent to the collector in batches as JSON over HTTP (OTLP), asynchronously to the
// requests.
package traces

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Options configure the collector and describe the server.
type Options struct {
	URL     string       // of the collector; /v1/traces is appended
	Model   string       // public model name
	Version string       // of the program
	Logger  *slog.Logger // logs lost spans; nil: slog.Default()
}

// Traces exports the spans of one server. All methods are safe for concurrent use.
type Traces struct {
	model    string
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
}

// name is the name of the service and of the instrumentation scope.
const name = "lorafuse"

// New returns an exporter. It does not connect yet, so the collector may start later. Whether a
// request is sampled is decided by its parent span, or else by OTEL_TRACES_SAMPLER and
// OTEL_TRACES_SAMPLER_ARG; by default all are.
func New(o Options) (*Traces, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("traces: found %q, expected the address of a collector, such as http://127.0.0.1:4318", o.URL)
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	about := resource.NewSchemaless(attribute.String("service.name", name), attribute.String("service.version", o.Version))
	if env, err := resource.New(context.Background(), resource.WithFromEnv()); err == nil {
		if about, err = resource.Merge(about, env); err != nil {
			return nil, fmt.Errorf("traces: %w", err)
		}
	}
	e := &exporter{url: u.JoinPath("v1", "traces").String(), client: &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment}}, log: o.Logger}
	p := sdktrace.NewTracerProvider(sdktrace.WithBatcher(e), sdktrace.WithResource(about))
	return &Traces{model: o.Model, provider: p, tracer: p.Tracer(name, trace.WithInstrumentationVersion(o.Version))}, nil
}

// Close sends the remaining spans, until ctx is done.
func (t *Traces) Close(ctx context.Context) error { return t.provider.Shutdown(ctx) }

// operations maps the paths with spans to OpenTelemetry's names of their operations.
var operations = map[string]string{
	"/v1/chat/completions":    "chat",
	"/v1/responses":           "chat",
	"/v1/completions":         "text_completion",
	"/v1/embeddings":          "embeddings",
	"/v1/load_lora_adapter":   "",
	"/v1/unload_lora_adapter": "",
	"/v1/files":               "",
	"/v1/fine_tuning/jobs":    "",
}

// request is the state of a request in progress.
type request struct {
	mu             sync.Mutex
	span           trace.Span
	prompt, answer int // tokens
	model          string
	finished       []string
}

type key struct{}

// Handler returns a handler that calls h within a span for each request, in the trace of the header
// traceparent.
func (t *Traces) Handler(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		operation, ok := operations[r.URL.Path]
		if !ok {
			h.ServeHTTP(w, r)
			return
		}
		ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		ctx, span := t.tracer.Start(ctx, r.Method+" "+r.URL.Path, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
			attribute.String("http.request.method", r.Method), attribute.String("url.path", r.URL.Path),
		))
		defer span.End() // also after a panic
		if !span.IsRecording() {
			h.ServeHTTP(w, r.WithContext(ctx))
			return
		}
		q := &request{span: span, model: t.model}
		said := &status{ResponseWriter: w}
		defer q.end(operation, said)
		h.ServeHTTP(said, r.WithContext(context.WithValue(ctx, key{}, q)))
	})
}

// end sets the final attributes of the span.
func (q *request) end(operation string, said *status) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if operation != "" {
		q.span.SetAttributes(
			attribute.String("gen_ai.operation.name", operation), attribute.String("gen_ai.provider.name", name), attribute.String("gen_ai.request.model", q.model),
		)
	}
	if q.prompt > 0 {
		q.span.SetAttributes(
			attribute.String("gen_ai.response.model", q.model),
			attribute.Int("gen_ai.usage.input_tokens", q.prompt), attribute.Int("gen_ai.usage.output_tokens", q.answer),
			attribute.StringSlice("gen_ai.response.finish_reasons", q.finished),
		)
	}
	code := said.code
	if code == 0 {
		code = http.StatusOK
	}
	q.span.SetAttributes(attribute.Int("http.response.status_code", code))
	if code >= http.StatusInternalServerError {
		q.span.SetAttributes(attribute.String("error.type", fmt.Sprint(code)))
		q.span.SetStatus(codes.Error, "")
	}
}

// status is a ResponseWriter that records the status.
type status struct {
	http.ResponseWriter
	code int
}

// WriteHeader implements http.ResponseWriter.
func (s *status) WriteHeader(code int) {
	if s.code == 0 {
		s.code = code
	}
	s.ResponseWriter.WriteHeader(code)
}

// Unwrap returns the wrapped writer, for http.ResponseController.
func (s *status) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// phase records a completed phase of a request as a span and returns its end.
func (t *Traces) phase(ctx context.Context, name string, from time.Time, took time.Duration) time.Time {
	end := from.Add(took)
	_, span := t.tracer.Start(ctx, name, trace.WithTimestamp(from))
	span.End(trace.WithTimestamp(end))
	return end
}

package traces

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// exporter posts spans as OTLP/JSON. It implements sdktrace.SpanExporter.
type exporter struct {
	url    string
	client *http.Client
	log    *slog.Logger
	lost   bool // whether the last batch was lost and this was logged
}

// retryAfter is the delay before the first retry if the collector names none. It doubles with each
// further retry.
const retryAfter = time.Second

// ExportSpans sends a batch. It retries temporary failures until ctx is done. Lost batches are
// logged once, until one succeeds.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	body, err := json.Marshal(newExport(spans))
	if err != nil {
		return err
	}
	for wait := retryAfter; ; wait *= 2 {
		var again time.Duration
		if again, err = e.post(ctx, body); err == nil {
			e.lost = false
			return nil
		}
		if again < 0 || ctx.Err() != nil {
			break
		}
		select {
		case <-time.After(max(wait, again)):
			continue
		case <-ctx.Done():
		}
		break
	}
	if !e.lost {
		e.lost = true
		e.log.Warn("traces do not arrive", "error", err)
	}
	return nil // already logged
}

// post makes one attempt. again is the minimum delay before a retry, or negative if a retry would
// not help.
func (e *exporter) post(ctx context.Context, body []byte) (again time.Duration, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, bytes.NewReader(body))
	if err != nil {
		return -1, err
	}
	r.Header.Set("Content-Type", "application/json")
	a, err := e.client.Do(r)
	if err != nil {
		return 0, err
	}
	defer a.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(a.Body, 1000))
	if a.StatusCode/100 == 2 {
		var said struct {
			Partial struct {
				Rejected json.RawMessage `json:"rejectedSpans"`
				Message  string          `json:"errorMessage"`
			} `json:"partialSuccess"`
		}
		if json.Unmarshal(text, &said) == nil && said.Partial.Message != "" {
			return -1, errors.New(said.Partial.Message)
		}
		return 0, nil
	}
	err = fmt.Errorf("%s: %s: %.200q", e.url, a.Status, text)
	switch a.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		seconds, _ := strconv.Atoi(a.Header.Get("Retry-After"))
		return time.Duration(max(0, seconds)) * time.Second, err
	}
	return -1, err
}

// Shutdown implements sdktrace.SpanExporter.
func (e *exporter) Shutdown(context.Context) error {
	e.client.CloseIdleConnections()
	return nil
}

// OTLP messages in JSON: https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding.
// Names are in lowerCamelCase, 64-bit integers are strings, IDs are hexadecimal, and enumerations
// are numbers.
type (
	export struct {
		Resources []resourceSpans `json:"resourceSpans"`
	}
	resourceSpans struct {
		Resource struct {
			Attributes []keyValue `json:"attributes"`
		} `json:"resource"`
		Scopes    []scopeSpans `json:"scopeSpans"`
		SchemaURL string       `json:"schemaUrl,omitempty"`
	}
	scopeSpans struct {
		Scope struct {
			Name    string `json:"name"`
			Version string `json:"version,omitempty"`
		} `json:"scope"`
		Spans     []spanMessage `json:"spans"`
		SchemaURL string        `json:"schemaUrl,omitempty"`
	}
	spanMessage struct {
		TraceID           string     `json:"traceId"`
		SpanID            string     `json:"spanId"`
		TraceState        string     `json:"traceState,omitempty"`
		ParentID          string     `json:"parentSpanId,omitempty"`
		Flags             uint32     `json:"flags"`
		Name              string     `json:"name"`
		Kind              int        `json:"kind"`
		Start             int64      `json:"startTimeUnixNano,string"`
		End               int64      `json:"endTimeUnixNano,string"`
		Attributes        []keyValue `json:"attributes,omitempty"`
		DroppedAttributes int        `json:"droppedAttributesCount,omitempty"`
		Events            []event    `json:"events,omitempty"`
		Status            struct {
			Message string `json:"message,omitempty"`
			Code    int    `json:"code,omitempty"`
		} `json:"status"`
	}
	event struct {
		Time       int64      `json:"timeUnixNano,string"`
		Name       string     `json:"name"`
		Attributes []keyValue `json:"attributes,omitempty"`
	}
	keyValue struct {
		Key   string         `json:"key"`
		Value map[string]any `json:"value"`
	}
)

// newExport groups spans by resource and scope.
func newExport(spans []sdktrace.ReadOnlySpan) (x export) {
	resources, scopes := map[*resource.Resource]int{}, map[instrumentation.Scope]int{}
	for _, s := range spans {
		i, ok := resources[s.Resource()]
		if !ok {
			i = len(x.Resources)
			resources[s.Resource()] = i
			r := resourceSpans{SchemaURL: s.Resource().SchemaURL()}
			r.Resource.Attributes = keyValues(s.Resource().Attributes())
			x.Resources = append(x.Resources, r)
		}
		r := &x.Resources[i]
		j, ok := scopes[s.InstrumentationScope()]
		if !ok {
			j = len(r.Scopes)
			scopes[s.InstrumentationScope()] = j
			y := scopeSpans{SchemaURL: s.InstrumentationScope().SchemaURL}
			y.Scope.Name, y.Scope.Version = s.InstrumentationScope().Name, s.InstrumentationScope().Version
			r.Scopes = append(r.Scopes, y)
		}
		r.Scopes[j].Spans = append(r.Scopes[j].Spans, newSpan(s))
	}
	return x
}

// Flags of a span: whether it is known that the parent is remote, and whether it is.
const (
	flagKnown  = 0x100
	flagRemote = 0x200
)

func newSpan(s sdktrace.ReadOnlySpan) spanMessage {
	id, trace := s.SpanContext().SpanID(), s.SpanContext().TraceID()
	m := spanMessage{
		TraceID: hex.EncodeToString(trace[:]), SpanID: hex.EncodeToString(id[:]), TraceState: s.SpanContext().TraceState().String(),
		Flags: uint32(s.SpanContext().TraceFlags()) | flagKnown, Name: s.Name(),
		Kind:  int(s.SpanKind()), // same numbers as in the protocol
		Start: s.StartTime().UnixNano(), End: s.EndTime().UnixNano(),
		Attributes: keyValues(s.Attributes()), DroppedAttributes: s.DroppedAttributes(),
	}
	if parent := s.Parent().SpanID(); parent.IsValid() {
		m.ParentID = hex.EncodeToString(parent[:])
	}
	if s.Parent().IsRemote() {
		m.Flags |= flagRemote
	}
	for _, e := range s.Events() {
		m.Events = append(m.Events, event{e.Time.UnixNano(), e.Name, keyValues(e.Attributes)})
	}
	m.Status.Message = s.Status().Description
	switch s.Status().Code { // these numbers differ
	case codes.Ok:
		m.Status.Code = 1
	case codes.Error:
		m.Status.Code = 2
	}
	return m
}

func keyValues(all []attribute.KeyValue) (out []keyValue) {
	for _, a := range all {
		out = append(out, keyValue{string(a.Key), anyValue(a.Value)})
	}
	return out
}

// anyValue converts an attribute value of a type that this package uses. Other types are converted
// to strings.
func anyValue(v attribute.Value) map[string]any {
	switch v.Type() {
	case attribute.BOOL:
		return map[string]any{"boolValue": v.AsBool()}
	case attribute.INT64:
		return map[string]any{"intValue": strconv.FormatInt(v.AsInt64(), 10)}
	case attribute.FLOAT64:
		return map[string]any{"doubleValue": v.AsFloat64()}
	case attribute.STRINGSLICE:
		values := []any{}
		for _, s := range v.AsStringSlice() {
			values = append(values, map[string]any{"stringValue": s})
		}
		return map[string]any{"arrayValue": map[string]any{"values": values}}
	}
	return map[string]any{"stringValue": v.String()}
}

package serve

import (
	"context"
	"encoding/json"
	"errors"
	"sync"

	"github.com/lorafuse/lorafuse/internal/generate/constrain"
)

// shape returns the grammar that constrains the answers, or nil if the request asks for none.
func (s *Server) shape(ctx context.Context, f *fields) *constrain.Grammar {
	var found *constrain.Grammar
	var from string // name of the field
	set := func(name string, g *constrain.Grammar) {
		if g == nil {
			return
		}
		if found != nil {
			f.fault(name, "the answer is kept to %s already", from)
		}
		found, from = g, name
	}
	format := f.object("response_format")
	switch kind := format.choice("type", "text", "json_object", "json_schema"); {
	case kind == "json_object":
		set("response_format", constrain.JSON())
	case kind == "json_schema":
		schema := format.object("json_schema")
		if !schema.has("schema") {
			schema.fault("schema", "is missing")
		}
		set("response_format", s.schema(ctx, schema, "schema"))
		format.take(schema)
	case kind == "" && f.has("response_format"):
		format.fault("type", "is missing, expected text, json_object or json_schema")
	}
	f.take(format)

	outputs := f.object("structured_outputs")
	set("structured_outputs", s.schema(ctx, outputs, "json"))
	if outputs.flag("json_object", false) {
		set("structured_outputs", constrain.JSON())
	}
	f.take(outputs)

	set("guided_json", s.schema(ctx, f, "guided_json"))
	return found
}

// schema compiles a field that holds a JSON Schema, as an object or as text.
func (s *Server) schema(ctx context.Context, f *fields, name string) *constrain.Grammar {
	raw := f.raw(name)
	if raw == nil {
		return nil
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		raw = []byte(text)
	}
	g, err := s.grammars.of(ctx, raw)
	if err != nil {
		f.failGrammar(name, err)
	}
	return g
}

// failGrammar records an error of grammars.of, unless an error is recorded already.
func (f *fields) failGrammar(name string, err error) {
	if f.err == nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		f.err = failureOf(err)
	}
	f.fault(name, "%v", err)
}

const (
	maxGrammars  = 64       // cached grammars
	maxKept      = 64 << 10 // bytes of the schema of a cached grammar
	maxKeptBytes = 64 << 20 // total bytes of cached grammars
)

// grammars compiles schemas and caches the latest grammars, since clients repeat their schemas. It
// compiles one schema at a time to limit memory.
type grammars struct {
	compiling chan struct{} // semaphore: one schema at a time

	mu       sync.Mutex
	bySchema map[string]*constrain.Grammar
	bytes    int // of grammars
}

// of returns the grammar of a schema. It waits for other compilations until ctx is done.
func (k *grammars) of(ctx context.Context, schema []byte) (*constrain.Grammar, error) {
	if g := k.known(schema); g != nil {
		return g, nil
	}
	select {
	case k.compiling <- struct{}{}:
		defer func() { <-k.compiling }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if g := k.known(schema); g != nil { // compiled by a concurrent request
		return g, nil
	}
	g, err := constrain.Schema(schema)
	if err != nil || len(schema) > maxKept || g.Bytes() > maxKeptBytes {
		return g, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.bySchema == nil || len(k.bySchema) == maxGrammars || k.bytes+g.Bytes() > maxKeptBytes {
		k.bySchema, k.bytes = map[string]*constrain.Grammar{}, 0
	}
	k.bySchema[string(schema)] = g
	k.bytes += g.Bytes()
	return g, nil
}

func (k *grammars) known(schema []byte) *constrain.Grammar {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.bySchema[string(schema)]
}

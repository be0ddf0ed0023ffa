package serve

import (
	"context"
	"encoding/json"
	"errors"
	"sync"

	"github.com/lorafuse/lorafuse/internal/generate/constrain"
	"github.com/lorafuse/lorafuse/internal/serve/web"
)

// shapeRequest holds the fields that constrain answers.
type shapeRequest struct {
	Format *struct {
		Type   string `json:"type" one:"text|json_object|json_schema"`
		Schema struct {
			Schema json.RawMessage `json:"schema"`
		} `json:"json_schema"`
	} `json:"response_format"`
	Outputs struct {
		Schema json.RawMessage `json:"json"`
		Object bool            `json:"json_object"`
	} `json:"structured_outputs"`
	Guided json.RawMessage `json:"guided_json"`
}

// shape returns the grammar that constrains the answers, or nil if the request asks for none.
func (s *Server) shape(ctx context.Context, r *shapeRequest) (found *constrain.Grammar, err error) {
	var from string // name of the field
	set := func(name, field string, schema json.RawMessage) error {
		if found != nil {
			return web.Faulty(name, "the answer is kept to %s already", from)
		}
		from = name
		if schema == nil {
			found = constrain.JSON()
			return nil
		}
		found, err = s.schema(ctx, field, schema)
		return err
	}
	if f := r.Format; f != nil {
		switch {
		case f.Type == "":
			return nil, web.Faulty("response_format.type", "is missing, expected text, json_object or json_schema")
		case f.Type == "json_object":
			err = set("response_format", "", nil)
		case f.Type == "json_schema" && f.Schema.Schema == nil:
			err = web.Faulty("response_format.json_schema.schema", "is missing")
		case f.Type == "json_schema":
			err = set("response_format", "response_format.json_schema.schema", f.Schema.Schema)
		}
	}
	if err == nil && r.Outputs.Schema != nil {
		err = set("structured_outputs", "structured_outputs.json", r.Outputs.Schema)
	}
	if err == nil && r.Outputs.Object {
		err = set("structured_outputs", "", nil)
	}
	if err == nil && r.Guided != nil {
		err = set("guided_json", "guided_json", r.Guided)
	}
	return found, err
}

// schema compiles a JSON Schema in a field, which holds it as an object or as text.
func (s *Server) schema(ctx context.Context, field string, raw json.RawMessage) (*constrain.Grammar, error) {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		raw = []byte(text)
	}
	g, err := s.grammars.of(ctx, raw)
	if err != nil {
		return nil, grammarFailure(field, err)
	}
	return g, nil
}

// grammarFailure returns the failure for an error of grammars.of.
func grammarFailure(field string, err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return web.Faulty(field, "%v", err)
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

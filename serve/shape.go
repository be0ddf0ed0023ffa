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

// answerShape is a constraint of answers: a JSON Schema, or nil for any JSON object.
type answerShape struct {
	name   string // of the constraint
	field  string // of the schema
	schema json.RawMessage
}

// formatShape returns the constraint of an OpenAI format in the field name. field is that of its schema.
func formatShape(name, field, kind string, schema json.RawMessage) ([]answerShape, error) {
	switch {
	case kind == "":
		return nil, web.Faulty(name+".type", "is missing, expected text, json_object or json_schema")
	case kind == "json_object":
		return []answerShape{{name: name}}, nil
	case kind == "json_schema" && schema == nil:
		return nil, web.Faulty(field, "is missing")
	case kind == "json_schema":
		return []answerShape{{name, field, schema}}, nil
	}
	return nil, nil
}

// shapes returns the constraints of a request.
func (r *shapeRequest) shapes() (all []answerShape, err error) {
	if f := r.Format; f != nil {
		if all, err = formatShape("response_format", "response_format.json_schema.schema", f.Type, f.Schema.Schema); err != nil {
			return nil, err
		}
	}
	if r.Outputs.Schema != nil {
		all = append(all, answerShape{"structured_outputs", "structured_outputs.json", r.Outputs.Schema})
	}
	if r.Outputs.Object {
		all = append(all, answerShape{name: "structured_outputs"})
	}
	if r.Guided != nil {
		all = append(all, answerShape{"guided_json", "guided_json", r.Guided})
	}
	return all, nil
}

// shape returns the grammar that constrains the answers, or nil if the request asks for none.
func (s *Server) shape(ctx context.Context, r *shapeRequest, more []answerShape) (*constrain.Grammar, error) {
	all, err := r.shapes()
	if err != nil {
		return nil, err
	}
	all = append(all, more...)
	switch {
	case len(all) == 0:
		return nil, nil
	case len(all) > 1:
		return nil, web.Faulty(all[1].name, "the answer is kept to %s already", all[0].name)
	case all[0].schema == nil:
		return constrain.JSON(), nil
	}
	return s.schema(ctx, all[0].field, all[0].schema)
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

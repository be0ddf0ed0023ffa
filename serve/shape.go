package serve

import (
	"encoding/json"
	"sync"

	"github.com/lorafuse/lorafuse/generate/constrain"
)

// shape is the grammar that a request wants its answers kept to, nil where it wants none.
func (s *Server) shape(f *fields) *constrain.Grammar {
	var found *constrain.Grammar
	var from string // which field it is of
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
		set("response_format", s.schema(schema, "schema"))
		format.take(schema)
	case kind == "" && f.has("response_format"):
		format.fault("type", "is missing, expected text, json_object or json_schema")
	}
	f.take(format)

	outputs := f.object("structured_outputs")
	set("structured_outputs", s.schema(outputs, "json"))
	if outputs.flag("json_object", false) {
		set("structured_outputs", constrain.JSON())
	}
	f.take(outputs)

	set("guided_json", s.schema(f, "guided_json"))
	return found
}

// schema is the grammar of a field that has a JSON Schema, as an object or as text.
func (s *Server) schema(f *fields, name string) *constrain.Grammar {
	raw := f.raw(name)
	if raw == nil {
		return nil
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		raw = []byte(text)
	}
	g, err := s.grammars.of(raw)
	if err != nil {
		f.fault(name, "%v", err)
	}
	return g
}

// maxGrammars is how many are kept, and maxKept how large a schema of one may be.
const (
	maxGrammars = 64
	maxKept     = 64 << 10
)

// grammars are those of schemas that came before: clients send one again and again.
type grammars struct {
	mu       sync.Mutex
	bySchema map[string]*constrain.Grammar
}

// of is the grammar of a schema.
func (k *grammars) of(schema []byte) (*constrain.Grammar, error) {
	k.mu.Lock()
	g := k.bySchema[string(schema)]
	k.mu.Unlock()
	if g != nil {
		return g, nil
	}
	g, err := constrain.Schema(schema)
	if err != nil || len(schema) > maxKept {
		return g, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.bySchema == nil || len(k.bySchema) == maxGrammars {
		k.bySchema = map[string]*constrain.Grammar{}
	}
	k.bySchema[string(schema)] = g
	return g, nil
}

package tools

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/lorafuse/lorafuse/internal/generate/constrain"
)

// Forced returns the JSON Schema that constrains an answer to tool calls, for the modes Required
// and Named. The schema is a list of objects with a name and arguments, keyed as in the syntax that
// the model was trained on. The list has one call in mode Named or without parallel. Read the
// answer with a parser with Options.Forced.
//
// The arguments match the tool's parameters schema. If package constrain does not support that
// schema, a strict tool is refused, and the arguments of any other tool may be any object. Errors
// are FieldErrors.
func (s Syntax) Forced(tools []Tool, c Choice, parallel bool) (json.RawMessage, error) {
	var calls [][]byte
	for i := range tools {
		if c.Mode == Named && tools[i].Name != c.Name {
			continue
		}
		at := fmt.Sprintf("#/items/anyOf/%d/properties/%s", len(calls), s.arguments())
		parameters, err := tools[i].schema(fmt.Sprintf("tools[%d].function.parameters", i), at)
		if err != nil {
			return nil, err
		}
		calls = append(calls, fmt.Appendf(nil,
			`{"type":"object","properties":{"name":{"const":%q},%q:%s},"required":["name",%q],"additionalProperties":false}`,
			tools[i].Name, s.arguments(), parameters, s.arguments()))
	}
	most := ""
	if c.Mode == Named || !parallel {
		most = `,"maxItems":1`
	}
	return fmt.Appendf(nil, `{"type":"array","minItems":1%s,"items":{"anyOf":[%s]}}`, most, bytes.Join(calls, []byte{','})), nil
}

// arguments returns the syntax's key for arguments.
func (s Syntax) arguments() string {
	if s == Llama {
		return "parameters"
	}
	return "arguments"
}

// schema returns the schema of the arguments, with references adjusted to its place at in a larger
// schema.
func (t *Tool) schema(field, at string) ([]byte, error) {
	if t.Parameters == nil {
		return []byte(`{"type":"object","properties":{},"additionalProperties":false}`), nil
	}
	alone, err := relocate(t.Parameters, "#", 0)
	if err != nil {
		return nil, wrong(field, "%v", err)
	}
	_, err = constrain.Schema(objects(alone))
	switch {
	case err == nil:
	case !t.Strict && (errors.Is(err, constrain.ErrUnsupported) || errors.Is(err, constrain.ErrTooLarge)):
		return []byte(`{"type":"object"}`), nil
	default:
		return nil, wrong(field, "%s", strings.TrimPrefix(err.Error(), "constrain: "))
	}
	moved, err := relocate(t.Parameters, at, 0)
	if err != nil {
		return nil, wrong(field, "%v", err)
	}
	return objects(moved), nil
}

// objects adds the type object to a schema without a type.
func objects(schema []byte) []byte {
	list, err := members(schema)
	if err != nil {
		return schema
	}
	for _, m := range list {
		if m.name == "type" {
			return schema
		}
	}
	return write(append([]member{{"type", json.RawMessage(`"object"`)}}, list...))
}

// member is a member of a JSON object.
type member struct {
	name  string
	value json.RawMessage
}

// members returns the members of an object, in order.
func members(raw json.RawMessage) ([]member, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	var list []member
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, err
		}
		m := member{name: name.(string)}
		if err := d.Decode(&m.value); err != nil {
			return nil, err
		}
		list = append(list, m)
	}
	return list, nil
}

func write(list []member) []byte {
	out := []byte{'{'}
	for i, m := range list {
		if i > 0 {
			out = append(out, ',')
		}
		name, _ := json.Marshal(m.name) // a string
		out = append(append(append(out, name...), ':'), m.value...)
	}
	return append(out, '}')
}

// relocate rewrites the references of a schema that is embedded at a place in another.
func relocate(schema json.RawMessage, at string, depth int) (json.RawMessage, error) {
	if depth > maxNesting {
		return nil, fmt.Errorf("more than %d values in one another", maxNesting)
	}
	switch schema = bytes.TrimSpace(schema); schema[0] {
	case '[':
		var list []json.RawMessage
		if err := json.Unmarshal(schema, &list); err != nil {
			return nil, err
		}
		for i := range list {
			var err error
			if list[i], err = relocate(list[i], at, depth+1); err != nil {
				return nil, err
			}
		}
		return joined(list), nil
	case '{':
	default:
		return schema, nil
	}
	list, err := members(schema)
	if err != nil {
		return nil, err
	}
	for i, m := range list {
		switch m.name {
		case "enum", "const", "default", "examples":
		case "$ref":
			var ref string
			if json.Unmarshal(m.value, &ref) == nil && strings.HasPrefix(ref, "#") {
				list[i].value, err = json.Marshal(at + ref[1:])
			}
		case "properties", "patternProperties", "$defs", "definitions", "dependentSchemas":
			list[i].value, err = relocateAll(m.value, at, depth+1)
		default:
			list[i].value, err = relocate(m.value, at, depth+1)
		}
		if err != nil {
			return nil, err
		}
	}
	return write(list), nil
}

// relocateAll relocates each schema in a map of schemas.
func relocateAll(schemas json.RawMessage, at string, depth int) (json.RawMessage, error) {
	if !isJSONObject(schemas) {
		return schemas, nil
	}
	list, err := members(schemas)
	if err != nil {
		return nil, err
	}
	for i, m := range list {
		if list[i].value, err = relocate(m.value, at, depth+1); err != nil {
			return nil, err
		}
	}
	return write(list), nil
}

func joined(list []json.RawMessage) json.RawMessage {
	out := []byte{'['}
	for i, v := range list {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, v...)
	}
	return append(out, ']')
}

package tools

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/lorafuse/lorafuse/internal/suggest"
)

// ErrRequest is the error for invalid tools in a request. It is wrapped in a [FieldError].
var ErrRequest = errors.New("wrong tools")

// FieldError is an error in a field of a request.
type FieldError struct {
	Field   string // such as tools[0].function.name
	Problem string
}

// Error returns the field and the problem.
func (e *FieldError) Error() string { return e.Field + ": " + e.Problem }

// Unwrap returns ErrRequest.
func (e *FieldError) Unwrap() error { return ErrRequest }

func wrong(field, format string, args ...any) error {
	return &FieldError{field, fmt.Sprintf(format, args...)}
}

// Limits of a request.
const (
	maxTools = 128
	maxName  = 64
)

// Tool is a function that a model may call.
type Tool struct {
	Name        string
	Description string
	Parameters  json.RawMessage // a JSON Schema of an object; nil: no parameters
	Strict      bool
	JSON        json.RawMessage // the complete definition, for chat templates
}

// Read reads the field "tools" of a request, which may be missing or null. Errors are FieldErrors.
func Read(raw json.RawMessage) ([]Tool, error) {
	if absent(raw) {
		return nil, nil
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		return nil, wrong("tools", "expected a list of tools")
	}
	if len(list) > maxTools {
		return nil, wrong("tools", "found %d tools, expected at most %d", len(list), maxTools)
	}
	var tools []Tool
	seen := map[string]int{}
	for i, item := range list {
		at := fmt.Sprintf("tools[%d]", i)
		t, err := readTool(item, at)
		if err != nil {
			return nil, err
		}
		if first, ok := seen[t.Name]; ok {
			return nil, wrong(at+".function.name", "%q is the name of tools[%d] too", t.Name, first)
		}
		seen[t.Name] = i
		tools = append(tools, t)
	}
	return tools, nil
}

func readTool(raw json.RawMessage, at string) (Tool, error) {
	var outer struct{ Type, Function json.RawMessage }
	if !isJSONObject(raw) || json.Unmarshal(raw, &outer) != nil {
		return Tool{}, wrong(at, "expected an object with type and function")
	}
	if err := readType(outer.Type, at+".type"); err != nil {
		return Tool{}, err
	}
	at += ".function"
	var f struct{ Name, Description, Parameters, Strict json.RawMessage }
	if !isJSONObject(outer.Function) || json.Unmarshal(outer.Function, &f) != nil {
		return Tool{}, wrong(at, "expected an object with name, description and parameters")
	}
	t := Tool{JSON: raw}
	if err := readName(f.Name, at+".name", &t.Name); err != nil {
		return Tool{}, err
	}
	if !absent(f.Description) && json.Unmarshal(f.Description, &t.Description) != nil {
		return Tool{}, wrong(at+".description", "expected a string")
	}
	if !absent(f.Strict) && json.Unmarshal(f.Strict, &t.Strict) != nil {
		return Tool{}, wrong(at+".strict", "expected true or false")
	}
	if absent(f.Parameters) {
		return t, nil
	}
	at += ".parameters"
	var schema struct{ Type json.RawMessage }
	if !isJSONObject(f.Parameters) || json.Unmarshal(f.Parameters, &schema) != nil {
		return Tool{}, wrong(at, "expected a JSON Schema of an object")
	}
	if schema.Type != nil && string(schema.Type) != `"object"` {
		return Tool{}, wrong(at+".type", `found %s, expected "object"`, schema.Type)
	}
	t.Parameters = f.Parameters
	return t, nil
}

// readType checks the type of a tool, which must be "function".
func readType(raw json.RawMessage, at string) error {
	var kind string
	if absent(raw) || json.Unmarshal(raw, &kind) != nil {
		return wrong(at, `expected "function"`)
	}
	if kind != "function" {
		return wrong(at, `found %q, expected "function"`, kind)
	}
	return nil
}

func readName(raw json.RawMessage, at string, name *string) error {
	if absent(raw) || json.Unmarshal(raw, name) != nil {
		return wrong(at, "expected a string")
	}
	if !validName(*name) {
		return wrong(at, "found %q, expected 1 to %d letters, digits, _ and -", *name, maxName)
	}
	return nil
}

// Mode selects whether a model may, must or must not call tools.
type Mode string

// The modes.
const (
	Auto     Mode = "auto"
	Off      Mode = "none"
	Required Mode = "required" // one or more calls
	Named    Mode = "function" // one call of the named tool
)

// Choice is the field "tool_choice" of a request.
type Choice struct {
	Mode Mode
	Name string // of the tool, in mode Named
}

// ReadChoice reads the field "tool_choice". If it is absent or null, the model may call any of the
// tools. Errors are FieldErrors.
func ReadChoice(raw json.RawMessage, tools []Tool) (Choice, error) {
	const field = "tool_choice"
	if absent(raw) {
		if len(tools) == 0 {
			return Choice{Mode: Off}, nil
		}
		return Choice{Mode: Auto}, nil
	}
	var word string
	if json.Unmarshal(raw, &word) == nil {
		switch mode := Mode(word); {
		case mode == Off:
			return Choice{Mode: mode}, nil
		case mode != Auto && mode != Required:
			return Choice{}, wrong(field, "%s", suggest.Expected(word, []string{"auto", "none", "required"}))
		case len(tools) == 0:
			return Choice{}, wrong(field, "%q needs tools, and the request has none", word)
		default:
			return Choice{Mode: mode}, nil
		}
	}
	var v struct{ Type, Function json.RawMessage }
	if !isJSONObject(raw) || json.Unmarshal(raw, &v) != nil {
		return Choice{}, wrong(field, `expected "auto", "none", "required" or an object that names a function`)
	}
	if err := readType(v.Type, field+".type"); err != nil {
		return Choice{}, err
	}
	var f struct{ Name json.RawMessage }
	if !isJSONObject(v.Function) || json.Unmarshal(v.Function, &f) != nil {
		return Choice{}, wrong(field+".function", "expected an object with a name")
	}
	c := Choice{Mode: Named}
	if err := readName(f.Name, field+".function.name", &c.Name); err != nil {
		return Choice{}, err
	}
	var names []string
	for _, t := range tools {
		if t.Name == c.Name {
			return c, nil
		}
		names = append(names, t.Name)
	}
	return Choice{}, wrong(field+".function.name", "there is no tool %q%s", c.Name, suggest.DidYouMean(c.Name, names))
}

// validName reports whether a name is valid for a tool.
func validName(name string) bool {
	for i := range len(name) {
		if !nameByte(name[i]) {
			return false
		}
	}
	return 0 < len(name) && len(name) <= maxName
}

func nameByte(b byte) bool {
	return b == '_' || b == '-' || digit(b) || 'a' <= b|0x20 && b|0x20 <= 'z'
}

func absent(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

func isJSONObject(raw json.RawMessage) bool {
	return bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{"))
}

package tools

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

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

// Form is the layout of functions in the requests of an endpoint.
type Form int

// The forms.
const (
	Nested Form = iota // {"type": "function", "function": {"name": …}}, of chat completions
	Flat               // {"type": "function", "name": …}, of responses
)

// function returns the object with the fields of a function, and its place in the request.
func (f Form) function(raw, nested json.RawMessage, at string) (json.RawMessage, string) {
	if f == Flat {
		return raw, at
	}
	return nested, at + ".function"
}

// Read reads the field "tools" of a request, which may be missing or null. Errors are FieldErrors.
func Read(raw json.RawMessage, form Form) ([]Tool, error) {
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
		t, err := readTool(item, at, form)
		if err != nil {
			return nil, err
		}
		if first, ok := seen[t.Name]; ok {
			_, at = form.function(nil, nil, at)
			return nil, wrong(at+".name", "%q is the name of tools[%d] too", t.Name, first)
		}
		seen[t.Name] = i
		tools = append(tools, t)
	}
	return tools, nil
}

func readTool(raw json.RawMessage, at string, form Form) (Tool, error) {
	var outer struct{ Type, Function json.RawMessage }
	if !isJSONObject(raw) || json.Unmarshal(raw, &outer) != nil {
		return Tool{}, wrong(at, "expected an object with type and function")
	}
	if err := readType(outer.Type, at+".type"); err != nil {
		return Tool{}, err
	}
	function, at := form.function(raw, outer.Function, at)
	var f struct {
		Name, Description, Parameters, Strict json.RawMessage
		Later                                 json.RawMessage `json:"defer_loading"`
	}
	if !isJSONObject(function) || json.Unmarshal(function, &f) != nil {
		return Tool{}, wrong(at, "expected an object with name, description and parameters")
	}
	if !absent(f.Later) && string(f.Later) != "false" {
		return Tool{}, wrong(at+".defer_loading", "not supported: the model sees all tools")
	}
	t := Tool{JSON: raw}
	if form == Flat {
		t.JSON = nested(raw)
	}
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

// nested returns a flat definition in the nested form that chat templates read, without null fields.
func nested(raw json.RawMessage) json.RawMessage {
	list, err := members(raw)
	if err != nil {
		return raw // already validated
	}
	var kept []member
	for _, m := range list {
		if m.name != "type" && m.name != "defer_loading" && !absent(m.value) {
			kept = append(kept, m)
		}
	}
	return write([]member{{"type", json.RawMessage(`"function"`)}, {"function", write(kept)}})
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
	if !ValidName(*name) {
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
	// Allowed are the names of the tools that may be called. Nil allows all.
	Allowed []string
}

// Of returns the tools that the choice allows.
func (c Choice) Of(tools []Tool) []Tool {
	if c.Allowed == nil {
		return tools
	}
	var kept []Tool
	for _, t := range tools {
		if slices.Contains(c.Allowed, t.Name) {
			kept = append(kept, t)
		}
	}
	return kept
}

// ReadChoice reads the field "tool_choice". If it is absent or null, the model may call any of the
// tools. Errors are FieldErrors.
func ReadChoice(raw json.RawMessage, tools []Tool, form Form) (Choice, error) {
	const field = "tool_choice"
	if absent(raw) {
		if len(tools) == 0 {
			return Choice{Mode: Off}, nil
		}
		return Choice{Mode: Auto}, nil
	}
	var word string
	if json.Unmarshal(raw, &word) == nil {
		mode, err := readMode(word, field, []string{"auto", "none", "required"})
		if err == nil && mode != Off && len(tools) == 0 {
			err = wrong(field, "%q needs tools, and the request has none", word)
		}
		return Choice{Mode: mode}, err
	}
	var v struct {
		Type, Function json.RawMessage
		Allowed        json.RawMessage `json:"allowed_tools"`
	}
	if !isJSONObject(raw) || json.Unmarshal(raw, &v) != nil {
		return Choice{}, wrong(field, `expected "auto", "none", "required" or an object that names a function`)
	}
	if string(v.Type) == `"allowed_tools"` {
		if form == Flat {
			return readAllowed(raw, tools, form, field)
		}
		return readAllowed(v.Allowed, tools, form, field+".allowed_tools")
	}
	if err := readType(v.Type, field+".type"); err != nil {
		return Choice{}, err
	}
	name, err := readNamed(raw, v.Function, tools, form, field)
	return Choice{Mode: Named, Name: name}, err
}

func readMode(word, field string, modes []string) (Mode, error) {
	if !slices.Contains(modes, word) {
		return "", wrong(field, "%s", suggest.Expected(word, modes))
	}
	return Mode(word), nil
}

// readNamed returns the name of the tool that an object refers to. function is its field "function".
func readNamed(raw, function json.RawMessage, tools []Tool, form Form, at string) (string, error) {
	function, at = form.function(raw, function, at)
	var f struct{ Name json.RawMessage }
	if !isJSONObject(function) || json.Unmarshal(function, &f) != nil {
		return "", wrong(at, "expected an object with a name")
	}
	var name string
	if err := readName(f.Name, at+".name", &name); err != nil {
		return "", err
	}
	var names []string
	for _, t := range tools {
		if t.Name == name {
			return name, nil
		}
		names = append(names, t.Name)
	}
	return "", wrong(at+".name", "there is no tool %q%s", name, suggest.DidYouMean(name, names))
}

// readAllowed reads the choice of a subset of the tools.
func readAllowed(raw json.RawMessage, tools []Tool, form Form, field string) (Choice, error) {
	var v struct {
		Mode  string
		Tools []json.RawMessage
	}
	if !isJSONObject(raw) || json.Unmarshal(raw, &v) != nil {
		return Choice{}, wrong(field, "expected an object with mode and a list of tools")
	}
	mode, err := readMode(v.Mode, field+".mode", []string{"auto", "required"})
	if err != nil {
		return Choice{}, err
	}
	if len(v.Tools) == 0 || len(v.Tools) > maxTools {
		return Choice{}, wrong(field+".tools", "found %d tools, expected 1 to %d", len(v.Tools), maxTools)
	}
	c := Choice{Mode: mode}
	for i, raw := range v.Tools {
		at := fmt.Sprintf("%s.tools[%d]", field, i)
		var t struct{ Type, Function json.RawMessage }
		if !isJSONObject(raw) || json.Unmarshal(raw, &t) != nil {
			return Choice{}, wrong(at, "expected an object that names a function")
		}
		if err := readType(t.Type, at+".type"); err != nil {
			return Choice{}, err
		}
		name, err := readNamed(raw, t.Function, tools, form, at)
		if err != nil {
			return Choice{}, err
		}
		c.Allowed = append(c.Allowed, name)
	}
	return c, nil
}

// ValidName reports whether a name is valid for a tool.
func ValidName(name string) bool {
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

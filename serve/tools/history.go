package tools

import (
	"encoding/json"
	"fmt"
)

// History makes of the calls of an earlier answer, as requests have them in "tool_calls"
// of a message, what chat templates read: most want the arguments as an object, where
// the API has them as its text. Fields of errors, which are FieldErrors, begin with
// tool_calls.
func (s Syntax) History(calls json.RawMessage) (json.RawMessage, error) {
	var list []json.RawMessage
	if json.Unmarshal(calls, &list) != nil {
		return nil, wrong("tool_calls", "expected a list of calls")
	}
	for i, call := range list {
		var err error
		if list[i], err = s.historic(call, fmt.Sprintf("tool_calls[%d]", i)); err != nil {
			return nil, err
		}
	}
	return joined(list), nil
}

func (s Syntax) historic(call json.RawMessage, at string) (json.RawMessage, error) {
	var outer struct{ Type, Function json.RawMessage }
	if !isJSONObject(call) || json.Unmarshal(call, &outer) != nil {
		return nil, wrong(at, "expected an object with type and function")
	}
	if outer.Type != nil {
		if err := readType(outer.Type, at+".type"); err != nil {
			return nil, err
		}
	}
	at += ".function"
	var f struct {
		Name      json.RawMessage
		Arguments *string
	}
	if !isJSONObject(outer.Function) || json.Unmarshal(outer.Function, &f) != nil || f.Arguments == nil {
		return nil, wrong(at, "expected an object with a name, and arguments as a string of JSON")
	}
	var name string
	if err := readName(f.Name, at+".name", &name); err != nil {
		return nil, err
	}
	arguments := json.RawMessage(*f.Arguments)
	if *f.Arguments == "" {
		arguments = json.RawMessage("{}")
	}
	if !isJSONObject(arguments) || !json.Valid(arguments) {
		return nil, wrong(at+".arguments", "expected the text of a JSON object, found %.40q", *f.Arguments)
	}
	if s == DeepSeek { // its templates put the text in as it is
		arguments, _ = json.Marshal(string(arguments))
	}
	return replaced(call, "function", replaced(outer.Function, "arguments", arguments)), nil
}

// replaced is an object with another value for a name.
func replaced(object json.RawMessage, name string, value json.RawMessage) json.RawMessage {
	list, err := members(object)
	if err != nil {
		return object // it was read before
	}
	for i := range list {
		if list[i].name == name {
			list[i].value = value
		}
	}
	return write(list)
}

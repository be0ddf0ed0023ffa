package tools

import (
	"encoding/json"
	"fmt"
)

// History converts the tool calls of an earlier answer, from the message field "tool_calls", to the
// form that chat templates read. Most templates expect the arguments as an object, while the API
// has them as a string. Arguments that are not a JSON object, for example of a call cut by
// max_tokens, remain a string. Errors are FieldErrors; their fields begin with tool_calls.
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
	isObject := isJSONObject(arguments) && json.Valid(arguments)
	if s == DeepSeek || !isObject { // DeepSeek's templates insert the text
		var err error
		if arguments, err = json.Marshal(string(arguments)); err != nil {
			return nil, err
		}
	}
	if s == Qwen && !isObject { // its templates iterate over the arguments
		arguments = write([]member{{"arguments", arguments}})
	}
	return replaced(call, "function", replaced(outer.Function, "arguments", arguments)), nil
}

// replaced returns an object with the value of a member replaced.
func replaced(object json.RawMessage, name string, value json.RawMessage) json.RawMessage {
	list, err := members(object)
	if err != nil {
		return object // already validated
	}
	for i := range list {
		if list[i].name == name {
			list[i].value = value
		}
	}
	return write(list)
}

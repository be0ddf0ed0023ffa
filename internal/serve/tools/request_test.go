package tools_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/generate/constrain"
	"github.com/lorafuse/lorafuse/internal/serve/tools"
)

func TestRead(t *testing.T) {
	raw := `{"type": "function", "function": {"name": "get-weather_2", "description": "Says <it>", "strict": true, "parameters": {"type": "object", "properties": {}}}, "more": 1}`
	got, err := tools.Read(json.RawMessage(`[`+raw+`, {"type":"function","function":{"name":"f","description":null,"parameters":null,"strict":null}}]`), tools.Nested)
	require.NoError(t, err)
	require.Equal(t, []tools.Tool{
		{Name: "get-weather_2", Description: "Says <it>", Parameters: json.RawMessage(`{"type": "object", "properties": {}}`), Strict: true, JSON: json.RawMessage(raw)},
		{Name: "f", JSON: json.RawMessage(`{"type":"function","function":{"name":"f","description":null,"parameters":null,"strict":null}}`)},
	}, got)
	for _, nothing := range []string{"", "null", "[]"} {
		got, err := tools.Read(json.RawMessage(nothing), tools.Nested)
		require.NoError(t, err)
		require.Empty(t, got)
	}
}

func TestReadRefuses(t *testing.T) {
	one := func(function string) string { return `[{"type":"function","function":` + function + `}]` }
	for raw, want := range map[string]string{
		`{}`:                                  `tools: expected a list of tools`,
		`"x"`:                                 `tools: expected a list of tools`,
		`[3]`:                                 `tools[0]: expected an object with type and function`,
		`[null]`:                              `tools[0]: expected an object with type and function`,
		`[{"function":{"name":"f"}}]`:         `tools[0].type: expected "function"`,
		`[{"type":"custom","custom":{}}]`:     `tools[0].type: found "custom", expected "function"`,
		`[{"type":"function"}]`:               `tools[0].function: expected an object with name, description and parameters`,
		one(`{}`):                             `tools[0].function.name: expected a string`,
		one(`{"name":7}`):                     `tools[0].function.name: expected a string`,
		one(`{"name":"a.b"}`):                 `tools[0].function.name: found "a.b", expected 1 to 64 letters, digits, _ and -`,
		one(`{"name":""}`):                    `tools[0].function.name: found "", expected 1 to 64 letters, digits, _ and -`,
		one(`{"name":"f","description":1}`):   `tools[0].function.description: expected a string`,
		one(`{"name":"f","strict":"yes"}`):    `tools[0].function.strict: expected true or false`,
		one(`{"name":"f","parameters":[]}`):   `tools[0].function.parameters: expected a JSON Schema of an object`,
		one(`{"name":"f","parameters":true}`): `tools[0].function.parameters: expected a JSON Schema of an object`,
		one(`{"name":"f","parameters":{"type":"array"}}`): `tools[0].function.parameters.type: found "array", expected "object"`,
		`[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"g"}},{"type":"function","function":{"name":"f"}}]`: `tools[2].function.name: "f" is the name of tools[0] too`,
		`[` + strings.Repeat("0,", 128) + `0]`:            `tools: found 129 tools, expected at most 128`,
		one(`{"name":"` + strings.Repeat("n", 65) + `"}`): `tools[0].function.name: found "` + strings.Repeat("n", 65) + `", expected 1 to 64 letters, digits, _ and -`,
	} {
		_, err := tools.Read(json.RawMessage(raw), tools.Nested)
		require.EqualError(t, err, want, raw)
		require.ErrorIs(t, err, tools.ErrRequest)
		var field *tools.FieldError
		require.ErrorAs(t, err, &field)
	}
}

func TestReadChoice(t *testing.T) {
	for raw, want := range map[string]tools.Choice{
		"": {Mode: tools.Auto}, "null": {Mode: tools.Auto}, `"auto"`: {Mode: tools.Auto}, `"none"`: {Mode: tools.Off}, `"required"`: {Mode: tools.Required},
		`{"type":"function","function":{"name":"get_weather"}}`: {Mode: tools.Named, Name: "get_weather"},
	} {
		got, err := tools.ReadChoice(json.RawMessage(raw), weather, tools.Nested)
		require.NoError(t, err, raw)
		require.Equal(t, want, got, raw)
	}
	got, err := tools.ReadChoice(nil, nil, tools.Nested)
	require.NoError(t, err)
	require.Equal(t, tools.Choice{Mode: tools.Off}, got)
	for raw, want := range map[string]string{
		`"requierd"`:                        `tool_choice: found "requierd", expected auto, none or required, did you mean "required"?`,
		`7`:                                 `tool_choice: expected "auto", "none", "required" or an object that names a function`,
		`{}`:                                `tool_choice.type: expected "function"`,
		`{"type":"function"}`:               `tool_choice.function: expected an object with a name`,
		`{"type":"function","function":{}}`: `tool_choice.function.name: expected a string`,
		`{"type":"function","function":{"name":"get_wether"}}`: `tool_choice.function.name: there is no tool "get_wether", did you mean "get_weather"?`,
	} {
		_, err := tools.ReadChoice(json.RawMessage(raw), weather, tools.Nested)
		require.EqualError(t, err, want, raw)
	}
	_, err = tools.ReadChoice(json.RawMessage(`"required"`), nil, tools.Nested)
	require.EqualError(t, err, `tool_choice: "required" needs tools, and the request has none`)
}

// Responses have the fields of a function beside its type. Chat templates read the same either way.
func TestFlatForm(t *testing.T) {
	list, err := tools.Read(json.RawMessage(`[{"type":"function","name":"f","strict":null,"parameters":{"type":"object"}},{"type":"function","name":"g"},{"name":"h","type":"function"}]`), tools.Flat)
	require.NoError(t, err)
	require.Equal(t, `{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}`, string(list[0].JSON))
	for raw, want := range map[string]tools.Choice{
		`{"type":"function","name":"g"}`: {Mode: tools.Named, Name: "g"},
		`{"type":"allowed_tools","mode":"required","tools":[{"type":"function","name":"h"},{"type":"function","name":"f"}]}`: {Mode: tools.Required, Allowed: []string{"h", "f"}},
	} {
		got, err := tools.ReadChoice(json.RawMessage(raw), list, tools.Flat)
		require.NoError(t, err, raw)
		require.Equal(t, want, got, raw)
	}
	for raw, want := range map[string]string{
		`{"type":"function","function":{"name":"g"}}`:                                      `tool_choice.name: expected a string`,
		`{"type":"allowed_tools","mode":"none","tools":[]}`:                                `tool_choice.mode: found "none", expected auto or required`,
		`{"type":"allowed_tools","mode":"auto","tools":[]}`:                                `tool_choice.tools: found 0 tools, expected 1 to 128`,
		`{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"ff"}]}`: `tool_choice.tools[0].name: there is no tool "ff", did you mean "f"?`,
	} {
		_, err := tools.ReadChoice(json.RawMessage(raw), list, tools.Flat)
		require.EqualError(t, err, want, raw)
	}
	choice, err := tools.ReadChoice(json.RawMessage(`{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"h"}}]}}`), list, tools.Nested)
	require.NoError(t, err)
	allowed := choice.Of(list)
	require.Len(t, allowed, 1)
	// Only calls of allowed tools are calls.
	const answer = `<tool_call>{"name": "f", "arguments": {}}</tool_call><tool_call>{"name": "h", "arguments": {}}</tool_call>`
	text, calls := read(t, tools.Options{Syntax: tools.Hermes, Tools: allowed, Only: true}, answer)
	require.Len(t, calls, 1)
	require.Equal(t, "h", calls[0].name)
	require.Contains(t, text, `<tool_call>{"name": "f", "arguments": {}}</tool_call>`)
	_, err = tools.Read(json.RawMessage(`[{"type":"function","name":"f","defer_loading":true}]`), tools.Flat)
	require.EqualError(t, err, "tools[0].defer_loading: not supported: the model sees all tools")
}

func TestHistory(t *testing.T) {
	calls := json.RawMessage(`[{"id":"call_1","type":"function","function":{"name":"f","arguments":"{\"b\": 1, \"a\": \"<\"}"}},{"id":"x","function":{"arguments":"","name":"g"}}]`)
	got, err := tools.Hermes.History(calls)
	require.NoError(t, err)
	require.Equal(t, `[{"id":"call_1","type":"function","function":{"name":"f","arguments":{"b": 1, "a": "<"}}},{"id":"x","function":{"arguments":{},"name":"g"}}]`, string(got))
	got, err = tools.DeepSeek.History(calls)
	require.NoError(t, err)
	require.JSONEq(t, `[{"id":"call_1","type":"function","function":{"name":"f","arguments":"{\"b\": 1, \"a\": \"<\"}"}},{"id":"x","function":{"arguments":"{}","name":"g"}}]`, string(got))

	// Calls that max_tokens has cut, and others whose arguments are no object.
	for text, want := range map[string]string{`"{\"a\": \"b"`: `"{\"a\": \"b"`, `"[]"`: `"[]"`, `"x"`: `"x"`} {
		call := func(arguments string) string { return `[{"function":{"name":"f","arguments":` + arguments + `}}]` }
		for syntax, want := range map[tools.Syntax]string{tools.Hermes: want, tools.DeepSeek: want, tools.Qwen: `{"arguments":` + want + `}`} {
			got, err := syntax.History(json.RawMessage(call(text)))
			require.NoError(t, err)
			require.JSONEq(t, call(want), string(got), syntax)
		}
	}

	for raw, want := range map[string]string{
		`{}`:  `tool_calls: expected a list of calls`,
		`[1]`: `tool_calls[0]: expected an object with type and function`,
		`[{"type":"x","function":{"name":"f","arguments":""}}]`: `tool_calls[0].type: found "x", expected "function"`,
		`[{"type":"function"}]`:                                 `tool_calls[0].function: expected an object with a name, and arguments as a string of JSON`,
		`[{"function":{"name":"f","arguments":{}}}]`:            `tool_calls[0].function: expected an object with a name, and arguments as a string of JSON`,
		`[{"function":{"name":"f g","arguments":""}}]`:          `tool_calls[0].function.name: found "f g", expected 1 to 64 letters, digits, _ and -`,
	} {
		_, err := tools.Hermes.History(json.RawMessage(raw))
		require.EqualError(t, err, want, raw)
		require.ErrorIs(t, err, tools.ErrRequest)
	}
}

// ExampleParser reads an answer as it comes.
func ExampleParser() {
	p := tools.New(tools.Options{Syntax: tools.Hermes})
	deltas := p.Push("Let me see.\n<tool_")
	deltas = append(deltas, p.Push(`call>{"name": "get_weather", "arg`)...)
	deltas = append(deltas, p.Push(`uments": {"city": "Oslo"}}</tool_call>`)...)
	deltas = append(deltas, p.Flush()...)
	for _, d := range deltas {
		switch {
		case d.Text != "":
			fmt.Printf("text %q\n", d.Text)
		case d.ID != "":
			fmt.Printf("call %d of %s, id %s… of %d characters\n", d.Index, d.Name, d.ID[:5], len(d.ID))
		default:
			fmt.Printf("arguments %s\n", d.Arguments)
		}
	}
	// Output:
	// text "Let me see."
	// call 0 of get_weather, id call_… of 29 characters
	// arguments {"city": "Oslo"}
}

// FuzzTools: tools are read or refused with a field, and the schema that forces calls of
// those that are read can be kept to.
func FuzzTools(f *testing.F) {
	for _, parameters := range []string{
		`null`, `{}`, `{"type":"object","properties":{"a":{"$ref":"#/$defs/b"}},"$defs":{"b":{"enum":[1,{"$ref":"#"}]}}}`, `{"$ref":"#/$defs/x","$defs":{"x":{"type":"object","properties":{"$ref":{"type":"null"}}}}}`,
		`{"type":"object","minProperties":1}`, `{"anyOf":[{"required":["a"]},{"properties":{"properties":{"$ref":"#"}}}]}`, `{"properties":{"a~/%":{"items":{"$ref":"#/properties/a~0~1%25"},"maxItems":2}}}`,
	} {
		f.Add([]byte(`[{"type":"function","function":{"name":"f","parameters":`+parameters+`}},{"type":"function","function":{"name":"g","strict":true}}]`), []byte(`"required"`), []byte(`[{"function":{"name":"f","arguments":"{}"}}]`))
	}
	f.Fuzz(func(t *testing.T, raw, choice, calls []byte) {
		if !json.Valid(raw) || !json.Valid(choice) || !json.Valid(calls) {
			return // bodies of requests are
		}
		if history, err := tools.Hermes.History(calls); err != nil {
			require.ErrorIs(t, err, tools.ErrRequest)
		} else {
			require.True(t, json.Valid(history))
		}
		list, err := tools.Read(raw, tools.Nested)
		if err != nil {
			require.ErrorIs(t, err, tools.ErrRequest)
			return
		}
		c, err := tools.ReadChoice(choice, list, tools.Nested)
		if err != nil {
			require.ErrorIs(t, err, tools.ErrRequest)
			return
		}
		if c.Mode != tools.Required && c.Mode != tools.Named {
			return
		}
		schema, err := tools.Hermes.Forced(list, c, true)
		if err != nil {
			require.ErrorIs(t, err, tools.ErrRequest)
			return
		}
		if _, err := constrain.Schema(schema); err != nil {
			require.ErrorIs(t, err, constrain.ErrTooLarge, "%s", schema)
		}
	})
}

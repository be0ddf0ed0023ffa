package tools_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/internal/serve/tools"
)

var weather = []tools.Tool{
	{Name: "get_weather", Parameters: json.RawMessage(`{"type":"object","properties":{
		"city":{"type":"string"},"days":{"type":"integer"},"metric":{"type":"boolean"},"tags":{"type":"array","items":{"type":"string"}},
		"where":{"$ref":"#/$defs/place"},"unit":{"enum":["c","f",null]},"note":{"type":["string","null"]},"any":{},"level":{"anyOf":[{"type":"number"},{"type":"string"}]},"zip":{"$ref":"#/$defs/zip"}
	},"$defs":{"place":{"type":"object"},"zip":{"type":"string"}}}`)},
	{Name: "f"},
}

// call is what an answer has of a call.
type call struct{ name, arguments string }

// read is an answer: its text, with a mark of the place of each call, and the calls.
func read(t require.TestingT, o tools.Options, pieces ...string) (string, []call) {
	if o.Rand == nil {
		o.Rand = rand.NewChaCha8([32]byte{})
	}
	p := tools.New(o)
	var text strings.Builder
	var calls []call
	ids := map[string]bool{}
	take := func(deltas []tools.Delta) {
		for _, d := range deltas {
			switch {
			case d.Text != "":
				require.Empty(t, d.ID+d.Name+d.Arguments)
				text.WriteString(d.Text)
			case d.ID != "":
				require.Equal(t, len(calls), d.Index)
				require.False(t, ids[d.ID])
				ids[d.ID] = true
				calls = append(calls, call{d.Name, d.Arguments})
				fmt.Fprintf(&text, "⟨%d⟩", d.Index)
			default:
				require.NotEmpty(t, d.Arguments)
				require.Equal(t, len(calls)-1, d.Index)
				calls[d.Index].arguments += d.Arguments
			}
		}
	}
	for _, piece := range pieces {
		take(p.Push(piece))
	}
	take(p.Flush())
	require.Equal(t, len(calls), p.Calls())
	return text.String(), calls
}

var spaces = strings.Repeat(" ", 70)

// answerCase is an answer and what is to be read of it.
type answerCase struct {
	syntax tools.Syntax
	answer string
	text   string
	calls  []call
}

// answers are what models write, and what is read of it.
var answers = []answerCase{
	{tools.None, "a <tool_call>{\"name\": \"f\"}</tool_call> \n", "a <tool_call>{\"name\": \"f\"}</tool_call> \n", nil},

	{tools.Hermes, " Hi < there\n", " Hi < there\n", nil},
	{tools.Hermes, "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>", "⟨0⟩", []call{{"f", "{}"}}},
	{tools.Hermes, "I look.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Köln </tool_call>\", \"n\": [1.50, {\"a\": null}]}}\n</tool_call>\n<tool_call>\n{\"arguments\":{ },\"name\":\"f\"}\n</tool_call>\n",
		"I look.⟨0⟩⟨1⟩", []call{{"get_weather", "{\"city\": \"Köln </tool_call>\", \"n\": [1.50, {\"a\": null}]}"}, {"f", "{ }"}}},
	{tools.Hermes, "<tool_call>{\"name\": \"f\"}", "⟨0⟩", []call{{"f", "{}"}}},
	{tools.Hermes, "<tool_call>{\"name\": \"g\", \"arguments\": {}}</tool_call> so", "⟨0⟩ so", []call{{"g", "{}"}}},
	{tools.Hermes, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"\\u00e9\\n\"}}</tool_", "⟨0⟩</tool_", []call{{"f", "{\"a\": \"\\u00e9\\n\"}"}}},
	// What is no call is text.
	{tools.Hermes, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1", "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1", nil},
	{tools.Hermes, "x  <tool_call>nothing</tool_call>", "x  <tool_call>nothing</tool_call>", nil},
	{tools.Hermes, "<tool_call>{\"name\": \"f\", \"arguments\": \"{}\"}</tool_call>", "<tool_call>{\"name\": \"f\", \"arguments\": \"{}\"}</tool_call>", nil},
	{tools.Hermes, "<tool_call>{\"name\": \"a b\"}</tool_call>", "<tool_call>{\"name\": \"a b\"}</tool_call>", nil},
	{tools.Hermes, "<tool_call>{\"name\": \"f\", \"name\": \"f\"}</tool_call>", "<tool_call>{\"name\": \"f\", \"name\": \"f\"}</tool_call>", nil},
	{tools.Hermes, "<tool_call>{\"arguments\": {}}</tool_call>", "<tool_call>{\"arguments\": {}}</tool_call>", nil},
	{tools.Hermes, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 01}}</tool_call>", "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 01}}</tool_call>", nil},
	{tools.Hermes, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"x\ny\"}}</tool_call>", "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"x\ny\"}}</tool_call>", nil},
	{tools.Hermes, "a" + spaces + "<tool_call>{\"name\": \"f\"}" + spaces + "</tool_call>", "a      ⟨0⟩" + spaces + "</tool_call>", []call{{"f", "{}"}}},
	// A call within what is none is found.
	{tools.Hermes, "<tool_call>\n<tool_call>\n{\"name\": \"f\"}\n</tool_call>", "<tool_call>⟨0⟩", []call{{"f", "{}"}}},
	{tools.Hermes, "<tool_call>{\"name\": \"oh <tool_call>{\"name\": \"f\"}</tool_call>", "<tool_call>{\"name\": \"oh⟨0⟩", []call{{"f", "{}"}}},
	{tools.Hermes, "<tool_cal<tool_call>{\"name\": \"f\"}", "<tool_cal⟨0⟩", []call{{"f", "{}"}}},

	{tools.Qwen, "Yes.\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nNew\nYork \n</parameter>\n<parameter=days>\n3\n</parameter>\n<parameter=metric>\nTrue\n</parameter>\n<parameter=tags>\n[\"a\",\n \"b\"]\n</parameter>\n</function>\n</tool_call>",
		"Yes.⟨0⟩", []call{{"get_weather", "{\"city\": \"New\\nYork \", \"days\": 3, \"metric\": true, \"tags\": [\"a\",\n \"b\"]}"}}},
	{tools.Qwen, "<tool_call>\n<function=f>\n</function>\n</tool_call>\n<tool_call>\n<function=get_weather>\n<parameter=where>\n{\"x\": 1}\n</parameter>\n<parameter=unit>\nc\n</parameter>\n<parameter=note>\nNone\n</parameter>\n<parameter=any>\n[]\n</parameter>\n<parameter=level>\nhigh\n</parameter>\n</function>\n</tool_call>",
		"⟨0⟩⟨1⟩", []call{{"f", "{}"}, {"get_weather", "{\"where\": {\"x\": 1}, \"unit\": \"c\", \"note\": null, \"any\": [], \"level\": \"high\"}"}}},
	{tools.Qwen, "<function=get_weather>\n<parameter=city>\n7\n</parameter>\n<parameter=days>\nseven\n</parameter>\n<parameter=unit>\nnull\n</parameter>\n<parameter=level>\n1e3\n</parameter>\n</function>\n</tool_call>",
		"⟨0⟩", []call{{"get_weather", "{\"city\": \"7\", \"days\": \"seven\", \"unit\": null, \"level\": 1e3}"}}},
	{tools.Qwen, "<tool_call><function=f><parameter=a>tags </parameter> and <parameter=b>\n\"q\"\\\n\n</parameter></function></tool_call>", "⟨0⟩",
		[]call{{"f", "{\"a\": \"tags </parameter> and <parameter=b>\\n\\\"q\\\"\\\\\\n\"}"}}},
	{tools.Qwen, "<function=get_weather><parameter=zip>\n50667\n</parameter></function>", "⟨0⟩", []call{{"get_weather", "{\"zip\": \"50667\"}"}}},
	{tools.Qwen, "<function=f><parameter=a>x</parameter></parameter></function>", "⟨0⟩", []call{{"f", "{\"a\": \"x</parameter>\"}"}}},
	{tools.Qwen, "<function=f><parameter=a>x</parameter>" + spaces + "</function></parameter></function>", "⟨0⟩", []call{{"f", "{\"a\": \"x</parameter>" + spaces + "</function>\"}"}}},
	{tools.Qwen, "<tool_call>\n<function=f>\n<parameter=a>\n1\n</function>\n</tool_call>", "<tool_call>\n<function=f>\n<parameter=a>\n1\n</function>\n</tool_call>", nil},
	{tools.Qwen, "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>", "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>", nil},
	{tools.Qwen, "<function=f of x> is a <function", "<function=f of x> is a <function", nil},

	{tools.Llama, "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"x\"}}", "⟨0⟩", []call{{"get_weather", "{\"city\": \"x\"}"}}},
	{tools.Llama, "\n<|python_tag|>{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}; {\"name\": \"f\", \"parameters\": {\"a\": 1}}", "⟨0⟩⟨1⟩", []call{{"f", "{}"}, {"f", "{\"a\": 1}"}}},
	{tools.Llama, spaces + "{\"name\": \"f\", \"parameters\": {}}" + spaces + ";" + spaces + "{\"name\": \"f\", \"parameters\": {}}\n", "      ⟨0⟩⟨1⟩", []call{{"f", "{}"}, {"f", "{}"}}},
	{tools.Llama, "{\"name\": \"Bob\", \"parameters\": {}}", "{\"name\": \"Bob\", \"parameters\": {}}", nil},
	{tools.Llama, "{\"name\": \"f\"}", "{\"name\": \"f\"}", nil},
	{tools.Llama, "{\"age\": 3, \"name\": \"f\", \"parameters\": {}}", "{\"age\": 3, \"name\": \"f\", \"parameters\": {}}", nil},
	{tools.Llama, "So: {\"name\": \"f\", \"parameters\": {}}", "So: {\"name\": \"f\", \"parameters\": {}}", nil},
	{tools.Llama, "{\"name\": \"f\", \"parameters\": {}}; and {", "⟨0⟩; and {", []call{{"f", "{}"}}},
	{tools.Llama, "<|python_tag|>f.call(a=\"1\")", "<|python_tag|>f.call(a=\"1\")", nil},
	{tools.Llama, "{{\"name\": \"f\", \"parameters\": {}}", "{{\"name\": \"f\", \"parameters\": {}}", nil},

	{tools.Mistral, "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": \"]\"}}, {\"name\": \"f\", \"arguments\": {}, \"id\": \"123456789\"}]", "⟨0⟩⟨1⟩", []call{{"f", "{\"a\": \"]\"}"}, {"f", "{}"}}},
	{tools.Mistral, "Ok[TOOL_CALLS]get_weather[ARGS]{\"city\": \"x\"}[TOOL_CALLS]f[CALL_ID]123456789[ARGS]{}", "Ok⟨0⟩⟨1⟩", []call{{"get_weather", "{\"city\": \"x\"}"}, {"f", "{}"}}},
	{tools.Mistral, "[TOOL_CALLS]f{}", "⟨0⟩", []call{{"f", "{}"}}},
	{tools.Mistral, "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {}}, {\"name\": 1}]", "⟨0⟩, {\"name\": 1}]", []call{{"f", "{}"}}},
	{tools.Mistral, "[TOOL_CALLS] []", "[TOOL_CALLS] []", nil},
	{tools.Mistral, "[TOOL_CALLS]f[ARGS]x[TOOL_CALLS]f[ARGS]{}", "[TOOL_CALLS]f[ARGS]x⟨0⟩", []call{{"f", "{}"}}},
	{tools.Mistral, "[TOOL_CALLS]f[CALL_ID]", "[TOOL_CALLS]f[CALL_ID]", nil},

	{tools.DeepSeek, "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": \"```\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
		"⟨0⟩⟨1⟩", []call{{"f", "{\"a\": \"```\"}"}, {"f", "{}"}}},
	{tools.DeepSeek, "<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```python\n", "<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```python\n", nil},
}

func TestAnswers(t *testing.T) {
	for _, a := range answers {
		text, calls := read(t, tools.Options{Syntax: a.syntax, Tools: weather}, a.answer)
		require.Equal(t, a.text, text, "%s: %s", a.syntax, a.answer)
		require.Equal(t, a.calls, calls, "%s: %s", a.syntax, a.answer)
		for _, c := range calls {
			require.True(t, json.Valid([]byte(c.arguments)), c.arguments)
		}
		text, calls = read(t, tools.Options{Syntax: a.syntax, Tools: weather}, strings.Split(a.answer, "")...)
		require.Equal(t, a.text, text, "%s, by characters: %s", a.syntax, a.answer)
		require.Equal(t, a.calls, calls, "%s, by characters: %s", a.syntax, a.answer)
	}
}

// TestCuts: whatever the pieces that an answer comes in, the same is read of it.
func TestCuts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		syntax := rapid.SampledFrom(append(tools.Syntaxes(), tools.None)).Draw(t, "syntax")
		part := rapid.OneOf(rapid.SampledFrom(fragments), rapid.Map(rapid.SampledFrom(answers), func(a answerCase) string { return a.answer }))
		answer := strings.Join(rapid.SliceOfN(part, 0, 8).Draw(t, "answer"), "")
		o := tools.Options{Syntax: syntax, Tools: weather, Forced: rapid.Bool().Draw(t, "forced")}
		text, calls := read(t, o, answer)
		var pieces []string
		for rest := answer; rest != ""; {
			n := min(len(rest), rapid.IntRange(0, 9).Draw(t, "n"))
			pieces, rest = append(pieces, rest[:n]), rest[n:]
		}
		cutText, cutCalls := read(t, o, pieces...)
		require.Equal(t, text, cutText)
		require.Equal(t, calls, cutCalls)
		// Nothing is lost: without calls, all is there.
		if len(calls) == 0 {
			require.Equal(t, answer, text)
		}
	})
}

// fragments are what answers are made of.
var fragments = []string{
	" ", "\n", "a", "{", "}", "[", "]", ",", ";", "\"", "\\", "é", "<", "<tool_call>", "</tool_call>", "<function=f>", "<function=", "<parameter=a>", "</parameter>", "</function>",
	"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "f", "<|python_tag|>", "{\"name\": \"f\", ", "\"arguments\": {}}", "\"parameters\": {\"a\": 1}}", "{\"name\": \"f\", \"arguments\": {\"x\": [true, -1.5e3, \"s\"]}}",
	"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "function<｜tool▁sep｜>f\n```json\n", "{}", "\n```", "<｜tool▁call▁end｜>", spaces,
}

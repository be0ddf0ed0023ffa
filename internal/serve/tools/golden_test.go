package tools_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/serve/tools"
)

// golden is an answer that transformers rendered with a chat template.
type golden struct {
	Syntax       tools.Syntax
	Answer, Text string
	Calls        []struct{ Name, Arguments string }
}

func goldens(t testing.TB) ([]tools.Tool, []golden) {
	raw, err := os.ReadFile("testdata/goldens.json")
	require.NoError(t, err)
	var file struct {
		Tools json.RawMessage
		Rows  []golden
	}
	require.NoError(t, json.Unmarshal(raw, &file))
	list, err := tools.Read(file.Tools, tools.Nested)
	require.NoError(t, err)
	return list, file.Rows
}

// TestGoldens: what templates make of calls is read as those calls.
func TestGoldens(t *testing.T) {
	list, rows := goldens(t)
	seen := map[tools.Syntax]int{}
	for _, g := range rows {
		seen[g.Syntax] += len(g.Calls)
		text, calls := read(t, tools.Options{Syntax: g.Syntax, Tools: list}, g.Answer)
		if i := strings.Index(text, "⟨"); i >= 0 {
			require.Equal(t, g.Text, text[:i])
		}
		require.Len(t, calls, len(g.Calls), g.Answer)
		for i, c := range calls {
			require.Equal(t, g.Calls[i].Name, c.name)
			require.JSONEq(t, g.Calls[i].Arguments, c.arguments)
			if g.Syntax != tools.Qwen { // which has no JSON of the model's
				require.Contains(t, g.Answer, c.arguments)
			}
		}
	}
	require.Len(t, seen, len(tools.Syntaxes()))
}

func TestDetect(t *testing.T) {
	for file, want := range map[string]tools.Syntax{
		"chatml": tools.None, "gemma3_style": tools.None, "phi_style": tools.None, "macros": tools.None, "generation": tools.None,
		"qwen3_style": tools.Hermes, "llama31_style": tools.Llama, "mistral_style": tools.Mistral, "deepseek_style": tools.DeepSeek,
	} {
		raw, err := os.ReadFile(filepath.Join("../../../testdata/tokenizers/chat", file+".jinja"))
		require.NoError(t, err)
		require.Equal(t, want, tools.Detect(string(raw)), file)
	}
	for template, want := range map[string]tools.Syntax{
		"": tools.None,
		`{{- '<tool_call>\n<function=' + call.name + '>\n' }}{{- '<parameter=' + name + '>\n' }}`:                                                                  tools.Qwen,
		`<seed:tool_call>\n<function={{ name }}>\n<parameter={{ key }}>`:                                                                                           tools.None,
		`'<tool_call>' + call.name }}<arg_key>{{ k }}</arg_key>\n<arg_value>{{ call.arguments }}</arg_value></tool_call>`:                                          tools.None,
		`within <tool_call></tool_call> tags: <tool_calls>[{"name": {{ name }}, "arguments": {{ arguments }}}]</tool_calls>`:                                       tools.None,
		`{{ ns + '<tool_call>' }}<invoke name="{{ call.name }}">{{ call.arguments }}{{ ns + '</tool_call>' }}`:                                                     tools.None,
		`<minimax:tool_call>\n<invoke name="{{ call.name }}">{{ arguments }}`:                                                                                      tools.None,
		`<|tool_call|>[{"name": "{{ call.name }}", "arguments": {{ arguments }}}]<|/tool_call|>`:                                                                   tools.None,
		`Respond in the format {"name": function name, "parameters": dictionary}. {{ '{"name": "' + call.name + '", ' }}{{- '"parameters": ' }}{{ '<|eot_id|>' }}`: tools.Llama,
		`<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>`:                                                                tools.Hermes,
		`{{ '<|start_header_id|>' + role }}{{ content }}<|eot_id|>`:                                                                                                tools.None,
	} {
		require.Equal(t, want, tools.Detect(template), template)
	}
	for _, s := range tools.Syntaxes() {
		require.NotEmpty(t, s.Special())
	}
	require.Empty(t, tools.None.Special())
}

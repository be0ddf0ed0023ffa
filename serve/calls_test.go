package serve_test

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/serve"
	"github.com/lorafuse/lorafuse/tokenizer"
	"github.com/lorafuse/lorafuse/tokenizer/chat"
)

const weather = `"tools":[{"type":"function","function":{"name":"weather","parameters":{"type":"object","properties":{"city":{"type":"string","maxLength":12}},"required":["city"],"additionalProperties":false},"strict":true}}],`

// hermes is a server whose template teaches the calls of Hermes.
func hermes(t testing.TB, e *engine, edits ...func(*serve.Options)) *serve.Server {
	t.Helper()
	return serving(t, e, append(edits, func(o *serve.Options) {
		raw, err := os.ReadFile("../testdata/tokenizers/chat/qwen3_style.jinja")
		require.NoError(t, err)
		o.Template, err = chat.New(string(raw), nil)
		require.NoError(t, err)
		o.MaxLength = 2000
	})...)
}

type call struct {
	Index    *int
	ID, Type string
	Function struct{ Name, Arguments string }
}

type toolAnswer struct {
	Choices []struct {
		Message, Delta struct {
			Content *string
			Calls   []call `json:"tool_calls"`
		}
		Finish *string `json:"finish_reason"`
	}
}

func TestTools(t *testing.T) {
	for _, c := range []struct {
		answer, fields, content, finish string
		arguments                       []string
	}{
		{`Let me see.<tool_call>{"name": "weather", "arguments": {"city": "Oslo"}}</tool_call>`, ``, "Let me see.", "tool_calls", []string{`{"city": "Oslo"}`}},
		{`<tool_call>{"name": "weather", "arguments": {"city": "A"}}</tool_call><tool_call>{"name": "weather", "arguments": {"city": "B"}}</tool_call>`, ``, "", "tool_calls", []string{`{"city": "A"}`, `{"city": "B"}`}},
		{`<tool_call>{"name": "weather", "arguments": {"city": "A"}}</tool_call><tool_call>{"name": "weather", "arguments": {"city": "B"}}</tool_call>`, `"parallel_tool_calls":false,`, "", "tool_calls", []string{`{"city": "A"}`}},
		{`No <tool_ at all`, ``, "No <tool_ at all", "stop", nil},
		{`<tool_call>{"name": "weather", "arguments": {}}</tool_call>`, `"tool_choice":"none",`, `<tool_call>{"name": "weather", "arguments": {}}</tool_call>`, "stop", nil},
		{`[{"name": "weather", "arguments": {"city": "Rome"}}]`, `"tool_choice":"required",`, "", "tool_calls", []string{`{"city": "Rome"}`}},
		{`[{"name": "weather", "arguments": {"city": "Rome"}}]`, `"tool_choice":{"type":"function","function":{"name":"weather"}},`, "", "tool_calls", []string{`{"city": "Rome"}`}},
		{`[{"name": "weather", "arguments": {"city": "Rome"}}]`, `"max_tokens":20,"tool_choice":"required",`, "", "length", nil},
	} {
		s := hermes(t, newEngine(t, c.answer))
		body := `{` + weather + c.fields + `"temperature":0,` + hello + `}`
		x := reply[toolAnswer](t, s, "/v1/chat/completions", body).Choices[0]
		assert.Equal(t, c.finish, *x.Finish, c.answer)
		if c.finish != "length" {
			if c.content == "" {
				assert.Nil(t, x.Message.Content, c.answer)
			} else {
				require.NotNil(t, x.Message.Content, c.answer)
				assert.Equal(t, c.content, *x.Message.Content)
			}
			require.Len(t, x.Message.Calls, len(c.arguments), c.answer)
		}
		for i, want := range c.arguments {
			got := x.Message.Calls[i]
			assert.JSONEq(t, want, got.Function.Arguments)
			assert.Equal(t, [2]string{"weather", "function"}, [2]string{got.Function.Name, got.Type})
			assert.Regexp(t, "^call_", got.ID)
			assert.Nil(t, got.Index)
		}

		// A stream has the same in pieces, the beginnings with what they are.
		var content string
		var calls []call
		finish := ""
		for _, event := range events(t, s, `{"stream":true,`+body[1:]) {
			var y toolAnswer
			require.NoError(t, json.Unmarshal([]byte(event), &y), event)
			d := y.Choices[0].Delta
			if d.Content != nil {
				content += *d.Content
			}
			for _, p := range d.Calls {
				require.NotNil(t, p.Index)
				if p.ID != "" {
					require.Len(t, calls, *p.Index)
					assert.Empty(t, p.Function.Arguments)
					assert.Equal(t, "function", p.Type)
					calls = append(calls, p)
					continue
				}
				calls[*p.Index].Function.Arguments += p.Function.Arguments
			}
			if y.Choices[0].Finish != nil {
				finish = *y.Choices[0].Finish
			}
		}
		if x.Message.Content != nil {
			assert.Equal(t, *x.Message.Content, content)
		}
		require.Len(t, calls, len(x.Message.Calls))
		for i := range calls {
			assert.Equal(t, x.Message.Calls[i].Function, calls[i].Function)
		}
		assert.Equal(t, *x.Finish, finish)
	}
}

// events are those of a stream, without the last.
func events(t *testing.T, s *serve.Server, body string) []string {
	t.Helper()
	text := recorded(s, request("POST", "/v1/chat/completions", body)).Body.String()
	all := strings.Split(strings.TrimSuffix(text, "\n\n"), "\n\n")
	require.Equal(t, "data: [DONE]", all[len(all)-1], text)
	all = all[:len(all)-1]
	for i := range all {
		all[i] = strings.TrimPrefix(all[i], "data: ")
	}
	return all
}

// What is wrong with tools is named.
func TestToolRefusals(t *testing.T) {
	e := newEngine(t, "x")
	plain, s := serving(t, e), hermes(t, e)
	for _, c := range []struct {
		server        *serve.Server
		fields, param string
		message       string
	}{
		{plain, weather, "tools", "teaches no calls that are known"},
		{s, `"tools":7,`, "tools", "a list of tools"},
		{s, `"tools":[{"type":"function","function":{}}],`, "tools[0].function.name", ""},
		{s, weather + `"tool_choice":"maybe",`, "tool_choice", ""},
		{s, weather + `"tool_choice":"required","response_format":{"type":"json_object"},`, "tool_choice", "response_format"},
		{s, `"tools":[{"type":"function","function":{"name":"f","strict":true,"parameters":{"type":"object","not":{}}}}],"tool_choice":"required",`, "tools[0].function.parameters", "not"},
	} {
		code, text := ask(t, c.server, "POST", "/v1/chat/completions", `{`+c.fields+hello+`}`)
		assert.Equal(t, 400, code, c.fields)
		var p problem
		require.NoError(t, json.Unmarshal([]byte(text), &p))
		if assert.NotNil(t, p.Error.Param, text) {
			assert.Equal(t, c.param, *p.Error.Param)
		}
		assert.Contains(t, p.Error.Message, c.message)
	}
	code, text := ask(t, s, "POST", "/v1/chat/completions", `{"messages":[{"role":"assistant","tool_calls":[{"type":"function","function":{"name":"f","arguments":{}}}]}]}`)
	assert.Equal(t, 400, code)
	assert.Contains(t, text, `"param":"messages[0].tool_calls[0].function"`)
}

// Clients send null for the content of a message that has calls alone; templates that
// expect a text get an empty one.
func TestCallsWithoutContent(t *testing.T) {
	s := serving(t, newEngine(t, "x"), func(o *serve.Options) {
		var err error
		o.Template, err = chat.New(`{% for m in messages %}{{ m.role + m['content'] }}{% for c in m.tool_calls or [] %}{{ c.function.arguments.a }}{% endfor %}{% endfor %}`, nil)
		require.NoError(t, err)
	})
	for _, content := range []string{``, `"content":null,`, `"content":"",`} {
		code, text := ask(t, s, "POST", "/tokenize", `{"messages":[{"role":"assistant",`+content+`"tool_calls":[{"type":"function","function":{"name":"f","arguments":"{\"a\":\"b\"}"}}]},{"role":"user","content":"c"}]}`)
		require.Equal(t, 200, code, text)
		_, plain := ask(t, s, "POST", "/tokenize", `{"prompt":"assistantbuserc","add_special_tokens":false}`)
		require.Equal(t, plain, text)
	}
}

// The templates of DeepSeek-R1 ask whether the content is none, and it is then.
func TestCallsOfDeepSeekWithoutContent(t *testing.T) {
	s := serving(t, newEngine(t, "x"), func(o *serve.Options) {
		var err error
		o.Template, err = chat.New(`{% for m in messages %}{% if m['content'] is none %}[{{ m['tool_calls'][0]['function']['name'] }}]{% if false %}<｜tool▁call▁begin｜><｜tool▁sep｜>`+"```"+`json{% endif %}{% else %}{{ m['content'] }}{% endif %}{% endfor %}`, nil)
		require.NoError(t, err)
	})
	for _, content := range []string{``, `"content":null,`} {
		code, text := ask(t, s, "POST", "/tokenize", `{"messages":[{"role":"assistant",`+content+`"tool_calls":[{"type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"user","content":"c"}]}`)
		require.Equal(t, 200, code, text)
		_, plain := ask(t, s, "POST", "/tokenize", `{"prompt":"[f]c","add_special_tokens":false}`)
		require.Equal(t, plain, text)
	}
}

// TestSpecialCalls: the tokens that calls are written with are read where the tokenizer
// has them as special ones, and other special tokens are left out of the text even so.
func TestSpecialCalls(t *testing.T) {
	raw, err := os.ReadFile(folder + "/tokenizer.json")
	require.NoError(t, err)
	words, err := tokenizer.Parse([]byte(strings.NewReplacer("<|pad|>", "<tool_call>", "<|im_start|>", "</tool_call>").Replace(string(raw))), nil)
	require.NoError(t, err)
	ids, err := words.Encode("<tool_call></tool_call>", false)
	require.NoError(t, err)
	require.Len(t, ids, 2)

	e := newEngine(t, `A<|im_end|>B<tool_call>{"name": "weather", "arguments": {"city": "Oslo"}}</tool_call>`)
	e.words = words
	s := hermes(t, e, func(o *serve.Options) { o.Tokenizer = words })
	x := reply[toolAnswer](t, s, "/v1/chat/completions", `{`+weather+`"temperature":0,"ignore_eos":true,`+hello+`}`).Choices[0]
	require.NotNil(t, x.Message.Content)
	assert.Equal(t, "AB", *x.Message.Content)
	require.Len(t, x.Message.Calls, 1)
	assert.JSONEq(t, `{"city": "Oslo"}`, x.Message.Calls[0].Function.Arguments)
}

// A call that max_tokens has cut can be sent back: the template sees the text.
func TestCutCallSentBack(t *testing.T) {
	e := newEngine(t, "x")
	s := serving(t, e, func(o *serve.Options) {
		o.Template = template(t, `{% for m in messages %}{% for c in m.tool_calls %}{{ c.function.arguments }}|{% endfor %}{% endfor %}`)
	})
	call := func(arguments string) string {
		return `{"id":"c","type":"function","function":{"name":"f","arguments":` + arguments + `}}`
	}
	body := `{"messages":[{"role":"assistant","content":null,"tool_calls":[` + call(`"{\"city\": \"Os"`) + `,` + call(`"{\"a\": 1}"`) + `]},{"role":"tool","tool_call_id":"c","content":"error"}]}`
	code, text := ask(t, s, "POST", "/v1/chat/completions", body)
	require.Equal(t, http.StatusOK, code, text)
	prompt, err := e.words.Decode(e.last().Prompt, false)
	require.NoError(t, err)
	assert.Equal(t, `{"city": "Os|{'a': 1}|`, prompt)
}

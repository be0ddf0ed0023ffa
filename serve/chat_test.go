package serve_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/serve"
)

const hello = `"messages":[{"role":"user","content":"Hi"}]`

func TestChat(t *testing.T) {
	e := newEngine(t, "Yes <&>", "No")
	s := serving(t, e)
	code, body := ask(t, s, "POST", "/v1/chat/completions", `{"model":"base","n":2,"temperature":0,`+hello+`}`)
	require.Equal(t, http.StatusOK, code, body)
	assert.Equal(t, `{"id":"chatcmpl-me","object":"chat.completion","created":0,"model":"base","choices":[`+
		`{"index":0,"message":{"role":"assistant","content":"Yes <&>"},"logprobs":null,"finish_reason":"stop"},`+
		`{"index":1,"message":{"role":"assistant","content":"No"},"logprobs":null,"finish_reason":"stop"}],`+
		`"usage":{"prompt_tokens":33,"total_tokens":43,"completion_tokens":10,"prompt_tokens_details":{"cached_tokens":2}}}`, body)

	text, err := e.words.Decode(e.last().Prompt, false)
	require.NoError(t, err)
	assert.Equal(t, "<|im_start|>system\nYou are helpful.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", text)
}

func TestChatStream(t *testing.T) {
	s := serving(t, newEngine(t, "Ja", "é"))
	w := recorded(s, request("POST", "/v1/chat/completions", `{"stream":true,"stream_options":{"include_usage":true},"n":2,"temperature":0,"max_tokens":9,`+hello+`}`))
	assert.Equal(t, "text/event-stream", w.Header().Get("Content-Type"))
	assert.Equal(t, "no", w.Header().Get("X-Accel-Buffering"))
	assert.True(t, w.Flushed)
	event := func(choice string) string {
		return `data: {"id":"chatcmpl-me","object":"chat.completion.chunk","created":0,"model":"base","choices":[` + choice + "]}\n\n"
	}
	want := event(`{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}`) +
		event(`{"index":0,"delta":{"content":"J"},"logprobs":null,"finish_reason":null}`) +
		event(`{"index":0,"delta":{"content":"a"},"logprobs":null,"finish_reason":null}`) +
		event(`{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}`) +
		event(`{"index":1,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}`) +
		event(`{"index":1,"delta":{"content":"é"},"logprobs":null,"finish_reason":null}`) +
		event(`{"index":1,"delta":{},"logprobs":null,"finish_reason":"stop"}`) +
		`data: {"id":"chatcmpl-me","object":"chat.completion.chunk","created":0,"model":"base","choices":[],"usage":{"prompt_tokens":33,"total_tokens":39,"completion_tokens":6,"prompt_tokens_details":{"cached_tokens":2}}}` + "\n\n" +
		"data: [DONE]\n\n"
	assert.Equal(t, want, created.ReplaceAllString(w.Body.String(), `"created":0`))
}

// The text of a stream is that of the whole answer, in whole characters, and so are the
// log-probabilities.
func TestStreamIsTheWhole(t *testing.T) {
	const text = "a żółw 🐢 — ünï <|im_end|> ende"
	s := serving(t, newEngine(t, text))
	for _, options := range []string{``, `"logprobs":true,"top_logprobs":2,`, `"stop":["ende"],`, `"max_tokens":7,`} {
		body := `{"temperature":0,` + options + hello + `}`
		type choice struct {
			Message, Delta struct{ Content string }
			Logprobs       struct{ Content []json.RawMessage }
			Finish         *string `json:"finish_reason"`
		}
		whole := reply[struct{ Choices []choice }](t, s, "/v1/chat/completions", body).Choices[0]
		w := recorded(s, request("POST", "/v1/chat/completions", `{"stream":true,`+body[1:]))
		var got choice
		for event := range strings.SplitSeq(strings.TrimSuffix(w.Body.String(), "\n\n"), "\n\n") {
			event = strings.TrimPrefix(event, "data: ")
			if event == "[DONE]" {
				break
			}
			var x struct{ Choices []choice }
			require.NoError(t, json.Unmarshal([]byte(event), &x), event)
			if !strings.Contains(options, "max_tokens") { // which cuts through one
				assert.NotContains(t, x.Choices[0].Delta.Content, "�")
			}
			got.Message.Content += x.Choices[0].Delta.Content
			got.Logprobs.Content = append(got.Logprobs.Content, x.Choices[0].Logprobs.Content...)
			got.Finish = x.Choices[0].Finish
		}
		assert.Equal(t, whole, got, options)
	}
}

func TestChatLogprobs(t *testing.T) {
	s := serving(t, newEngine(t, "é"))
	type token struct {
		Token   string
		Logprob float64
		Bytes   []int
		Top     []token `json:"top_logprobs"`
	}
	x := reply[struct {
		Choices []struct {
			Logprobs struct{ Content []token }
		}
	}](t, s, "/v1/chat/completions", `{"logprobs":true,"top_logprobs":2,"temperature":0,`+hello+`}`)
	tokens := x.Choices[0].Logprobs.Content
	require.Len(t, tokens, 3)
	assert.Equal(t, `bytes:\xc3`, tokens[0].Token)
	assert.Equal(t, []int{0xc3}, tokens[0].Bytes)
	assert.Equal(t, []int{0xa9}, tokens[1].Bytes)
	assert.Equal(t, "<|endoftext|>", tokens[2].Token)
	require.Len(t, tokens[0].Top, 2)
	assert.Equal(t, tokens[0].Logprob, tokens[0].Top[0].Logprob)
	assert.InDelta(t, -2, tokens[0].Top[1].Logprob-tokens[0].Logprob, 1e-5)
}

// What fails before the first token has a status; what fails later is an event.
func TestStreamFails(t *testing.T) {
	e := newEngine(t, "One two three")
	e.broken = errors.New("secret: the disk is on fire")
	s := serving(t, e)
	w := recorded(s, request("POST", "/v1/chat/completions", `{"stream":true,"temperature":0,`+hello+`}`))
	assert.Equal(t, http.StatusOK, w.Code)
	events := strings.Split(w.Body.String(), "\n\n")
	require.Greater(t, len(events), 4)
	assert.Equal(t, []string{
		`data: {"error":{"message":"the server failed; its log says why","type":"server_error","param":null,"code":null}}`,
		"data: [DONE]", "",
	}, events[len(events)-3:])

	e.refuse = e.broken
	code, body := ask(t, s, "POST", "/v1/chat/completions", `{"stream":true,`+hello+`}`)
	assert.Equal(t, http.StatusInternalServerError, code)
	assert.NotContains(t, body, "secret")
}

// Messages reach the template as it knows them.
func TestMessages(t *testing.T) {
	e := newEngine(t, "x")
	s := serving(t, e, func(o *serve.Options) {
		o.Template = template(t, `{% for m in messages %}[{{ m | tojson }}]{% endfor %}{{ colour }}`)
		o.MaxLength = 500
	})
	reply[struct{}](t, s, "/v1/chat/completions", `{"messages":[
		{"role":"developer","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
		{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"z\": 1, \"a\": 2}"}}]},
		{"role":"tool","tool_call_id":"1","content":"3"}],"chat_template_kwargs":{"colour":"red"}}`)
	text, err := e.words.Decode(e.last().Prompt, false)
	require.NoError(t, err)
	assert.Equal(t, `[{"role": "system", "content": "a\nb"}]`+
		`[{"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": {"z": 1, "a": 2}}}], "content": ""}]`+
		`[{"role": "tool", "tool_call_id": "1", "content": "3"}]red`, strings.TrimSpace(text))
}

// Parts of a content reach a template that goes through them.
func TestContentParts(t *testing.T) {
	e := newEngine(t, "x")
	s := serving(t, e, func(o *serve.Options) {
		o.Template = template(t, `{% for m in messages %}{% for p in m.content %}[{{ p.text }}]{% endfor %}{% endfor %}`)
		o.MaxLength = 500
	})
	reply[struct{}](t, s, "/v1/chat/completions", `{"messages":[
		{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]}`)
	text, err := e.words.Decode(e.last().Prompt, false)
	require.NoError(t, err)
	assert.Equal(t, `[s][a][b]`, strings.TrimSpace(text))
}

// Answers are kept to what response_format says.
func TestResponseFormat(t *testing.T) {
	s := serving(t, newEngine(t, `{"name": "Bo", "extra": 1}`))
	type answer struct {
		Choices []struct {
			Message struct{ Content string }
			Finish  string `json:"finish_reason"`
		}
	}
	schema := `{"type":"object","properties":{"name":{"type":"string"},"age":{"enum":[7]}},"required":["name","age"],"additionalProperties":false}`
	for _, format := range []string{
		`"response_format":{"type":"json_schema","json_schema":{"name":"p","strict":true,"schema":` + schema + `}}`,
		`"guided_json":` + schema, `"structured_outputs":{"json":` + schema + `}`,
	} {
		x := reply[answer](t, s, "/v1/chat/completions", `{"temperature":0,`+format+`,`+hello+`}`)
		assert.Equal(t, `{"name": "Bo", "age": 7}`, strings.ReplaceAll(x.Choices[0].Message.Content, `"age":7`, `"age": 7`))
		assert.Equal(t, "stop", x.Choices[0].Finish)
	}
	x := reply[answer](t, s, "/v1/chat/completions", `{"temperature":0,"response_format":{"type":"json_object"},`+hello+`}`)
	assert.Equal(t, `{"name": "Bo", "extra": 1}`, x.Choices[0].Message.Content)
}

// An answer continues the final message if the request wants that.
func TestContinueFinalMessage(t *testing.T) {
	e := newEngine(t, "x")
	s := serving(t, e)
	const messages = `"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Well, "}]`
	for path, fields := range map[string]string{"/v1/chat/completions": messages, "/v1/responses": strings.Replace(messages, "messages", "input", 1)} {
		reply[struct{}](t, s, path, `{"continue_final_message":true,"add_generation_prompt":false,`+fields+`}`)
		text, err := e.words.Decode(e.last().Prompt, false)
		require.NoError(t, err)
		assert.Equal(t, "<|im_start|>system\nYou are helpful.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nWell,", text) // the template trims messages
	}
	code, text := ask(t, s, "POST", "/v1/chat/completions", `{"continue_final_message":true,`+messages+`}`)
	assert.Equal(t, http.StatusBadRequest, code)
	assert.Contains(t, text, "continue_final_message: goes with add_generation_prompt: false")
}

// Answers match a regular expression, or are one of several texts.
func TestShapesOfText(t *testing.T) {
	s := serving(t, newEngine(t, "yes and no"))
	for fields, want := range map[string]string{
		`"structured_outputs":{"regex":"yes( or no)?"}`: "yes", `"guided_regex":"[a-z]{3}"`: "yes",
		`"structured_outputs":{"choice":["no","yes"]}`: "yes", `"guided_choice":["yes and","no"]`: "yes and",
	} {
		got := reply[struct {
			Choices []struct{ Message struct{ Content string } }
		}](t, s, "/v1/chat/completions", `{"temperature":0,`+fields+`,`+hello+`}`)
		assert.Equal(t, want, got.Choices[0].Message.Content, fields)
	}
}

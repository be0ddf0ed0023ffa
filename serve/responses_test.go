package serve_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/serve"
)

const responses = "/v1/responses"

var (
	itemID = regexp.MustCompile(`"((?:resp|msg|fc|fco|rs)_)[0-9a-f]{48}"`)
	callID = regexp.MustCompile(`"call_[0-9A-Za-z]{24}"`)
	times  = regexp.MustCompile(`"(created_at|completed_at)":\d+`)
)

// fixed replaces random ids and times.
func fixed(text string) string {
	return times.ReplaceAllString(callID.ReplaceAllString(itemID.ReplaceAllString(text, `"${1}0"`), `"call_0"`), `"$1":0`)
}

func respond(t testing.TB, s http.Handler, body string) (id, text string) {
	t.Helper()
	code, text := ask(t, s, "POST", responses, body)
	require.Equal(t, http.StatusOK, code, text)
	var v struct{ ID string }
	require.NoError(t, json.Unmarshal([]byte(text), &v))
	return v.ID, text
}

func TestResponse(t *testing.T) {
	s := serving(t, newEngine(t, "Yes <&>"))
	id, text := respond(t, s, `{"model":"base","input":"Hi","temperature":0,"instructions":"Be kind.","metadata":{"a":"b"}}`)
	assert.Equal(t, `{"id":"resp_0","object":"response","created_at":0,"completed_at":0,"status":"completed","background":false,"error":null,"incomplete_details":null,`+
		`"instructions":"Be kind.","max_output_tokens":null,"model":"base","output":[{"id":"msg_0","type":"message","status":"completed","role":"assistant",`+
		`"content":[{"type":"output_text","text":"Yes <&>","annotations":[],"logprobs":[]}]}],"parallel_tool_calls":true,"previous_response_id":null,`+
		`"reasoning":{"effort":null,"summary":null},"store":true,"temperature":0,"text":{"format":{"type":"text"},"verbosity":"medium"},"tool_choice":"auto","tools":[],`+
		`"top_logprobs":0,"top_p":1,"truncation":"disabled","usage":{"input_tokens":30,"input_tokens_details":{"cached_tokens":2},"output_tokens":7,`+
		`"output_tokens_details":{"reasoning_tokens":0},"total_tokens":37},"user":null,"metadata":{"a":"b"}}`, fixed(text))
	code, again := ask(t, s, "GET", responses+"/"+id, "")
	assert.Equal(t, http.StatusOK, code)
	assert.Equal(t, text, again)

	_, text = respond(t, s, `{"input":"Hi","temperature":0,"max_output_tokens":2,"top_logprobs":1}`)
	assert.Contains(t, text, `"status":"incomplete"`)
	assert.Contains(t, text, `"incomplete_details":{"reason":"max_output_tokens"}`)
	assert.Contains(t, text, `"text":"Yes","annotations":[],"logprobs":[{"token":"Y",`)
	assert.Equal(t, 2, strings.Count(text, `"top_logprobs":[{`))
}

// streamed returns the events of a streamed response.
func streamed(t testing.TB, s http.Handler, body string) (events []map[string]any, text string) {
	t.Helper()
	w := recorded(s, request("POST", responses, body))
	require.Equal(t, http.StatusOK, w.Code, w.Body.String())
	text = fixed(w.Body.String())
	for i, event := range strings.Split(strings.TrimSuffix(text, "\n\n"), "\n\n") {
		name, data, ok := strings.Cut(event, "\ndata: ")
		require.True(t, ok, event)
		var v map[string]any
		require.NoError(t, json.Unmarshal([]byte(data), &v))
		require.Equal(t, "event: "+v["type"].(string), name)
		require.EqualValues(t, i, v["sequence_number"])
		events = append(events, v)
	}
	return events, text
}

func kinds(events []map[string]any) (all []string) {
	for _, e := range events {
		kind := strings.TrimPrefix(e["type"].(string), "response.")
		if len(all) == 0 || all[len(all)-1] != kind {
			all = append(all, kind)
		}
	}
	return all
}

func TestResponseEvents(t *testing.T) {
	s := serving(t, newEngine(t, "Ja"))
	events, text := streamed(t, s, `{"stream":true,"temperature":0,"input":"Hi"}`)
	assert.Equal(t, []string{
		"created", "in_progress", "output_item.added", "content_part.added", "output_text.delta", "output_text.done", "content_part.done", "output_item.done", "completed",
	}, kinds(events))
	for _, want := range []string{
		`{"type":"response.output_item.added","sequence_number":2,"output_index":0,"item":{"id":"msg_0","type":"message","status":"in_progress","role":"assistant","content":[]}}`,
		`{"type":"response.content_part.added","sequence_number":3,"output_index":0,"item_id":"msg_0","content_index":0,"part":{"type":"output_text","text":"","annotations":[],"logprobs":[]}}`,
		`{"type":"response.output_text.delta","sequence_number":4,"output_index":0,"item_id":"msg_0","content_index":0,"delta":"J","logprobs":[]}`,
		`{"type":"response.output_text.done","sequence_number":6,"output_index":0,"item_id":"msg_0","content_index":0,"text":"Ja","logprobs":[]}`,
		`{"type":"response.output_item.done","sequence_number":8,"output_index":0,"item":{"id":"msg_0","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"Ja","annotations":[],"logprobs":[]}]}}`,
	} {
		assert.Contains(t, text, "data: "+want+"\n\n")
	}
	// The last event has the response that is returned without a stream.
	_, whole := respond(t, s, `{"temperature":0,"input":"Hi"}`)
	assert.Contains(t, text, `"response":`+fixed(whole)+"}\n\n")
	assert.Contains(t, text, `"status":"in_progress"`)
}

const flatTool = `{"type":"function","name":"look","parameters":{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false},"strict":true}`

func TestResponseCalls(t *testing.T) {
	e := newEngine(t, `[{"name":"look","arguments":{"a":7}}]`)
	s := serving(t, e)
	body := `{"stream":true,"temperature":0,"input":"Hi","tool_choice":"required","tools":[` + flatTool + `]}`
	events, text := streamed(t, s, body)
	assert.Equal(t, []string{
		"created", "in_progress", "output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done", "completed",
	}, kinds(events))
	assert.Contains(t, text, `"name":"look","arguments":"{\"a\":7}"}`)
	assert.Contains(t, text, `"item":{"id":"fc_0","type":"function_call","status":"completed","call_id":"call_0","name":"look","arguments":"{\"a\":7}"}`)

	// A call that is sent back with its output has the prompt of the same chat.
	for _, c := range []struct{ response, chat string }{
		{`"input":"Hi","instructions":"Be kind."`, `{"role":"system","content":"Be kind."},{"role":"user","content":"Hi"}`},
		{
			`"input":[{"role":"developer","content":[{"type":"input_text","text":"Be"}]},{"type":"message","role":"user","content":"Hi"},{"type":"reasoning","id":"x","summary":[]},
				{"type":"message","role":"assistant","content":[{"type":"output_text","text":"So","annotations":[]}]},{"type":"function_call","call_id":"c","name":"look","arguments":"{}"},
				{"type":"function_call_output","call_id":"c","output":[{"type":"input_text","text":"7"}]}]`,
			`{"role":"developer","content":"Be"},{"role":"user","content":"Hi"},{"role":"assistant","content":"So","tool_calls":[{"id":"c","type":"function","function":{"name":"look","arguments":"{}"}}]},
				{"role":"tool","tool_call_id":"c","content":"7"}`,
		},
	} {
		respond(t, s, `{"temperature":0,"tools":[`+flatTool+`],"tool_choice":"required",`+c.response+`}`)
		got := e.last().Prompt
		nested := `{"type":"function","function":` + strings.Replace(flatTool, `"type":"function",`, "", 1) + `}`
		reply[struct{}](t, s, "/v1/chat/completions", `{"temperature":0,"tools":[`+nested+`],"tool_choice":"required","messages":[`+c.chat+`]}`)
		want, err := e.words.Decode(e.last().Prompt, false)
		require.NoError(t, err)
		text, err := e.words.Decode(got, false)
		require.NoError(t, err)
		assert.Equal(t, want, text)
	}
}

// Reasoning is an item of its own, and goes back to the chat template.
func TestResponseReasoning(t *testing.T) {
	source := `{% for m in messages %}{{ m.role }}:{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }};{% endfor %}` +
		`{% if enable_thinking is defined %}{{ enable_thinking }}{% endif %}`
	e := newEngine(t, "<think>\nEasy.\n</think>\n\nJa")
	s := serving(t, e, func(o *serve.Options) { o.Template = template(t, source) })
	events, text := streamed(t, s, `{"stream":true,"temperature":0,"input":"Hi"}`)
	assert.Equal(t, []string{
		"created", "in_progress", "output_item.added", "content_part.added", "reasoning_text.delta", "reasoning_text.done", "content_part.done", "output_item.done",
		"output_item.added", "content_part.added", "output_text.delta", "output_text.done", "content_part.done", "output_item.done", "completed",
	}, kinds(events))
	assert.Contains(t, text, `{"id":"rs_0","type":"reasoning","status":"completed","content":[{"type":"reasoning_text","text":"Easy."}],"summary":[]}`)
	assert.Contains(t, text, `"text":"Ja","annotations":[]`)
	assert.NotContains(t, text, `"reasoning_tokens":0`)

	id, _ := respond(t, s, `{"temperature":0,"input":"Hi"}`)
	respond(t, s, fmt.Sprintf(`{"temperature":0,"input":"So?","previous_response_id":%q,"reasoning":{"effort":"none"}}`, id))
	prompt, err := e.words.Decode(e.last().Prompt, false)
	require.NoError(t, err)
	assert.Equal(t, "user:Hi;assistant:<think>Easy.</think>Ja;user:So?;False", prompt)

	e.answers = []string{"Ja, or no</think>Ja"}
	s = serving(t, e, func(o *serve.Options) { o.Template = template(t, source+"<think>\n") })
	_, text = respond(t, s, `{"temperature":0,"input":"Hi"}`)
	assert.Contains(t, text, `{"type":"reasoning_text","text":"Ja, or no"}`)
}

func TestResponsesAreStored(t *testing.T) {
	e := newEngine(t, "Ja")
	s := serving(t, e, func(o *serve.Options) {
		o.Keys = []string{"ann k1", "bob k2"}
		o.AdminKeys = []string{"root k3"}
		o.MaxResponses = 60_000
	})
	as := func(key, method, path, body string) (int, string) {
		r := request(method, path, body)
		r.Header.Set("Authorization", "Bearer "+key)
		return send(t, s, r)
	}
	begin := func(key, body string) string {
		code, text := as(key, "POST", responses, body)
		require.Equal(t, http.StatusOK, code, text)
		var v struct{ ID string }
		require.NoError(t, json.Unmarshal([]byte(text), &v))
		return v.ID
	}
	first := begin("k1", `{"temperature":0,"input":"Hi"}`)
	second := begin("k1", `{"temperature":0,"input":[{"role":"user","content":"So?"}],"previous_response_id":"`+first+`"}`)
	prompt, err := e.words.Decode(e.last().Prompt, false)
	require.NoError(t, err)
	assert.Contains(t, prompt, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nJa<|im_end|>\n<|im_start|>user\nSo?<|im_end|>\n")

	code, text := as("k1", "GET", responses+"/"+second+"/input_items?order=asc&limit=2", "")
	assert.Equal(t, http.StatusOK, code)
	assert.Contains(t, fixed(text), `{"object":"list","data":[{"id":"msg_0","type":"message","status":"completed","role":"user","content":[{"type":"input_text","text":"Hi"}]},`)
	assert.Contains(t, text, `"has_more":true`)
	for key, want := range map[string]int{"k1": 200, "k2": 404, "k3": 200} {
		code, text = as(key, "GET", responses+"/"+first, "")
		assert.Equal(t, want, code, text)
	}
	code, text = as("k2", "POST", responses, `{"input":"a","previous_response_id":"`+first+`"}`)
	assert.Equal(t, 404, code, text)
	assert.Contains(t, text, `"param":"previous_response_id"`)
	code, text = as("k1", "POST", responses+"/"+first+"/cancel", "")
	assert.Equal(t, 400, code, text)

	code, text = as("k2", "DELETE", responses+"/"+first, "")
	assert.Equal(t, 404, code, text)
	code, text = as("k1", "DELETE", responses+"/"+first, "")
	assert.Equal(t, 200, code)
	assert.Equal(t, `{"id":"`+first+`","object":"response","deleted":true}`, text)
	code, _ = as("k1", "POST", responses, `{"input":"a","previous_response_id":"`+second+`"}`)
	assert.Equal(t, 404, code, "the chain is broken")
	hidden := begin("k1", `{"temperature":0,"input":"Hi","store":false}`)
	code, _ = as("k1", "GET", responses+"/"+hidden, "")
	assert.Equal(t, 404, code)

	// Who stores most loses its own responses first.
	kept := begin("k2", `{"temperature":0,"input":"Hi"}`)
	for range 30 {
		begin("k1", `{"temperature":0,"input":"Hi","metadata":{"a":"`+strings.Repeat("x", 1000)+`"}}`)
	}
	code, _ = as("k2", "GET", responses+"/"+kept, "")
	assert.Equal(t, 200, code)
	code, _ = as("k1", "GET", responses+"/"+second, "")
	assert.Equal(t, 404, code)
	long := strings.Repeat("x", 40_000)
	code, text = as("k1", "POST", responses, `{"temperature":0,"input":"Hi","store":true,"metadata":{"a":"`+long+`"}}`)
	assert.Equal(t, http.StatusInsufficientStorage, code, text)
}

// Responses in progress can be read and cancelled from elsewhere.
func TestCancelResponse(t *testing.T) {
	e := newEngine(t, "Ja, so it is")
	e.gate = make(chan struct{})
	s := serving(t, e)
	srv := httptest.NewServer(s)
	defer srv.Close()
	go func() { e.gate <- struct{}{} }()
	resp, err := http.Post(srv.URL+responses, "application/json", strings.NewReader(`{"stream":true,"temperature":0,"input":"Hi"}`))
	require.NoError(t, err)
	defer resp.Body.Close()
	buf := make([]byte, 1<<16)
	n, err := resp.Body.Read(buf)
	require.NoError(t, err)
	id := regexp.MustCompile(`resp_[0-9a-f]{48}`).FindString(string(buf[:n]))
	require.NotEmpty(t, id)
	_, text := ask(t, s, "GET", responses+"/"+id, "")
	assert.Contains(t, text, `"status":"in_progress"`)
	code, text := ask(t, s, "POST", responses, `{"input":"a","previous_response_id":"`+id+`"}`)
	assert.Equal(t, 400, code, text)
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			code, text := ask(t, s, "POST", responses+"/"+id+"/cancel", "")
			assert.Equal(t, 200, code, text)
			assert.Contains(t, text, `"status":"cancelled"`)
		})
	}
	both.Wait()
	var rest strings.Builder
	for err == nil {
		n, err = resp.Body.Read(buf)
		rest.Write(buf[:n])
	}
	assert.Contains(t, rest.String(), `"type":"response.incomplete"`)
}

func TestResponsesRefuse(t *testing.T) {
	s := serving(t, newEngine(t, "x"))
	for _, c := range []struct{ fields, param, message string }{
		{`"input":5`, "input", "found 5, expected a string or a list of items"},
		{`"input":[]`, "input", "there are none"},
		{`"temperature":1`, "input", "there are none"},
		{`"input":[{"role":"usr","content":"a"}]`, "input[0].role", `did you mean "user"?`},
		{`"input":[{"role":"user"}]`, "input[0].content", "is missing"},
		{`"input":[{"type":"mcp_call"}]`, "input[0].type", `found "mcp_call"`},
		{`"input":[{"role":"user","content":[{"type":"input_image","image_url":"a"}]}]`, "input[0].content[0].type", "the model reads text"},
		{`"input":[{"type":"function_call","name":"f","arguments":"{}"}]`, "input[0].call_id", "is missing"},
		{`"input":[{"type":"function_call_output","call_id":"c"}]`, "input[0].output", "is missing"},
		{`"input":[{"type":"item_reference","id":"msg_1"}]`, "input[0].id", "no stored response has the item"},
		{`"input":[{"type":"reasoning","summary":[],"encrypted_content":"a"}]`, "input[0].encrypted_content", "not supported"},
		{`"input":"a","background":true`, "background", "not supported"},
		{`"input":"a","conversation":"conv_1"`, "conversation", "not supported"},
		{`"input":"a","prompt":{"id":"p"}`, "prompt", "not supported"},
		{`"input":"a","max_tokens":5`, "max_tokens", "max_output_tokens is"},
		{`"input":"a","max_completion_tokens":5`, "max_completion_tokens", "max_output_tokens is"},
		{`"input":"a","logprobs":true`, "logprobs", "not supported"},
		{`"input":"a","n":2`, "n", "one answer"},
		{`"input":"a","include":["reasoning.encrypted_content"]`, "include", `found "reasoning.encrypted_content", expected message.output_text.logprobs`},
		{`"input":"a","truncation":"auto"`, "truncation", "expected disabled"},
		{`"input":"a","text":{"verbosity":"low"}`, "text.verbosity", "not supported"},
		{`"input":"a","text":{"format":{"type":"json_schema"}}`, "text.format.schema", "is missing"},
		{`"input":"a","text":{"format":{"type":"json_object"}},"guided_json":{}`, "text.format", "kept to guided_json already"},
		{`"input":"a","reasoning":{"effort":"high"}`, "reasoning.effort", "does not have"},
		{`"input":"a","reasoning":{"summary":"detailed"}`, "reasoning.summary", "not supported"},
		{`"input":"a","tools":[{"type":"web_search"}]`, "tools[0].type", `found "web_search", expected "function"`},
		{`"input":"a","tools":[{"type":"function","function":{"name":"f"}}]`, "tools[0].name", "expected a string"},
		{`"input":"a","tools":[` + flatTool + `],"tool_choice":{"type":"function","name":"lok"}`, "tool_choice.name", `did you mean "look"?`},
		{`"input":"a","tools":[` + flatTool + `],"tool_choice":{"type":"allowed_tools","mode":"auto","tools":[{"type":"mcp"}]}`, "tool_choice.tools[0].type", `found "mcp"`},
		{`"input":"a","previous_response_id":"resp_1"`, "previous_response_id", "there is no stored response"},
		{`"input":"` + strings.Repeat("word ", 200) + `"`, "", "can have 128 together"},
	} {
		code, text := ask(t, s, "POST", responses, `{`+c.fields+`}`)
		assert.Contains(t, []int{400, 404}, code, c.fields)
		var p problem
		require.NoError(t, json.Unmarshal([]byte(text), &p), text)
		assert.Contains(t, p.Error.Message, c.message, c.fields)
		if c.param != "" && assert.NotNil(t, p.Error.Param, text) {
			assert.Equal(t, c.param, *p.Error.Param, text)
		}
	}
	code, text := ask(t, s, "POST", responses, `{"input":"a","background":false,"reasoning":{"effort":"medium","summary":"auto"},"text":{"format":{"type":"text"},"verbosity":"medium"},
		"service_tier":"auto","max_tool_calls":3,"prompt_cache_key":"k","safety_identifier":"u","truncation":"disabled","include":[],"stream_options":null}`)
	assert.Equal(t, 200, code, text)
	for path, want := range map[string]int{"/resp_1": 404, "/resp_1/input_items": 404, "/resp_1?stream=true": 400} {
		code, _ := ask(t, s, "GET", responses+path, "")
		assert.Equal(t, want, code, path)
	}
}

// A response is kept to a schema, and calls to the allowed tools.
func TestResponseShapes(t *testing.T) {
	s := serving(t, newEngine(t, `{"a":5}`))
	_, text := respond(t, s, `{"temperature":0,"input":"Hi","text":{"format":{"type":"json_schema","name":"x","strict":true,"schema":{"type":"object","properties":{"a":{"type":"integer","maximum":4}},"required":["a"],"additionalProperties":false}}}}`)
	assert.NotContains(t, text, `"text":"{\"a\":5}"`)
	assert.Contains(t, text, `"text":{"format":{"type":"json_schema","name":"x","strict":true,"schema":`)

	e := newEngine(t, `<tool_call>{"name": "see", "arguments": {}}</tool_call>`)
	source := `{% for t in tools %}{{ t.function.name }},{% endfor %}{{ '<tool_call>{"name": "", "arguments": }</tool_call>' if false }}a`
	s = serving(t, e, func(o *serve.Options) { o.Template = template(t, source) })
	for choice, want := range map[string]string{`"auto"`: `"type":"function_call"`, `{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"look"}]}`: `"type":"output_text","text":"<tool_call>`} {
		_, text := respond(t, s, `{"temperature":0,"input":"Hi","tools":[`+flatTool+`,{"type":"function","name":"see"}],"tool_choice":`+choice+`}`)
		assert.Contains(t, text, want)
		assert.Contains(t, text, `"tool_choice":`+choice)
	}
	reply[struct{}](t, s, "/v1/chat/completions", `{`+hello+`,"tools":[{"type":"function","function":{"name":"look"}},{"type":"function","function":{"name":"see"}}],
		"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function","function":{"name":"see"}}]}}}`)
	prompt, err := e.words.Decode(e.last().Prompt, false)
	require.NoError(t, err)
	assert.Equal(t, "see,a", prompt)
}

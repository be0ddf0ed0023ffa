package serve_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/serve/batching"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/serve"
)

type problem struct {
	Error struct {
		Message, Type string
		Param, Code   *string
	}
}

// What is wrong in a request is named.
func TestRefusals(t *testing.T) {
	s := serving(t, newEngine(t, "x"), func(o *serve.Options) { o.MaxAnswers = 8 })
	for _, c := range []struct{ field, param, message string }{
		{`"temperature":-1`, "temperature", "found -1, expected a number, 0 or more"},
		{`"temperature":"hot"`, "temperature", `found "hot", expected a number, 0 or more`},
		{`"temperature":1e999`, "temperature", "found 1e999"},
		{`"top_p":1.5`, "top_p", "from 0 to 1"},
		{`"top_k":-2`, "top_k", "-1 or more"},
		{`"min_p":2`, "min_p", "from 0 to 1"},
		{`"repetition_penalty":0`, "repetition_penalty", "found 0"},
		{`"frequency_penalty":3`, "frequency_penalty", "from -2 to 2"},
		{`"presence_penalty":[]`, "presence_penalty", "found []"},
		{`"n":0`, "n", "from 1 to 8"},
		{`"n":9`, "n", "from 1 to 8"},
		{`"n":1.5`, "n", "found 1.5"},
		{`"n":99999999999999999999999`, "n", "found 99999999999999999999999"},
		{`"seed":9223372036854775808`, "seed", "a whole number of 64 bits"},
		{`"stop":""`, "stop", "a string is empty"},
		{`"stop":["a",null]`, "stop", "a string or a list of strings"},
		{`"stop":[` + strings.Repeat(`"a",`, 64) + `"a"]`, "stop", "found 65, expected 64 or fewer"},
		{`"stop_token_ids":[512]`, "stop_token_ids", "found 512, expected a token id below 512"},
		{`"stop_token_ids":[null]`, "stop_token_ids", "a list of token ids"},
		{`"logit_bias":{"512":1}`, "logit_bias", "token id below 512"},
		{`"logit_bias":{"5":101}`, "logit_bias", "from -100 to 100"},
		{`"logit_bias":{"5":NaN}`, "", "no JSON"},
		{`"logit_bias":[]`, "logit_bias", "an object of token ids and numbers"},
		{`"min_tokens":20,"max_tokens":10`, "min_tokens", "found 20, expected no more than the 10 tokens"},
		{`"max_tokens":0`, "max_tokens", "1 or more"},
		{`"max_tokens":200`, "max_tokens", "the prompt has 33 tokens"},
		{`"max_completion_tokens":200`, "max_completion_tokens", "the prompt has 33 tokens"},
		{`"top_logprobs":2`, "top_logprobs", "goes with logprobs: true"},
		{`"logprobs":3`, "logprobs", "true or false"},
		{`"logprobs":true,"top_logprobs":21`, "top_logprobs", "from 0 to 20"},
		{`"stream_options":{"include_usage":true}`, "stream_options", "goes with stream: true"},
		{`"stream":true,"stream_options":{"include_usage":1}`, "stream_options.include_usage", "true or false"},
		{`"stream":true,"prompt_logprobs":1`, "prompt_logprobs", "do not go with stream"},
		{`"stream":"yes"`, "stream", "true or false"},
		{`"cache_salt":""`, "cache_salt", "is empty"},
		{`"user":1`, "user", "a string"},
		{`"use_beam_search":true`, "use_beam_search", "not supported"},
		{`"functions":[{}]`, "functions", "not supported"},
		{`"chat_template":"x"`, "chat_template", "not supported"},
		{`"chat_template_kwargs":[]`, "chat_template_kwargs", "an object"},
		{`"response_format":"json"`, "response_format", "an object"},
		{`"response_format":{}`, "response_format.type", "is missing"},
		{`"response_format":{"type":"jsonobject"}`, "response_format.type", `did you mean "json_object"?`},
		{`"response_format":{"type":"json_schema"}`, "response_format.json_schema.schema", "is missing"},
		{`"response_format":{"type":"json_schema","json_schema":{"schema":{"properties":{"a":{"not":{}}}}}}`, "response_format.json_schema.schema", "/properties/a"},
		{`"response_format":{"type":"json_object"},"guided_json":{}`, "guided_json", "the answer is kept to response_format already"},
		{`"structured_outputs":{"grammar":"a"}`, "structured_outputs.grammar", "not supported"},
		{`"structured_outputs":{"regex":"a)|(b"}`, "structured_outputs.regex", "unexpected"},
		{`"structured_outputs":{"regex":"(a|a)*b(.*a.{20})"}`, "structured_outputs.regex", "too large"},
		{`"structured_outputs":{"regex":"a","choice":["b"]}`, "structured_outputs.choice", "the answer is kept to structured_outputs.regex already"},
		{`"guided_regex":"^$"`, "guided_regex", "no text matches, or only the empty one"},
		{`"guided_regex":"(?=a)b"`, "guided_regex", "look"},
		{`"guided_choice":[]`, "guided_choice", "expected one or more strings"},
		{`"guided_choice":["a",""]`, "guided_choice", "expected one or more strings"},
		{`"messages":[]`, "messages", "there are none"},
		{`"messages":[` + strings.Repeat(`{"role":"user","content":""},`, 600) + `{}]`, "messages", "found 601 messages; prompt and answer can have 128 tokens"},
		{`"messages":[{"role":"user","content":[` + strings.Repeat(`7,`, 600) + `7]}]`, "messages[0].content", "found 601 parts"},
		{`"messages":[{"role":"assistant","tool_calls":[` + strings.Repeat(`7,`, 600) + `7]}]`, "messages[0].tool_calls", "found 601 calls"},
		{`"messages":"hi"`, "messages", "a list of messages"},
		{`"messages":[7]`, "messages[0]", "found 7, expected a message"},
		{`"messages":[{"content":"a"}]`, "messages[0].role", "is missing"},
		{`"messages":[{"role":"user","content":7}]`, "messages[0].content", "a string or a list of parts"},
		{`"messages":[{"role":"user","content":[{"type":"image_url","image_url":{}}]}]`, "messages[0].content[0].type", `found "image_url", expected text`},
		{`"messages":[{"role":"user","content":[{"type":"text"}]}]`, "messages[0].content[0].text", "is missing"},
	} {
		body := `{` + c.field + `,` + hello + `}`
		if strings.Contains(c.field, `"messages"`) {
			body = `{` + c.field + `}`
		}
		code, text := ask(t, s, "POST", "/v1/chat/completions", body)
		var p problem
		require.NoError(t, json.Unmarshal([]byte(text), &p), text)
		assert.Equal(t, http.StatusBadRequest, code, c.field)
		assert.Contains(t, p.Error.Message, c.message, c.field)
		assert.Equal(t, "invalid_request_error", p.Error.Type)
		if c.param == "" {
			assert.Nil(t, p.Error.Param, c.field)
		} else if assert.NotNil(t, p.Error.Param, c.field) {
			assert.Equal(t, c.param, *p.Error.Param)
		}
	}
	for _, c := range []struct{ body, message string }{
		{`{}`, "prompt: is missing"},
		{`{"prompt":""}`, "it is empty"},
		{`{"prompt":[]}`, "a list of token ids is empty"},
		{`{"prompt":[[]]}`, "a list of token ids is empty"},
		{`{"prompt":[1,"a"]}`, "a list of strings"},
		{`{"prompt":[1,null]}`, "a list of strings"},
		{`{"prompt":[-1]}`, "expected a token id below 512"},
		{`{"prompt":[[1],[512]]}`, "expected a token id below 512"},
		{`{"prompt":["a","b","c"],"n":3}`, "3 for each of 3 prompts, expected 8 answers or fewer"},
		{`{"prompt":"a","suffix":"b"}`, "suffix: not supported"},
		{`{"prompt":"a","best_of":2}`, "best_of: found 2, expected n, which is 1"},
		{`{"prompt":"a","max_tokens":0}`, "max_tokens"},
		{`{"prompt":"a","logprobs":true}`, "logprobs: found true"},
		{`{"prompt":"` + strings.Repeat("q", 128) + `"}`, "the prompt has 128 tokens"},
		{`{"prompt":"` + strings.Repeat(" ", 129*256) + `"}`, "found a text of 33024 bytes"},
	} {
		code, text := ask(t, s, "POST", "/v1/completions", c.body)
		assert.Equal(t, http.StatusBadRequest, code, c.body)
		assert.Contains(t, text, c.message, c.body)
	}
}

// A body that is none.
func TestBodies(t *testing.T) {
	s := serving(t, newEngine(t, "x"), func(o *serve.Options) { o.MaxBody = 1 << 20 })
	for body, want := range map[string]string{
		"":                           "the body is empty",
		"{":                          "the body is no JSON",
		`{"prompt":"a"} {}`:          "the body is no JSON",
		"null":                       "expected a JSON object",
		"[]":                         "expected a JSON object",
		"{\"prompt\":\"\xff\"}":      "not UTF-8",
		strings.Repeat("[", 100_000): "no JSON",
		`{"prompt":[` + strings.Repeat(`[`, 5000) + strings.Repeat(`]`, 5000) + `]}`:                          "expected a string",
		`{"logit_bias":` + strings.Repeat(`{"a":`, 5000) + "1" + strings.Repeat(`}`, 5000) + `,"prompt":"a"}`: "logit_bias",
	} {
		code, text := ask(t, s, "POST", "/v1/completions", body)
		assert.Equal(t, http.StatusBadRequest, code, text)
		assert.Contains(t, text, want)
	}
	code, text := ask(t, s, "POST", "/v1/completions", `{"prompt":"`+strings.Repeat("a", 1<<20)+`"}`)
	assert.Equal(t, http.StatusRequestEntityTooLarge, code)
	assert.Contains(t, text, "the body has more than 1048576 bytes")

	r := request("POST", "/v1/completions", `{}`)
	r.Header.Set("Content-Type", "text/plain") // what pages of other sites may send unasked
	code, _ = send(t, s, r)
	assert.Equal(t, http.StatusUnsupportedMediaType, code)

	code, text = ask(t, s, "GET", "/v1/completion", "")
	assert.Equal(t, http.StatusNotFound, code)
	assert.Contains(t, text, `{"error":{"message":"there is no GET /v1/completion"`)
	code, text = ask(t, s, "GET", "/v1/completions", "")
	assert.Equal(t, http.StatusMethodNotAllowed, code)
	assert.Contains(t, text, "expected POST")
}

// Errors of the engine have their status.
func TestEngineErrors(t *testing.T) {
	e := newEngine(t, "x")
	s := serving(t, e)
	for _, c := range []struct {
		err            error
		code           int
		kind, retry    string
		told, withheld string
	}{
		{fmt.Errorf("batching: %w", batching.ErrQueue), 429, "rate_limit_error", "1", "too many requests wait", ""},
		{batching.ErrClosed, 503, "server_error", "5", "shut down", ""},
		{lora.ErrFull, 503, "server_error", "1", "no room", ""},
		{fmt.Errorf("%w: no", batching.ErrRequest), 400, "invalid_request_error", "", "no", ""},
		{generate.ErrTooLong, 400, "invalid_request_error", "", "too many tokens", ""},
		{fmt.Errorf("lora: /secret: %w", lora.ErrChanged), 500, "server_error", "", "log", "secret"},
		{errors.New("/secret"), 500, "server_error", "", "log", "secret"},
	} {
		e.refuse = c.err
		w := recorded(s, request("POST", "/v1/completions", `{"prompt":"a"}`))
		assert.Equal(t, c.code, w.Code)
		assert.Equal(t, c.retry, w.Header().Get("Retry-After"))
		var p problem
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &p))
		assert.Equal(t, c.kind, p.Error.Type)
		assert.Contains(t, p.Error.Message, c.told)
		if c.withheld != "" {
			assert.NotContains(t, p.Error.Message, c.withheld)
		}
	}
}

package serve_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/serve"
)

// Fields of other servers that would change the answer are refused by name, and values
// that leave their feature off are accepted.
func TestUnsupportedFields(t *testing.T) {
	const (
		chat       = "/v1/chat/completions"
		completion = "/v1/completions"
		tokenize   = "/tokenize"
	)
	body := map[string]string{chat: hello, completion: `"prompt":"a"`, tokenize: `"messages":[{"role":"user","content":"a"}]`}
	s := serving(t, newEngine(t, "x"))
	for _, c := range []struct{ path, field, refused, accepted string }{
		{chat, "echo", "true", "false"},
		{chat, "return_token_ids", "true", "false"},
		{chat, "typical_p", "0.9", "1.0"},
		{chat, "dry_multiplier", "0.8", "0"},
		{chat, "dry_base", "2", "1.75"},
		{chat, "mirostat", "2", "0"},
		{chat, "mirostat_tau", "3", "5.0"},
		{chat, "xtc_probability", "0.5", "0.0"},
		{chat, "tfs_z", "0.9", "1"},
		{chat, "bad_words", `["a"]`, "[]"},
		{chat, "truncate_prompt_tokens", "5", "null"},
		{chat, "allowed_token_ids", "[1]", "null"},
		{chat, "best_of", "2", "1"},
		{chat, "use_beam_search", "true", "false"},
		{chat, "length_penalty", "2", "1.0"},
		{chat, "guided_grammar", `"root ::= a"`, "null"},
		{chat, "logits_processors", `["x"]`, "[]"},
		{chat, "top_n_sigma", "1", "-1"},
		{chat, "repeat_penalty", "1.1", "1"},
		{chat, "n_predict", "5", "-1"},
		{chat, "do_sample", "false", "true"},
		{chat, "documents", `[{"text":"a"}]`, "[]"},
		{chat, "reasoning_effort", `"low"`, "null"},
		{chat, "modalities", `["text","audio"]`, `["text"]`},
		{chat, "options", `{"num_ctx":5}`, "{}"},
		{chat, "thinking_token_budget", "5", "null"},
		{completion, "typical_p", "0.9", "1"},
		{completion, "truncate_prompt_tokens", "-1", "null"},
		{completion, "max_completion_tokens", "5", "null"},
		{completion, "top_logprobs", "2", "0"},
		{completion, "tools", `[{}]`, "[]"},
		{completion, "grammar", `"root ::= a"`, `""`},
		{completion, "max_new_tokens", "5", "null"},
		{tokenize, "tools", `[{}]`, "[]"},
	} {
		ask := func(value string) (int, string) {
			return ask(t, s, "POST", c.path, fmt.Sprintf(`{"%s":%s,%s}`, c.field, value, body[c.path]))
		}
		code, text := ask(c.refused)
		assert.Equal(t, http.StatusBadRequest, code, c.field)
		var p problem
		require.NoError(t, json.Unmarshal([]byte(text), &p), text)
		assert.Contains(t, p.Error.Message, c.field+": not supported")
		require.NotNil(t, p.Error.Param, c.field)
		assert.Equal(t, c.field, *p.Error.Param)
		code, text = ask(c.accepted)
		assert.Equal(t, http.StatusOK, code, text)
	}
	for field, param := range map[string]string{
		`"stream":true,"stream_options":{"continuous_usage_stats":true}`: "stream_options.continuous_usage_stats",
		`"structured_outputs":{"structural_tag":"a"}`:                    "structured_outputs.structural_tag",
		`"dry_multiplier":0.8,"dry_base":2`:                              "dry_base",
	} {
		_, text := ask(t, s, "POST", chat, `{`+field+`,`+hello+`}`)
		assert.Contains(t, text, param+": not supported")
	}
	code, text := ask(t, s, "POST", chat, `{"dry_multiplier":0,"dry_base":2,"dry_allowed_length":3,"store":true,"metadata":{"a":"b"},"prompt_cache_key":"k",`+hello+`}`)
	assert.Equal(t, http.StatusOK, code, text)
}

// A field that no server has is named in the log once, and a client cannot fill the log.
func TestUnknownFields(t *testing.T) {
	var log bytes.Buffer
	s := serving(t, newEngine(t, "x"), func(o *serve.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	for range 3 {
		code, text := ask(t, s, "POST", "/v1/chat/completions", `{"temprature":0,"stream_options":null,"response_format":{"type":"text","extra":1},`+hello+`}`)
		require.Equal(t, http.StatusOK, code, text)
	}
	assert.Equal(t, 1, strings.Count(log.String(), "field=temprature"))
	assert.Equal(t, 1, strings.Count(log.String(), "field=response_format.extra"))
	assert.Equal(t, 2, strings.Count(log.String(), "unknown request field"))
	for i := range 400 {
		ask(t, s, "POST", "/v1/completions", fmt.Sprintf(`{"f%d":0,"prompt":"a"}`, i))
	}
	assert.Equal(t, 256, strings.Count(log.String(), "unknown request field"))
}

// Chats have the log-probabilities of their prompt, at the place where vLLM has them.
func TestChatPromptLogprobs(t *testing.T) {
	s := serving(t, newEngine(t, "x"))
	code, text := ask(t, s, "POST", "/v1/chat/completions", `{"prompt_logprobs":1,`+hello+`}`)
	require.Equal(t, http.StatusOK, code, text)
	var answer struct {
		Prompt []map[string]struct{ Rank int } `json:"prompt_logprobs"`
	}
	require.NoError(t, json.Unmarshal([]byte(text), &answer))
	require.Len(t, answer.Prompt, 33)
	assert.Nil(t, answer.Prompt[0])
	for _, position := range answer.Prompt[1:] {
		assert.NotEmpty(t, position)
	}
}

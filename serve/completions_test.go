package serve_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type completion struct {
	Choices []struct {
		Index    int
		Text     string
		Finish   string `json:"finish_reason"`
		Logprobs *struct {
			Tokens  []string
			Values  []*float64           `json:"token_logprobs"`
			Top     []map[string]float64 `json:"top_logprobs"`
			Offsets []int                `json:"text_offset"`
		}
		Prompt []map[string]struct {
			Logprob float64
			Rank    *int
			Decoded string `json:"decoded_token"`
		} `json:"prompt_logprobs"`
	}
	Usage struct {
		Prompt int `json:"prompt_tokens"`
		Answer int `json:"completion_tokens"`
		Total  int `json:"total_tokens"`
	}
}

func TestCompletions(t *testing.T) {
	e := newEngine(t, "one", "two")
	s := serving(t, e)
	code, body := ask(t, s, "POST", "/v1/completions", `{"model":"base","prompt":"xq","temperature":0}`)
	require.Equal(t, http.StatusOK, code)
	assert.Equal(t, `{"id":"cmpl-me","object":"text_completion","created":0,"model":"base","choices":[{"index":0,"text":"one","logprobs":null,"finish_reason":"stop"}],`+
		`"usage":{"prompt_tokens":2,"total_tokens":5,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":2}}}`, body)
	assert.Equal(t, 16, e.last().Answers[0].MaxNewTokens)

	xq, err := e.words.Encode("xq", true)
	require.NoError(t, err)
	for prompt, want := range map[string]int{`"xq"`: 1, `["xq"]`: 1, `["xq","xq"]`: 2, `[91,84]`: 1, `[[91,84],[91,84],[91,84]]`: 3} {
		x := reply[completion](t, s, "/v1/completions", `{"temperature":0,"n":2,"prompt":`+prompt+`}`)
		require.Len(t, x.Choices, 2*want, prompt)
		for i, c := range x.Choices {
			assert.Equal(t, i, c.Index)
			assert.Equal(t, []string{"one", "two"}[i%2], c.Text)
		}
		assert.Equal(t, want*len(xq), x.Usage.Prompt, prompt)
	}

	w := recorded(s, request("POST", "/v1/completions", `{"stream":true,"prompt":"xq","temperature":0,"echo":true,"stop":"e"}`))
	event := func(text, finish string) string {
		return `data: {"id":"cmpl-me","object":"text_completion","created":0,"model":"base","choices":[{"index":0,"text":"` + text + `","logprobs":null,"finish_reason":` + finish + "}]}\n\n"
	}
	assert.Equal(t, event("xqon", "null")+event("", `"stop"`)+"data: [DONE]\n\n", created.ReplaceAllString(w.Body.String(), `"created":0`))
}

func TestCompletionLogprobs(t *testing.T) {
	e := newEngine(t, "né")
	s := serving(t, e)
	x := reply[completion](t, s, "/v1/completions", `{"temperature":0,"prompt":"xq","echo":true,"logprobs":2}`).Choices[0]
	assert.Equal(t, "xqné", x.Text)
	l := x.Logprobs
	require.NotNil(t, l)
	assert.Equal(t, []string{"x", "q", "n", `bytes:\xc3`, `bytes:\xa9`, "<|endoftext|>"}, l.Tokens)
	assert.Equal(t, []int{0, 1, 2, 3, 4, 4}, l.Offsets)
	require.Len(t, l.Values, 6)
	assert.Nil(t, l.Values[0])
	assert.Nil(t, l.Top[0])
	for i, v := range l.Values[1:] {
		require.NotNil(t, v)
		require.Len(t, l.Top[i+1], 2)
		assert.Equal(t, *v, l.Top[i+1][l.Tokens[i+1]])
	}

	// Nothing but the prompt, as those who measure likelihoods ask for it.
	y := reply[completion](t, s, "/v1/completions", `{"prompt":[91,84],"echo":true,"logprobs":1,"max_tokens":0}`)
	assert.Equal(t, "xq", y.Choices[0].Text)
	assert.Equal(t, 1, e.last().Answers[0].MaxNewTokens)
	assert.Equal(t, []string{"x", "q"}, y.Choices[0].Logprobs.Tokens)
	assert.Equal(t, "length", y.Choices[0].Finish)
	assert.Equal(t, [3]int{2, 0, 2}, [3]int{y.Usage.Prompt, y.Usage.Answer, y.Usage.Total})

	z := reply[completion](t, s, "/v1/completions", `{"temperature":0,"prompt":"xq","prompt_logprobs":1}`).Choices[0]
	require.Len(t, z.Prompt, 2)
	assert.Nil(t, z.Prompt[0])
	require.Contains(t, z.Prompt[1], "84")
	assert.Equal(t, 1, *z.Prompt[1]["84"].Rank)
	assert.Equal(t, "q", z.Prompt[1]["84"].Decoded)
	assert.Nil(t, z.Logprobs)
}

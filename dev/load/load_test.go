package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// server answers each request with as many pieces as it asks for tokens, and one of the
// given models with an error.
type server struct {
	sync.Mutex
	bodies      []map[string]any
	now, most   int // requests under way
	bad, broken string
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body map[string]any
	if r.URL.Path != "/v1/completions" || r.Header.Get("Authorization") != "Bearer k" || json.NewDecoder(r.Body).Decode(&body) != nil {
		http.Error(w, "no", http.StatusBadRequest)
		return
	}
	s.Lock()
	s.bodies = append(s.bodies, body)
	s.now++
	s.most = max(s.most, s.now)
	s.Unlock()
	defer func() { s.Lock(); s.now--; s.Unlock() }()
	if body["model"] == "bad" {
		http.Error(w, s.bad, http.StatusTooManyRequests)
		return
	}
	n := int(body["max_tokens"].(float64))
	for i := range n {
		text := "a"
		if i == 1 {
			text = "" // half a character
		}
		fmt.Fprintf(w, ": ping\n\ndata: {\"choices\":[{\"text\":%q,\"finish_reason\":null}]}\n\n", text)
		w.(http.Flusher).Flush()
	}
	if body["model"] == "broken" {
		fmt.Fprint(w, s.broken)
		return
	}
	fmt.Fprintf(w, "data: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"length\"}]}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":%d}}\n\ndata: [DONE]\n\n", n)
}

func measured(t *testing.T, s *server, args ...string) (report, error) {
	srv := httptest.NewServer(s)
	defer srv.Close()
	var out strings.Builder
	err := run(t.Context(), append([]string{"--url", srv.URL + "/", "--key", "k", "--json"}, args...), &out)
	var r report
	require.NoError(t, json.Unmarshal([]byte(out.String()), &r))
	return r, err
}

func TestStreams(t *testing.T) {
	s := &server{}
	r, err := measured(t, s, "--streams", "3", "--requests", "10", "--tokens", "5", "--words", "4", "--shared", "2", "--variants", `[{"model":"a"},{"model":"b","temperature":1}]`)
	require.NoError(t, err)
	require.Equal(t, 10, r.Requests)
	require.Zero(t, r.Failed)
	require.Equal(t, 50, r.Tokens)
	require.Equal(t, 70, r.PromptTokens)
	require.InDelta(t, 50, r.TokensPerSecond*r.Seconds, 1e-6)
	require.LessOrEqual(t, s.most, 3)
	require.LessOrEqual(t, r.FirstToken.P50, r.Answer.P50)
	require.LessOrEqual(t, r.Between.P99, r.Between.Max)
	prompts, models := map[string]bool{}, map[any]int{}
	for _, b := range s.bodies {
		fields := strings.Fields(b["prompt"].(string))
		require.Len(t, fields, 6)
		require.Equal(t, strings.Fields(s.bodies[0]["prompt"].(string))[:2], fields[:2])
		prompts[b["prompt"].(string)] = true
		models[b["model"]]++
		require.Equal(t, true, b["ignore_eos"])
		require.Equal(t, b["model"] == "b", b["temperature"] == 1.0)
	}
	require.Len(t, prompts, 10)
	require.Equal(t, map[any]int{"a": 5, "b": 5}, models)
}

func TestIDs(t *testing.T) {
	s := &server{}
	_, err := measured(t, s, "--requests", "4", "--tokens", "2", "--words", "30", "--shared", "5", "--vocab", "20")
	require.NoError(t, err)
	for _, b := range s.bodies {
		ids := b["prompt"].([]any)
		require.Len(t, ids, 35)
		require.Equal(t, s.bodies[0]["prompt"].([]any)[:5], ids[:5])
		for _, id := range ids {
			require.GreaterOrEqual(t, id, 16.0)
			require.Less(t, id, 20.0)
		}
	}
	require.NotEqual(t, s.bodies[0]["prompt"], s.bodies[1]["prompt"])
}

func TestOpenLoop(t *testing.T) {
	s := &server{}
	r, err := measured(t, s, "--rate", "2000", "--requests", "20", "--tokens", "3")
	require.NoError(t, err)
	require.Equal(t, 60, r.Tokens)
	require.Len(t, s.bodies, 20)
}

func TestFailures(t *testing.T) {
	for broken, want := range map[string]string{
		"": "the stream has no end", "data: [DONE]\n\n": "no usage", "data: {\n\n": "event", "data: {\"error\":{\"message\":\"gone\"}}\n\n": "the stream says: gone",
	} {
		r, err := measured(t, &server{bad: "later", broken: broken}, "--requests", "3", "--tokens", "2", "--variants", `[{"model":"broken"},{},{"model":"bad"}]`)
		require.ErrorContains(t, err, "2 of 3 requests failed")
		require.ErrorContains(t, err, want)
		require.Equal(t, 2, r.Failed)
		require.Equal(t, 2, r.Tokens)
	}
	for args, want := range map[string]string{
		"--requests 1": "--url is missing", "--url x --tokens 0": "--tokens are 1 or more", "--url x --rate -1": "--rate: found -1", "--url x --vocab 16": "--vocab: found 16, expected more than 16", "--url x --variants []": "--variants: found an empty list",
		"--url x --variants 3": "--variants: json",
	} {
		require.ErrorContains(t, run(t.Context(), strings.Fields(args), &strings.Builder{}), want)
	}
}

func TestReport(t *testing.T) {
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	r := newReport([]sample{
		{due: ms(100), chunks: []time.Duration{ms(150), ms(160), ms(190)}, end: ms(200), prompt: 4, tokens: 3},
		{due: ms(110), chunks: []time.Duration{ms(300)}, end: ms(600), prompt: 5, tokens: 1},
		{due: ms(120), end: ms(700), err: errors.New("gone")},
	})
	require.Equal(t, report{
		Requests: 3, Failed: 1, Error: "gone", Seconds: 0.6, PromptTokens: 9, Tokens: 4, TokensPerSecond: 4 / 0.6,
		FirstToken: quantiles{0.05, 0.19, 0.19}, Between: quantiles{0.01, 0.03, 0.03}, Answer: quantiles{0.1, 0.49, 0.49},
	}, r)
	var b strings.Builder
	require.NoError(t, r.table(&b))
	require.Equal(t, strings.Join([]string{
		"requests        3       1 failed", "tokens          4       of prompts  9", "tokens/s        6.7     in 0.60 s",
		"                p50 ms  p99 ms  max ms", "first token     50.0    190.0   190.0", "between tokens  10.0    30.0    30.0", "answer          100.0   490.0   490.0", "",
	}, "\n"), b.String())

	many := make([]time.Duration, 200)
	for i := range many {
		many[i] = ms(200 - i)
	}
	require.Equal(t, quantiles{0.1, 0.198, 0.2}, newQuantiles(many))
}

package serve_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"log/slog"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/generate/sample"
	"github.com/lorafuse/lorafuse/serve"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPlainRoutes(t *testing.T) {
	s := serving(t, newEngine(t, "x"))
	for _, c := range []struct{ method, path, want string }{
		{"GET", "/health", ""}, {"GET", "/ping", ""}, {"POST", "/ping", ""}, {"GET", "/ready", ""}, {"GET", "/version", `{"version":"1.2.3"}`},
	} {
		code, body := ask(t, s, c.method, c.path, "")
		assert.Equal(t, http.StatusOK, code, c.path)
		assert.Equal(t, c.want, body)
	}
}

func TestDrain(t *testing.T) {
	e := newEngine(t, "x")
	e.gate = make(chan struct{})
	s := serving(t, e)
	done := make(chan int)
	go func() {
		code, _ := ask(t, s, "POST", "/v1/completions", `{"prompt":"a","temperature":0}`)
		done <- code
	}()
	e.gate <- struct{}{}
	s.Drain()
	for path, want := range map[string]int{"/ready": 503, "/health": 200, "/v1/models": 503} {
		code, _ := ask(t, s, "GET", path, "")
		assert.Equal(t, want, code, path)
	}
	w := recorded(s, request("POST", "/v1/completions", `{"prompt":"a"}`))
	assert.Equal(t, 503, w.Code)
	assert.Equal(t, "5", w.Header().Get("Retry-After"))
	close(e.gate)
	assert.Equal(t, 200, <-done)
}

// What a request says is what the engine is asked.
func TestSettings(t *testing.T) {
	e := newEngine(t, "x")
	s := serving(t, e)
	ask := func(fields string) generate.GenerateOptions {
		reply[struct{}](t, s, "/v1/chat/completions", `{`+fields+`,`+hello+`}`)
		return e.last().Answers[0]
	}
	o := ask(`"seed":-5,"temperature":0.7,"top_k":3,"top_p":0.5,"min_p":0.1,"repetition_penalty":1.1,"frequency_penalty":0.5,"presence_penalty":-1,
		"logit_bias":{"7":-100,"9":2.5},"stop":["a","b"],"include_stop_str_in_output":true,"min_tokens":2,"max_tokens":16.0,"stop_token_ids":[5],"cache_salt":"s","user":"u","unknown":{"x":1}`)
	minus := int64(-5)
	assert.Equal(t, sample.Sampler{
		Seed: uint64(minus), Temperature: 0.7, TopK: 3, TopP: 0.5, MinP: 0.1, RepetitionPenalty: 1.1, FrequencyPenalty: 0.5, PresencePenalty: -1,
		Bias: map[int32]float32{7: -100, 9: 2.5},
	}, o.Sampler)
	assert.Equal(t, []string{"a", "b"}, o.Stop)
	assert.True(t, o.IncludeStop)
	assert.Equal(t, []int32{0, 5}, o.EOS)
	assert.Equal(t, [2]int{2, 16}, [2]int{o.MinNewTokens, o.MaxNewTokens})
	assert.Equal(t, "s", e.last().Salt)

	o = ask(`"n":2`)
	assert.Equal(t, 1.0, o.Sampler.Temperature)
	assert.Equal(t, 128-33, o.MaxNewTokens)
	second := e.last().Answers[1].Sampler
	assert.Equal(t, o.Sampler.Seed, second.Seed)
	assert.Equal(t, [2]uint64{0, 1}, [2]uint64{o.Sampler.Sequence, second.Sequence})
	assert.NotEqual(t, o.Sampler.Seed, ask(`"n":1`).Sampler.Seed, "seeds differ where none is given")

	o = ask(`"ignore_eos":true,"max_tokens":3,"stop":"zz","top_p":0,"top_k":-1`)
	assert.True(t, o.IgnoreEOS)
	assert.Positive(t, o.Sampler.TopP) // 0 would be all tokens
	assert.Equal(t, 0, o.Sampler.TopK)
	o = ask(`"ignore_eos":true,"stop_token_ids":[7],"max_tokens":3`)
	assert.False(t, o.IgnoreEOS)
	assert.Equal(t, []int32{7}, o.EOS)
	o = ask(`"max_tokens":3,"max_completion_tokens":4,"temperature":null`)
	assert.Equal(t, 4, o.MaxNewTokens)
}

// Where the model does not say how answers end, the tokenizer does.
func TestEndOfTokenizer(t *testing.T) {
	e := newEngine(t, "x")
	end := e.model.Config.EOS // the engine needs it
	e.model.Config.EOS = nil
	s := serving(t, e)
	e.model.Config.EOS = end
	reply[struct{}](t, s, "/v1/chat/completions", `{`+hello+`}`)
	o := e.last().Answers[0]
	id, ok := e.words.TokenID(e.words.SpecialTokens()["eos_token"])
	require.True(t, ok)
	assert.Equal(t, []int32{id}, o.EOS)
	assert.False(t, o.IgnoreEOS)
}

// A token that ends an answer is no part of it, unless it is asked for.
func TestStopTokens(t *testing.T) {
	e := newEngine(t, "xqn")
	s := serving(t, e)
	for fields, want := range map[string]string{
		`"stop_token_ids":[84]`: "x", `"stop_token_ids":[84],"include_stop_str_in_output":true`: "xq",
		`"stop":"q"`: "x", `"stop":"q","include_stop_str_in_output":true`: "xq",
	} {
		x := reply[completion](t, s, "/v1/completions", `{"prompt":"a","temperature":0,`+fields+`}`).Choices[0]
		assert.Equal(t, want, x.Text, fields)
		assert.Equal(t, "stop", x.Finish)
	}
}

// generation_config.json says what requests do not, as with vLLM.
func TestDefaults(t *testing.T) {
	e := newEngine(t, "x")
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(folder)))
	e.model.Dir = dir
	write := func(text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "generation_config.json"), []byte(text), 0o666))
	}
	write(`{"do_sample":false,"temperature":0.6,"top_k":20,"top_p":0.9,"min_p":0.2,"repetition_penalty":1.05,"max_new_tokens":5}`)
	s := serving(t, e)
	reply[struct{}](t, s, "/v1/completions", `{"prompt":"a","seed":1}`)
	o := e.last().Answers[0]
	assert.Equal(t, sample.Sampler{Seed: 1, Temperature: 0.6, TopK: 20, TopP: 0.9, MinP: 0.2, RepetitionPenalty: 1.05}, o.Sampler)
	assert.Equal(t, 5, o.MaxNewTokens)
	reply[struct{}](t, s, "/v1/completions", `{"prompt":"a","temperature":0.1,"max_tokens":50}`)
	assert.Equal(t, 0.1, e.last().Answers[0].Sampler.Temperature)
	assert.Equal(t, 5, e.last().Answers[0].MaxNewTokens)

	for _, wrong := range []string{`{"top_k":"all"}`, `{"top_p":2}`, `{"max_new_tokens":0}`, `{`} {
		write(wrong)
		_, err := serve.New(serve.Options{Engine: e, Model: e.model})
		require.ErrorContains(t, err, "generation_config.json", wrong)
	}
}

func TestKeys(t *testing.T) {
	e := newEngine(t, "x")
	s := serving(t, e, updates, func(o *serve.Options) { o.Keys, o.AdminKeys = []string{"one", "two"}, []string{"root"} })
	for _, c := range []struct {
		key, path, body string
		code            int
	}{
		{"", "/v1/completions", `{"prompt":"a"}`, 401},
		{"Bearer three", "/v1/completions", `{"prompt":"a"}`, 401},
		{"Bearer on", "/v1/completions", `{"prompt":"a"}`, 401},
		{"Basic two", "/v1/completions", `{"prompt":"a"}`, 401},
		{"two", "/v1/completions", `{"prompt":"a"}`, 401},
		{"bearer two", "/v1/completions", `{"prompt":"a"}`, 200},
		{"Bearer two", "/v1/completions", `{"prompt":"a"}`, 200},
		{"Bearer root", "/v1/completions", `{"prompt":"a"}`, 200},
		{"Bearer two", "/v1/load_lora_adapter", `{"lora_name":"a","lora_path":"lora"}`, 401},
		{"Bearer root", "/v1/load_lora_adapter", `{"lora_name":"a","lora_path":"lora"}`, 200},
		{"", "/tokenize", `{"prompt":"a"}`, 401},
	} {
		r := request("POST", c.path, c.body)
		r.Header.Set("Authorization", c.key)
		w := recorded(s, r)
		assert.Equal(t, c.code, w.Code, c.key+c.path)
		if c.code == 401 {
			assert.Contains(t, w.Body.String(), `"code":"invalid_api_key"`)
			assert.Equal(t, "Bearer", w.Header().Get("WWW-Authenticate"))
		}
	}
	code, _ := ask(t, s, "GET", "/health", "")
	assert.Equal(t, 200, code)
	assert.Regexp(t, "^key-[0-9a-f]{8}$", e.last().Client)
	_, err := serve.New(serve.Options{Engine: e, Model: e.model, Keys: []string{""}})
	require.ErrorContains(t, err, "a key is empty")
}

func TestOrigins(t *testing.T) {
	e := newEngine(t, "x")
	s := serving(t, e, func(o *serve.Options) { o.Origins = []string{"https://a.example"}; o.Keys = []string{"k"} })
	preflight := func(h http.Handler, origin string) http.Header {
		r := request("OPTIONS", "/v1/completions", "")
		r.Header.Set("Origin", origin)
		r.Header.Set("Access-Control-Request-Method", "POST")
		r.Header.Set("Access-Control-Request-Headers", "authorization")
		return recorded(h, r).Header()
	}
	h := preflight(s, "https://a.example")
	assert.Equal(t, "https://a.example", h.Get("Access-Control-Allow-Origin"))
	assert.Equal(t, "authorization", h.Get("Access-Control-Allow-Headers"))
	assert.Equal(t, "Origin", h.Get("Vary"))
	assert.Empty(t, preflight(s, "https://b.example").Get("Access-Control-Allow-Origin"))
	assert.Empty(t, preflight(serving(t, e), "https://a.example").Get("Access-Control-Allow-Origin"))
}

// The log has what was done, and nothing of what was said.
func TestLog(t *testing.T) {
	e := newEngine(t, "answered")
	var log bytes.Buffer
	s := serving(t, e, func(o *serve.Options) { o.Logger = slog.New(slog.NewJSONHandler(&log, nil)) })
	w := recorded(s, request("POST", "/v1/completions", `{"model":"dora","prompt":"asked","temperature":0}`))
	assert.Equal(t, "me", w.Header().Get("X-Request-Id"))
	var line map[string]any
	require.NoError(t, json.Unmarshal(log.Bytes(), &line))
	for key, want := range map[string]any{"id": "me", "method": "POST", "path": "/v1/completions", "status": 200.0, "model": "dora", "cached_tokens": 2.0, "finish": "eos", "queued": 1e6} {
		assert.Equal(t, want, line[key], key)
	}
	assert.Regexp(t, "^[0-9a-f]{12}$", line["adapter"])
	assert.NotContains(t, log.String(), "asked")
	assert.NotContains(t, log.String(), "answered")

	log.Reset()
	e.refuse = os.ErrClosed
	r := request("POST", "/v1/completions", `{"prompt":"a"}`)
	r.Header.Set("X-Request-Id", "a\nb")
	w = recorded(s, r)
	assert.Contains(t, log.String(), "file already closed")
	assert.Regexp(t, "^[0-9a-f]{32}$", w.Header().Get("X-Request-Id"))
}

// vectors are of the length of what was asked, and the number of it.
type vectors struct{ got any }

func (v *vectors) MaxLength() int { return 4 }

func (v *vectors) Embed(_ context.Context, texts []string) ([][]float32, error) {
	v.got = texts
	return v.of(len(texts)), nil
}

func (v *vectors) EmbedTokens(_ context.Context, rows [][]int32) ([][]float32, error) {
	v.got = rows
	return v.of(len(rows)), nil
}

func (v *vectors) of(n int) (all [][]float32) {
	for range n {
		all = append(all, []float32{0.48, 0.64, 0.6})
	}
	return all
}

func TestEmbeddings(t *testing.T) {
	e, v := newEngine(t, "x"), &vectors{}
	s := serving(t, e, func(o *serve.Options) { o.Embedder = v })
	code, body := ask(t, s, "POST", "/v1/embeddings", `{"model":"base","input":"xq"}`)
	require.Equal(t, 200, code)
	assert.Equal(t, `{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.48,0.64,0.6]}],"model":"base","usage":{"prompt_tokens":2,"total_tokens":2}}`, body)
	assert.Equal(t, []string{"xq"}, v.got)

	type answer struct {
		Data []struct {
			Index     int
			Embedding string
		}
		Usage struct {
			Total int `json:"total_tokens"`
		}
	}
	x := reply[answer](t, s, "/v1/embeddings", `{"input":[[1,2],[3]],"encoding_format":"base64","dimensions":2}`)
	require.Len(t, x.Data, 2)
	raw, err := base64.StdEncoding.DecodeString(x.Data[1].Embedding)
	require.NoError(t, err)
	require.Len(t, raw, 8)
	assert.InDelta(t, 0.6, math.Float32frombits(binary.LittleEndian.Uint32(raw)), 1e-6)
	assert.InDelta(t, 0.8, math.Float32frombits(binary.LittleEndian.Uint32(raw[4:])), 1e-6)
	assert.Equal(t, 3, x.Usage.Total)
	assert.Equal(t, [][]int32{{1, 2}, {3}}, v.got)

	for body, want := range map[string]string{
		`{"input":"a","dimensions":4}`: "vectors have 3", `{"input":[1,2,3,4,5]}`: "found 5 tokens, expected 4 or fewer",
		`{}`: "input: is missing", `{"input":"a","encoding_format":"int8"}`: `found \"int8\", expected float or base64`,
		`{"input":"a","model":"dora"}`: "without adapters",
	} {
		code, text := ask(t, s, "POST", "/v1/embeddings", body)
		assert.Equal(t, 400, code, body)
		assert.Contains(t, text, want)
	}
	code, text := ask(t, serving(t, e), "POST", "/v1/embeddings", `{"input":"a"}`)
	assert.Equal(t, 400, code)
	assert.Contains(t, text, "makes no vectors")

	alone, err := serve.New(serve.Options{Embedder: v, Model: e.model, Name: "base", Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	code, text = ask(t, alone, "POST", "/v1/completions", `{"prompt":"a"}`)
	assert.Equal(t, 400, code)
	assert.Contains(t, text, "continues none")
	code, text = ask(t, alone, "POST", "/v1/chat/completions", `{`+hello+`}`)
	assert.Equal(t, 400, code)
	assert.Contains(t, text, "continues none")
	code, _ = ask(t, alone, "GET", "/v1/models", "")
	assert.Equal(t, 200, code)
}

func TestTokens(t *testing.T) {
	s := serving(t, newEngine(t, "x"))
	_, body := ask(t, s, "POST", "/tokenize", `{"model":"base","prompt":"xq","return_token_strs":true}`)
	assert.Equal(t, `{"count":2,"max_model_len":128,"tokens":[91,84],"token_strs":["x","q"]}`, body)
	_, body = ask(t, s, "POST", "/tokenize", `{`+hello+`}`)
	assert.Contains(t, body, `"count":33`)
	_, body = ask(t, s, "POST", "/tokenize", `{"add_generation_prompt":false,`+hello+`}`)
	assert.Contains(t, body, `"count":26`)
	_, body = ask(t, s, "POST", "/detokenize", `{"tokens":[91,84,0]}`)
	assert.Equal(t, `{"prompt":"xq<|endoftext|>"}`, body)
	for path, body := range map[string]string{"/tokenize": `{}`, "/detokenize": `{"tokens":[-1]}`} {
		code, _ := ask(t, s, "POST", path, body)
		assert.Equal(t, 400, code)
	}
}

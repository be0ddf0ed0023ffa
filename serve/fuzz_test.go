package serve_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"
)

// Whatever comes as a body, the answer is one, or an error that says so.
func FuzzBody(f *testing.F) {
	for _, body := range []string{
		`{"prompt":"a","n":2,"stop":["b"],"logprobs":1,"echo":true}`, `{"prompt":[[1,2],[3]],"max_tokens":0,"echo":true}`,
		`{"messages":[{"role":"user","content":[{"type":"text","text":"a"}]}],"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"auto"}`,
		`{"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{}"}}]}],"stream":true,"stream_options":{"include_usage":true}}`,
		`{"prompt":"a","response_format":{"type":"json_schema","json_schema":{"name":"a","schema":{"type":"object"}}},"logit_bias":{"3":1e2},"seed":-1}`,
		`{"tokens":[1,2],"lora_name":"a","lora_path":"../a","input":["a"]}`, "\xff", "[", "null", `{"prompt":null}`, `{"n":1e400}`,
	} {
		f.Add(body)
	}
	s := serving(f, newEngine(f, "ab"), updates)
	f.Fuzz(func(t *testing.T, body string) {
		for _, path := range []string{"/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/tokenize", "/detokenize", "/v1/load_lora_adapter", "/v1/unload_lora_adapter"} {
			code, text := ask(t, s, http.MethodPost, path, body)
			if code == http.StatusOK {
				continue
			}
			var p problem
			if err := json.Unmarshal([]byte(text), &p); err != nil || p.Error.Message == "" || p.Error.Type == "" {
				t.Fatalf("%s: %d is no error of OpenAI's form: %q", path, code, text)
			}
			if code >= 500 || !utf8.ValidString(text) || strings.Contains(text, "panic") {
				t.Fatalf("%s: %d: %s", path, code, text)
			}
		}
	})
}

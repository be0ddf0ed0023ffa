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

// Whatever comes as a response's body, the answer is one, or an error that says so.
func FuzzResponse(f *testing.F) {
	for _, body := range []string{
		`{"input":"a","instructions":"b","store":false,"text":{"format":{"type":"json_object"}},"reasoning":{"effort":"none"}}`,
		`{"input":[{"role":"user","content":[{"type":"input_text","text":"a"}]},{"type":"function_call","call_id":"c","name":"f","arguments":"{"},{"type":"function_call_output","call_id":"c","output":"d"}],"stream":true}`,
		`{"input":[{"type":"reasoning","summary":[{"type":"summary_text","text":"a"}]},{"role":"assistant","content":[{"type":"refusal","refusal":"a"}]},{"id":"x"}],"include":["message.output_text.logprobs"],"top_logprobs":2}`,
		`{"input":"a","tools":[{"type":"function","name":"f","parameters":null,"strict":true}],"tool_choice":{"type":"allowed_tools","mode":"required","tools":[{"type":"function","name":"f"}]}}`,
		`{"input":"a","previous_response_id":"ID"}`, `{"input":null,"metadata":{"a":1}}`, "\xff", "[", "null",
	} {
		f.Add(body)
	}
	s := serving(f, newEngine(f, "ab"))
	first, _ := respond(f, s, `{"input":"a"}`)
	f.Fuzz(func(t *testing.T, body string) {
		code, text := ask(t, s, http.MethodPost, responses, strings.ReplaceAll(body, "ID", first))
		if code == http.StatusOK {
			return
		}
		var p problem
		if err := json.Unmarshal([]byte(text), &p); err != nil || p.Error.Message == "" || p.Error.Type == "" || code >= 500 || !utf8.ValidString(text) {
			t.Fatalf("%d is no error of OpenAI's form: %q", code, text)
		}
	})
}

// Whatever a job is to be, it is one, or an error that says so.
func FuzzJob(f *testing.F) {
	for _, body := range []string{
		`{"model":"base","training_file":"FILE","suffix":"a","seed":1,"hyperparameters":{"n_epochs":1,"batch_size":"auto","learning_rate_multiplier":0.1}}`,
		`{"model":"base","training_file":"FILE","validation_file":"FILE","metadata":{"a":"b"},"integrations":[],"lora":{"r":4,"target_modules":["q_proj"],"rank_pattern":{"a":1}}}`,
		`{"model":"base","training_file":"FILE","method":{"type":"dpo","dpo":{"hyperparameters":{"beta":"auto","n_epochs":2}}}}`,
		`{"model":"base","training_file":"FILE","lora":{"r":1e400,"lora_alpha":null,"init_lora_weights":"pissa_niter_4"}}`, `{"model":"base@12","training_file":null}`,
		`{"model":"base","training_file":"FILE","lora":{"a":{"<<":{"r":1}},"target_modules":"(","modules_to_save":["\u2028"]}}`, `{"method":{"type":"supervised","supervised":[]}}`,
	} {
		f.Add(body)
	}
	s := tunes(f, &trainer{})
	file := uploaded(f, s, chats)
	f.Fuzz(func(t *testing.T, body string) {
		code, text := ask(t, s, http.MethodPost, jobs, strings.ReplaceAll(body, "FILE", file))
		if code == http.StatusOK {
			return
		}
		var p problem
		if err := json.Unmarshal([]byte(text), &p); err != nil || p.Error.Message == "" || p.Error.Type == "" || code >= 500 || !utf8.ValidString(text) {
			t.Fatalf("%d is no error of OpenAI's form: %q", code, text)
		}
	})
}

package cli

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// With --train-dir clients of Tinker train and sample; what they saved is there when the
// server is started again. It ends though a model waits for calls.
func TestServeTinker(t *testing.T) {
	dir := t.TempDir()
	start := func() (*running, func(path, body string, args ...any) map[string]any) {
		r := startServe(t, "--model", llama, "--name", "tiny", "--train-dir", dir, "--api-key", "tml-x")
		return r, func(path, body string, args ...any) map[string]any {
			v := decode[map[string]any](t, r.get("/api/v1/"+path, fmt.Sprintf(body, args...), "X-API-Key", "tml-x"))
			if v["request_id"] != nil {
				v = decode[map[string]any](t, r.get("/api/v1/retrieve_future", fmt.Sprintf(`{"request_id":%q}`, v["request_id"]), "X-API-Key", "tml-x"))
			}
			return v
		}
	}
	r, post := start()
	m := post("create_model", `{"session_id":%q,"model_seq_id":0,"base_model":"tiny","lora_config":{"rank":4}}`, post("create_session", "{}")["session_id"])["model_id"]
	info := post("get_info", `{"model_id":%q}`, m)
	assert.True(t, strings.HasSuffix(fmt.Sprint(info["model_data"].(map[string]any)["tokenizer_id"]), "llama/model"), info)
	saved := post("save_weights", `{"model_id":%q,"seq_id":1,"path":"a"}`, m)["path"]
	r.get("/api/v1/optim_step", fmt.Sprintf(`{"model_id":%q,"seq_id":3}`, m), "X-API-Key", "tml-x") // the second will never come
	assert.Equal(t, 0, r.stop(), r.logged())

	r, post = start()
	again := post("load_weights", `{"session_id":%q,"model_seq_id":0,"path":%q,"optimizer":true}`, post("create_session", "{}")["session_id"], saved)
	assert.Equal(t, saved, again["path"], again)
	assert.Equal(t, 0, r.stop())

	r = startServe(t, "--model", llama)
	status, _ := r.ask("/api/v1/healthz", "")
	assert.Equal(t, http.StatusNotFound, status)
}

// What a key makes or asks is kept from other keys by every API.
func TestServeOwners(t *testing.T) {
	for _, share := range []bool{false, true} {
		r := startServe(t, "--model", llama, "--name", "tiny", "--train-dir", t.TempDir(), "--api-key", "ann tml-a", "--api-key", "tml-b", "--admin-key", "root tml-r", fmt.Sprintf("--share-prefix-cache=%v", share))
		cached := func(key, fields string) int {
			return decode[struct {
				Usage struct {
					Details struct {
						Cached int `json:"cached_tokens"`
					} `json:"prompt_tokens_details"`
				}
			}](t, r.get("/v1/completions", fmt.Sprintf(`{"prompt": %q, "max_tokens": 1%s}`, strings.Repeat("Once upon a time ", 10), fields), "Authorization", "Bearer "+key)).Usage.Details.Cached
		}
		assert.Zero(t, cached("tml-a", ""))
		own := cached("tml-a", "")
		assert.Positive(t, own)
		assert.Zero(t, cached("tml-a", `, "cache_salt": "x"`))
		assert.Equal(t, map[bool]int{true: own}[share], cached("tml-b", ""))

		post := func(path, body string, args ...any) map[string]any {
			v := decode[map[string]any](t, r.get("/api/v1/"+path, fmt.Sprintf(body, args...), "X-API-Key", "tml-a"))
			if v["request_id"] != nil {
				v = decode[map[string]any](t, r.get("/api/v1/retrieve_future", fmt.Sprintf(`{"request_id":%q}`, v["request_id"]), "X-API-Key", "tml-a"))
			}
			return v
		}
		m := post("create_model", `{"session_id":%q,"model_seq_id":0,"base_model":"tiny","lora_config":{"rank":4}}`, post("create_session", "{}")["session_id"])["model_id"]
		post("save_weights_for_sampler", `{"model_id":%q,"seq_id":1,"sampling_session_seq_id":0}`, m)
		weights := "tinker/" + strings.ReplaceAll(m.(string), ":", ".") + "/live/1"
		for key, want := range map[string]int{"tml-a": http.StatusOK, "tml-b": http.StatusNotFound, "tml-r": http.StatusOK} {
			status, text := r.ask("/v1/completions", fmt.Sprintf(`{"model": %q, "prompt": "Once", "max_tokens": 1}`, weights), "Authorization", "Bearer "+key)
			assert.Equal(t, want, status, "%s %s", key, text)
			assert.Equal(t, want == http.StatusOK, strings.Contains(r.get("/v1/models", "", "Authorization", "Bearer "+key), weights), key)
			status, _ = r.ask("/api/v1/training_runs/"+m.(string), "", "X-API-Key", key)
			assert.Equal(t, want, status, key)
		}
		assert.Equal(t, 0, r.stop(), r.logged())
	}
}

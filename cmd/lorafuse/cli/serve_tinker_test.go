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

package tinker_test

import (
	"context"
	"iter"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/serve/batching"
	"github.com/lorafuse/lorafuse/internal/serve/keys"
	"github.com/lorafuse/lorafuse/internal/serve/tinker"
)

// salted is an engine that notes the salts of its requests.
type salted struct {
	tinker.Engine
	mu    sync.Mutex
	salts []string
}

func (e *salted) Submit(ctx context.Context, r batching.Request) iter.Seq2[batching.Token, error] {
	e.mu.Lock()
	e.salts = append(e.salts, r.Salt)
	e.mu.Unlock()
	return e.Engine.Submit(ctx, r)
}

// as returns the place for a client with another key.
func (p *place) as(key string) *place {
	other := *p
	other.key = key
	return &other
}

var anyRun = regexp.MustCompile(`[0-9a-f]{16}`)

// What a key has made is for its owner and for administrators alone, also after a restart; to
// others it is what nobody has made.
func TestOwners(t *testing.T) {
	var engine *salted
	p := open(t, func(o *tinker.Options) {
		o.Keys, o.AdminKeys = []string{"ann tml-a1", "ann tml-a2", "bob tml-b"}, []string{"root tml-r"}
		engine = &salted{Engine: o.Engine}
		o.Engine = engine
	})
	p.key = "tml-a1"
	session := p.session()
	m := p.model(session, 0, 3)
	saved := p.do("save_weights", object{"model_id": m, "seq_id": 1, "path": "cat"})["path"].(string)
	sampling := p.do("save_weights_for_sampler", object{"model_id": m, "seq_id": 2, "path": "dog"})["path"].(string)
	live := p.do("save_weights_for_sampler", object{"model_id": m, "seq_id": 3, "sampling_session_seq_id": 0})["sampling_session_id"].(string)
	p.do("save_weights_external", object{"model_id": m, "seq_id": 4, "path": "out"})
	promise := p.post("optim_step", object{"model_id": m, "seq_id": 5})
	prompt := object{"prompt": object{"chunks": []object{{"type": "encoded_text", "tokens": []int{1, 2}}}}, "sampling_params": object{"max_tokens": 1}}
	with := func(fields object) object {
		for k, v := range prompt {
			fields[k] = v
		}
		return fields
	}
	p.raw(p.post("asample", with(object{"model_path": sampling})))
	p.as("tml-b").raw(p.as("tml-b").post("asample", with(object{"base_model": "tiny"})))
	p.as("tml-a2").raw(p.as("tml-a2").post("asample", with(object{"base_model": "tiny"})))
	require.Len(t, engine.salts, 3)
	assert.Equal(t, engine.salts[0], engine.salts[2])
	assert.NotEqual(t, engine.salts[0], engine.salts[1])

	rows := []struct {
		method, path string
		body         object
		code         int // for those who may
	}{
		{"GET", "sessions/" + session, nil, 200},
		{"POST", "session_heartbeat", object{"session_id": session}, 200},
		{"POST", "get_info", object{"model_id": m}, 200},
		{"POST", "retrieve_future", object{"request_id": promise["request_id"]}, 200},
		{"GET", "samplers/" + live, nil, 200},
		{"POST", "asample", with(object{"sampling_session_id": live, "seq_id": 1}), 200},
		{"POST", "create_model", object{"session_id": session, "model_seq_id": 0, "base_model": "tiny", "lora_config": object{"rank": 3}}, 200},
		{"POST", "optim_step", object{"model_id": m, "seq_id": 5}, 200},
		{"POST", "save_weights", object{"model_id": m, "seq_id": 1, "path": "cat"}, 200},
		{"POST", "load_weights", object{"session_id": session, "model_seq_id": 9, "path": saved}, 200},
		{"POST", "create_sampling_session", object{"session_id": session, "sampling_session_seq_id": 7, "base_model": "tiny"}, 200},
	}
	kept := []struct {
		method, path string
		body         object
		code         int
	}{
		{"GET", "training_runs/" + m, nil, 200},
		{"GET", "training_runs/" + m + "/checkpoints", nil, 200},
		{"POST", "weights_info", object{"tinker_path": saved}, 200},
		{"POST", "asample", with(object{"model_path": sampling}), 200},
		{"GET", "training_runs/" + m + "/checkpoints/external_weights/out/external_weights_urls", nil, 200},
		{"PUT", "training_runs/" + m + "/checkpoints/weights/cat/ttl", object{"ttl_seconds": 1000}, 204},
		{"DELETE", "training_runs/" + m + "/checkpoints/sampler_weights/dog", nil, 204},
		{"DELETE", "training_runs/" + m + "/checkpoints/sampler_weights/dog", nil, 204}, // again
	}
	none := strings.NewReplacer(session, "0123456789abcdef")
	check := func(method, path string, body object, code int, owners ...string) {
		t.Helper()
		ask := func(p *place, path string, body object) (int, object) {
			if method == "GET" {
				return p.get(path)
			}
			return p.json(method, path, body)
		}
		other := object{}
		for k, v := range body {
			if text, ok := v.(string); ok {
				v = none.Replace(text)
			}
			other[k] = v
		}
		for _, key := range owners {
			got, v := ask(p.as(key), path, body)
			assert.Equal(t, code, got, "%s %s %s: %v", key, method, path, v)
		}
		got, v := ask(p.as("tml-b"), path, body)
		assert.Equal(t, 404, got, "%s %s: %v", method, path, v)
		_, unknown := ask(p.as("tml-b"), none.Replace(path), other)
		assert.Equal(t, anyRun.ReplaceAllString(unknown["detail"].(string), "ID"), anyRun.ReplaceAllString(v["detail"].(string), "ID"), "%s %s", method, path)
	}
	lists := func(p *place) (n []int) {
		for _, path := range []string{"sessions", "training_runs", "checkpoints"} {
			code, v := p.get(path)
			require.Equal(t, 200, code)
			n = append(n, len(v[path].([]any)))
		}
		return n
	}
	for _, r := range rows {
		check(r.method, r.path, r.body, r.code, "tml-a2", "tml-r")
	}
	p.as("tml-a2").do("load_weights", object{"session_id": session, "model_seq_id": 9, "path": saved}) // the same call
	assert.Equal(t, []int{1, 2, 3}, lists(p.as("tml-a2")))
	assert.Equal(t, []int{0, 0, 0}, lists(p.as("tml-b")))
	own := p.as("tml-b").session()
	code, v := p.as("tml-b").try("create_sampling_session", object{"session_id": own, "sampling_session_seq_id": 0, "model_path": saved})
	assert.Equal(t, 404, code, v)
	assert.Contains(t, p.as("tml-b").do("load_weights", object{"session_id": own, "model_seq_id": 0, "path": saved})["error"], "not found")

	var adapter string
	for _, info := range p.engine.Adapters().List() {
		if strings.HasSuffix(info.Name, "/live/3") {
			adapter = info.Name
		}
	}
	for who, want := range map[keys.Client]bool{{Name: "ann"}: true, {Name: "bob"}: false, {Name: "root", Admin: true}: true, {}: true} {
		assert.Equal(t, want, p.Visible(who, adapter), who)
		assert.True(t, p.Visible(who, "sql"))
		assert.False(t, p.Visible(who, "tinker/none"))
	}
	_, v = p.as("tml-r").get("training_runs/" + m)
	assert.Equal(t, "ann", v["model_owner"])

	p.Close()
	p.start()
	for _, r := range kept {
		check(r.method, r.path, r.body, r.code, "tml-a2", "tml-r")
	}
	code, _ = p.as("tml-x").get("sessions")
	assert.Equal(t, http.StatusUnauthorized, code)
}

package tinker_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/serve/store"
	"github.com/lorafuse/lorafuse/internal/serve/tinker"
)

// Calls of a model are computed in the order of their numbers, whatever order they come
// in, and each once, however often it comes.
func TestOrder(t *testing.T) {
	p := open(t)
	m := p.model(p.session(), 0, 3)
	const n = 20
	promises := make([]object, n+1)
	var wg sync.WaitGroup
	var mu sync.Mutex
	for _, i := range rand.Perm(2 * n) {
		wg.Go(func() {
			seq := i%n + 1
			var v object
			if seq%5 == 0 {
				v = p.post("optim_step", object{"model_id": m, "seq_id": seq, "adam_params": object{"learning_rate": float64(seq)}})
			} else {
				w := p.forward(m, seq, seq, "cross_entropy")
				assert.Equal(t, http.StatusOK, w.Code, w.Body)
				v = bodyOf(t, w)
			}
			mu.Lock()
			defer mu.Unlock()
			if promises[seq] != nil {
				assert.Equal(t, promises[seq], v, "the same call is the same future")
			}
			promises[seq] = v
		})
	}
	wg.Wait()
	for seq := 1; seq <= n; seq++ {
		if seq%5 == 0 {
			assert.Equal(t, object{"grad_norm": 1.0}, p.result(promises[seq])["metrics"])
		} else {
			assert.Contains(t, string(p.raw(promises[seq])), "logprobs")
		}
	}
	want := []string{"new 3"}
	for seq := 1; seq <= n; seq++ {
		if seq%5 == 0 {
			want = append(want, fmt.Sprintf("3: step %d", seq))
		} else {
			want = append(want, fmt.Sprintf("3: cross_entropy %d false", seq))
		}
	}
	assert.Equal(t, want, p.trainer.noted())
	assert.Equal(t, p.raw(promises[1]), p.raw(promises[1]), "an answer can be fetched again")
}

// Models are trained in turns; one that waits for a number holds nobody up.
func TestTurns(t *testing.T) {
	p := open(t)
	session := p.session()
	a, b, c := p.model(session, 0, 1), p.model(session, 1, 2), p.model(session, 2, 3)
	p.trainer.gate = make(chan struct{})
	var last []object
	for seq := 1; seq <= 3; seq++ {
		last = nil
		for _, m := range []string{a, b} {
			last = append(last, bodyOf(t, p.forward(m, seq, seq, "ppo")))
		}
	}
	stuck := bodyOf(t, p.forward(c, 2, 2, "ppo"))
	close(p.trainer.gate)
	for _, v := range last {
		p.raw(v)
	}
	done := map[string]int{}
	for _, call := range p.trainer.noted()[3:] {
		done[call[:1]]++
		assert.InDelta(t, done["1"], done["2"], 2, "a call of each may be under way")
	}
	assert.Equal(t, map[string]int{"1": 3, "2": 3}, done)
	p.raw(bodyOf(t, p.forward(c, 1, 1, "ppo")))
	p.raw(stuck)
}

// What cannot be done fails its call alone, with who is to blame.
func TestFailures(t *testing.T) {
	p := open(t)
	session := p.session()
	m := p.model(session, 0, 3)
	for seq, c := range []struct{ loss, category, text string }{{"gspo", "user", "gspo"}, {"panic", "server", "its log says why"}, {"cross_entropy", "", ""}} {
		promise := bodyOf(t, p.forward(m, seq+1, 5, c.loss))
		if c.category == "" {
			p.raw(promise)
			continue
		}
		v := p.result(promise)
		assert.Equal(t, c.category, v["category"], v)
		assert.Contains(t, v["error"], c.text)
	}
	p.logged("at the disco")
	for body, text := range map[string]object{
		`base_model "tny": this server has "tiny", did you mean "tiny"?`: {"base_model": "tny", "lora_config": object{"rank": 8}},
		"rank":        {"base_model": "tiny", "lora_config": object{"rank": 0}},
		"lora_config": {"base_model": "tiny"},
		"dimuon":      {"base_model": "tiny", "lora_config": object{"rank": 8}, "optimizer_config": object{"type": "dimuon"}},
	} {
		text["session_id"], text["model_seq_id"] = session, len(body)
		v := p.do("create_model", text)
		assert.Equal(t, "user", v["category"], v)
		assert.Contains(t, v["error"], body)
		broken := p.do("optim_step", object{"model_id": fmt.Sprintf("%s:train:%d", session, len(body)), "seq_id": 1})
		assert.Equal(t, "user", broken["category"], "nor can it be trained: %v", broken)
	}
	for path, c := range map[string]struct {
		body object
		code int
		text string
	}{
		"optim_step":               {object{"model_id": "x", "seq_id": 1}, 404, "model"},
		"optim_step?1":             {object{"model_id": m}, 400, "seq_id"},
		"optim_step?2":             {object{"model_id": m, "seq_id": 5000}, 429, "too far ahead"},
		"create_model":             {object{"session_id": "x"}, 404, "session"},
		"create_model?":            {object{"session_id": session}, 400, "model_seq_id"},
		"retrieve_future":          {object{"request_id": "x"}, 404, "request"},
		"session_heartbeat":        {object{"session_id": "x"}, 404, "session"},
		"create_sampling_session":  {object{"session_id": session}, 400, "sampling_session_seq_id"},
		"asample":                  {object{"sampling_session_id": "x"}, 404, "sampling session"},
		"asample?":                 {object{"num_samples": 0, "base_model": "tiny"}, 400, "num_samples"},
		"weights_info":             {object{"tinker_path": "tinker://x/weights/y"}, 404, "tinker://x/weights/y"},
		"weights_info?":            {object{"tinker_path": "/etc/passwd"}, 400, "expected tinker://RUN"},
		"retrieve_futures":         {object{}, 400, "not supported: retrieve_futures"},
		"nothing":                  {object{}, 404, "there is no POST"},
		"save_weights_for_sampler": {object{"model_id": m, "seq_id": 4, "kind": "snapshop"}, 400, `did you mean "snapshot"`},
	} {
		code, v := p.try(path, c.body)
		assert.Equal(t, c.code, code, "%s: %v", path, v)
		assert.Contains(t, v["detail"], c.text, path)
	}
	assert.Equal(t, http.StatusUnsupportedMediaType, p.send("POST", "forward_backward", "application/json", []byte("{}")).Code)
	assert.Equal(t, http.StatusBadRequest, p.send("POST", "forward_backward", "application/x-protobuf", []byte{0xff}).Code)
	assert.Equal(t, http.StatusBadRequest, p.send("POST", "optim_step", "application/json", []byte("{")).Code)
}

func TestKeysAndLimits(t *testing.T) {
	p := open(t, func(o *tinker.Options) { o.Keys, o.MaxBody = []string{"tml-other", "tml-y"}, 100 })
	code, v := p.get("get_server_capabilities")
	assert.Equal(t, http.StatusUnauthorized, code, v)
	assert.Contains(t, v["detail"], "X-API-Key")
	code, _ = p.get("healthz")
	assert.Equal(t, http.StatusOK, code)
	p = open(t, func(o *tinker.Options) { o.Keys, o.MaxBody = []string{"tml-other", "tml-x"}, 100 })
	assert.Equal(t, "tiny", p.must("get_server_capabilities")["supported_models"].([]any)[0].(object)["model_name"])
	assert.Equal(t, http.StatusRequestEntityTooLarge, p.send("POST", "optim_step", "application/json", make([]byte, 101)).Code)
	_, err := tinker.New(tinker.Options{})
	require.Error(t, err)
	o := p.options
	o.Keys = []string{""}
	_, err = tinker.New(o)
	require.ErrorContains(t, err, "a key is empty")
	o.Keys = nil
	_, err = tinker.New(o)
	require.ErrorIs(t, err, store.ErrInUse)
}

// must asks for JSON that must be there.
func (p *place) must(path string) object {
	p.Helper()
	code, v := p.get(path)
	require.Equal(p, http.StatusOK, code, "%s: %v", path, v)
	return v
}

// A poll is held until there is an answer, or for a while, or until the server ends.
func TestPolls(t *testing.T) {
	p := open(t, func(o *tinker.Options) { o.Poll = 300 * time.Millisecond })
	m := p.model(p.session(), 0, 3)
	p.trainer.gate = make(chan struct{})
	promise := bodyOf(t, p.forward(m, 1, 1, "ppo"))
	v := p.post("retrieve_future", object{"request_id": promise["request_id"]})
	assert.Equal(t, object{"type": "try_again", "request_id": promise["request_id"], "queue_state": "active", "queue_state_reason": nil}, v)
	close(p.trainer.gate)

	p = open(t, func(o *tinker.Options) { o.Poll = time.Hour })
	m = p.model(p.session(), 0, 3)
	p.trainer.gate = make(chan struct{})
	promise = bodyOf(t, p.forward(m, 1, 1, "ppo"))
	held := make(chan object)
	go func() { held <- p.post("retrieve_future", object{"request_id": promise["request_id"]}) }()
	p.Drain()
	assert.Equal(t, "try_again", (<-held)["type"])
	code, v := p.try("optim_step", object{"model_id": m, "seq_id": 2})
	assert.Equal(t, http.StatusServiceUnavailable, code, v)
	close(p.trainer.gate)
}

// A session that has ended takes nothing more; what it has sent before is done.
func TestFinish(t *testing.T) {
	p := open(t)
	session := p.session()
	m := p.model(session, 0, 3)
	p.trainer.gate = make(chan struct{})
	first := bodyOf(t, p.forward(m, 1, 1, "ppo"))
	step := p.post("optim_step", object{"model_id": m, "seq_id": 2})
	gap := p.post("optim_step", object{"model_id": m, "seq_id": 4})
	for range 2 {
		p.post("sessions/"+session+"/finish", object{"reason": object{"type": "success"}})
	}
	code, v := p.try("session_heartbeat", object{"session_id": session})
	assert.Equal(t, http.StatusGone, code, v)
	code, _ = p.try("optim_step", object{"model_id": m, "seq_id": 3})
	assert.Equal(t, http.StatusGone, code)
	assert.Equal(t, "server", p.result(gap)["category"])
	close(p.trainer.gate)
	p.raw(first)
	p.result(step)
	p.logged("trained since it was last saved")
	assert.Equal(t, []string{"new 3", "3: ppo 1 false", "3: step 0.0001", "3: close"}, p.trainer.noted())
	code, _ = p.get("training_runs/" + m)
	assert.Equal(t, http.StatusNotFound, code, "nothing was saved of it")
}

// A session without a sign of life ends, and its models are gone; what was saved stays.
func TestSilence(t *testing.T) {
	p := open(t, func(o *tinker.Options) { o.SessionTimeout = 200 * time.Millisecond })
	session := p.session()
	m := p.model(session, 0, 3)
	saved := p.do("save_weights", object{"model_id": m, "seq_id": 1, "path": "kept"})["path"].(string)
	p.post("optim_step", object{"model_id": m, "seq_id": 2})
	p.logged("no sign of life")
	p.logged("trained since it was last saved")
	code, v := p.try("session_heartbeat", object{"session_id": session})
	assert.Equal(t, http.StatusGone, code)
	assert.Contains(t, v["detail"], "no sign of life")
	v = p.do("load_weights", object{"session_id": p.session(), "model_seq_id": 0, "path": saved, "optimizer": true})
	assert.Equal(t, saved, v["path"], v)
	assert.Equal(t, "3: load true", p.trainer.noted()[len(p.trainer.noted())-1])
}

// What was saved outlives the server; what was not is dropped, and the log says so.
func TestRestart(t *testing.T) {
	p := open(t)
	session := p.session()
	m := p.model(session, 0, 3)
	other := p.model(session, 1, 4)
	saved := p.do("save_weights", object{"model_id": m, "seq_id": 1, "path": "a", "user_metadata": object{"k": "v"}})["path"].(string)
	named := p.do("save_weights_for_sampler", object{"model_id": m, "seq_id": 2, "path": "b", "ttl_seconds": 3600})["path"].(string)
	v := p.do("save_weights", object{"model_id": m, "seq_id": 3, "path": "a"})
	assert.Contains(t, v["error"], "overwrite")
	assert.Equal(t, saved, p.do("save_weights", object{"model_id": m, "seq_id": 4, "path": "a", "overwrite": true})["path"])
	before := p.must("checkpoints")
	p.post("optim_step", object{"model_id": m, "seq_id": 5})
	p.do("save_weights_for_sampler", object{"model_id": m, "seq_id": 6, "sampling_session_seq_id": 0})
	require.DirExists(t, filepath.Join(p.options.Dir, "live"))

	p.crash()
	live := filepath.Join(p.options.Dir, "live")
	require.DirExists(t, live)
	folder := filepath.Join(p.options.Dir, "runs", strings.ReplaceAll(m, ":", "."))
	require.NoError(t, os.MkdirAll(filepath.Join(folder, "weights", "half"), 0o777)) // not whole
	require.NoError(t, os.MkdirAll(filepath.Join(p.options.Dir, "runs", "stranger"), 0o777))
	p.start()
	assert.NoDirExists(t, live)
	p.logged("was being trained when the server before this one ended")
	assert.NoDirExists(t, filepath.Join(folder, "weights", "half"))
	assert.DirExists(t, filepath.Join(p.options.Dir, "runs", "stranger"))
	code, _ := p.get("training_runs/" + other)
	assert.Equal(t, http.StatusNotFound, code, "nothing was saved of it")
	assert.Equal(t, before, p.must("checkpoints"))
	list := before["checkpoints"].([]any)
	require.Len(t, list, 2)
	c := list[0].(object)
	assert.Equal(t, []any{"weights/a", "training", saved, false, object{"k": "v"}}[:4], []any{c["checkpoint_id"], c["checkpoint_type"], c["tinker_path"], c["public"], c["user_metadata"]}[:4])
	assert.Positive(t, c["size_bytes"])
	run := p.must("training_runs/" + m)
	assert.Equal(t, saved, run["last_checkpoint"].(object)["tinker_path"])
	assert.Equal(t, named, run["last_sampler_checkpoint"].(object)["tinker_path"])
	assert.Equal(t, object{"base_model": "tiny", "is_lora": true, "lora_rank": 3.0, "train_attn": true, "train_mlp": true, "train_unembed": true, "optimizer_config": object{"type": "adamw"}}, p.post("weights_info", object{"tinker_path": saved}))
	assert.Equal(t, 1.0, p.must("training_runs")["cursor"].(object)["total_count"])

	again := p.do("load_weights", object{"session_id": p.session(), "model_seq_id": 7, "path": saved, "optimizer": false})
	assert.Equal(t, saved, again["path"], again)
	assert.Equal(t, 3.0, p.post("get_info", object{"model_id": again["model_id"]})["lora_rank"])
	code, v = p.try("session_heartbeat", object{"session_id": session})
	assert.Equal(t, http.StatusNotFound, code, v)
}

// crash ends the server as a kill does: nothing is noted as ended.
func (p *place) crash() {
	p.Helper()
	keep := p.TempDir()
	require.NoError(p, os.CopyFS(keep, os.DirFS(p.options.Dir)))
	p.Close()
	p.options.Dir = keep
	require.NoError(p, os.RemoveAll(filepath.Join(keep, ".lorafuse.lock")))
}

// Checkpoints end, by request or by time.
func TestEnds(t *testing.T) {
	p := open(t)
	m := p.model(p.session(), 0, 3)
	run := "training_runs/" + m + "/checkpoints"
	for i, name := range []string{"a", "b"} {
		p.do("save_weights", object{"model_id": m, "seq_id": i + 1, "path": name})
	}
	for range 2 { // the second one did not get the answer of the first
		assert.Equal(t, http.StatusNoContent, p.send("DELETE", run+"/weights/a", "", nil).Code)
	}
	assert.Equal(t, http.StatusNotFound, p.send("DELETE", run+"/weights/c", "", nil).Code)
	assert.Equal(t, http.StatusBadRequest, p.send("DELETE", run+"/weigths/a", "", nil).Code)
	assert.NoDirExists(t, filepath.Join(p.options.Dir, "runs", strings.ReplaceAll(m, ":", "."), "weights", "a"))
	assert.Equal(t, http.StatusBadRequest, p.send("PUT", run+"/weights/b/ttl", "application/json", []byte(`{"ttl_seconds":0}`)).Code)
	assert.Equal(t, http.StatusNoContent, p.send("PUT", run+"/weights/b/ttl", "application/json", []byte(`{"ttl_seconds":1}`)).Code)
	assert.NotNil(t, p.must(run)["checkpoints"].([]any)[0].(object)["expires_at"])
	require.Eventually(t, func() bool { return len(p.must(run)["checkpoints"].([]any)) == 0 }, time.Minute, 20*time.Millisecond)
	v := p.do("load_weights", object{"model_id": m, "seq_id": 3, "path": "tinker://" + m + "/weights/b"})
	assert.Equal(t, "user", v["category"], v)
	p.crash()
	p.start()
	p.logged("expired")
}

// No name leads out of the folder.
func TestPaths(t *testing.T) {
	p := open(t)
	m := p.model(p.session(), 0, 3)
	require.NoError(t, os.MkdirAll(filepath.Join(p.options.Dir, "..", "outside", "adapter"), 0o777))
	for i, name := range []string{"", ".", "..", "../x", "a/b", ".hidden", "a..b", "a.", "x\x00", strings.Repeat("x", 129), "ä", "a b"} {
		v := p.do("save_weights", object{"model_id": m, "seq_id": i + 1, "path": name})
		assert.Equal(t, "user", v["category"], "%q: %v", name, v)
	}
	for _, uri := range []string{"tinker://../weights/x", "tinker://" + m + "/../x", "tinker://" + m + "/weights/..", "tinker://" + m + "/weights/../../x", "tinker:///weights/x", "tinker://" + m + "/weights/", "weights/x"} {
		code, v := p.try("weights_info", object{"tinker_path": uri})
		assert.Contains(t, []int{400, 404}, code, "%s: %v", uri, v)
	}
	saved := p.do("save_weights", object{"model_id": m, "seq_id": 13, "path": "a"})["path"]
	folder := filepath.Join(p.options.Dir, "runs", strings.ReplaceAll(m, ":", "."), "weights", "a", "adapter")
	require.NoError(t, os.RemoveAll(folder))
	if err := os.Symlink(t.TempDir(), folder); err != nil {
		t.Skip(err)
	}
	code, _ := p.try("weights_info", object{"tinker_path": saved})
	assert.Equal(t, http.StatusNotFound, code, "a link that leads out is not followed")
}

// An adapter is handed out by URLs that are signed, and to nobody else.
func TestDownload(t *testing.T) {
	p := open(t, func(o *tinker.Options) { o.Keys = []string{"tml-x"} })
	m := p.model(p.session(), 0, 3)
	v := p.do("save_weights_external", object{"model_id": m, "seq_id": 1, "path": "out", "age_encryption_recipients": []string{"age1"}})
	assert.Contains(t, v["error"], "age_encryption_recipients")
	p.do("save_weights_external", object{"model_id": m, "seq_id": 2, "path": "out"})
	urls := p.must("training_runs/" + m + "/checkpoints/external_weights/out/external_weights_urls")["urls"].(object)
	require.Len(t, urls, 2)
	fetch := func(url string) (int, string) {
		w := p.send("GET", strings.TrimPrefix(url, "http://example.com/api/v1/"), "", nil)
		return w.Code, w.Body.String()
	}
	for file, url := range urls {
		want, err := os.ReadFile(filepath.Join(adapter, file))
		require.NoError(t, err)
		code, got := fetch(url.(string))
		assert.Equal(t, http.StatusOK, code, got)
		assert.Equal(t, string(want), got)
	}
	url := urls["adapter_config.json"].(string)
	for _, forged := range []string{
		strings.Replace(url, "adapter_config.json", "session.json", 1), strings.Replace(url, "expires=", "expires=9", 1),
		strings.Replace(url, "signature=", "signature=0", 1), strings.Split(url, "?")[0],
	} {
		code, _ := fetch(forged)
		assert.Equal(t, http.StatusForbidden, code, forged)
	}
	code, _ := p.get("training_runs/" + m + "/checkpoints/weights/out/external_weights_urls")
	assert.Equal(t, http.StatusNotFound, code)
}

// Answers that a client was given are forgotten after a while, those that it was not stay.
func TestKeep(t *testing.T) {
	p := open(t, func(o *tinker.Options) { o.Keep = 50 * time.Millisecond })
	m := p.model(p.session(), 0, 3)
	first, second := bodyOf(t, p.forward(m, 1, 1, "ppo")), bodyOf(t, p.forward(m, 2, 2, "ppo"))
	p.raw(first)
	require.Eventually(t, func() bool {
		body := fmt.Sprintf(`{"request_id":%q}`, first["request_id"])
		return p.send("POST", "retrieve_future", "application/json", []byte(body)).Code == http.StatusNotFound
	}, time.Minute, 300*time.Millisecond)
	w := p.forward(m, 1, 1, "ppo")
	assert.Equal(t, http.StatusBadRequest, w.Code, "it is not computed again: %s", w.Body)
	p.raw(second)
}

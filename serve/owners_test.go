package serve_test

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/serve/keys"
	"github.com/lorafuse/lorafuse/serve"
)

// by sends a request with a key.
func by(t testing.TB, s http.Handler, key, method, path, body string) (int, string) {
	t.Helper()
	r := request(method, path, body)
	r.Header.Set("Authorization", "Bearer "+key)
	return send(t, s, r)
}

// withKeys has a server with keys of two clients, one of them with two keys, and an administrator.
func withKeys(o *serve.Options) {
	o.Keys, o.AdminKeys, o.AllowAdapterUpdates = []string{"ann a1", "ann a2", "b"}, []string{"root r"}, true
}

// ids returns the ids of a list.
func ids(t testing.TB, s http.Handler, key, path string) (all []string) {
	t.Helper()
	code, text := by(t, s, key, "GET", path, "")
	require.Equal(t, 200, code, text)
	var list struct{ Data []struct{ ID string } }
	require.NoError(t, json.Unmarshal([]byte(text), &list))
	for _, x := range list.Data {
		all = append(all, x.ID)
	}
	return all
}

var anyID = regexp.MustCompile(`(file-|ftjob-|ft-|ftevent-)[0-9A-Za-z]+`)

// What a key has made is for its owner and for administrators alone. To others it is what
// nobody has ever made: the answers are the same.
func TestOwners(t *testing.T) {
	dir := t.TempDir()
	s := tunesIn(t, dir, &trainer{}, withKeys)
	file := uploadedBy(t, s, "a1")
	code, text := by(t, s, "a1", "POST", jobs, `{"model":"base","training_file":"`+file+`","suffix":"mine","hyperparameters":{"n_epochs":2}}`)
	require.Equal(t, 200, code, text)
	job := decoded(t, text)["id"].(string)
	for decoded(t, text)["finished_at"] == nil {
		_, text = by(t, s, "a1", "GET", jobs+"/"+job, "")
	}
	require.Equal(t, "succeeded", decoded(t, text)["status"], text)
	result := decoded(t, text)["result_files"].([]any)[0].(string)
	_, text = by(t, s, "a1", "GET", "/v1/models/mine", "")
	version := decoded(t, text)["version"].(string)

	for _, s := range []http.Handler{s} {
		for _, key := range []string{"a1", "a2", "r"} {
			assert.Equal(t, []string{result, file}, ids(t, s, key, "/v1/files"), key)
			assert.Equal(t, []string{job}, ids(t, s, key, jobs), key)
			assert.Contains(t, ids(t, s, key, "/v1/models"), "mine", key)
			for _, path := range []string{"/v1/files/" + file, "/v1/files/" + file + "/content", jobs + "/" + job, jobs + "/" + job + "/events", jobs + "/" + job + "/checkpoints", "/v1/models/mine"} {
				code, text := by(t, s, key, "GET", path, "")
				assert.Equal(t, 200, code, "%s %s %s", key, path, text)
			}
			code, text := by(t, s, key, "POST", "/v1/completions", `{"model":"mine","prompt":"a"}`)
			assert.Equal(t, 200, code, text)
		}
		assert.Empty(t, ids(t, s, "b", "/v1/files"))
		assert.Empty(t, ids(t, s, "b", jobs))
		assert.NotContains(t, ids(t, s, "b", "/v1/models"), "mine")
		none := strings.NewReplacer(file, "file-000000000000000000000000", result, "file-111111111111111111111111", job, "ftjob-000000000000000000000000", "mine", "none")
		for _, c := range [][3]string{
			{"GET", "/v1/files/" + file}, {"GET", "/v1/files/" + result}, {"GET", "/v1/files/" + file + "/content"}, {"DELETE", "/v1/files/" + file},
			{"GET", "/v1/files?after=" + file}, {"GET", jobs + "?after=" + job},
			{"GET", jobs + "/" + job}, {"GET", jobs + "/" + job + "/events"}, {"GET", jobs + "/" + job + "/checkpoints"},
			{"POST", jobs + "/" + job + "/cancel"}, {"POST", jobs + "/" + job + "/pause"}, {"POST", jobs + "/" + job + "/resume"},
			{"GET", "/v1/models/mine"}, {"DELETE", "/v1/models/mine"}, {"GET", "/v1/models/mine@" + version}, {"GET", "/v1/models/mine-step-2"},
			{"POST", "/v1/completions", `{"model":"mine","prompt":"a"}`}, {"POST", "/v1/completions", `{"model":"mine@` + version + `","prompt":"a"}`},
			{"POST", "/v1/chat/completions", `{"model":"mine","messages":[{"role":"user","content":"a"}]}`},
			{"POST", jobs, `{"model":"base","training_file":"` + file + `"}`}, {"POST", jobs, `{"model":"mine","training_file":"x"}`},
		} {
			code, text := by(t, s, "b", c[0], c[1], c[2])
			assert.Contains(t, []int{404, 400}, code, "%v %s", c, text)
			otherCode, other := by(t, s, "b", c[0], none.Replace(c[1]), none.Replace(c[2]))
			assert.Equal(t, otherCode, code, "%v", c)
			assert.Equal(t, anyID.ReplaceAllString(other, "ID"), anyID.ReplaceAllString(none.Replace(text), "ID"), "%v", c)
		}
		_, text := by(t, s, "b", "GET", "/v1/models/mine2", "")
		assert.NotContains(t, text, `mine\"`, "a hint")
		_, text = by(t, s, "a1", "GET", "/v1/models/mine2", "")
		assert.Contains(t, text, `did you mean \"mine\"?`)
	}
	for _, c := range [][2]string{{"a2", "/v1/files/" + file}, {"r", "/v1/files/" + result}, {"a2", "/v1/models/mine"}} {
		code, text := by(t, s, c[0], "DELETE", c[1], "")
		assert.Equal(t, 200, code, text)
	}
	code, _ = by(t, s, "none", "GET", jobs, "")
	assert.Equal(t, 401, code)
}

// Owners outlive the process, and without keys everything belongs to all.
func TestOwnersOutliveTheProcess(t *testing.T) {
	dir := t.TempDir()
	file := map[string]string{}
	t.Run("with keys", func(t *testing.T) {
		s := tunesIn(t, dir, &trainer{}, withKeys)
		file["ann"], file["b"] = uploadedBy(t, s, "a1"), uploadedBy(t, s, "b")
	})
	t.Run("without keys", func(t *testing.T) {
		s := tunesIn(t, dir, &trainer{})
		file["all"] = uploaded(t, s, chats)
		assert.Len(t, ids(t, s, "", "/v1/files"), 3)
	})
	t.Run("with other keys", func(t *testing.T) {
		s := tunesIn(t, dir, &trainer{}, func(o *serve.Options) { o.Keys = []string{"ann a3", keys.Name("b") + " b2", "c"} })
		for key, want := range map[string][]string{"a3": {file["all"], file["ann"]}, "b2": {file["all"], file["b"]}, "c": {file["all"]}} {
			assert.Equal(t, want, ids(t, s, key, "/v1/files"), key)
		}
	})
}

// The prefix cache of a key is its own, unless it is to be shared.
func TestPrefixCacheOfKeys(t *testing.T) {
	for _, share := range []bool{false, true} {
		e := newEngine(t, "x")
		s := serving(t, e, withKeys, func(o *serve.Options) { o.SharePrefixCache = share })
		salt := func(key, fields string) string {
			code, text := by(t, s, key, "POST", "/v1/completions", `{"prompt":"a"`+fields+`}`)
			require.Equal(t, 200, code, text)
			return e.last().Salt
		}
		assert.Equal(t, salt("a1", ""), salt("a2", ""), "keys of one owner")
		assert.Equal(t, share, salt("a1", "") == salt("b", ""))
		assert.Equal(t, share, salt("r", "") == salt("b", ""))
		assert.Equal(t, share, salt("a1", `,"cache_salt":"x"`) == salt("b", `,"cache_salt":"x"`))
		assert.NotEqual(t, salt("a1", `,"cache_salt":"x"`), salt("a1", `,"cache_salt":"y"`))
	}
}

// Adapters of others can neither be replaced nor unloaded, by whoever may do so with adapters.
func TestAdaptersOfOthers(t *testing.T) {
	e := newEngine(t, "x")
	_, err := e.registry.Load(t.Context(), "hers", adapters+"/lora")
	require.NoError(t, err)
	s := serving(t, e, func(o *serve.Options) {
		o.Keys, o.AllowAdapterUpdates = []string{"ann a", "bob b"}, true
		o.Visible = func(who keys.Client, adapter string) bool { return adapter != "hers" || who.Sees("ann") }
	})
	const load, unload = `{"lora_name":"hers","lora_path":"lora","load_inplace":true}`, `{"lora_name":"hers"}`
	code, text := by(t, s, "b", "POST", "/v1/load_lora_adapter", load)
	assert.Equal(t, 400, code, text)
	code, text = by(t, s, "b", "POST", "/v1/unload_lora_adapter", unload)
	assert.Equal(t, 404, code, text)
	assert.Equal(t, []string{"base"}, ids(t, s, "b", "/v1/models")[:1])
	assert.NotContains(t, ids(t, s, "b", "/v1/models"), "hers")
	code, text = by(t, s, "a", "POST", "/v1/load_lora_adapter", load)
	assert.Equal(t, 200, code, text)
	code, text = by(t, s, "a", "POST", "/v1/unload_lora_adapter", unload)
	assert.Equal(t, 200, code, text)
}

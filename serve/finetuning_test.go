package serve_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const jobs = "/v1/fine_tuning/jobs"

// A job has all fields that OpenAI's clients read, from the beginning to the end.
func TestFineTuning(t *testing.T) {
	x := &trainer{gate: make(chan struct{})}
	s := tunes(t, x)
	id := uploaded(t, s, chats+chats)
	code, text := ask(t, s, "POST", jobs, `{"model": "base", "training_file": "`+id+`", "suffix": "mine", "seed": 7, "metadata": {"a": "b"},
		"method": {"type": "supervised", "supervised": {"hyperparameters": {"n_epochs": 2, "batch_size": "auto"}}}, "lora": {"r": 4}}`)
	require.Equal(t, http.StatusOK, code, text)
	j := decoded(t, text)
	hyper := map[string]any{"n_epochs": 2.0, "batch_size": "auto", "learning_rate_multiplier": "auto"}
	assert.Equal(t, map[string]any{
		"id": j["id"], "object": "fine_tuning.job", "created_at": j["created_at"], "finished_at": nil, "estimated_finish": nil, "status": "validating_files",
		"model": "base", "fine_tuned_model": nil, "organization_id": "lorafuse", "training_file": id, "validation_file": nil, "user_provided_suffix": "mine",
		"seed": 7.0, "hyperparameters": hyper, "method": map[string]any{"type": "supervised", "supervised": map[string]any{"hyperparameters": hyper}},
		"lora": map[string]any{"r": 4.0}, "trained_tokens": nil, "result_files": []any{}, "integrations": []any{}, "metadata": map[string]any{"a": "b"}, "error": nil,
	}, j)
	path := jobs + "/" + j["id"].(string)
	for range 3 {
		x.gate <- struct{}{}
	}
	require.Eventually(t, func() bool {
		_, text := ask(t, s, "GET", path, "")
		return decoded(t, text)["estimated_finish"] != nil
	}, waitMost, waitStep)
	close(x.gate)
	done := ended(t, s, j["id"].(string))
	assert.Equal(t, []any{"succeeded", "mine", 77.0, nil}, []any{done["status"], done["fine_tuned_model"], done["trained_tokens"], done["error"]})
	assert.Equal(t, map[string]any{"n_epochs": 2.0, "batch_size": 1.0, "learning_rate_multiplier": 1.0}, done["hyperparameters"])

	_, text = ask(t, s, "GET", path+"/events?limit=3", "")
	page := decoded(t, text)
	first := page["data"].([]any)[0].(map[string]any)
	assert.Equal(t, map[string]any{"id": first["id"], "object": "fine_tuning.job.event", "created_at": first["created_at"], "level": "info", "message": "The job has successfully completed", "type": "message", "data": nil}, first)
	assert.Equal(t, true, page["has_more"])
	_, text = ask(t, s, "GET", path+"/events?limit=100&after="+page["last_id"].(string), "")
	page = decoded(t, text)
	assert.Equal(t, false, page["has_more"])
	rest := page["data"].([]any)
	assert.Len(t, rest, 8, text)
	metrics := rest[0].(map[string]any)
	assert.Equal(t, []any{"metrics", "Step 3/4: training loss=0.3333, validation loss=0.2500"}, []any{metrics["type"], metrics["message"]}, text)
	assert.Equal(t, map[string]any{"step": 3.0, "total_steps": 4.0, "train_loss": 1.0 / 3, "valid_loss": 0.25, "learning_rate": 0.5, "grad_norm": 2.0, "tokens_per_second": 100.0}, metrics["data"])

	_, text = ask(t, s, "GET", path+"/checkpoints", "")
	page = decoded(t, text)
	assert.Len(t, page["data"], 2)
	last, before := page["data"].([]any)[0].(map[string]any), page["data"].([]any)[1].(map[string]any)
	assert.Equal(t, []any{"mine", 4.0, "mine-step-2", 2.0}, []any{last["fine_tuned_model_checkpoint"], last["step_number"], before["fine_tuned_model_checkpoint"], before["step_number"]})
	assert.Equal(t, map[string]any{
		"id": before["id"], "object": "fine_tuning.job.checkpoint", "created_at": before["created_at"], "fine_tuned_model_checkpoint": "mine-step-2",
		"fine_tuning_job_id": j["id"], "step_number": 2.0, "metrics": map[string]any{"step": 2.0, "train_loss": 0.5, "valid_loss": 0.25, "full_valid_loss": 0.25},
	}, before)
	assert.Equal(t, []any{page["first_id"], page["last_id"]}, []any{last["id"], before["id"]})

	_, text = ask(t, s, "GET", "/v1/files/"+done["result_files"].([]any)[0].(string)+"/content", "")
	assert.True(t, strings.HasPrefix(text, "step,train_loss,train_accuracy,valid_loss,valid_accuracy"), text)

	_, text = ask(t, s, "GET", "/v1/models/mine", "")
	assert.Equal(t, "base", decoded(t, text)["parent"])
	reply[completion](t, s, "/v1/completions", `{"model": "mine", "prompt": "a"}`)
	_, text = ask(t, s, "GET", "/v1/models", "")
	assert.Contains(t, text, `"id":"mine"`)
	code, text = ask(t, s, "DELETE", "/v1/models/mine", "")
	assert.Equal(t, 200, code)
	assert.JSONEq(t, `{"id": "mine", "object": "model", "deleted": true}`, text)
	code, _ = ask(t, s, "GET", "/v1/models/mine", "")
	assert.Equal(t, 404, code)
	code, _ = ask(t, s, "DELETE", "/v1/models/base", "")
	assert.Equal(t, 403, code)
}

// Jobs are listed by pages and by what they are marked with, and can be stopped.
func TestJobs(t *testing.T) {
	s := tunes(t, &trainer{gate: make(chan struct{})})
	file := uploaded(t, s, chats)
	var ids []string
	for _, metadata := range []string{`{"a": "1"}`, `{"a": "2", "b": ""}`, `null`} {
		code, text := ask(t, s, "POST", jobs, `{"model": "base", "training_file": "`+file+`", "hyperparameters": {"n_epochs": 1}, "metadata": `+metadata+`}`)
		require.Equal(t, http.StatusOK, code, text)
		ids = append(ids, decoded(t, text)["id"].(string))
	}
	for query, want := range map[string][]string{
		"": {ids[2], ids[1], ids[0]}, "?metadata[a]=1": {ids[0]}, "?metadata[b]=": {ids[1]}, "?metadata=null": {ids[2]},
		"?limit=1": {ids[2]}, "?limit=1&after=" + ids[2]: {ids[1]}, "?metadata%5Ba%5D=2&metadata[b]=x": nil,
	} {
		code, text := ask(t, s, "GET", jobs+query, "")
		require.Equal(t, http.StatusOK, code, text)
		var got []string
		for _, j := range decoded(t, text)["data"].([]any) {
			got = append(got, j.(map[string]any)["id"].(string))
		}
		assert.Equal(t, want, got, query)
	}
	for _, what := range []string{"cancel", "cancel", "pause", "resume"} {
		code, text := ask(t, s, "POST", jobs+"/"+ids[1]+"/"+what, "")
		if what != "cancel" || strings.Contains(text, "already") {
			assert.Equal(t, 400, code, text)
			assert.Contains(t, text, "cancelled")
		}
	}
	assert.Equal(t, "cancelled", ended(t, s, ids[1])["status"])
	for _, path := range []string{"/x", "/x/events", "/x/checkpoints"} {
		code, text := ask(t, s, "GET", jobs+path, "")
		assert.Equal(t, 404, code)
		assert.Contains(t, text, `"code":"fine_tune_not_found"`)
	}
}

// What a job cannot be is named, and so is the line of a file that is no row.
func TestJobRefusals(t *testing.T) {
	s := tunes(t, &trainer{})
	file := uploaded(t, s, chats)
	data := decoded(t, sendFile(t, s, "u", "y", [2]string{"purpose", "user_data"}).Body.String())["id"].(string)
	supervised := func(h string) string {
		return `"method":{"type":"supervised","supervised":{"hyperparameters":` + h + `}}`
	}
	for _, c := range []struct{ fields, param, message string }{
		{`"model":""`, "model", "is missing"},
		{`"model":1`, "model", "expected a string"},
		{`"training_file":"file-x"`, "training_file", `there is no file \"file-x\"`},
		{`"training_file":"` + data + `"`, "training_file", "is user_data, expected fine-tune"},
		{`"validation_file":"file-x"`, "validation_file", `there is no file`},
		{`"seed":-1`, "seed", "0 or more"},
		{`"suffix":"a b"`, "suffix", "names have letters"},
		{`"suffix":"` + strings.Repeat("a", 65) + `"`, "suffix", "at most 64"},
		{`"metadata":{"a":1}`, "metadata", "whose values are strings"},
		{`"metadata":{"` + strings.Repeat("a", 65) + `":""}`, "metadata", "at most 64 and 512"},
		{`"integrations":[{"type":"wandb"}]`, "integrations", "not supported"},
		{`"method":{"type":"reinforcement","reinforcement":{}}`, "method.type", "reinforcement is not supported"},
		{`"method":{"type":"dop"}`, "method.type", `did you mean \"dpo\"`},
		{`"method":{}`, "method.type", "is missing"},
		{`"method":{"type":"supervised","dpo":{}}`, "method.dpo", "besides type supervised"},
		{supervised(`{"n_epoch":1}`), "method.supervised.hyperparameters.n_epoch", `did you mean \"n_epochs\"`},
		{supervised(`{"n_epochs":0}`), "method.supervised.hyperparameters.n_epochs", `1 or more, or \"auto\"`},
		{supervised(`{"n_epochs":"many"}`), "method.supervised.hyperparameters.n_epochs", "many"},
		{supervised(`{"n_epochs":9999}`), "n_epochs", "from 1 to 1000"},
		{supervised(`{"learning_rate_multiplier":-1}`), "method.supervised.hyperparameters.learning_rate_multiplier", "above 0"},
		{supervised(`{"beta":0.1}`), "method.supervised.hyperparameters.beta", "no hyperparameter of the method supervised"},
		{supervised(`{}`) + `,"hyperparameters":{"n_epochs":1}`, "hyperparameters", "besides method"},
		{`"hyperparameters":{"batch_size":0}`, "hyperparameters.batch_size", "1 or more"},
		{`"lora":{"r":0}`, "lora.r", "found 0, expected a whole number"},
		{`"lora":{"rank":8}`, "lora.rank", `here it is called`},
		{`"lora":{"lora_dropout":2}`, "lora.lora_dropout", "found 2"},
		{`"lora":[]`, "lora", "PEFT"},
		{`"lora":{"target_modules":["q_prj"]}`, "lora", "q_prj"},
		{`"lora":{"rank_pattern":{"nothing":3}}`, "lora", "without effect"},
	} {
		code, text := ask(t, s, "POST", jobs, merged(t, `{"model":"base","training_file":"`+file+`"}`, `{`+c.fields+`}`))
		assert.Equal(t, 400, code, text)
		assert.Contains(t, text, c.message)
		assert.Contains(t, text, `"param":"`+c.param+`"`)
	}
	code, text := ask(t, s, "POST", jobs, `{"model":"bose","training_file":"`+file+`"}`)
	assert.Equal(t, 404, code)
	assert.Contains(t, text, `did you mean \"base\"`)
	for name, c := range map[string]struct{ text, want string }{
		"json":  {chats + "{", "rows.jsonl, line 2: not valid JSON"},
		"keys":  {chats + "\n" + `{"chat": []}`, "rows.jsonl, line 3: found"},
		"mixed": {chats + `{"prompt": "a", "completion": "b"}`, "line 2: found prompt and completion, expected messages"},
	} {
		code, text := ask(t, s, "POST", jobs, `{"model":"base","training_file":"`+uploaded(t, s, c.text)+`"}`)
		require.Equal(t, 200, code, text)
		j := ended(t, s, decoded(t, text)["id"].(string))
		assert.Equal(t, "failed", j["status"], name)
		e := j["error"].(map[string]any)
		assert.Equal(t, []any{"invalid_training_file", "training_file"}, []any{e["code"], e["param"]}, name)
		assert.Contains(t, e["message"], c.want, name)
	}
}

// merged is an object with the keys of two.
func merged(t testing.TB, x, y string) string {
	t.Helper()
	v := decoded(t, x)
	require.NoError(t, json.Unmarshal([]byte(y), &v))
	raw, err := json.Marshal(v)
	require.NoError(t, err)
	return string(raw)
}

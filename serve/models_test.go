package serve_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/serve"
)

func updates(o *serve.Options) { o.AllowAdapterUpdates = true }

func TestModels(t *testing.T) {
	e := newEngine(t, "x")
	s := serving(t, e)
	v, err := e.registry.Load(context.Background(), "support", filepath.Join(adapters, "lora"))
	require.NoError(t, err)
	require.NoError(t, e.registry.Alias("help", "support"))
	dir, err := filepath.Abs(filepath.Join(adapters, "lora"))
	require.NoError(t, err)

	base := `{"id":"base","object":"model","created":0,"owned_by":"lorafuse","root":"` + folder + `","parent":null,"max_model_len":128,"supported_endpoints":["/v1/chat/completions","/v1/responses","/v1/completions"]}`
	adapter := func(id string) string {
		return `{"id":"` + id + `","object":"model","created":0,"owned_by":"lorafuse","root":"` + dir + `","parent":"base","max_model_len":128,"version":"` + v.Digest().Short() + `","rank":8,"supported_endpoints":["/v1/chat/completions","/v1/responses","/v1/completions"]}`
	}
	_, body := ask(t, s, "GET", "/v1/models", "")
	rest, ok := strings.CutPrefix(body, `{"object":"list","data":[`+base+","+adapter("support")+","+adapter("help"))
	assert.True(t, ok, body)
	folders := "" // that can be loaded
	for _, folder := range []string{"dora", "lora", "patterns", "rslora_all", "saved_head"} {
		folders += `,\{"id":"` + folder + `","object":"model","created":0,"owned_by":"lorafuse","root":"/[^"]*/` + folder + `","parent":"base","max_model_len":128,"supported_endpoints":\["/v1/chat/completions","/v1/responses","/v1/completions"\]\}`
	}
	assert.Regexp(t, `^`+folders+`\]\}$`, rest)
	for id, want := range map[string]string{"base": base, "support": adapter("support"), "help": adapter("help"), "support@" + v.Digest().Short(): adapter("support@" + v.Digest().Short())} {
		_, body := ask(t, s, "GET", "/v1/models/"+id, "")
		assert.Equal(t, want, body)
	}
	for id, hint := range map[string]string{
		"suport": `, did you mean \"support\"?`, "bsae": `, did you mean \"base\"?`, "gpt-4o": "", "a b": "", "..": "",
		"dorra": `, did you mean \"dora\"?`, "support@ffff": `: \"support\" has the versions ` + v.Digest().Short(),
	} {
		code, body := ask(t, s, "POST", "/v1/chat/completions", `{"model":"`+id+`",`+hello+`}`)
		assert.Equal(t, http.StatusNotFound, code)
		assert.Equal(t, `{"error":{"message":"the model \"`+id+`\" does not exist`+hint+`","type":"invalid_request_error","param":"model","code":"model_not_found"}}`, body)
	}
	code, _ := ask(t, s, "GET", "/v1/models/nothing/here", "")
	assert.Equal(t, http.StatusNotFound, code)
}

// All prompts of a request meet one version of an adapter.
func TestOneVersion(t *testing.T) {
	e := newEngine(t, "x")
	s := serving(t, e)
	reply[struct{}](t, s, "/v1/completions", `{"model":"dora","prompt":["a","b","c"],"temperature":0}`)
	require.Len(t, e.requests, 3)
	for _, r := range e.requests {
		require.NotNil(t, r.Lease)
		assert.Same(t, e.requests[0].Lease, r.Lease)
		assert.Equal(t, "dora", r.Adapter)
	}
}

// An adapter is asked for by its name, and is held as long as its request runs.
func TestAdapterOfRequest(t *testing.T) {
	e := newEngine(t, "x")
	e.gate = make(chan struct{})
	s := serving(t, e)
	done := make(chan string)
	go func() {
		_, body := ask(t, s, "POST", "/v1/completions", `{"model":"dora","prompt":"a","temperature":0}`)
		done <- body
	}()
	e.gate <- struct{}{}
	list := e.registry.List()
	require.Len(t, list, 1)
	assert.Equal(t, 1, list[0].Versions[0].Leases)
	close(e.gate)
	assert.Contains(t, <-done, `"model":"dora"`)
	assert.Equal(t, "dora", e.last().Adapter)
	assert.Equal(t, 0, e.registry.List()[0].Versions[0].Leases)
	reply[struct{}](t, s, "/v1/completions", `{"model":"base","prompt":"a"}`)
	assert.Empty(t, e.last().Adapter)
}

// The two routes of vLLM, with its texts.
func TestAdapterUpdates(t *testing.T) {
	e := newEngine(t, "x")
	const load, unload = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"
	code, _ := ask(t, serving(t, e), "POST", load, `{"lora_name":"a","lora_path":"lora"}`)
	assert.Equal(t, http.StatusNotFound, code)

	s := serving(t, e, updates)
	root := e.root
	outside := filepath.Join(t.TempDir(), "outside")
	require.NoError(t, os.CopyFS(outside, os.DirFS(filepath.Join(adapters, "lora"))))
	require.NoError(t, os.Symlink(outside, filepath.Join(root, "link")))
	require.NoError(t, os.MkdirAll(filepath.Join(root, "linked"), 0o777))
	for _, f := range []string{"adapter_config.json", "adapter_model.safetensors"} {
		require.NoError(t, os.Symlink(filepath.Join(outside, f), filepath.Join(root, "linked", f)))
	}
	for _, c := range []struct {
		path, body string
		code       int
		want       string
	}{
		{load, `{"lora_name":"a","lora_path":"lora"}`, 200, "Success: LoRA adapter 'a' added successfully."},
		{load, `{"lora_name":"a","lora_path":"dora"}`, 400, "The lora adapter 'a' has already been loaded. If you want to load the adapter in place, set 'load_inplace' to True."},
		{load, `{"lora_name":"a","lora_path":"` + root + `/dora","load_inplace":true}`, 200, "Success: LoRA adapter 'a' added successfully."},
		{load, `{"lora_name":"b","lora_path":""}`, 400, "Both 'lora_name' and 'lora_path' must be provided."},
		{load, `{"lora_path":"lora"}`, 400, "Both 'lora_name' and 'lora_path' must be provided."},
		{load, `{"lora_name":"b","lora_path":"none"}`, 404, "there is no adapter"},
		{load, `{"lora_name":"b","lora_path":"../outside"}`, 404, "there is no adapter"},
		{load, `{"lora_name":"b","lora_path":"` + outside + `"}`, 404, "there is no adapter"},
		{load, `{"lora_name":"b","lora_path":"link"}`, 400, "escapes"},
		{load, `{"lora_name":"b","lora_path":"linked"}`, 400, "escapes"},
		{load, `{"lora_name":"b","lora_path":"lora\u0000x"}`, 400, "lora_path"},
		{load, `{"lora_name":"b","lora_path":7}`, 400, "lora_path: found 7, expected a string"},
		{load, `{"lora_name":"../b","lora_path":"lora"}`, 400, "lora_name"},
		{load, `{"lora_name":"a,b","lora_path":"lora"}`, 400, "lora_name"},
		{load, `{"lora_name":"base","lora_path":"lora"}`, 400, "is the name of the model"},
		{load, `{"lora_name":"tinker/run","lora_path":"lora"}`, 400, "names that begin with tinker/ are reserved"},
		{unload, `{"lora_name":"a","lora_int_id":1}`, 200, "Success: LoRA adapter 'a' removed successfully."},
		{unload, `{"lora_name":"a"}`, 404, "The lora adapter 'a' cannot be found."},
		{unload, `{}`, 400, "'lora_name' needs to be provided to unload a LoRA adapter."},
	} {
		code, body := ask(t, s, "POST", c.path, c.body)
		assert.Equal(t, c.code, code, c.body+body)
		if code == 200 {
			assert.Equal(t, c.want, body)
		} else {
			assert.Contains(t, body, c.want, c.body)
			assert.True(t, strings.HasPrefix(body, `{"error":{"message":`), body)
		}
	}
	assert.Empty(t, e.registry.List())
}

// A broken adapter is the fault of who made it: the client is told what is wrong, without
// the path of the server, and it is not listed.
func TestBrokenAdapters(t *testing.T) {
	e := newEngine(t, "x")
	s := serving(t, e, updates)
	put := func(name, file string, data []byte) {
		dir := filepath.Join(e.root, name)
		require.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Join(adapters, "lora"))))
		if data == nil {
			require.NoError(t, os.Remove(filepath.Join(dir, file)))
		} else {
			require.NoError(t, os.WriteFile(filepath.Join(dir, file), data, 0o666))
		}
	}
	weights, err := os.ReadFile(filepath.Join(adapters, "lora", "adapter_model.safetensors"))
	require.NoError(t, err)
	nan := append([]byte{}, weights...)
	for i := len(nan) - 64; i < len(nan); i++ {
		nan[i] = 0xff
	}
	put("nan", "adapter_model.safetensors", nan)
	put("empty", "adapter_model.safetensors", []byte{})
	put("cut", "adapter_model.safetensors", weights[:len(weights)/2])
	put("without", "adapter_model.safetensors", nil)
	put("ia3", "adapter_config.json", []byte(`{"peft_type":"IA3"}`))
	put("text", "adapter_config.json", []byte(`{`))
	for name, want := range map[string]string{
		"nan": "not finite", "empty": "cannot be used", "cut": "cannot be used", "without": "adapter_model.safetensors", "ia3": "IA3", "text": "adapter_config.json",
	} {
		code, body := ask(t, s, "POST", "/v1/completions", `{"prompt":"a","model":"`+name+`"}`)
		assert.Equal(t, http.StatusBadRequest, code, body)
		assert.Contains(t, body, want)
		assert.Contains(t, body, `"code":"adapter_unusable"`)
		assert.NotContains(t, body, e.root)
		code, body = ask(t, s, "POST", "/v1/load_lora_adapter", `{"lora_name":"b","lora_path":"`+name+`"}`)
		assert.Equal(t, http.StatusBadRequest, code, body)
		assert.Contains(t, body, want)
		assert.NotContains(t, body, e.root)
		_, body = ask(t, s, "GET", "/v1/models", "")
		assert.NotContains(t, body, `"id":"`+name+`"`)
	}
	code, body := ask(t, s, "POST", "/v1/completions", `{"prompt":"a","model":""}`)
	assert.Equal(t, http.StatusBadRequest, code)
	assert.Contains(t, body, "model: is empty")
}

// TestAdapterWarnings: what is odd about an adapter that a client loads is in the log.
func TestAdapterWarnings(t *testing.T) {
	e := newEngine(t, "x")
	file := filepath.Join(e.root, "lora", lora.ConfigFile)
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(string(raw), "{", `{"future_key": 1,`, 1)), 0o666))
	var log bytes.Buffer
	s := serving(t, e, updates, func(o *serve.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	code, _ := ask(t, s, "POST", "/v1/load_lora_adapter", `{"lora_name":"a","lora_path":"dora"}`)
	require.Equal(t, http.StatusOK, code)
	require.NotContains(t, log.String(), "WARN")
	code, _ = ask(t, s, "POST", "/v1/load_lora_adapter", `{"lora_name":"b","lora_path":"lora"}`)
	require.Equal(t, http.StatusOK, code)
	require.Regexp(t, `level=WARN msg="adapter with warnings" model=b warnings="unknown key .*future_key`, log.String())
}

// An adapter with a chat template of its own is asked by it; other adapters and the model are not.
func TestTemplateOfAdapter(t *testing.T) {
	e := newEngine(t, "x")
	own := filepath.Join(e.root, "own")
	require.NoError(t, os.CopyFS(own, os.DirFS(filepath.Join(adapters, "lora"))))
	require.NoError(t, os.WriteFile(filepath.Join(own, "chat_template.jinja"), []byte("{% for m in messages %}OWN {{ m.content }} {{ eos_token }}{% endfor %}"), 0o666))
	show := func(s *serve.Server, name string) string {
		reply[struct{}](t, s, "/v1/chat/completions", `{"model":"`+name+`","messages":[{"role":"user","content":"Hi."}]}`)
		text, err := e.words.Decode(e.last().Prompt, false)
		require.NoError(t, err)
		return text
	}
	s := serving(t, e)
	base := show(s, "base")
	assert.NotContains(t, base, "OWN")
	assert.Equal(t, base, show(s, "lora"))
	assert.Equal(t, "OWN Hi. <|endoftext|>", show(s, "own"))
	prompt := e.last().Prompt
	assert.Equal(t, base, show(serving(t, e, func(o *serve.Options) { o.OneTemplate = true }), "own"))

	x := reply[struct{ Tokens []int32 }](t, s, "/tokenize", `{"model":"own","messages":[{"role":"user","content":"Hi."}]}`)
	assert.Equal(t, prompt, x.Tokens)
}

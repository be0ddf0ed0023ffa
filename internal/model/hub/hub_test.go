package hub

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/dev/testhub"
)

// isolate keeps the environment of the machine out of a test.
func isolate(t *testing.T) {
	for _, name := range []string{
		"HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_ENDPOINT", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH",
		"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_DISABLE_IMPLICIT_TOKEN", "XDG_CACHE_HOME",
	} {
		t.Setenv(name, "")
	}
	t.Setenv("HF_HOME", t.TempDir())
}

var (
	commitA = strings.Repeat("a1", 20)
	commitB = strings.Repeat("b2", 20)
	weights = strings.Repeat("0123456789abcdef", 1<<14) // 256 KiB
)

func newHub(t *testing.T) *testhub.Hub {
	return testhub.New(t, map[string]*testhub.Repo{"acme/tiny": {
		Refs: map[string]string{"main": commitA, "v1": commitA, "refs/pr/1": commitA},
		Trees: map[string]map[string]string{commitA: {
			"README.md": "read me", "config.json": `{"model_type":"llama"}`, "tokenizer.json": "{}", "generation_config.json": "{}",
			"chat_template.jinja": "{{ messages }}", "model.safetensors": weights, "pytorch_model.bin": "pickle",
			"onnx/model.onnx": "onnx", "additional_chat_templates/tool.jinja": "tool",
		}},
		Large: map[string]bool{"model.safetensors": true},
	}})
}

func tiny(h *testhub.Hub) *testhub.Repo { return h.Repos["acme/tiny"] }

// setup is a fake Hub, and Options to use it with an empty cache.
func setup(t *testing.T) (*testhub.Hub, Options) {
	isolate(t)
	h := newHub(t)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return h, Options{Cache: filepath.Join(t.TempDir(), "hub"), Endpoint: h.Server.URL, Transport: transport}
}

// tree lists the files below dir, links as "name -> target".
func tree(t *testing.T, dir string) (files []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err == nil && d.Type() == fs.ModeSymlink {
			var target string
			target, err = os.Readlink(path)
			name += " -> " + target
		}
		files = append(files, filepath.ToSlash(name))
		return err
	}))
	return files
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

func TestDownload(t *testing.T) {
	h, o := setup(t)
	var mu sync.Mutex
	last := map[string]int64{}
	o.Progress = func(file string, done, total int64) {
		mu.Lock()
		defer mu.Unlock()
		assert.GreaterOrEqual(t, done, last[file])
		assert.LessOrEqual(t, done, total)
		last[file] = done
	}
	dir, err := Resolve(t.Context(), "acme/tiny", o)
	require.NoError(t, err)
	repo := filepath.Join(o.Cache, "models--acme--tiny")
	assert.Equal(t, filepath.Join(repo, "snapshots", commitA), dir)
	files := tiny(h).Trees[commitA]
	want := []string{"refs/main"}
	for name, up := range map[string]string{
		"config.json": "../../", "tokenizer.json": "../../", "generation_config.json": "../../", "chat_template.jinja": "../../",
		"model.safetensors": "../../", "additional_chat_templates/tool.jinja": "../../../",
	} {
		etag := testhub.GitSHA(files[name])
		if name == "model.safetensors" {
			etag = testhub.SHA256(files[name])
		}
		want = append(want, "blobs/"+etag)
		if runtime.GOOS != "windows" {
			want = append(want, "snapshots/"+commitA+"/"+name+" -> "+up+"blobs/"+etag)
			assert.Equal(t, files[name], read(t, filepath.Join(dir, name)))
		}
		assert.EqualValues(t, len(files[name]), last[name], name)
	}
	slices.Sort(want)
	want = slices.Compact(want) // tokenizer.json and generation_config.json are one blob
	if runtime.GOOS != "windows" {
		got := tree(t, repo)
		slices.Sort(got)
		assert.Equal(t, want, got)
	}
	assert.Equal(t, commitA, read(t, filepath.Join(repo, "refs", "main")))
	assert.True(t, strings.HasPrefix(read(t, filepath.Join(o.Cache, "CACHEDIR.TAG")), "Signature: 8a477f597d28d172789f06886806bc55\n"))

	before := h.Total()
	again, err := Resolve(t.Context(), "acme/tiny", o)
	require.NoError(t, err)
	assert.Equal(t, dir, again)
	assert.Equal(t, before+1, h.Total(), "one question: which commit is main")
}

func TestLocalFolder(t *testing.T) {
	isolate(t)
	dir := t.TempDir()
	got, err := Resolve(t.Context(), dir, Options{Endpoint: "not used"})
	require.NoError(t, err)
	assert.Equal(t, dir, got)

	t.Chdir(dir)
	require.NoError(t, os.MkdirAll("acme/tiny", 0o777))
	got, err = Resolve(t.Context(), "acme/tiny", Options{})
	require.NoError(t, err)
	assert.Equal(t, "acme/tiny", got, "a folder is preferred to a model of the same name")

	require.NoError(t, os.WriteFile("file", nil, 0o666))
	_, err = Resolve(t.Context(), "file", Options{})
	assert.ErrorIs(t, err, ErrName)
	assert.ErrorContains(t, err, "is a file")
}

// A link that leads nowhere is no name on the Hub.
func TestBrokenLinks(t *testing.T) {
	h, o := setup(t)
	t.Chdir(t.TempDir())
	for name, target := range map[string]string{"circle": "circle", "broken": "gone"} {
		if err := os.Symlink(target, name); err != nil {
			t.Skip(err)
		}
		_, err := Resolve(t.Context(), name, o)
		require.ErrorIs(t, err, ErrName)
		assert.ErrorContains(t, err, name+" is a link that leads nowhere: ")
	}
	assert.Zero(t, h.Total())
}

func TestNames(t *testing.T) {
	for name, want := range map[string]repository{
		"acme/tiny":                  {id: "acme/tiny", revision: "main"},
		"gpt2":                       {id: "gpt2", revision: "main"},
		"Qwen/Qwen2.5-0.5B@v1":       {id: "Qwen/Qwen2.5-0.5B", revision: "v1"},
		"a/b@refs/pr/1":              {id: "a/b", revision: "refs/pr/1"},
		"a/b@" + commitB:             {id: "a/b", revision: commitB},
		"meta-llama/Llama_3.2-1B@x@": {id: "meta-llama/Llama_3.2-1B", revision: "x@"},
	} {
		got, err := parseName(name)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	isolate(t)
	for _, name := range []string{
		"", "a/b/c", "a//b", "a b", "-a/b", "a/b.", "a--b", "a..b", "a/b.git",
		"a/b@", "a/b@../x", "a/b@/x", `a\b`, "a/b@c:d", "models/ü", strings.Repeat("a", 97),
	} {
		_, err := Resolve(t.Context(), name, Options{Endpoint: "http://127.0.0.1:1", Cache: t.TempDir()})
		assert.ErrorIs(t, err, ErrName, name)
		assert.ErrorContains(t, err, "expected a folder or owner/name[@revision]", name)
	}
	for _, name := range []string{"a/", "/a", "./missing", "../up", "/abs/missing/folder", "~/missing"} {
		_, err := Resolve(t.Context(), name, Options{Endpoint: "http://127.0.0.1:1", Cache: t.TempDir()})
		assert.ErrorIs(t, err, ErrName, name)
		assert.ErrorContains(t, err, name+": no such file or folder")
	}
}

// TestNoFolder: a name without owner is a mistyped folder, of which the Hub is not asked.
func TestNoFolder(t *testing.T) {
	h, o := setup(t)
	t.Chdir(t.TempDir())
	require.NoError(t, os.MkdirAll(filepath.Join("models", "qwen3-small"), 0o777))
	require.NoError(t, os.Mkdir("llama-tiny", 0o777))
	require.NoError(t, os.WriteFile("llama-tny", nil, 0o666))
	for name, says := range map[string]string{
		"lama-tiny":           `there is no folder "lama-tiny", did you mean "llama-tiny"?; a model on the Hub is owner/name`,
		"nosuch":              `there is no folder "nosuch"; a model on the Hub is owner/name`,
		"lama-tiny@v2":        `there is no folder "lama-tiny@v2"`,
		"model.gguf":          `model.gguf: no such file`,
		"./models/qwen-small": `./models/qwen-small: no such file or folder, did you mean "models/qwen3-small"?`,
		"models/a/qwen-small": `models/a/qwen-small: no such file or folder`,
	} {
		_, err := Resolve(t.Context(), name, o)
		require.ErrorIs(t, err, ErrName, name)
		require.ErrorContains(t, err, says)
		if filepath.Dir(name) == "." {
			_, err = Open(t.Context(), name, o)
			require.ErrorIs(t, err, ErrName, name)
			require.ErrorContains(t, err, says)
		}
	}
	_, err := File(t.Context(), "nosuch.safetensors", o)
	require.ErrorIs(t, err, ErrName)
	assert.Zero(t, h.Total(), "the Hub was asked")
	_, err = Resolve(t.Context(), "models/qwen-small", o)
	require.ErrorIs(t, err, ErrName)
	require.ErrorContains(t, err, `models/qwen-small: no such file or folder, did you mean "models/qwen3-small"?`)
	assert.Zero(t, h.Total(), "the Hub was asked")

	// The oldest models have no owner; what is in the cache of them stays usable.
	want, err := Resolve(t.Context(), "acme/tiny", o)
	require.NoError(t, err)
	require.NoError(t, os.CopyFS(filepath.Join(o.Cache, "models--tiny"), os.DirFS(filepath.Join(o.Cache, "models--acme--tiny"))))
	got, err := Resolve(t.Context(), "tiny", o)
	require.NoError(t, err)
	assert.Equal(t, filepath.Base(want), filepath.Base(got))
}

func TestTokenStaysAtTheHub(t *testing.T) {
	for _, from := range []string{"option", "environment", "file", "path"} {
		h, o := setup(t)
		tiny(h).Token = "hf_secret"
		switch from {
		case "option":
			o.Token = "hf_secret"
		case "environment":
			t.Setenv("HF_TOKEN", " hf_secret\n")
		case "file":
			require.NoError(t, os.WriteFile(filepath.Join(os.Getenv("HF_HOME"), "token"), []byte("hf_secret\n"), 0o600))
		case "path":
			path := filepath.Join(t.TempDir(), "my")
			require.NoError(t, os.WriteFile(path, []byte("hf_secret"), 0o600))
			t.Setenv("HF_TOKEN_PATH", path)
		}
		_, err := Resolve(t.Context(), "acme/tiny", o)
		require.NoError(t, err, from)
		assert.Zero(t, h.Requests(func(s testhub.Seen) bool { return s.Host == "cdn" && s.Token != "" }), "the token leaked")
		assert.Zero(t, h.Requests(func(s testhub.Seen) bool { return s.Host == "hub" && s.Token != "Bearer hf_secret" }))
		assert.NotZero(t, h.Requests(func(s testhub.Seen) bool { return s.Host == "cdn" }))

		t.Setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")
		o.Cache = t.TempDir()
		_, err = Resolve(t.Context(), "acme/tiny", o)
		assert.Equal(t, from == "option", err == nil)
	}
}

func TestRefusals(t *testing.T) {
	h, o := setup(t)
	check := func(name string, sentinel error, parts ...string) {
		t.Helper()
		_, err := Resolve(t.Context(), name, o)
		assert.ErrorIs(t, err, sentinel)
		for _, p := range parts {
			assert.ErrorContains(t, err, p)
		}
		assert.NotContains(t, err.Error(), "\n")
		assert.NotContains(t, err.Error(), "hf_")
	}
	check("acme/tini", ErrNotFound, "acme/tini", "no such folder here either", "check the name", "set HF_TOKEN to a token from "+h.Server.URL+"/settings/tokens")
	check("acme/tiny@v9", ErrRevision, `acme/tiny has no branch, tag or commit "v9"`)
	tiny(h).Token = "hf_right"
	check("acme/tiny", ErrNotFound, "private or gated, set HF_TOKEN")
	o.Token = "hf_wrong"
	check("acme/tiny", ErrUnauthorized, "Invalid credentials", "the access token is not valid")
	tiny(h).Gated = true
	check("acme/tiny", ErrGated, "accept the terms of acme/tiny at "+h.Server.URL+"/acme/tiny", "use a token of the account that may read it")
	o.Token = ""
	check("acme/tiny", ErrGated, "then set HF_TOKEN")
	tiny(h).Token = ""
	h.Answers = []int{403}
	check("acme/tiny", ErrUnauthorized, "403 Forbidden", "may not read this model")
	h.Answers = []int{410}
	check("acme/tiny", ErrUnreachable, "410 Gone")
	assert.NoDirExists(t, filepath.Join(o.Cache, "models--acme--tini"), "nothing is made for what is not there")

	o.Token = "two words"
	check("acme/tiny", ErrUnauthorized, "characters that no token has")
	o.Token, o.Endpoint = "", "huggingface.co"
	check("acme/tiny", ErrName, `endpoint "huggingface.co", expected http(s)://host`)
}

func TestRevisions(t *testing.T) {
	h, o := setup(t)
	for _, revision := range []string{"v1", "refs/pr/1"} {
		dir, err := Resolve(t.Context(), "acme/tiny@"+revision, o)
		require.NoError(t, err)
		assert.Equal(t, commitA, filepath.Base(dir))
		assert.Equal(t, commitA, read(t, filepath.Join(o.Cache, "models--acme--tiny", "refs", filepath.FromSlash(revision))))
	}
	before := h.Total()
	dir, err := Resolve(t.Context(), "acme/tiny@"+commitA, o)
	require.NoError(t, err)
	assert.Equal(t, commitA, filepath.Base(dir))
	assert.Equal(t, before, h.Total(), "a commit does not change: no question")
	assert.NoFileExists(t, filepath.Join(o.Cache, "models--acme--tiny", "refs", commitA))

	o.Cache = t.TempDir()
	dir, err = Resolve(t.Context(), "acme/tiny@"+commitA, o)
	require.NoError(t, err)
	assert.Equal(t, weights, read(t, filepath.Join(dir, "model.safetensors")))
}

func TestBranchMoves(t *testing.T) {
	h, o := setup(t)
	old, err := Resolve(t.Context(), "acme/tiny", o)
	require.NoError(t, err)
	tree := map[string]string{}
	for name, content := range tiny(h).Trees[commitA] {
		tree[name] = content
	}
	tree["config.json"] = `{"model_type":"qwen2"}`
	tiny(h).Trees[commitB] = tree
	tiny(h).Refs["main"] = commitB
	downloads := func() int {
		return h.Requests(func(s testhub.Seen) bool { return s.Method == "GET" && !strings.HasPrefix(s.Path, "/api") })
	}
	before := downloads()
	dir, err := Resolve(t.Context(), "acme/tiny", o)
	require.NoError(t, err)
	assert.Equal(t, before+1, downloads(), "only what changed")
	assert.Equal(t, `{"model_type":"qwen2"}`, read(t, filepath.Join(dir, "config.json")))
	assert.Equal(t, weights, read(t, filepath.Join(dir, "model.safetensors")))
	assert.Equal(t, `{"model_type":"llama"}`, read(t, filepath.Join(old, "config.json")), "the old snapshot stays")
	assert.Equal(t, commitB, read(t, filepath.Join(o.Cache, "models--acme--tiny", "refs", "main")))
}

func TestOffline(t *testing.T) {
	h, o := setup(t)
	t.Setenv("HF_HUB_OFFLINE", "1")
	_, err := Resolve(t.Context(), "acme/tiny", o)
	assert.ErrorIs(t, err, ErrOffline)
	assert.ErrorContains(t, err, "acme/tiny is not whole in the cache "+o.Cache)
	t.Setenv("HF_HUB_OFFLINE", "")
	want, err := Resolve(t.Context(), "acme/tiny@v1", o)
	require.NoError(t, err)
	before := h.Total()
	o.Offline = true
	for _, name := range []string{"acme/tiny@v1", "acme/tiny@" + commitA} {
		dir, err := Resolve(t.Context(), name, o)
		require.NoError(t, err)
		assert.Equal(t, want, dir)
	}
	_, err = Resolve(t.Context(), "acme/tiny", o)
	assert.ErrorIs(t, err, ErrOffline, "main was never asked for")
	require.NoError(t, os.Remove(filepath.Join(want, "model.safetensors")))
	_, err = Resolve(t.Context(), "acme/tiny@v1", o)
	assert.ErrorContains(t, err, "model.safetensors is missing")
	assert.Equal(t, before, h.Total(), "offline asks nobody")
}

func TestHubIsDown(t *testing.T) {
	h, o := setup(t)
	want, err := Resolve(t.Context(), "acme/tiny", o)
	require.NoError(t, err)
	h.Answers = []int{503}
	var warned []error
	o.Warn = func(err error) { warned = append(warned, err) }
	dir, err := Resolve(t.Context(), "acme/tiny", o)
	require.NoError(t, err)
	assert.Equal(t, want, dir)
	require.Len(t, warned, 1)
	assert.ErrorIs(t, warned[0], ErrUnreachable)
	assert.ErrorContains(t, warned[0], "503 Service Unavailable; using the copy of acme/tiny in the cache")

	h.Server.Close()
	_, err = Resolve(t.Context(), "acme/tiny", o)
	require.NoError(t, err)
	assert.ErrorContains(t, warned[1], "connection refused")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Resolve(ctx, "acme/tiny", o)
	assert.ErrorIs(t, err, context.Canceled, "giving up is no reason for an old copy")
}

func TestCacheFolder(t *testing.T) {
	isolate(t)
	home := t.TempDir()
	for _, c := range []struct{ name, value, want string }{
		{"HF_HOME", home, filepath.Join(home, "hub")},
		{"HF_HUB_CACHE", filepath.Join(home, "x"), filepath.Join(home, "x")},
		{"HUGGINGFACE_HUB_CACHE", filepath.Join(home, "y"), filepath.Join(home, "y")},
		{"XDG_CACHE_HOME", home, filepath.Join(home, "huggingface", "hub")},
	} {
		t.Setenv("HF_HOME", "")
		t.Setenv(c.name, c.value)
		s, err := Options{}.settings()
		require.NoError(t, err)
		assert.Equal(t, c.want, s.cache, c.name)
		assert.Equal(t, "https://huggingface.co", s.endpoint)
		t.Setenv(c.name, "")
	}
	t.Setenv("HF_ENDPOINT", "https://mirror.example/hf//")
	t.Setenv("BASE", home)
	t.Setenv("HF_HOME", "$BASE/z")
	s, err := Options{}.settings()
	require.NoError(t, err)
	assert.Equal(t, "https://mirror.example/hf", s.endpoint)
	assert.Equal(t, filepath.Join(home, "z", "hub"), s.cache)
}

func TestReadOnlyCache(t *testing.T) {
	if runtime.GOOS == "windows" || os.Getuid() == 0 {
		t.Skip("needs a user whom permissions bind")
	}
	h, o := setup(t)
	_, err := Resolve(t.Context(), "acme/tiny", o)
	require.NoError(t, err)
	refs := filepath.Join(o.Cache, "models--acme--tiny", "refs")
	require.NoError(t, os.Chmod(refs, 0o555))
	t.Cleanup(func() { os.Chmod(refs, 0o777) })
	_, err = Resolve(t.Context(), "acme/tiny@v1", o)
	assert.NoError(t, err, "all is there: nothing has to be written")
	_ = h
}

// refuse makes a link impossible.
func refuse(string, string) error { return errors.New("no links here") }

func TestWithoutSymlinks(t *testing.T) {
	h, o := setup(t)
	s, err := o.settings()
	require.NoError(t, err)
	repo := repository{id: "acme/tiny", revision: "main"}
	c := cacheOf(s.cache, repo)
	c.link = refuse
	r := newRemote(s, repo, o.Transport, stallTime)
	dir, err := fetchModel(t.Context(), r, c, o, false)
	require.NoError(t, err)
	for name, content := range map[string]string{"model.safetensors": weights, "tokenizer.json": "{}", "generation_config.json": "{}"} {
		info, err := os.Lstat(filepath.Join(dir, name))
		require.NoError(t, err)
		assert.True(t, info.Mode().IsRegular())
		assert.Equal(t, content, read(t, filepath.Join(dir, name)))
	}
	o.Offline = true
	got, err := Resolve(t.Context(), "acme/tiny", o)
	require.NoError(t, err)
	assert.Equal(t, dir, got)
	_ = h
}

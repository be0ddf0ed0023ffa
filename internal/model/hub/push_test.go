package hub

import (
	"context"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/dev/testhub"
)

// pushable returns a Hub that accepts pushes to acme, options, and the folder of an adapter.
func pushable(t *testing.T) (*testhub.Hub, PushOptions, string) {
	h, o := setup(t)
	h.Push = &testhub.Push{Tokens: map[string][]string{"hf_write": {"acme"}}, Readers: []string{"hf_read"}}
	o.Token = "hf_write"
	dir := t.TempDir()
	for name, content := range map[string]string{
		"adapter_config.json": `{"r": 8}`, "adapter_model.safetensors": weights, "README.md": "# card", "empty.safetensors": "",
		"more/tokens.json": "{}", ".hidden": "x", ".git/config": "x",
	} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o777))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o666))
	}
	return h, PushOptions{Options: o}, dir
}

// pushed returns the files of a repository at a revision.
func pushed(h *testhub.Hub, id, revision string) map[string]string {
	r := h.Repos[id]
	files := maps.Clone(r.Trees[r.Refs[revision]])
	delete(files, ".gitattributes")
	return files
}

func TestPush(t *testing.T) {
	for _, chunk := range []int{0, 100_000, len(weights) / 2} {
		h, o, dir := pushable(t)
		h.Push.ChunkSize = chunk
		var notes []string
		o.Note, o.Message = func(text string) { notes = append(notes, text) }, "first"
		got, err := Push(t.Context(), dir, "acme/new", o)
		require.NoError(t, err)
		repo := h.Repos["acme/new"]
		assert.Equal(t, &Pushed{Repository: "acme/new", Revision: "main", Commit: repo.Refs["main"], URL: h.Server.URL + "/acme/new", Files: 5, Bytes: int64(len(weights) + 16), Created: true}, got)
		assert.Equal(t, map[string]string{
			"adapter_config.json": `{"r": 8}`, "adapter_model.safetensors": weights, "README.md": "# card", "empty.safetensors": "", "more/tokens.json": "{}",
		}, pushed(h, "acme/new", "main"))
		assert.True(t, repo.Private)
		assert.True(t, repo.Large["adapter_model.safetensors"])
		assert.False(t, repo.Large["empty.safetensors"])
		assert.Equal(t, "first", repo.Message)
		assert.Equal(t, []string{"hidden files are not pushed: .git/, .hidden"}, notes)
		assert.Equal(t, 1, h.Push.Commits)
		assert.Zero(t, h.Requests(func(s testhub.Seen) bool { return s.Host == "cdn" && s.Token != "" }), "the token leaked")

		// Again, nothing is left to do; then only what has changed is sent.
		puts := h.Puts()
		got, err = Push(t.Context(), dir, "acme/new", o)
		require.NoError(t, err)
		assert.Equal(t, 0, got.Files)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "README.md"), []byte("# new"), 0o666))
		got, err = Push(t.Context(), dir, "acme/new@main", o)
		require.NoError(t, err)
		assert.Equal(t, 1, got.Files)
		assert.Equal(t, 2, h.Push.Commits)
		assert.Equal(t, puts, h.Puts())
	}
}

func TestPushToBranch(t *testing.T) {
	h, o, dir := pushable(t)
	o.Revision, o.Public = "v2", true
	got, err := Push(t.Context(), dir, "acme/new", o)
	require.NoError(t, err)
	assert.Equal(t, h.Server.URL+"/acme/new/tree/v2", got.URL)
	assert.Empty(t, pushed(h, "acme/new", "main"))
	assert.Len(t, pushed(h, "acme/new", "v2"), 5)
	assert.False(t, h.Repos["acme/new"].Private)
	o.Revision = "v3"
	_, err = Push(t.Context(), dir, "acme/new@v2", o)
	assert.ErrorIs(t, err, ErrName)
}

// A push that fails shows nothing, and the next one continues.
func TestPushResumes(t *testing.T) {
	h, o, dir := pushable(t)
	h.Push.ChunkSize = 100_000 // three parts
	h.Stop(map[string][]int{"put": {0, 0, 403}})
	_, err := Push(t.Context(), dir, "acme/new", o)
	assert.ErrorIs(t, err, ErrUnreachable)
	assert.NotContains(t, err.Error(), "secret")
	assert.Empty(t, pushed(h, "acme/new", "main"))
	assert.Equal(t, 2, h.Puts())

	ctx, cancel := context.WithCancel(t.Context())
	o.Progress = func(string, int64, int64) { cancel() }
	_, err = Push(ctx, dir, "acme/new", o)
	assert.ErrorIs(t, err, context.Canceled)
	assert.ErrorContains(t, err, "interrupted, and acme/new is unchanged; the same command resumes the upload")
	assert.Empty(t, pushed(h, "acme/new", "main"))

	o.Progress = nil
	h.Stop(map[string][]int{"put": {500, 0, 0, 429}, "commit": {503}}) // these pass
	_, err = Push(t.Context(), dir, "acme/new", o)
	require.NoError(t, err)
	assert.Equal(t, weights, pushed(h, "acme/new", "main")["adapter_model.safetensors"])
	// The interrupted request for the last part may still arrive while the next push is under way.
	sent := func(part string) int {
		return h.Requests(func(s testhub.Seen) bool { return s.Method == http.MethodPut && strings.HasSuffix(s.Path, part) })
	}
	assert.Equal(t, 1, sent("/1"), "a finished part was sent again")
	assert.Equal(t, 1, sent("/2"), "a finished part was sent again")
	assert.LessOrEqual(t, sent("/3"), 1+1+2, "refused, interrupted, tried twice")
	assert.Equal(t, 1, h.Push.Commits)
	left, err := filepath.Glob(filepath.Join(o.Cache, ".locks", "*", "*.upload"))
	require.NoError(t, err)
	assert.Empty(t, left)
}

// An upload that has expired starts from the beginning.
func TestPushAfterExpiry(t *testing.T) {
	h, o, dir := pushable(t)
	h.Push.ChunkSize = 100_000
	h.Stop(map[string][]int{"put": {0, 403}})
	_, err := Push(t.Context(), dir, "acme/new", o)
	assert.ErrorIs(t, err, ErrUnreachable)
	h.Stop(map[string][]int{"put": {404}, "complete": {400}})
	_, err = Push(t.Context(), dir, "acme/new", o)
	assert.Error(t, err)
	_, err = Push(t.Context(), dir, "acme/new", o)
	require.NoError(t, err)
	assert.Equal(t, weights, pushed(h, "acme/new", "main")["adapter_model.safetensors"])
}

// A commit whose answer is lost is not made twice.
func TestPushLosesAnswer(t *testing.T) {
	h, o, dir := pushable(t)
	h.Push.LoseCommits = 1
	got, err := Push(t.Context(), dir, "acme/new", o)
	require.NoError(t, err)
	assert.Equal(t, h.Repos["acme/new"].Refs["main"], got.Commit)
	assert.Equal(t, 1, h.Push.Commits)
}

func TestPushRefuses(t *testing.T) {
	h, o, dir := pushable(t)
	none := t.TempDir()
	run := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(run, "adapter"), 0o777))
	require.NoError(t, os.WriteFile(filepath.Join(run, "adapter", "adapter_config.json"), nil, 0o666))
	half := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(half, "model.safetensors.index.json"), []byte(`{"weight_map": {"a": "model-1.safetensors"}}`), 0o666))
	public := &testhub.Repo{Refs: map[string]string{"main": commitA}, Trees: map[string]map[string]string{commitA: {}}}
	h.Repos["acme/public"] = public
	h.Repos["acme/tiny"].Private = true
	for _, c := range []struct {
		dir, name, token string
		err              error
		says             string
	}{
		{dir, "acme/new", "", ErrPush, "set HF_TOKEN to a token with write access from " + h.Server.URL + "/settings/tokens"},
		{dir, "acme/new", "hf_wrong", ErrUnauthorized, "the access token is not valid"},
		{dir, "acme/new", "hf_read", ErrUnauthorized, "the access token may not write there; use one with write access to acme"},
		{dir, "other/new", "hf_write", ErrUnauthorized, "You don't have the rights to write to other"},
		{dir, "acme/tiny", "hf_write", ErrOccupied, "acme/tiny has additional_chat_templates/tool.jinja, chat_template.jinja, config.json, …, which " + dir + " lacks"},
		{dir, "acme/public", "hf_write", ErrPublic, "push with --public"},
		{dir, "no-owner", "hf_write", ErrName, "expected owner/name"},
		{dir, "acme/new@" + commitA, "hf_write", ErrName, "is a commit, expected a branch"},
		{none, "acme/new", "hf_write", ErrFolder, "has no adapter_config.json, config.json or weights"},
		{run, "acme/new", "hf_write", ErrFolder, "is the folder of a run; push " + filepath.Join(run, "adapter")},
		{half, "acme/new", "hf_write", ErrFolder, "lacks model-1.safetensors, which model.safetensors.index.json lists"},
		{dir + "x", "acme/new", "hf_write", ErrFolder, "no such folder"},
	} {
		o.Token = c.token
		_, err := Push(t.Context(), c.dir, c.name, o)
		assert.ErrorIs(t, err, c.err, c.says)
		assert.ErrorContains(t, err, c.says)
	}
	assert.Zero(t, h.Push.Commits)
	assert.NotContains(t, slices.Collect(maps.Keys(h.Repos)), "acme/new")

	o.Token, o.Force = "hf_write", true
	_, err := Push(t.Context(), dir, "acme/tiny", o)
	require.NoError(t, err)
	assert.Equal(t, `{"model_type":"llama"}`, pushed(h, "acme/tiny", "main")["config.json"])
	assert.Equal(t, "# card", pushed(h, "acme/tiny", "main")["README.md"])
}

// What the Hub refuses late is an error that shows nothing.
func TestPushFaults(t *testing.T) {
	for what, c := range map[string]struct {
		status int
		err    error
		says   string
	}{
		"create":    {402, ErrPush, "planned"},
		"preupload": {413, ErrPush, "413"},
		"batch":     {403, ErrUnauthorized, "planned"},
		"commit":    {412, ErrMoved, "somebody else changed it; push again"},
	} {
		h, o, dir := pushable(t)
		h.Stop(map[string][]int{what: {c.status}})
		_, err := Push(t.Context(), dir, "acme/new", o)
		assert.ErrorIs(t, err, c.err, what)
		assert.ErrorContains(t, err, c.says)
		assert.Zero(t, h.Push.Commits)
	}
	h, o, dir := pushable(t)
	h.Push.Before = func(r *testhub.Repo) { r.Refs["main"] = strings.Repeat("c3", 20) }
	_, err := Push(t.Context(), dir, "acme/new", o)
	assert.ErrorIs(t, err, ErrMoved)
}

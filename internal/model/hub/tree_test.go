package hub

import (
	"context"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/dev/testhub"
)

const shardIndex = `{"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}`

// pipelineTree is what repositories of diffusers have.
func pipelineTree() map[string]string {
	return map[string]string{
		"README.md": "read me", "model_index.json": "{}", "flux1-dev.safetensors": "all of it", "ae.safetensors": "the autoencoder",
		"scheduler/scheduler_config.json": `{"s": 1}`,
		"tokenizer/tokenizer.json":        "t", "tokenizer/tokenizer_config.json": "tc", "tokenizer/spiece.model": "s", "tokenizer/merges.txt": "m",
		"text_encoder/config.json": "c", "text_encoder/model.safetensors.index.json": shardIndex, "text_encoder/model.fp16.safetensors": "half",
		"text_encoder/model-00001-of-00002.safetensors": "one", "text_encoder/model-00002-of-00002.safetensors": "two", "text_encoder/pytorch_model.bin": "pickle",
		"transformer/config.json": "tr", "transformer/diffusion_pytorch_model.safetensors": weights, "transformer/diffusion_pytorch_model.bf16.safetensors": "half",
		"transformer/diffusion_pytorch_model.safetensors.index.json": shardIndex, "transformer/deeper/config.json": "deep",
		"vae/config.json": "v", "vae/diffusion_pytorch_model.fp16.safetensors": "half", "vae/diffusion_pytorch_model.bin": "pickle",
		"processor/preprocessor_config.json": "p", "processor/tokenizer.json": "t again", "processor/chat_template.jinja": "x",
	}
}

// setupTree is a fake Hub with a pipeline.
func setupTree(t *testing.T) (*testhub.Hub, Options) {
	h, o := setup(t)
	h.Repos["acme/flux"] = &testhub.Repo{
		Refs:  map[string]string{"main": commitA, "refs/pr/1": commitA},
		Trees: map[string]map[string]string{commitA: pipelineTree()}, Large: map[string]bool{"transformer/diffusion_pytorch_model.safetensors": true},
	}
	return h, o
}

// TestTree: of a pipeline comes what is asked for, and once; variants, pickles and
// checkpoints of other programs never.
func TestTree(t *testing.T) {
	h, o := setupTree(t)
	files, err := Open(t.Context(), "acme/flux", o)
	require.NoError(t, err)
	assert.Equal(t, "acme/flux", files.String())
	assert.Equal(t, 1, h.Total(), "one question: which commit is main, and what it has")
	assert.NoDirExists(t, files.Dir)

	for _, c := range []struct {
		folder  string
		weights bool
		want    []string
	}{
		{"", false, []string{"model_index.json"}},
		{"transformer", false, []string{"transformer/config.json"}},
		{"transformer", true, []string{"transformer/diffusion_pytorch_model.safetensors"}},
		{"transformer", true, nil},
		{"text_encoder", true, []string{"text_encoder/config.json", "text_encoder/model-00001-of-00002.safetensors", "text_encoder/model-00002-of-00002.safetensors", "text_encoder/model.safetensors.index.json"}},
		{"tokenizer", false, []string{"tokenizer/merges.txt", "tokenizer/tokenizer.json", "tokenizer/tokenizer_config.json"}},
		{"scheduler", false, []string{"scheduler/scheduler_config.json"}},
		{"processor", false, []string{"processor/preprocessor_config.json"}},
		{"vae", false, []string{"vae/config.json"}},
	} {
		h.Files()
		dir, err := files.Fetch(c.folder, c.weights)
		require.NoError(t, err)
		assert.Equal(t, filepath.Join(files.Dir, c.folder), dir)
		assert.Equal(t, c.want, h.Files())
		for _, name := range c.want {
			assert.Equal(t, pipelineTree()[name], read(t, filepath.Join(files.Dir, name)))
		}
	}
	_, err = files.Fetch("vae", true)
	require.ErrorIs(t, err, ErrNoWeights)
	assert.Equal(t, "acme/flux/vae: no safetensors weights: found diffusion_pytorch_model.bin, diffusion_pytorch_model.fp16.safetensors, expected diffusion_pytorch_model.safetensors or model.safetensors, or the index of one of them", err.Error())
	_, err = files.Fetch("text_encoder_2", true)
	require.ErrorIs(t, err, ErrNotFound)
	assert.ErrorContains(t, err, "acme/flux/text_encoder_2")
	has := func(folder string) bool {
		has, known := files.Has(folder)
		assert.True(t, known)
		return has
	}
	assert.True(t, has("vae"))
	assert.False(t, has("text_encoder_2"))
	assert.False(t, has("va"))
	assert.False(t, has("model_index.json"))

	// What is here, is here without the Hub, too.
	before := h.Total()
	_, err = files.CacheOnly().Fetch("transformer", true)
	require.NoError(t, err)
	_, err = files.CacheOnly().Fetch("vae", true)
	require.Error(t, err)
	assert.Equal(t, before, h.Total())
}

// An index names files of the repository, and a folder without its last file is not taken
// for whole.
func TestTreeShards(t *testing.T) {
	h, o := setupTree(t)
	tree := h.Repos["acme/flux"].Trees[commitA]
	delete(tree, "text_encoder/model-00002-of-00002.safetensors")
	files, err := Open(t.Context(), "acme/flux", o)
	require.NoError(t, err)
	_, err = files.Fetch("text_encoder", true)
	require.ErrorIs(t, err, ErrNotFound)
	assert.ErrorContains(t, err, "acme/flux/text_encoder/model-00002-of-00002.safetensors")
	tree["text_encoder/model.safetensors.index.json"] = `{"weight_map": {"a": "../vae/x.safetensors"}}`
	o.Cache = t.TempDir()
	files, err = Open(t.Context(), "acme/flux", o)
	require.NoError(t, err)
	_, err = files.Fetch("text_encoder", true)
	assert.ErrorContains(t, err, `acme/flux/text_encoder: model.safetensors.index.json: tensor "a" lies in "../vae/x.safetensors"`)
}

func TestTreeResumes(t *testing.T) {
	h, o := setupTree(t)
	h.Spoil(testhub.Fault{Cut: 100_000, Stall: true})
	ctx, cancel := context.WithCancel(t.Context())
	o.Progress = func(file string, done, _ int64) {
		if strings.HasSuffix(file, ".safetensors") {
			assert.Equal(t, "transformer/diffusion_pytorch_model.safetensors", file)
			cancel()
		}
	}
	files, err := Open(ctx, "acme/flux", o)
	require.NoError(t, err)
	_, err = files.Fetch("transformer", true)
	require.ErrorIs(t, err, context.Canceled)

	o.Progress = nil
	files, err = Open(t.Context(), "acme/flux", o)
	require.NoError(t, err)
	h.Files()
	dir, err := files.Fetch("transformer", true)
	require.NoError(t, err)
	assert.Equal(t, weights, read(t, filepath.Join(dir, "diffusion_pytorch_model.safetensors")))
	ranges := h.Ranges()
	require.Len(t, ranges, 2)
	assert.Regexp(t, `^bytes=[1-9]\d*-$`, ranges[1])
}

// TestTreeOffline: what was downloaded is used without the Hub, and what was not is named.
func TestTreeOffline(t *testing.T) {
	h, o := setupTree(t)
	o.Offline = true
	_, err := Open(t.Context(), "acme/flux", o)
	require.ErrorIs(t, err, ErrOffline)
	o.Offline = false
	files, err := Open(t.Context(), "acme/flux", o)
	require.NoError(t, err)
	for folder, weights := range map[string]bool{"": false, "transformer": true, "vae": false, "tokenizer": false} {
		_, err = files.Fetch(folder, weights)
		require.NoError(t, err)
	}
	before := h.Total()
	offline := func(o Options) {
		for _, name := range []string{"acme/flux", "acme/flux@" + commitA, "acme/flux/transformer"} {
			files, err := Open(t.Context(), name, o)
			require.NoError(t, err)
			if strings.HasSuffix(name, "/transformer") {
				_, err := files.Fetch("", true)
				require.NoError(t, err)
				continue
			}
			for folder, weights := range map[string]bool{"": false, "transformer": true, "tokenizer": false} {
				_, err := files.Fetch(folder, weights)
				require.NoError(t, err, folder)
			}
			_, err = files.Fetch("vae", true)
			require.ErrorContains(t, err, "vae: ")
			_, err = files.Fetch("scheduler", false)
			require.ErrorContains(t, err, "its configuration is missing")
			has, known := files.Has("scheduler")
			assert.False(t, has || known)
		}
	}
	o.Offline = true
	offline(o)
	assert.Equal(t, before, h.Total(), "offline asks nobody")

	// Where the Hub does not answer, too.
	o.Offline = false
	h.Server.Close()
	var warned error
	o.Warn = func(err error) { warned = err }
	offline(o)
	require.ErrorIs(t, warned, ErrUnreachable)
	assert.ErrorContains(t, warned, "using what the cache has of acme/flux")
	files, err = Open(t.Context(), "acme/flux", o)
	require.NoError(t, err)
	_, err = files.Fetch("vae", true)
	require.ErrorIs(t, err, ErrUnreachable)
	assert.ErrorContains(t, err, "has not all of acme/flux/vae")
}

// A folder that lost a file is whole no more.
func TestTreeLosesFiles(t *testing.T) {
	_, o := setupTree(t)
	files, err := Open(t.Context(), "acme/flux", o)
	require.NoError(t, err)
	dir, err := files.Fetch("text_encoder", true)
	require.NoError(t, err)
	require.NoError(t, os.Remove(filepath.Join(dir, "model-00002-of-00002.safetensors")))
	o.Offline = true
	gone, err := Open(t.Context(), "acme/flux", o)
	require.NoError(t, err)
	_, err = gone.Fetch("text_encoder", true)
	require.ErrorIs(t, err, ErrOffline)
	assert.ErrorContains(t, err, "(text_encoder: model-00002-of-00002.safetensors is missing)")
	_, err = files.Fetch("text_encoder", true)
	require.NoError(t, err)
	assert.Equal(t, "two", read(t, filepath.Join(dir, "model-00002-of-00002.safetensors")))
}

// What names a folder whole comes last, so that half a tokenizer is none without the Hub.
func TestTreeBrokenOff(t *testing.T) {
	h, o := setupTree(t)
	h.Repos["acme/flux"].Large["tokenizer/merges.txt"] = true
	h.Spoil(testhub.Fault{Status: http.StatusForbidden})
	files, err := Open(t.Context(), "acme/flux", o)
	require.NoError(t, err)
	_, err = files.Fetch("", false)
	require.NoError(t, err)
	dir, err := files.Fetch("tokenizer", false)
	require.ErrorIs(t, err, ErrUnauthorized)
	assert.NoFileExists(t, filepath.Join(dir, "tokenizer.json"))
	offline := o
	offline.Offline = true
	gone, err := Open(t.Context(), "acme/flux", offline)
	require.NoError(t, err)
	_, err = gone.Fetch("tokenizer", false)
	require.ErrorIs(t, err, ErrOffline)
	_, err = files.Fetch("tokenizer", false)
	require.NoError(t, err)
	_, err = gone.Fetch("tokenizer", false)
	require.NoError(t, err)
}

// TestTreeNames: folders and files have names, with revisions.
func TestTreeNames(t *testing.T) {
	h, o := setupTree(t)
	for name, folder := range map[string]string{
		"acme/flux/transformer": "transformer", "acme/flux@main/transformer": "transformer", "acme/flux@refs/pr/1/transformer/deeper": "transformer/deeper",
		"acme/flux@" + commitA + "/vae": "vae", "acme/flux@refs/pr/1": "",
	} {
		files, err := Open(t.Context(), name, o)
		require.NoError(t, err, name)
		dir, err := files.Fetch("", false)
		require.NoError(t, err)
		assert.True(t, strings.HasSuffix(filepath.ToSlash(dir), commitA+strings.TrimSuffix("/"+folder, "/")), dir)
	}
	file, err := File(t.Context(), "acme/flux@main/transformer/diffusion_pytorch_model.safetensors", o)
	require.NoError(t, err)
	assert.Equal(t, weights, read(t, file))
	assert.FileExists(t, filepath.Join(filepath.Dir(file), "config.json"), "which says what it is")
	h.Files()
	file, err = File(t.Context(), "acme/flux/flux1-dev.safetensors", o)
	require.NoError(t, err)
	assert.Equal(t, "all of it", read(t, file))
	assert.Equal(t, []string{"flux1-dev.safetensors"}, h.Files())
	here, err := File(t.Context(), file, Options{Endpoint: "not used"})
	require.NoError(t, err)
	assert.Equal(t, file, here)

	for name, is := range map[string]error{
		"acme/flux/none": ErrNotFound, "acme/none/vae": ErrNotFound, "acme/flux@v9/vae": ErrRevision, "acme/flux/../vae": ErrName, "/acme/flux": ErrName,
		"acme/flux@": ErrName, "acme//vae": ErrName, "acme/flux@refs/pr": ErrRevision, "acme/flux/": ErrName,
	} {
		_, err := Open(t.Context(), name, o)
		require.ErrorIs(t, err, is, name)
		assert.NotContains(t, err.Error(), "\n")
	}
	for _, name := range []string{"none.safetensors", "acme/none.safetensors", "/acme/flux/x.safetensors", "acme/flux/vae"} {
		_, err := File(t.Context(), name, o)
		require.ErrorIs(t, err, ErrName, name)
		require.ErrorIs(t, err, fs.ErrNotExist, name)
	}
	_, err = File(t.Context(), "acme/flux/vae/none.safetensors", o)
	require.ErrorIs(t, err, ErrNotFound)
	assert.ErrorContains(t, err, "acme/flux/vae/none.safetensors")

	h.Repos["acme/flux"].Token, h.Repos["acme/flux"].Gated = "hf_right", true
	o.Cache = t.TempDir()
	_, err = Open(t.Context(), "acme/flux", o)
	require.ErrorIs(t, err, ErrGated)
	assert.ErrorContains(t, err, "accept the terms of acme/flux at ")
}

// What is read of a folder on the disk is what comes of one on the Hub.
func TestNeeded(t *testing.T) {
	dir := t.TempDir()
	for name, content := range pipelineTree() {
		path := filepath.Join(dir, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o777))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o666))
	}
	got, err := NeededOf(filepath.Join(dir, "text_encoder"), true)
	require.NoError(t, err)
	assert.Equal(t, []string{"config.json", "model.safetensors.index.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}, got)
	got, err = Needed([]string{"preprocessor_config.json", "config.json"}, false)
	require.NoError(t, err)
	assert.Equal(t, []string{"config.json", "preprocessor_config.json"}, got)
	for _, names := range [][]string{nil, {"config.json"}, {"a.bin", "b.bin", "c.gguf", "d.safetensors"}} {
		_, err := Needed(names, true)
		require.ErrorIs(t, err, ErrNoWeights)
	}
}

func TestLocalTree(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "vae"), 0o777))
	files, err := Open(t.Context(), dir, Options{Endpoint: "not used"})
	require.NoError(t, err)
	assert.Equal(t, dir, files.String())
	has, known := files.Has("vae")
	assert.True(t, has && known)
	has, _ = files.Has("transformer")
	assert.False(t, has)
	got, err := files.CacheOnly().Fetch("vae", true)
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(dir, "vae"), got)
}

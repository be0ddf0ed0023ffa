package train_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/train/config"
)

// edit changes a file: what is there once becomes something else.
func edit(t *testing.T, path, old, new string) {
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, string(raw), old)
	require.NoError(t, os.WriteFile(path, []byte(strings.Replace(string(raw), old, new, 1)), 0o666))
}

// A run goes on only where all is the same that its numbers depend on; the
// error names what is not, with both values, and nothing else.
func TestResumeIsBound(t *testing.T) {
	dir := t.TempDir()
	base := filepath.Join(dir, "model")
	require.NoError(t, os.CopyFS(base, os.DirFS(tinyModel)))
	begin := func(sets ...string) *config.Config {
		sets = append([]string{"model=" + base, "save_steps=1", "steps=2", "log.tensorboard=false", "log.metrics=false"}, sets...)
		return configure(t, dir, countingRows(20), sets...)
	}
	first := begin()
	runToEnd(t, first)

	resume := func(c *config.Config) error {
		c.Resume = "latest"
		_, _, err := train.DryRun(context.Background(), c, train.Observer{})
		return err
	}
	require.NoError(t, resume(begin()))
	for _, free := range [][]string{
		{"save_steps=5", "save_limit=1", "log.steps=3", "threads=1", "log.plot=true"}, {"activation_checkpointing=true"},
		{"data.max_length=512"}, {"on_nan=skip"}, {"pack=always"}, {"memory=1GiB"}, {"data.eval=" + filepath.Join(dir, "rows.jsonl"), "eval_steps=1"},
	} {
		require.NoError(t, resume(begin(free...)), "%v", free)
	}
	moved := filepath.Join(dir, "moved")
	require.NoError(t, os.CopyFS(moved, os.DirFS(base)))
	require.NoError(t, resume(begin("model="+moved)), "where the weights lie is no part of them")

	for set, says := range map[string]string{
		"precision=bf16": "precision was f32, is now bf16",
		"seed=43":        "seed was 42, is now 43",
		"adapter.r=5":    "adapter.r was 4, is now 5",
		"quantize=int8":  "quantize was none, is now int8",

		"batch_invariant=true": "batch_invariant was not given, is now true",
		"data.shuffle=false":   "data.shuffle was true, is now false",
		"data.train_on=all":    "data.train_on was answer, is now all",
	} {
		err := resume(begin(set))
		require.ErrorIs(t, err, train.ErrCheckpoint, set)
		require.ErrorContains(t, err, says)
		require.NotContains(t, err.Error(), "{", "no documents")
	}
	err := resume(begin("learning_rate=0.02", "max_grad_norm=2"))
	require.ErrorContains(t, err, "learning_rate was 0.01, is now 0.02; max_grad_norm was 1, is now 2; go on")

	weights := filepath.Join(moved, "model.safetensors")
	raw, err := os.ReadFile(weights)
	require.NoError(t, err)
	raw[len(raw)-7] ^= 1
	require.NoError(t, os.WriteFile(weights, raw, 0o666))
	err = resume(begin("model=" + moved))
	require.ErrorIs(t, err, train.ErrCheckpoint)
	require.ErrorContains(t, err, "weights was sha256 ")
	require.NotContains(t, err.Error(), ";  ", "only they differ")

	require.NoError(t, os.WriteFile(filepath.Join(dir, "rows.jsonl"), nil, 0o666))
	c := begin()
	edit(t, c.Data.Train[0], "after 3 comes", "after 4 comes")
	err = resume(c)
	require.ErrorContains(t, err, "data.train was rows ")
	require.NotContains(t, err.Error(), "tokenizer")
}

// The initial adapter is what it holds, wherever it lies.
func TestResumeIsBoundToTheInitialAdapter(t *testing.T) {
	adapters := map[string]string{}
	for _, seed := range []string{"1", "2"} {
		c := configure(t, t.TempDir(), countingRows(8), "steps=1", "seed="+seed)
		losses(t, c)
		adapters[seed] = filepath.Join(c.OutputDir, train.AdapterDir)
	}
	dir := t.TempDir()
	run := func(adapter string) *config.Config {
		c := configure(t, dir, countingRows(8), "steps=2", "save_steps=1", "learning_rate=0.001")
		d, err := config.Parse("test", nil, "model="+tinyModel, "output_dir="+c.OutputDir, "data.train="+c.Data.Train[0], "steps=2", "save_steps=1", "init_adapter="+adapter)
		require.NoError(t, err)
		return d
	}
	losses(t, run(adapters["1"]))
	c := run(adapters["2"])
	c.Resume = "latest"
	_, _, err := train.DryRun(context.Background(), c, train.Observer{})
	require.ErrorIs(t, err, train.ErrCheckpoint)
	require.ErrorContains(t, err, "init_adapter was values ")
}

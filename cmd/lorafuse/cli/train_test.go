package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/train"
)

func TestTrain(t *testing.T) {
	l := newLab(t)
	file := l.settings(llama, "eval_at_start: true\n")
	r := command(t, "", "train", file, "--set", "data.eval="+l.path("train.jsonl"), "--set", "learning_rate=1e-2", "--set", "steps=20")
	require.Equal(t, ExitOK, r.status, r.stderr)
	out := l.path("output")
	assert.Regexp(t, `^done     20 steps in [\d.]+ s, \d+ tokens/s
loss     6\.\d+ → [45]\.\d+
eval     6\.\d+ → [45]\.\d+
accuracy [\d.]+ %
adapter  `+out+`/adapter
plot     `+out+`/loss\.svg
use it   lorafuse generate --model `+llama+` --adapter `+out+`/adapter --prompt "\.\.\."
$`, r.stdout)
	for _, what := range []string{"model    " + llama, "backend  cpu", "adapter  8 tensors", "memory   ", "training  20/20", "eval     loss 6"} {
		assert.Contains(t, r.stderr, what)
	}
	for _, name := range []string{"adapter/adapter_config.json", "adapter/adapter_model.safetensors", "metrics.jsonl", "loss.svg", "tensorboard"} {
		_, err := os.Stat(filepath.Join(out, name))
		assert.NoError(t, err, name)
	}
	before := decode[evaluation](t, succeed(t, "eval", "--json", "--model", llama, "--data", l.path("train.jsonl")))
	after := decode[evaluation](t, succeed(t, "eval", "--json", "--model", llama, "--adapter", out+"/adapter", "--data", l.path("train.jsonl")))
	assert.Less(t, after.Loss, before.Loss)
	assert.Contains(t, r.stdout, "eval     "+fmt.Sprintf("%.4f → %.4f", before.Loss, after.Loss), "eval and train measure the same loss")
	succeed(t, "inspect", out+"/adapter", "--model", llama)
}

func TestTrainJSON(t *testing.T) {
	l := newLab(t)
	s := decode[train.Summary](t, succeed(t, "train", l.settings(llama, ""), "--json"))
	assert.Equal(t, 3, s.Steps)
	assert.Equal(t, l.path("output/adapter"), s.Adapter)
	assert.Positive(t, s.Memory.Activations)
}

// TestTrainInitZero: an adapter that does nothing yet may be trained on.
func TestTrainInitZero(t *testing.T) {
	l := newLab(t)
	succeed(t, "train", l.settings(llama, "learning_rate: 0\n"))
	require.NoError(t, os.Rename(l.path("output"), l.path("first")))
	succeed(t, "train", l.path("train.yaml"), "--set", "init_adapter="+l.path("first/adapter"), "--set", "learning_rate=1e-3")
	assert.Equal(t, ExitUsage, command(t, "", "eval", "--model", llama, "--adapter", l.path("first/adapter"), "--data", l.path("train.jsonl")).status)
}

// TestDryRun: the plan is printed and nothing is written.
func TestDryRun(t *testing.T) {
	l := newLab(t)
	file := l.settings(llama, "")
	before := l.tree()
	out := succeed(t, "train", file, "--dry-run")
	assert.Contains(t, out, "memory   ")
	assert.Contains(t, out, "optimizer")
	assert.NotEmpty(t, decode[dryRunReport](t, succeed(t, "train", file, "--dry-run", "--json")).Notes)
	p := decode[dryRunReport](t, succeed(t, "train", file, "--dry-run", "--json", "--memory", "1.5GB"))
	assert.Equal(t, int64(1_500_000_000), p.Fit.Budget)
	assert.Equal(t, p.Memory.Resident(), p.Fit.Resident)
	assert.Equal(t, before, l.tree())
	r := command(t, "", "train", file, "--dry-run", "--set", "memory_limit=1KiB")
	assert.Equal(t, ExitFailure, r.status)
	assert.Equal(t, before, l.tree())
}

// TestResumeForms: a checkpoint may stand behind --resume with a space, with =,
// before or behind the configuration, or be left out.
func TestResumeForms(t *testing.T) {
	l := newLab(t)
	file := l.settings(llama, "save_steps: 2\n")
	succeed(t, "train", file)
	adapter := readText(t, l.path("output/adapter/adapter_model.safetensors"))
	checkpoint := l.path("output/checkpoint-2")
	for _, args := range [][]string{
		{"train", file, "--resume"}, {"train", "--resume", file}, {"train", file, "--resume", checkpoint}, {"train", "--resume", checkpoint, file},
		{"train", file, "--resume=" + checkpoint}, {"train", file, "--resume", "latest"}, {"train", file, "--set", "resume=" + checkpoint},
	} {
		require.NoError(t, os.RemoveAll(l.path("output/adapter")))
		r := command(t, "", args...)
		require.Equal(t, ExitOK, r.status, "%v: %s", args, r.stderr)
		assert.Contains(t, r.stderr, "resume   "+checkpoint+", step 2 of 3", args)
		assert.Equal(t, adapter, readText(t, l.path("output/adapter/adapter_model.safetensors")), args)
	}
}

func TestConfigReference(t *testing.T) {
	all := succeed(t, "config")
	assert.Contains(t, all, "# Configuration of a training run")
	assert.Equal(t, all, succeed(t, "train", "--keys"))
	one := succeed(t, "config", "data.max_length")
	assert.True(t, strings.HasPrefix(one, "data.max_length (a whole number in [2,2147483647], default 1024)\n  "), one)
	assert.Greater(t, strings.Count(succeed(t, "config", "adapter"), "\nadapter."), 10)
}

func TestShellWord(t *testing.T) {
	for s, want := range map[string]string{
		"train.yaml": "train.yaml", "a=b": "a=b", "": "''", "a b": "'a b'", "it's": `'it'\''s'`, "$x": "'$x'", "data.train=[a, b]": "'data.train=[a, b]'", "ü": "'ü'",
	} {
		assert.Equal(t, want, shellWord(s))
	}
}

func readText(t testing.TB, path string) string {
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(raw)
}

package config

import (
	"encoding"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/internal/train/schedule"
)

// least is the shortest valid file.
const least = "model: m\ndata: {train: t.jsonl}\n"

func TestDefaults(t *testing.T) {
	c, err := Parse("c.yaml", []byte(least))
	require.NoError(t, err)
	want := &Config{
		Model: "m", OutputDir: "output", Task: TaskLanguage, Embedding: Embedding{Scale: 20}, Preference: Preference{Beta: 0.1},
		Classification: Classification{Problem: data.SingleLabel},
		Diffusion:      Diffusion{Timesteps: "none", LogitStd: 1, ModeScale: 1.29, SigmoidScale: 1, Shift: 3, Weighting: "none", Guidance: 1, DrawSamples: true},
		Adapter:        Adapter{R: 8, LoraAlpha: 8, Lycoris: "none", DecomposeFactor: -1, Bias: "none", InitLoraWeights: "true", TaskType: "CAUSAL_LM"},
		Data: Data{
			Train: Strings{"t.jsonl"}, Format: "auto", TrainOn: "answer", MaxLength: 1024,
			OnTooLong: "truncate", Shuffle: true,
		},
		BatchSize: 8, GradientAccumulationSteps: 1, Epochs: 3,
		LearningRate: 2e-4, Schedule: "linear", Power: 1, LREnd: 1e-7,
		Optimizer: "adamw", Betas: [2]float64{0.9, 0.999}, Eps: 1e-8, MaxGradNorm: 1,
		Seed: 42, OnNaN: "stop", NaNLimit: 10, EvalAtEnd: true, SaveSteps: 500, SaveLimit: 3, BestMetric: "eval_loss", SampleTokens: 64,
		Backend: "auto", DistributedTimeout: Duration(10 * time.Minute), Precision: backend.AutoPrecision, Pack: backend.PackNever, Load: backend.LoadAuto, Quantize: quant.None, Log: Log{Steps: 1, Metrics: true, TensorBoard: true, Plot: true},
		places: map[string]string{"model": "c.yaml:1", "data.train": "c.yaml:2"},
	}
	assert.Equal(t, want, c)
	assert.True(t, c.Given("data.train"))
	assert.False(t, c.Given("data.eval"))
}

// full gives every key.
const full = `
model: org/name@main
output_dir: out
resume: latest
adapter:
  r: 16
  lora_alpha: 32.5
  target_modules: [q_proj, v_proj]
  exclude_modules: .*\.3\..*
  lora_dropout: 0.1
  bias: lora_only
  modules_to_save: [lm_head]
  use_rslora: true
  use_dora: true
  rank_pattern: {v_proj: 4, "layers.0.*": 1e1}
  alpha_pattern: {q_proj: 2.5}
  layers_to_transform: [0, 3]
  layers_pattern: layers
  init_lora_weights: pissa_niter_4
  fan_in_fan_out: true
  lora_bias: true
  trainable_token_indices: {embed_tokens: [1, 2], lm_head: [3]}
  task_type: CAUSAL_LM
data:
  train: [a.txt, b.txt]
  eval: c.txt
  format: text
  train_on: all
  max_length: 160
  on_too_long: drop
  document_separator: blank-line
  chat_template: chat.jinja
  shuffle: false
  packing: true
  length_bucketing: false
  drop_last: true
batch_size: 16
gradient_accumulation_steps: 2
steps: 300
learning_rate: 3e-3
schedule: cosine_with_restarts
warmup_steps: 20
num_cycles: 2
optimizer: adamw
betas: [0.8, 0.95]
eps: 1e-6
weight_decay: 0.1
max_grad_norm: 0.5
seed: 18446744073709551615
activation_checkpointing: true
on_nan: skip
nan_limit: 3
eval_steps: 50
eval_at_start: true
eval_at_end: false
eval_batch_size: 4
early_stopping: {patience: 5, min_delta: 0.01}
save_steps: 100
save_limit: 0
save_best: true
best_metric: eval_accuracy
sample_every: 5
sample_prompts: [a, b]
sample_tokens: 9
backend: cpu
threads: 2
memory_limit: 1.5 GiB
log: {steps: 10, metrics: false, tensorboard: false, mlflow: true, plot: false}
`

// A task may be given by either of its names.
func TestTask(t *testing.T) {
	type names struct {
		task Task
		peft string
	}
	for yaml, want := range map[string]names{
		"": {TaskLanguage, "CAUSAL_LM"}, "task: embedding\n": {TaskEmbedding, "FEATURE_EXTRACTION"}, "task: classification\n": {TaskClassification, "SEQ_CLS"},
		"adapter: {task_type: SEQ_CLS}\n":                               {TaskClassification, "SEQ_CLS"},
		"adapter: {task_type: FEATURE_EXTRACTION}\n":                    {TaskEmbedding, "FEATURE_EXTRACTION"},
		"task: embedding\nadapter: {task_type: FEATURE_EXTRACTION}\n":   {TaskEmbedding, "FEATURE_EXTRACTION"},
		"task: embedding\ninit_adapter: x\n":                            {TaskEmbedding, "FEATURE_EXTRACTION"},
		"init_adapter: x\nadapter: {task_type: FEATURE_EXTRACTION}\n":   {TaskEmbedding, "FEATURE_EXTRACTION"},
		"task: embedding\nembedding: {scale: 30}\ndata: {train: [x]}\n": {TaskEmbedding, "FEATURE_EXTRACTION"},
	} {
		if !strings.Contains(yaml, "data:") {
			yaml = least + yaml
		} else {
			yaml = "model: m\n" + yaml
		}
		c, err := Parse("c.yaml", []byte(yaml))
		require.NoError(t, err, yaml)
		assert.Equal(t, want, names{c.Task, c.Adapter.TaskType}, yaml)
		assert.Equal(t, want.peft, *c.Adapter.LoRA().TaskType)
	}
}

func TestEveryKey(t *testing.T) {
	c, err := Parse("c.yaml", []byte(full))
	require.NoError(t, err)
	assert.Equal(t, Adapter{
		R: 16, LoraAlpha: 32.5, Lycoris: "none", DecomposeFactor: -1,
		TargetModules:  Names{List: []string{"q_proj", "v_proj"}},
		ExcludeModules: Names{Expr: `.*\.3\..*`},
		LoraDropout:    0.1, Bias: "lora_only", ModulesToSave: Strings{"lm_head"},
		UseRSLora: true, UseDora: true,
		RankPattern:       Patterns[int]{{"v_proj", 4}, {"layers.0.*", 10}},
		AlphaPattern:      Patterns[float64]{{"q_proj", 2.5}},
		LayersToTransform: Ints{0, 3}, LayersPattern: Strings{"layers"},
		InitLoraWeights: "pissa_niter_4", FanInFanOut: true, LoraBias: true,
		TrainableTokenIndices: TokenIndices{ByModule: []ModuleTokens{{"embed_tokens", []int{1, 2}}, {"lm_head", []int{3}}}},
		TaskType:              "CAUSAL_LM",
	}, c.Adapter)
	assert.Equal(t, Data{
		Train: Strings{"a.txt", "b.txt"}, Eval: Strings{"c.txt"}, Format: "text", TrainOn: "all",
		MaxLength: 160, OnTooLong: "drop", DocumentSeparator: "blank-line", ChatTemplate: "chat.jinja",
		Packing: true, DropLast: true,
	}, c.Data)
	assert.Equal(t, uint64(1<<64-1), c.Seed)
	assert.Equal(t, Bytes(1.5*(1<<30)), c.MemoryLimit)
	assert.Equal(t, [2]float64{0.8, 0.95}, c.Betas)
	assert.Equal(t, EarlyStopping{5, 0.01}, c.EarlyStopping)
	assert.Equal(t, Log{Steps: 10, MLflow: true}, c.Log)
	assert.Zero(t, c.Epochs, "steps stand in for epochs")
}

// TestYAML: what a run writes down is what it did.
func TestYAML(t *testing.T) {
	for _, src := range []string{least, full} {
		c, err := Parse("c.yaml", []byte(src))
		require.NoError(t, err)
		raw, err := c.YAML()
		require.NoError(t, err)
		again, err := Parse("again.yaml", raw)
		require.NoError(t, err, "%s", raw)
		c.places, again.places = nil, nil
		assert.Equal(t, c, again)
	}
}

// TestDefaultsDecode keeps the table honest: defaults decode, choices hold
// their default, ranges parse, every key is documented once.
func TestDefaultsDecode(t *testing.T) {
	seen := map[string]string{}
	for _, k := range Keys() {
		assert.NotEmpty(t, k.Doc, k.Path)
		assert.True(t, strings.HasSuffix(k.Doc, "."), "%s: a sentence ends with a full stop", k.Path)
		if k.Section {
			continue
		}
		if k.Default != "" {
			c := Default()
			zero := reflect.ValueOf(c).Elem().FieldByIndex(k.index)
			zero.SetZero()
			require.NoError(t, c.Set(k.Path+"="+k.Default), k.Path)
			assert.NoError(t, c.check(k, reflect.ValueOf(c).Elem().FieldByIndex(k.index)), k.Path)
		}
		for _, also := range k.also {
			assert.Empty(t, seen[also], "%s and %s are both called %s elsewhere", seen[also], k.Path, also)
			seen[also] = k.Path
		}
	}
	for _, k := range Keys() {
		_, leaf := split(k.Path)
		if owner := seen[leaf]; owner != "" {
			assert.Contains(t, k.Path, ".", "the name %s elsewhere hides the key %s here", owner, k.Path)
		}
	}
	assert.Equal(t, schedule.Kinds(), keyed("schedule").Words)
}

// TestWords: the words of a key are those that its type reads, and come out as
// they went in.
func TestWords(t *testing.T) {
	typed := map[string][]string{
		"task": Tasks(), "classification.problem": data.Problems(), "schedule": schedule.Kinds(), "on_nan": {"stop", "skip"}, "precision": backend.Precisions(), "pack": backend.PackModes(), "load": backend.LoadModes(),
		"quantize": quant.Methods(), "data.format": data.Formats(), "data.train_on": data.TrainOns(), "data.on_too_long": data.TooLongs(),
	}
	for _, k := range Keys() {
		c := Default()
		v := reflect.ValueOf(c).Elem().FieldByIndex(k.index)
		_, reads := v.Addr().Interface().(encoding.TextUnmarshaler)
		if k.Words == nil || !reads {
			assert.Nil(t, typed[k.Path], k.Path)
			continue
		}
		assert.ElementsMatch(t, typed[k.Path], k.Words, k.Path)
		for _, word := range k.Words {
			require.NoError(t, c.Set(k.Path+"="+word))
			assert.Equal(t, word, wordOf(v), k.Path)
			text, err := c.YAML()
			require.NoError(t, err)
			again, err := Parse("again.yaml", []byte(least))
			require.NoError(t, err)
			require.NoError(t, again.decode("again.yaml", text))
			assert.Equal(t, v.Interface(), reflect.ValueOf(again).Elem().FieldByIndex(k.index).Interface(), k.Path)
		}
		for _, given := range []error{c.Set(k.Path + "=" + k.Words[0] + "x"), c.decode("c.yaml", []byte(strings.ReplaceAll(k.Path, ".", ": {")+": "+k.Words[0]+"x"+strings.Repeat("}", strings.Count(k.Path, "."))))} {
			assert.ErrorIs(t, given, ErrValue)
			assert.ErrorContains(t, given, fmt.Sprintf("%s: found %q, expected %s, did you mean %q?", k.Path, k.Words[0]+"x", k.expects(), k.Words[0]))
		}
	}
}

func TestBytes(t *testing.T) {
	for text, want := range map[string]Bytes{"0": 0, "0GiB": 0, "0.0 MB": 0, "1": 1, "1.5 GiB": 3 << 29, "8g": 8 << 30, "2 K": 2048, "5kB": 5000, "1_000": 1000} {
		var b Bytes
		require.NoError(t, b.UnmarshalText([]byte(text)), text)
		assert.Equal(t, want, b, text)
	}
	for _, text := range []string{"", "x", "-1", "8 gigs", "1e30", "g", "0x10", "nan", "4Gb8"} {
		assert.Error(t, new(Bytes).UnmarshalText([]byte(text)), text)
	}
}

func TestSet(t *testing.T) {
	c, err := Parse("c.yaml", []byte(least),
		"adapter.r=16", "adapter.target_modules=[q_proj, k_proj]", "data.train=[x.jsonl,y.jsonl]",
		"learning_rate=1e-3", "model=a: b # c", "adapter.rank_pattern.model.layers.0.self_attn.q_proj=4",
		"adapter.rank_pattern.v_proj=2", "adapter.rank_pattern.v_proj=3", "early_stopping={min_delta: 0.5}",
		"betas=[0.5, 0.6]", "data.shuffle=false", "adapter.lora_alpha=null", "memory_limit=2GB",
		"adapter.init_lora_weights=False", "adapter.trainable_token_indices=[5, 6]")
	require.NoError(t, err)
	assert.Equal(t, 16, c.Adapter.R)
	assert.Equal(t, []string{"q_proj", "k_proj"}, c.Adapter.TargetModules.List)
	assert.Equal(t, Strings{"x.jsonl", "y.jsonl"}, c.Data.Train)
	assert.Equal(t, 1e-3, c.LearningRate)
	assert.Equal(t, "a: b # c", c.Model, "text is taken as it stands")
	assert.Equal(t, Patterns[int]{{"model.layers.0.self_attn.q_proj", 4}, {"v_proj", 3}}, c.Adapter.RankPattern)
	assert.Equal(t, 0.5, c.EarlyStopping.MinDelta)
	assert.Equal(t, [2]float64{0.5, 0.6}, c.Betas)
	assert.False(t, c.Data.Shuffle)
	assert.Equal(t, 8.0, c.Adapter.LoraAlpha, "null is the default")
	assert.Equal(t, Bytes(2e9), c.MemoryLimit)
	assert.Equal(t, Init("false"), c.Adapter.InitLoraWeights)
	assert.Equal(t, []int{5, 6}, c.Adapter.TrainableTokenIndices.IDs)
}

func TestSetWins(t *testing.T) {
	c, err := Parse("c.yaml", []byte(least+"adapter: {r: 4, rank_pattern: {a: 1}}\n"),
		"adapter.r=5", "adapter.r=6", "adapter.rank_pattern={b: 2}")
	require.NoError(t, err)
	assert.Equal(t, 6, c.Adapter.R)
	assert.Equal(t, Patterns[int]{{"b", 2}}, c.Adapter.RankPattern, "a mapping replaces the file's")
}

func TestAnchors(t *testing.T) {
	c, err := Parse("c.yaml", []byte("model: &m x\noutput_dir: *m\ndata: {train: &f [a.jsonl], eval: *f}\n"))
	require.NoError(t, err)
	assert.Equal(t, "x", c.OutputDir)
	assert.Equal(t, Strings{"a.jsonl"}, c.Data.Eval)
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	require.NoError(t, os.WriteFile(path, []byte(least), 0o600))
	c, err := Load(path, "steps=7")
	require.NoError(t, err)
	assert.Equal(t, 7, c.Steps)

	_, err = Load(path + "x")
	require.ErrorIs(t, err, os.ErrNotExist)
	assert.ErrorContains(t, err, "c.yamlx")
}

func TestLearningRates(t *testing.T) {
	c, err := Parse("c.yaml", []byte(least+"schedule: linear\nwarmup_ratio: 0.11\nlearning_rate: 1\n"))
	require.NoError(t, err)
	s, err := c.LearningRates(10)
	require.NoError(t, err)
	assert.Equal(t, 0.5, s.At(1), "two warm-up steps, rounded up")
	assert.Equal(t, 0.25, s.At(8))
}

func TestReference(t *testing.T) {
	page := Reference()
	assert.Equal(t, page, Reference())
	for _, k := range Keys() {
		_, leaf := split(k.Path)
		assert.Contains(t, page, "| `"+leaf+"` | ", k.Path)
		assert.Contains(t, page, strings.ReplaceAll(k.Doc, "|", `\|`))
	}
	assert.Contains(t, page, "| `lora_dropout` | a number ≥ 0 and < 1 | `0` | Part of")
	assert.Contains(t, page, "| `train` | text or a list of text | required | Files")
	assert.Contains(t, page, "| `schedule` | constant, constant_with_warmup, linear, cosine, cosine_with_restarts or polynomial | `linear` |")
}

// TestBackends: a file may name the backends that users can choose.
func TestBackends(t *testing.T) {
	f, ok := reflect.TypeFor[Config]().FieldByName("Backend")
	require.True(t, ok)
	assert.Equal(t, []string{backend.Auto, backend.CPU, backend.CUDA, backend.Metal}, strings.Split(f.Tag.Get("one"), "|"))
}

// TestPreference: the task has PEFT's name of language, and no name of PEFT means it.
func TestPreference(t *testing.T) {
	for range 20 {
		c, err := Parse("c.yaml", []byte("model: m\ndata: {train: t.jsonl}\nadapter: {task_type: CAUSAL_LM}\n"))
		require.NoError(t, err)
		require.Equal(t, TaskLanguage, c.Task)
	}
	c, err := Parse("c.yaml", []byte("model: m\ndata: {train: t.jsonl, chat_template: x}\ntask: preference\npreference: {beta: 0.5}\n"))
	require.NoError(t, err)
	require.Equal(t, "CAUSAL_LM", c.Adapter.TaskType)
	require.Equal(t, data.PreferenceRows, c.DataOptions().Rows)
	require.Equal(t, 0.5, c.Preference.Beta)
}

// TestSharedTasks: runs of a task that needs a model of its own cannot be jobs.
func TestSharedTasks(t *testing.T) {
	require.Equal(t, []string{"language", "preference"}, JobTasks())
	_, err := Parse("c.yaml", []byte("model: m\ntask: embedding\ndata: {train: t.jsonl}\njobs: [{name: a}]\n"))
	require.ErrorContains(t, err, "jobs[a].task: found embedding, expected language or preference, which jobs can learn")
}

// TestMoveOutput: a run in another output folder reads the cache of pictures from its place.
func TestMoveOutput(t *testing.T) {
	c := Default()
	c.OutputDir = "out"
	c.MoveOutput("elsewhere")
	require.Equal(t, []string{"elsewhere", ""}, []string{c.OutputDir, c.Diffusion.Cache})
	c.OutputDir, c.Task = "out", TaskDiffusion
	c.MoveOutput("elsewhere")
	require.Equal(t, []string{"elsewhere", filepath.Join("out", "cache")}, []string{c.OutputDir, c.Diffusion.Cache})
}

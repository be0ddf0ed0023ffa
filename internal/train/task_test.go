package train_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/sentence"
	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/internal/train/task/text"
	"github.com/lorafuse/lorafuse/internal/train/trainer"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tensor"
	"github.com/lorafuse/lorafuse/tokenizer"
	"github.com/lorafuse/lorafuse/train/config"
)

// taskCase is a run of testdata/tasks.
type taskCase struct {
	name, dir string

	Base         string
	Task         config.Task
	Scale        float64
	Problem      data.Problem
	Labels       []string
	BatchSize    int `json:"batch_size"`
	Accumulation int `json:"gradient_accumulation_steps"`
	LR, Eps      float64
	Betas        [2]float64
	WeightDecay  float64 `json:"weight_decay"`
	MaxGradNorm  float64 `json:"max_grad_norm"`
	Trace        []struct {
		Loss float64
		Norm float64 `json:"grad_norm"`
	}
}

func taskCases(t *testing.T, task config.Task) (all []taskCase) {
	paths, err := filepath.Glob("../../testdata/tasks/*/case.json")
	require.NoError(t, err)
	for _, path := range paths {
		c := taskCase{dir: filepath.Dir(path)}
		c.name = filepath.Base(c.dir)
		raw, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(raw, &c))
		if c.Task == task {
			all = append(all, c)
		}
	}
	require.NotEmpty(t, all)
	return all
}

// config is that of the run: it begins with the recorded adapter.
func (c taskCase) config(t *testing.T) *config.Config {
	k := config.Default()
	k.Model, k.OutputDir, k.InitAdapter = filepath.Join("../../testdata/encoders", c.Base), t.TempDir(), filepath.Join(c.dir, "init")
	if k.Task = c.Task; c.Task == config.TaskEmbedding {
		k.Embedding.Scale = c.Scale
	} else {
		require.NoError(t, k.Set("classification.problem="+string(c.Problem)))
		if c.Problem != data.Regression {
			k.Classification.Labels = c.Labels
		}
	}
	k.Data.Train = config.Strings{filepath.Join(c.dir, "rows.jsonl")}
	k.Data.Shuffle = false
	k.BatchSize, k.GradientAccumulationSteps, k.Steps = c.BatchSize, c.Accumulation, len(c.Trace)
	k.LearningRate, k.Schedule, k.Betas, k.Eps = c.LR, "constant", c.Betas, c.Eps
	k.WeightDecay, k.MaxGradNorm, k.Backend = c.WeightDecay, c.MaxGradNorm, testdevice.Backend()
	k.Precision = backend.F32
	return k
}

// TestTaskTraces repeats the runs that PyTorch computed in float64: loss and norm of each
// step, and the adapter at the end.
func TestTaskTraces(t *testing.T) {
	for _, task := range []config.Task{config.TaskEmbedding, config.TaskClassification} {
		for _, c := range taskCases(t, task) {
			t.Run(c.name, c.repeat)
		}
	}
}

// TestIdlePooler repeats a recorded run with an adapter that has BERT's pooler too, as
// "all-linear" of PEFT adapts it. Sentence embeddings do not depend on the pooler: nothing
// else changes, and its tensors are saved as they were.
func TestIdlePooler(t *testing.T) {
	cases := taskCases(t, config.TaskEmbedding)
	c := cases[slices.IndexFunc(cases, func(c taskCase) bool { return c.name == "pairs-bert" })]
	a, err := lora.Load(filepath.Join(c.dir, "init"))
	require.NoError(t, err)
	all, pooler := a.Config.Clone(), map[string][]float32{}
	all.ExcludeModules = lora.ModuleSet{}
	var tensors []lora.Tensor
	for _, name := range a.Names() {
		v, _ := a.Tensor(name)
		tensors = append(tensors, lora.Tensor{Key: name, Tensor: v})
	}
	for role, shape := range map[string][]int{"A": {2, 24}, "B": {24, 2}} {
		values := make([]float32, 48)
		for i := range values {
			values[i] = float32(i) / 64
		}
		v, err := tensor.FromFloat32s(values, shape...)
		require.NoError(t, err)
		key := "base_model.model.pooler.dense.lora_" + role + ".weight"
		pooler[key], tensors = values, append(tensors, lora.Tensor{Key: key, Tensor: v})
	}
	dir := t.TempDir()
	require.NoError(t, lora.Save(dir, all, tensors))
	k := c.config(t)
	k.InitAdapter = dir
	var notes []string
	r, err := train.New(t.Context(), k, train.Observer{Note: func(s string) { notes = append(notes, s) }})
	require.NoError(t, err)
	defer r.Close()
	s, err := r.Train(t.Context())
	require.NoError(t, err)
	require.Contains(t, notes, "note     no effect on the loss, saved as they are: pooler.dense")
	is, err := lora.Load(s.Adapter)
	require.NoError(t, err)
	for key, want := range pooler {
		got, err := is.Float32s(key)
		require.NoError(t, err)
		require.Equal(t, want, got, key)
	}
	c.requireFinal(t, is, len(pooler))
}

func (c taskCase) repeat(t *testing.T) {
	var got []train.Report
	r, err := train.New(context.Background(), c.config(t), train.Observer{Step: func(r train.Report) { got = append(got, r) }})
	require.NoError(t, err)
	defer r.Close()
	s, err := r.Train(context.Background())
	require.NoError(t, err)
	require.Len(t, got, len(c.Trace))
	for i, want := range c.Trace {
		require.InDelta(t, want.Loss, got[i].Loss, 2e-5, "loss of step %d", i)
		require.InEpsilon(t, want.Norm, got[i].GradNorm, 1e-4, "gradient norm of step %d", i)
	}
	is, err := lora.Load(s.Adapter)
	require.NoError(t, err)
	c.requireFinal(t, is, 0)
}

// requireFinal compares an adapter that has more tensors than the recorded one with it.
func (c taskCase) requireFinal(t *testing.T, is *lora.Adapter, more int) {
	was, err := lora.Load(filepath.Join(c.dir, "final"))
	require.NoError(t, err)
	require.Subset(t, is.Names(), was.Names())
	require.Len(t, is.Names(), len(was.Names())+more)
	require.Equal(t, was.Config.TaskType, is.Config.TaskType)
	for _, name := range was.Names() {
		want, err := was.Float32s(name)
		require.NoError(t, err)
		now, err := is.Float32s(name)
		require.NoError(t, err)
		require.LessOrEqual(t, relative(now, want), 5e-5, name)
	}
}

// begin opens the run as it began, from the parts of the library.
func (c taskCase) begin(t *testing.T) (*train.Engine, *data.Loader) {
	if c.Task == config.TaskClassification {
		return c.beginClassifier(t)
	}
	dir := filepath.Join("../../testdata/encoders", c.Base)
	m, err := model.OpenAs(dir, model.Body)
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	a, err := lora.Load(filepath.Join(c.dir, "init"))
	require.NoError(t, err)
	p, err := lora.NewPlacement(a.Config, lora.ModelOf(m.Config.ModelType, m.Modules()))
	require.NoError(t, err)
	s, err := p.StateOf(a, m)
	require.NoError(t, err)
	transform, err := sentence.Read(dir)
	require.NoError(t, err)
	words, err := tokenizer.Load(dir)
	require.NoError(t, err)
	longest := transform.Longest(m.Config.MaxLength())
	set, err := data.Load(context.Background(), []string{filepath.Join(c.dir, "rows.jsonl")}, data.Options{Rows: data.PairRows, Texts: words, MaxLength: longest})
	require.NoError(t, err)
	l, err := data.NewLoader(set, data.LoaderConfig{BatchSize: c.BatchSize, Accumulation: c.Accumulation})
	require.NoError(t, err)
	e, err := train.NewEngine(context.Background(), testdevice.Open(t, backend.Options{}), m, s, train.EngineOptions{
		Loss:      text.EmbeddingLoss(sentence.Contrast{Rows: c.BatchSize, Texts: set.Texts(), Scale: c.Scale}, transform, longest),
		MaxTokens: l.MaxTokens(), Adam: trainer.Adam{Beta1: c.Betas[0], Beta2: c.Betas[1], Eps: c.Eps},
	})
	require.NoError(t, err)
	t.Cleanup(e.Close)
	return e, l
}

// TestTaskGradients compares the gradients of the first step.
func TestTaskGradients(t *testing.T) {
	for _, c := range append(taskCases(t, config.TaskEmbedding), taskCases(t, config.TaskClassification)...) {
		t.Run(c.name, func(t *testing.T) {
			e, l := c.begin(t)
			for micro := range l.Micros(0) {
				b, err := l.Batch(0, micro)
				require.NoError(t, err)
				require.NoError(t, e.Accumulate(context.Background(), b, 0))
			}
			checkGradients(t, e, filepath.Join(c.dir, "grads.safetensors"), float32(l.LossTokens(0)), 2e-5)
		})
	}
}

// TestTaskRefusesTokens: rows of token IDs alone are no pairs of texts.
func TestTaskRefusesTokens(t *testing.T) {
	for _, task := range []config.Task{config.TaskEmbedding, config.TaskClassification} {
		c := taskCases(t, config.TaskEmbedding)[0].config(t)
		c.Task, c.InitAdapter = task, ""
		c.Data.Train = config.Strings{"../../testdata/lm/llama/train/lora/batches.safetensors"}
		_, err := train.New(t.Context(), c, train.Observer{})
		require.ErrorIs(t, err, data.ErrFormat, task)
	}
}

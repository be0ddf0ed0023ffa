package train_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/internal/train/events"
	"github.com/lorafuse/lorafuse/internal/train/task/text"
	"github.com/lorafuse/lorafuse/internal/train/trainer"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tokenizer"
	"github.com/lorafuse/lorafuse/train/config"
)

// preferred is fine-tuning by preferences as PyTorch has computed it.
type preferred struct {
	dir          string
	Base         string
	Beta, LR     float64
	WeightDecay  float64      `json:"weight_decay"`
	MaxGradNorm  float64      `json:"max_grad_norm"`
	BatchSize    int          `json:"batch_size"`
	Accumulation int          `json:"gradient_accumulation_steps"`
	Reference    [][2]float64 // log-likelihoods
	Steps        []map[string]float64
}

func preferences(t *testing.T) (all []preferred) {
	paths, err := filepath.Glob("../../testdata/preference/*/golden.json")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		require.NoError(t, err)
		p := preferred{dir: filepath.Dir(path)}
		require.NoError(t, json.Unmarshal(raw, &p))
		all = append(all, p)
	}
	return all
}

func (p preferred) model() string { return filepath.Join("../../testdata/lm", p.Base, "model") }

func (p preferred) rows() string { return filepath.Join(p.dir, "rows.jsonl") }

// load reads the rows, and gives the batches of the first step.
func (p preferred) load(t *testing.T) (*data.Dataset, *data.Loader) {
	tok, err := tokenizer.Load(p.model())
	require.NoError(t, err)
	set, err := data.Load(t.Context(), []string{p.rows()}, data.Options{Rows: data.PreferenceRows, Tokenizer: tok})
	require.NoError(t, err)
	l, err := data.NewLoader(set, data.LoaderConfig{BatchSize: p.BatchSize, Accumulation: p.Accumulation})
	require.NoError(t, err)
	return set, l
}

// engine computes steps; change makes another adapter of that which training begins with.
func (p preferred) engine(t *testing.T, l *data.Loader, change func(*lora.State)) *train.Engine {
	m, s := load(t, p.model(), filepath.Join(p.dir, "init"), lora.CheckOptions{})
	if change != nil {
		change(s)
	}
	e, err := train.NewEngine(t.Context(), testdevice.Open(t, backend.Options{}), m, s, train.EngineOptions{
		Loss:      text.PreferenceLoss(p.Beta, p.BatchSize),
		MaxTokens: l.MaxTokens(), MaxEvalTokens: l.MaxTokens(), Adam: trainer.Adam{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: p.WeightDecay, MaxGradNorm: p.MaxGradNorm},
	})
	require.NoError(t, err)
	t.Cleanup(e.Close)
	return e
}

// TestPreferenceGradients: the reference and the gradients of the first step are those of
// PyTorch, and the gradients are the slopes of the loss.
func TestPreferenceGradients(t *testing.T) {
	for _, p := range preferences(t) {
		t.Run(filepath.Base(p.dir), func(t *testing.T) {
			set, l := p.load(t)
			e := p.engine(t, l, nil)
			var reference []float32
			for rows := range l.First(10) {
				var b data.Batch
				for _, row := range rows {
					b.AddRow(set, row)
				}
				found := make([]float32, b.Rows())
				require.NoError(t, e.Reference(t.Context(), &b, found))
				for i, row := range rows {
					for k, want := range p.Reference[row] {
						require.InEpsilon(t, want, found[2*i+k], 1e-5, "row %d", row)
					}
				}
				reference = append(reference, found...)
			}
			require.NoError(t, set.SetNumbers("reference log-likelihood", reference))
			for micro := range l.Micros(0) {
				b, err := l.Batch(0, micro)
				require.NoError(t, err)
				require.NoError(t, e.Accumulate(t.Context(), b, 0))
			}
			limit := 1e-5
			if !testdevice.Assembly() {
				limit = 2e-5
			}
			checkGradients(t, e, filepath.Join(p.dir, "grads_step0.safetensors"), float32(l.LossTokens(0)), limit)

			if filepath.Base(p.dir) == "dora" {
				return // whose norms count as constants, as in PEFT: the gradients are no slopes
			}
			loss := func(change func(*lora.State)) (sum float64) {
				e := p.engine(t, l, change)
				for micro := range l.Micros(0) {
					b, err := l.Batch(0, micro)
					require.NoError(t, err)
					one, err := e.Evaluate(t.Context(), b)
					require.NoError(t, err)
					sum += one
				}
				return sum
			}
			for _, x := range e.Trained()[:4] {
				gradient := make([]float32, product(x.Shape))
				require.NoError(t, e.Gradient(t.Context(), x.Name, gradient))
				at := 0 // where it is the largest
				for i, g := range gradient {
					if math.Abs(float64(g)) > math.Abs(float64(gradient[at])) {
						at = i
					}
				}
				const h = 5e-3
				up := loss(func(s *lora.State) { s.Values[x.Name][at] += h })
				down := loss(func(s *lora.State) { s.Values[x.Name][at] -= h })
				require.InEpsilon(t, (up-down)/(2*h), gradient[at], 2e-2, x.Name)
			}
		})
	}
}

func product(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// config is that of the recorded run.
func (p preferred) config(t *testing.T, dir string, sets ...string) *config.Config {
	c, err := config.Parse("preference.yaml", nil, slices.Concat([]string{
		"task=preference", "model=" + p.model(), "data.train=" + p.rows(), "init_adapter=" + filepath.Join(p.dir, "init"), "output_dir=" + dir,
		"backend=cpu", "precision=f32", "schedule=constant", "data.shuffle=false", "log.plot=false", "log.tensorboard=false",
		fmt.Sprintf("preference.beta=%v", p.Beta), fmt.Sprintf("learning_rate=%v", p.LR), fmt.Sprintf("weight_decay=%v", p.WeightDecay), fmt.Sprintf("max_grad_norm=%v", p.MaxGradNorm),
		fmt.Sprintf("batch_size=%d", p.BatchSize), fmt.Sprintf("gradient_accumulation_steps=%d", p.Accumulation), fmt.Sprintf("steps=%d", len(p.Steps)),
	}, sets)...)
	require.NoError(t, err)
	return c
}

// TestPreferenceTraces: three steps have the losses, norms and rewards of PyTorch, and the
// adapter is that which it has made.
func TestPreferenceTraces(t *testing.T) {
	for _, p := range preferences(t) {
		t.Run(filepath.Base(p.dir), func(t *testing.T) {
			dir := t.TempDir()
			r, err := train.New(t.Context(), p.config(t, dir, "data.eval="+p.rows(), "eval_at_start=true"), train.Observer{})
			require.NoError(t, err)
			defer r.Close()
			s, err := r.Train(t.Context())
			require.NoError(t, err)
			records, err := events.ReadMetrics(filepath.Join(dir, "metrics.jsonl"))
			require.NoError(t, err)
			at := 0
			for _, record := range records {
				found := map[string]float64{}
				for _, x := range record.Scalars {
					found[x.Name] = x.Value
				}
				if _, ok := found["loss"]; !ok {
					continue
				}
				want := p.Steps[at]
				require.InEpsilon(t, want["loss"], found["loss"], 1e-5)
				require.InEpsilon(t, want["grad_norm"], found["grad_norm"], 5e-5)
				for _, name := range []string{"rewards/chosen", "rewards/rejected", "rewards/margins"} {
					require.InDelta(t, want[name], found[name], 1e-5, "%s of step %d", name, at)
				}
				require.Equal(t, want["rewards/accuracies"], found["rewards/accuracies"])
				at++
			}
			require.Len(t, p.Steps, at)
			require.NotNil(t, s.Accuracy)
			require.GreaterOrEqual(t, *s.Accuracy, 0.5)
			require.Less(t, *s.LastEval, *s.FirstEval)

			f, err := safetensors.Open(filepath.Join(p.dir, "final.safetensors"))
			require.NoError(t, err)
			defer f.Close()
			a, err := lora.Load(s.Adapter)
			require.NoError(t, err)
			defer a.Close()
			for _, name := range f.Names() {
				v, err := f.Lookup(name)
				require.NoError(t, err)
				want, err := safetensors.As[float32](v)
				require.NoError(t, err)
				got, err := a.Float32s(name)
				require.NoError(t, err)
				require.LessOrEqual(t, relative(got, want), 2e-4, name)
			}
		})
	}
}

// TestPreferenceBegins: before the first update an adapter that does nothing has no
// rewards, however it begins, and a loss of log 2.
func TestPreferenceBegins(t *testing.T) {
	p := preferences(t)[0]
	for _, begin := range []string{"true", "pissa"} {
		c := p.config(t, t.TempDir(), "init_adapter=", "adapter.init_lora_weights="+begin, "steps=1")
		var report train.Report
		r, err := train.New(t.Context(), c, train.Observer{Step: func(s train.Report) { report = s }})
		require.NoError(t, err)
		_, err = r.Train(t.Context())
		r.Close()
		require.NoError(t, err)
		require.InDelta(t, math.Ln2, report.Loss, 1e-5)
		require.Equal(t, []string{"rewards/chosen", "rewards/rejected", "rewards/margins", events.RewardAccuracy}, names(report.Metrics))
		require.InDelta(t, 0, report.Metrics[0].Value, 1e-5)
		require.InDelta(t, 0, report.Metrics[1].Value, 1e-5)
	}
}

// TestPreferenceResumes: a run that was stopped goes on bit for bit, with rows shuffled
// and left out; on a base, and as one of several jobs, it has the bits of a run alone.
func TestPreferenceResumes(t *testing.T) {
	p := preferences(t)[0]
	sets := []string{"init_adapter=", "adapter.r=4", "adapter.lora_dropout=0.1", "data.shuffle=true", "data.drop_last=true", "gradient_accumulation_steps=1", "batch_size=4", "steps=5", "save_steps=1", "threads=1"}
	run := func(dir string, resume string, stopAt int) (string, error) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		r, err := train.New(ctx, p.config(t, dir, append(sets, "resume="+resume)...), train.Observer{Saved: func(step int, _ string) {
			if step == stopAt {
				stop()
			}
		}})
		require.NoError(t, err)
		defer r.Close()
		s, err := r.Train(ctx)
		if err != nil {
			return "", err
		}
		return adapterSum(t, s.Adapter), nil
	}
	alone, err := run(t.TempDir(), "", 0)
	require.NoError(t, err)
	dir := t.TempDir()
	_, err = run(dir, "", 2)
	require.ErrorIs(t, err, train.ErrInterrupted)
	resumed, err := run(dir, "latest", 0)
	require.NoError(t, err)
	require.Equal(t, alone, resumed)

	b, _ := newBase(t, p.model(), backend.Options{Threads: 1})
	onBase, err := b.New(t.Context(), p.config(t, t.TempDir(), sets...), train.Observer{})
	require.NoError(t, err)
	defer onBase.Close()
	s, err := onBase.Train(t.Context())
	require.NoError(t, err)
	require.Equal(t, alone, adapterSum(t, s.Adapter))

	together, err := config.Parse("jobs.yaml", []byte("jobs: [{name: a}, {name: b, adapter: {r: 2, lora_alpha: 4}}]"), slices.Concat([]string{
		"task=preference", "model=" + p.model(), "data.train=" + p.rows(), "output_dir=" + t.TempDir(), "backend=cpu", "precision=f32", "schedule=constant", "log.plot=false", "log.tensorboard=false",
		fmt.Sprintf("preference.beta=%v", p.Beta), fmt.Sprintf("learning_rate=%v", p.LR), fmt.Sprintf("weight_decay=%v", p.WeightDecay)}, sets[1:])...)
	require.NoError(t, err)
	var notes []string
	j, err := train.NewJobs(t.Context(), together, func(string) train.Observer {
		return train.Observer{Note: func(text string) { notes = append(notes, text) }}
	})
	require.NoError(t, err)
	defer j.Close()
	all, err := j.Train(t.Context())
	require.NoError(t, err)
	require.Equal(t, alone, adapterSum(t, all[0].Summary.Adapter))
	require.NotEqual(t, alone, adapterSum(t, all[1].Summary.Adapter))
	require.Contains(t, strings.Join(notes, "\n"), "the job a takes turns with the others")
}

// TestPreferenceRefuses: what preferences cannot be learned with.
func TestPreferenceRefuses(t *testing.T) {
	p := preferences(t)[0]
	rows := filepath.Join(t.TempDir(), "rows.jsonl")
	require.NoError(t, os.WriteFile(rows, []byte(`{"prompt": "a", "completion": "b"}`), 0o666))
	_, err := train.New(t.Context(), p.config(t, t.TempDir(), "data.train="+rows), train.Observer{})
	require.ErrorIs(t, err, data.ErrKeys)
	encoders, err := filepath.Glob("../../testdata/encoders/bert*/config.json")
	require.NoError(t, err)
	require.NotEmpty(t, encoders)
	_, err = train.New(t.Context(), p.config(t, t.TempDir(), "model="+filepath.Dir(encoders[0])), train.Observer{})
	require.ErrorIs(t, err, model.ErrTask)
}

// names lists the names of metrics.
func names(metrics []events.Scalar) (all []string) {
	for _, m := range metrics {
		all = append(all, m.Name)
	}
	return all
}

package lint

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	_ "github.com/lorafuse/lorafuse/backend/all"
	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/internal/train/events"
	_ "github.com/lorafuse/lorafuse/internal/train/task" // the tasks of runs
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/train/config"
)

// recording is trace.json of a run of PyTorch and PEFT.
type recording struct {
	Hyperparameters struct {
		Steps       int        `json:"steps"`
		LR          float64    `json:"lr"`
		Betas       [2]float64 `json:"betas"`
		Eps         float64    `json:"eps"`
		WeightDecay float64    `json:"weight_decay"`
		MaxGradNorm float64    `json:"max_grad_norm"`
		Scheduler   string     `json:"scheduler"`
		WarmupSteps int        `json:"warmup_steps"`
	} `json:"hyperparameters"`
	Trace []struct {
		Loss     float64 `json:"loss"`
		LR       float64 `json:"lr"`
		GradNorm float64 `json:"grad_norm"`
	} `json:"trace"`
}

// docs/reproduce-peft.md promises that its configuration repeats the recorded
// runs, with other folders by --set.
func TestReproducePEFT(t *testing.T) {
	t.Chdir(root(t))
	for _, arch := range []string{"llama", "qwen3"} {
		for _, kind := range []string{"lora", "rslora_all", "dora", "patterns"} {
			t.Run(arch+"/"+kind, func(t *testing.T) { reproduce(t, arch, kind) })
		}
	}
}

func reproduce(t *testing.T, arch, kind string) {
	dir := fmt.Sprintf("testdata/lm/%s/train/%s", arch, kind)
	c, err := config.Load("examples/reproduce-peft/train.yaml", "model=testdata/lm/"+arch+"/model",
		"init_adapter="+dir+"/init", "data.train="+dir+"/batches.safetensors", "output_dir="+t.TempDir())
	require.NoError(t, err)
	want := readRecording(t, dir)
	h := want.Hyperparameters
	require.Equal(t, []any{h.Steps, h.LR, h.Betas, h.Eps, h.WeightDecay, h.MaxGradNorm, h.Scheduler, h.WarmupSteps},
		[]any{c.Steps, c.LearningRate, c.Betas, c.Eps, c.WeightDecay, c.MaxGradNorm, string(c.Schedule), c.WarmupSteps}, "the file has the hyperparameters of trace.json")

	r, err := train.New(t.Context(), c, train.Observer{})
	require.NoError(t, err)
	defer r.Close()
	s, err := r.Train(t.Context())
	require.NoError(t, err)

	got, err := events.ReadMetrics(filepath.Join(c.OutputDir, "metrics.jsonl"))
	require.NoError(t, err)
	require.Len(t, got, len(want.Trace))
	for i, w := range want.Trace {
		value := func(name string) float64 {
			v, ok := got[i].Value(name)
			require.True(t, ok, name)
			return v
		}
		require.EqualValues(t, i+1, got[i].Step)
		assert.InDelta(t, w.Loss, value(events.Loss), 2e-5, "loss of step %d", i+1)
		assert.InDelta(t, w.LR, value("learning_rate"), 1e-15, "learning rate of step %d", i+1)
		assert.InEpsilon(t, w.GradNorm, value("grad_norm"), 1e-4, "gradient norm of step %d", i+1)
	}
	compare(t, filepath.Join(dir, "final"), s.Adapter, 2e-4)
}

// compare is lorafuse diff with --tolerance.
func compare(t *testing.T, want, got string, tolerance float64) {
	a, err := lora.Load(want)
	require.NoError(t, err)
	defer a.Close()
	b, err := lora.Load(got)
	require.NoError(t, err)
	defer b.Close()
	require.NotEmpty(t, a.Names())
	require.ElementsMatch(t, a.Names(), b.Names())
	for _, key := range a.Names() {
		x, err := a.Float32s(key)
		require.NoError(t, err)
		y, err := b.Float32s(key)
		require.NoError(t, err)
		require.Len(t, y, len(x), key)
		diff, largest := 0.0, 0.0
		for i, v := range x {
			diff = max(diff, math.Abs(float64(v)-float64(y[i])))
			largest = max(largest, math.Abs(float64(v)))
		}
		assert.LessOrEqual(t, diff, tolerance*largest, key)
	}
}

func readRecording(t *testing.T, dir string) (r recording) {
	raw, err := os.ReadFile(filepath.Join(dir, "trace.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &r))
	require.NotEmpty(t, r.Trace)
	return r
}

package train_test

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/internal/train/trainer"
	"github.com/lorafuse/lorafuse/lora"
)

// TestEngineOptions: options of which no step can be made are refused, the zero
// value among them, which once wrote an adapter of NaN.
func TestEngineOptions(t *testing.T) {
	m, s := load(t, tinyModel, "../../testdata/lm/llama/adapters/lora", lora.CheckOptions{})
	dev := testdevice.Open(t, backend.Options{})
	good := train.EngineOptions{MaxTokens: 8, Adam: trainer.Adam{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8}}
	for says, change := range map[string]func(*train.EngineOptions){
		"MaxTokens: found 0, expected 1 or more":             func(o *train.EngineOptions) { *o = train.EngineOptions{} },
		"eps: found 0, expected a number of float32 above 0": func(o *train.EngineOptions) { o.Eps = 0 },
		"eps: found NaN":    func(o *train.EngineOptions) { o.Eps = math.NaN() },
		"eps: found 1e-300": func(o *train.EngineOptions) { o.Eps = 1e-300 },
		"beta1: found 1, expected at least 0 and less than 1": func(o *train.EngineOptions) { o.Beta1 = 1 },
		"beta2: found -1": func(o *train.EngineOptions) { o.Beta2 = -1 },
		"max_grad_norm (grad_clip_norm): found NaN":            func(o *train.EngineOptions) { o.MaxGradNorm = math.NaN() },
		"MaxEvalTokens: found -1":                              func(o *train.EngineOptions) { o.MaxEvalTokens = -1 },
		"weight_decay: found +Inf":                             func(o *train.EngineOptions) { o.WeightDecay = math.Inf(1) },
		"MemoryLimit: found -1, expected 0 (the device's own)": func(o *train.EngineOptions) { o.MemoryLimit = -1 },
	} {
		o := good
		change(&o)
		_, err := train.NewEngine(context.Background(), dev, m, s, o)
		require.ErrorIs(t, err, train.ErrOption, says)
		assert.ErrorContains(t, err, says)
	}
	e, err := train.NewEngine(context.Background(), dev, m, s, good)
	require.NoError(t, err)
	e.Close()
}

// TestPrecisionOfRun: auto is settled by the device, and a checkpoint holds to it.
func TestPrecisionOfRun(t *testing.T) {
	dir, rows := t.TempDir(), countingRows(8)
	sets := []string{"backend=cpu", "steps=4", "save_steps=2"}
	run, err := train.New(t.Context(), configure(t, dir, rows, append(sets, "precision=auto")...), train.Observer{})
	require.NoError(t, err)
	_, err = run.Train(t.Context())
	run.Close()
	require.NoError(t, err)
	_, err = train.New(t.Context(), configure(t, dir, rows, append(sets, "precision=bf16", "resume=latest")...), train.Observer{})
	require.ErrorIs(t, err, train.ErrCheckpoint)
	assert.ErrorContains(t, err, "precision")
	run, err = train.New(t.Context(), configure(t, dir, rows, append(sets, "precision=f32", "resume=latest")...), train.Observer{})
	require.NoError(t, err, "which is what auto was")
	run.Close()
}

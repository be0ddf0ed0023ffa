package trainer_test

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/data"
	"github.com/lorafuse/lorafuse/internal/host"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/internal/train/trainer"
	"github.com/lorafuse/lorafuse/lora"
)

var adam = trainer.Adam{LearningRate: 0.01, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8}

// open returns a trainer of a new adapter of rank 64, whose factors are large enough for
// moments of 8 bits, and its loss.
func open(t *testing.T, h *host.Host, o trainer.Optimizer) (*trainer.Trainer, *trainer.Pass) {
	m := h.Model()
	c := lora.DefaultConfig()
	c.R = 64
	p, err := lora.NewPlacement(c, lora.ModelOf(m.Config.ModelType, m.Modules()))
	require.NoError(t, err)
	state, err := p.InitialState(m, 1)
	require.NoError(t, err)
	slot, err := h.Attach(state)
	require.NoError(t, err)
	plan := trainer.Plan{Optimizer: o, Sums: trainer.LossOf(model.NextToken).Totals()}
	for _, x := range p.Tensors() {
		plan.Trained = append(plan.Trained, nn.Trained{Name: x.Key, Shape: x.Shape})
	}
	tr := trainer.New(h, slot, plan)
	require.NoError(t, tr.Prepare(t.Context(), adam))
	return tr, trainer.LossOf(model.NextToken).Training(8)
}

func openHost(t *testing.T) *host.Host {
	m, err := model.Open("../../../testdata/lm/llama/model")
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	h := host.Open(testdevice.Open(t, backend.Options{}), m)
	t.Cleanup(h.Close)
	return h
}

// steps takes steps with one batch, and returns the adapter.
func steps(t *testing.T, tr *trainer.Trainer, l *trainer.Pass, from, to int) map[string][]float32 {
	var b data.Batch
	b.Add([]int32{1, 2, 3, 5}, []int32{2, 3, 5, 7})
	for n := from; n <= to; n++ {
		_, err := tr.Compute(t.Context(), l, &b, b.Longest())
		require.NoError(t, err)
		r, err := tr.Step(t.Context(), adam, 0.25, n)
		require.NoError(t, err)
		require.Positive(t, r.GradNorm)
		require.Positive(t, r.Sums[0])
	}
	return values(t, tr)
}

func values(t *testing.T, tr *trainer.Trainer) map[string][]float32 {
	all := map[string][]float32{}
	for _, x := range tr.Trained() {
		n := 1
		for _, d := range x.Shape {
			n *= d
		}
		all[x.Name] = make([]float32, n)
	}
	require.NoError(t, tr.Values(t.Context(), all, nil))
	return all
}

// A trainer continues exactly from the values and moments of another one, with moments of 32
// and of 8 bits, and rejects moments of the other kind without a change.
func TestMoments(t *testing.T) {
	h := openHost(t)
	saved := map[trainer.Optimizer]trainer.Moments{}
	for _, o := range []trainer.Optimizer{trainer.AdamW, trainer.AdamW8bit} {
		one, loss := open(t, h, o)
		half := steps(t, one, loss, 1, 2)
		moments, err := one.Moments(t.Context())
		require.NoError(t, err)
		var sums map[string]string
		dir := filepath.Join(t.TempDir(), "saved")
		require.NoError(t, trainer.Checkpoint{
			Adapter: func(tmp string) error {
				return os.WriteFile(filepath.Join(tmp, lora.WeightsFile), nil, 0o666)
			},
			Moments: moments, Record: "record.json", Value: func(s map[string]string) any { sums = s; return s },
		}.Save(dir))
		read, err := trainer.ReadMoments(dir)
		require.NoError(t, err)
		require.Equal(t, moments, read)
		require.NoError(t, trainer.CheckSums(dir, true, sums))
		require.NoError(t, os.WriteFile(filepath.Join(dir, lora.WeightsFile), []byte{1}, 0o666))
		require.ErrorContains(t, trainer.CheckSums(dir, true, sums), "damaged: the checksum of adapter_model.safetensors was")
		saved[o] = moments
		want := steps(t, one, loss, 3, 4)

		two, _ := open(t, h, o)
		require.NoError(t, two.SetValues(t.Context(), half))
		require.NoError(t, two.SetMoments(t.Context(), moments))
		require.Equal(t, want, steps(t, two, loss, 3, 4))

		require.NoError(t, two.SetValues(t.Context(), half))
		require.NoError(t, two.SetMoments(t.Context(), nil))
		require.NotEqual(t, want, steps(t, two, loss, 3, 4), "without moments")
	}
	two, _ := open(t, h, trainer.AdamW)
	before := values(t, two)
	require.ErrorContains(t, two.SetMoments(t.Context(), saved[trainer.AdamW8bit]), "expected F32")
	require.Equal(t, before, values(t, two))
}

// A step whose gradients are not finite changes nothing and clears them.
func TestNotFinite(t *testing.T) {
	h := openHost(t)
	tr, loss := open(t, h, trainer.AdamW)
	before := values(t, tr)
	var b data.Batch
	b.Add([]int32{1, 2}, []int32{2, 3})
	_, err := tr.Compute(t.Context(), loss, &b, b.Longest())
	require.NoError(t, err)
	_, err = tr.Step(t.Context(), adam, float32(math.Inf(1)), 1)
	require.ErrorIs(t, err, trainer.ErrNotFinite)
	require.Equal(t, before, values(t, tr))
	require.NotEqual(t, before, steps(t, tr, loss, 1, 1))
}

func TestAdamCheck(t *testing.T) {
	require.NoError(t, adam.Check())
	for want, change := range map[string]func(*trainer.Adam){
		"learning_rate: found NaN":                              func(a *trainer.Adam) { a.LearningRate = math.NaN() },
		"beta1: found 1, expected at least 0 and less than 1":   func(a *trainer.Adam) { a.Beta1 = 1 },
		"beta2: found -0.1":                                     func(a *trainer.Adam) { a.Beta2 = -0.1 },
		"eps: found 1e-300":                                     func(a *trainer.Adam) { a.Eps = 1e-300 },
		"weight_decay: found +Inf":                              func(a *trainer.Adam) { a.WeightDecay = math.Inf(1) },
		"max_grad_norm (grad_clip_norm): found -1, expected 0 ": func(a *trainer.Adam) { a.MaxGradNorm = -1 },
	} {
		a := adam
		change(&a)
		require.ErrorContains(t, a.Check(), want)
	}
	require.ErrorContains(t, trainer.Optimizer("adamw8bit").Check(), `did you mean "adamw_8bit"?`)
}

package train_test

import (
	"context"
	"math"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cpu"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/bytesize"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/internal/train/trainer"
	"github.com/lorafuse/lorafuse/lora"
)

// dropped is an adapter with dropout for the tiny model, and that.
func dropped(t *testing.T, dropout float64) (*model.Model, *lora.State) {
	c := lora.DefaultConfig()
	c.LoraDropout = dropout
	return adapted(t, c)
}

// adapted is an adapter of q_proj and v_proj for the tiny model, and that.
func adapted(t *testing.T, c *lora.Config) (*model.Model, *lora.State) {
	m, err := model.Open(tinyModel)
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	c.R, c.TargetModules.Names = 4, []string{"q_proj", "v_proj"}
	p, err := lora.NewPlacement(c, lora.ModelOf(m.Config.ModelType, m.Modules()))
	require.NoError(t, err)
	s, err := p.InitialState(m, 1)
	require.NoError(t, err)
	return m, s
}

var stepOptions = train.EngineOptions{MaxTokens: 12, MaxEvalTokens: 12, Adam: trainer.Adam{Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, MaxGradNorm: 1}, Seed: 5}

// steps takes three steps of so many micro-batches and gives the losses and the
// adapter.
func steps(t *testing.T, dev backend.Device, dora bool, micros int, after func(step int)) (losses []float64, values map[string][]float32) {
	c := lora.DefaultConfig()
	c.LoraDropout, c.UseDoRA = 0.1, dora
	m, s := adapted(t, c)
	e, err := train.NewEngine(t.Context(), dev, m, s, stepOptions)
	require.NoError(t, err)
	defer e.Close()
	after(-1)
	for step := range 3 {
		for micro := range micros {
			require.NoError(t, e.Accumulate(t.Context(), countingBatch(12-step-micro), uint32(micros*step+micro)))
		}
		r, err := e.Update(t.Context(), 24, step+1, 1e-2)
		require.NoError(t, err)
		losses = append(losses, r.Loss, r.GradNorm)
		after(step)
	}
	loss, err := e.Evaluate(t.Context(), countingBatch(12))
	require.NoError(t, err)
	s, err = e.State(t.Context())
	require.NoError(t, err)
	return append(losses, loss), s.Values
}

// TestAStepWaitsOnce: a step uploads and runs once for each micro-batch and once for
// the update, and waits for the device once, at its end. Of more micro-batches than
// may be under way each waits for the one that so many came before it. What DoRA makes
// of the adapter is one run more.
func TestAStepWaitsOnce(t *testing.T) {
	for micros, waits := range map[int]int{1: 1, 2: 1, backend.MaxInFlight: 1, backend.MaxInFlight + 2: 3} {
		for dora, more := range map[bool]int{false: 0, true: 1} {
			dev := testdevice.Count(testdevice.Open(t, backend.Options{Threads: 1}))
			steps(t, dev, dora, micros, func(step int) {
				if step >= 0 {
					require.Equal(t, [3]int{waits, micros + 1, micros + 1 + more}, [3]int{dev.Waits, dev.Uploads, dev.Runs}, "step %d of %d micro-batches", step, micros)
				}
				dev.Waits, dev.Uploads, dev.Runs = 0, 0, 0
			})
		}
	}
}

// TestAnExchangeWaitsTwice: gradients are read as one result of one run, and set with one wait.
func TestAnExchangeWaitsTwice(t *testing.T) {
	dev := testdevice.Count(testdevice.Open(t, backend.Options{Threads: 1}))
	m, s := dropped(t, 0.1)
	o := stepOptions
	o.Shared = true
	e, err := train.NewEngine(t.Context(), dev, m, s, o)
	require.NoError(t, err)
	defer e.Close()
	n := 1 // the loss
	for _, x := range e.Trained() {
		n += x.Shape[0] * x.Shape[1]
	}
	exchange := 4 * n // on the device
	if dev.Info().Unified {
		exchange *= 3
	}
	require.EqualValues(t, exchange, e.Memory().Exchange)
	vector, again := make([]float32, n), make([]float32, n)
	require.NoError(t, e.Accumulate(t.Context(), countingBatch(12), 0))
	dev.Waits, dev.Runs = 0, 0
	require.NoError(t, e.Take(t.Context(), vector))
	require.Equal(t, [2]int{1, 1}, [2]int{dev.Waits, dev.Runs})
	require.NotZero(t, vector[n-1])
	require.NoError(t, e.Take(t.Context(), again))
	require.Equal(t, make([]float32, n), again, "Take leaves zeros")

	for i := range vector {
		vector[i] = float32(i)
	}
	dev.Waits, dev.Runs = 0, 0
	require.NoError(t, e.Put(t.Context(), vector))
	require.Equal(t, [2]int{1, 0}, [2]int{dev.Waits, dev.Runs})
	require.NoError(t, e.Take(t.Context(), again))
	require.Equal(t, vector, again)
	require.ErrorContains(t, e.Put(t.Context(), vector[1:]), "which has not so many")
	require.ErrorContains(t, e.Put(t.Context(), append(vector, 1)), "4 bytes more than the")
}

// TestLazyDeviceIsTheSame: nothing depends on when a device does its work.
func TestLazyDeviceIsTheSame(t *testing.T) {
	plain, err := cpu.Open(backend.Options{Threads: 1})
	require.NoError(t, err)
	defer plain.Close()
	none := func(int) {}
	for _, dora := range []bool{false, true} {
		const micros = backend.MaxInFlight + 2
		losses, values := steps(t, plain, dora, micros, none)
		lazily, others := steps(t, testdevice.NewLazy(t), dora, micros, none)
		require.Equal(t, losses, lazily)
		require.Equal(t, values, others)
		apart, others := steps(t, struct{ backend.Device }{plain}, dora, micros, none)
		require.Equal(t, losses, apart, "where memory cannot be divided")
		require.Equal(t, values, others)
	}
}

// stopping ends once it was asked so often.
type stopping struct {
	context.Context
	left atomic.Int32
}

func (s *stopping) Err() error {
	if s.left.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

// TestAStepThatIsCutOffChangesNothing: a micro-batch that has stopped in the middle
// is not built on, wherever it is in the step, and one that an update builds on does
// not stop.
func TestAStepThatIsCutOffChangesNothing(t *testing.T) {
	dev := testdevice.NewLazy(t)
	m, s := dropped(t, 0)
	e, err := train.NewEngine(t.Context(), dev, m, s, stepOptions)
	require.NoError(t, err)
	defer e.Close()
	before := slices.Clone(firstValues(t, e))
	for cut := range 3 {
		for micro := range 3 {
			ctx := &stopping{Context: t.Context()}
			ctx.left.Store(math.MaxInt32)
			if micro == cut {
				ctx.left.Store(10) // in the middle of the program
			}
			require.NoError(t, e.Accumulate(ctx, countingBatch(12), 0))
		}
		dev.Do()
		_, err = e.Update(t.Context(), 33, 1, 1e-2)
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, before, firstValues(t, e))
	}

	later, cancel := context.WithCancel(t.Context())
	require.NoError(t, e.Accumulate(later, countingBatch(12), 0))
	dev.First(cancel) // before the run, and behind what Update decides
	_, err = e.Update(t.Context(), 11, 1, 1e-2)
	require.NoError(t, err)
	require.NotEqual(t, before, firstValues(t, e))
}

// firstValues are those of the first trained parameter that begins as zero.
func firstValues(t *testing.T, e *train.Engine) []float32 {
	s, err := e.State(t.Context())
	require.NoError(t, err)
	return s.Values[e.Trained()[1].Name]
}

// TestProgramsTakeTurns: the arena is as large as the largest program needs, and the
// plan says so.
func TestProgramsTakeTurns(t *testing.T) {
	m, s := dropped(t, 0)
	dev := testdevice.Count(testdevice.NewLazy(t))
	e, err := train.NewEngine(t.Context(), dev, m, s, stepOptions)
	require.NoError(t, err)
	defer e.Close()
	got := e.Memory()
	require.Positive(t, got.Evaluation)
	require.Positive(t, got.Update)
	require.Equal(t, max(got.Activations, got.Evaluation, got.Update), got.Arena)
	require.EqualValues(t, got.Arena, dev.Arena)
	require.Contains(t, got.String(), "arena "+bytesize.Binary(got.Arena)+" for activations "+bytesize.Binary(got.Activations)+" or update")

	p, err := train.NewPlanner(struct{ backend.Device }{testdevice.Open(t, backend.Options{})}, m, s)
	require.NoError(t, err)
	apart, err := p.Memory(stepOptions)
	require.NoError(t, err)
	require.Equal(t, apart.Activations+apart.Evaluation+apart.Update, apart.Arena)
}

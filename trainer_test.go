package lorafuse_test

import (
	"bufio"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse"
	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tokenizer"
	"github.com/lorafuse/lorafuse/train/config"
)

// A custom loss of a Trainer can be DPO: it learns what task: preference learns.
func TestTrainerPreference(t *testing.T) {
	const model, file, beta, rate, steps = "testdata/lm/llama/model", "testdata/preference/lora/rows.jsonl", 0.3, 2e-3, 4
	c := config.Default()
	c.Task, c.Preference.Beta, c.Data.Shuffle, c.Backend = config.TaskPreference, beta, false, backend.CPU
	c.Adapter.TargetModules.Expr = "all-linear"
	c.Schedule, c.Betas, c.Eps, c.WeightDecay, c.MaxGradNorm = "constant", [2]float64{0.9, 0.95}, 1e-12, 0, 0
	var want, got []float64
	tuned, err := lorafuse.FineTune(t.Context(), model, lorafuse.Files(file), lorafuse.Recipe{
		OutputDir: filepath.Join(t.TempDir(), "run"), Rank: 4, Alpha: 32, Steps: steps, BatchSize: 2, LearningRate: rate, Seed: 3, Config: c,
		OnStep: func(s lorafuse.Step) { want = append(want, s.Loss) },
	})
	require.NoError(t, err)

	pairs := preferences(t, model, file)
	m := open(t, model, lorafuse.Options{Device: backend.CPU})
	trainer, err := m.NewTrainer(t.Context(), lorafuse.TrainerOptions{Rank: 4, Alpha: 32, Seed: 3})
	require.NoError(t, err)
	defer trainer.Close()
	// answer sums the log-probabilities of the answer of a datum.
	answer := func(logprobs []float32, from int) (sum float64) {
		for _, p := range logprobs[from:] {
			sum += float64(p)
		}
		return sum
	}
	var from [2]int // where the answers of the pair start
	margin := func(x [][]float32) float64 { return answer(x[0], from[0]) - answer(x[1], from[1]) }
	constant := func(x [][]float32, g float64) [][]float32 {
		grad := make([][]float32, len(x))
		for i := range x {
			grad[i] = make([]float32, len(x[i]))
			for j := from[i]; j < len(x[i]); j++ {
				grad[i][j] = float32([]float64{g, -g}[i])
			}
		}
		return grad
	}
	reference := make([]float64, len(pairs))
	for i, p := range pairs {
		from = p.from
		_, err := trainer.ForwardBackward(t.Context(), p.data, func(x [][]float32) (float64, [][]float32) {
			reference[i] = margin(x)
			return 0, constant(x, 0)
		})
		require.NoError(t, err)
	}
	for step := range steps {
		sum := 0.0
		for row := range 2 {
			i := (2*step + row) % len(pairs)
			from = pairs[i].from
			loss, err := trainer.ForwardBackward(t.Context(), pairs[i].data, func(x [][]float32) (float64, [][]float32) {
				r := beta * (margin(x) - reference[i])
				return math.Log1p(math.Exp(-r)) / 2, constant(x, -beta/(1+math.Exp(r))/2)
			})
			require.NoError(t, err)
			sum += loss
		}
		got = append(got, sum)
		require.NoError(t, trainer.Step(t.Context(), rate))
	}
	assert.InDeltaSlice(t, want, got, 1e-5)
	saved := filepath.Join(t.TempDir(), "adapter")
	require.NoError(t, trainer.Save(t.Context(), saved))
	a, b := tensors(t, tuned.Adapter), tensors(t, saved)
	require.Len(t, a, len(b))
	for name, x := range a {
		assert.InDeltaSlice(t, x, b[name], 1e-4, name)
	}
}

// pair holds the chosen and the rejected answer to a prompt.
type pair struct {
	data []lorafuse.Datum
	from [2]int // index of the first target that belongs to the answer
}

func preferences(t *testing.T, model, file string) (pairs []pair) {
	words, err := tokenizer.Load(model)
	require.NoError(t, err)
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var row struct{ Prompt, Chosen, Rejected string }
		require.NoError(t, json.Unmarshal(lines.Bytes(), &row))
		var p pair
		prompt, err := words.Encode(row.Prompt, true)
		require.NoError(t, err)
		for i, text := range []string{row.Chosen, row.Rejected} {
			ids, err := words.Encode(text, false)
			require.NoError(t, err)
			ids = append(append(prompt[:len(prompt):len(prompt)], ids...), words.StopTokens(nil)...)
			p.data = append(p.data, lorafuse.Datum{Tokens: ids[:len(ids)-1], Targets: ids[1:]})
			p.from[i] = len(prompt) - 1
		}
		pairs = append(pairs, p)
	}
	return pairs
}

// tensors returns the values of an adapter.
func tensors(t *testing.T, dir string) map[string][]float32 {
	f, err := safetensors.Open(filepath.Join(dir, lora.WeightsFile))
	require.NoError(t, err)
	defer f.Close()
	all := map[string][]float32{}
	for _, name := range f.Names() {
		v, err := f.Lookup(name)
		require.NoError(t, err)
		x, err := safetensors.As[float32](v)
		require.NoError(t, err)
		all[name] = slices.Clone(x)
	}
	return all
}

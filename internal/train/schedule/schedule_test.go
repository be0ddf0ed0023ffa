package schedule

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestTraces compares with the lr column of every recorded PEFT run.
func TestTraces(t *testing.T) {
	files, err := filepath.Glob("../../../testdata/lm/*/train/*/trace.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		var run struct {
			Hyperparameters struct {
				Steps       int     `json:"steps"`
				LR          float64 `json:"lr"`
				Scheduler   Kind    `json:"scheduler"`
				WarmupSteps int     `json:"warmup_steps"`
			} `json:"hyperparameters"`
			Trace []struct {
				Step int     `json:"step"`
				LR   float64 `json:"lr"`
			} `json:"trace"`
		}
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(raw, &run), file)
		h := run.Hyperparameters
		s, err := New(Config{Kind: h.Scheduler, LearningRate: h.LR, Steps: h.Steps, WarmupSteps: h.WarmupSteps})
		require.NoError(t, err, file)
		require.Len(t, run.Trace, h.Steps, file)
		for _, row := range run.Trace {
			assert.InEpsilon(t, row.LR+1, s.At(row.Step)+1, 1e-15, "%s step %d", file, row.Step)
			if row.LR != 0 {
				assert.InEpsilon(t, row.LR, s.At(row.Step), 1e-14, "%s step %d", file, row.Step)
			}
		}
	}
}

// TestClosedForms holds values worked out by hand from the formulas: base 1,
// 10 steps of which 2 warm up, so that progress is (step-2)/8.
func TestClosedForms(t *testing.T) {
	half := math.Sqrt2 / 2
	for _, c := range []struct {
		name string
		cfg  Config
		want map[int]float64
	}{
		{"constant ignores the warm-up", Config{Kind: Constant},
			map[int]float64{0: 1, 1: 1, 2: 1, 9: 1, 10: 1, 50: 1}},
		{"constant with warm-up", Config{Kind: ConstantWithWarmup},
			map[int]float64{0: 0, 1: 0.5, 2: 1, 9: 1, 10: 1, 50: 1}},
		{"linear", Config{Kind: Linear},
			map[int]float64{0: 0, 1: 0.5, 2: 1, 3: 0.875, 6: 0.5, 9: 0.125, 10: 0, 11: 0}},
		{"cosine, half a wave", Config{Kind: Cosine},
			map[int]float64{0: 0, 1: 0.5, 2: 1, 4: 0.5 * (1 + half), 6: 0.5, 8: 0.5 * (1 - half), 10: 0}},
		{"cosine, a whole wave", Config{Kind: Cosine, NumCycles: 1},
			map[int]float64{2: 1, 4: 0.5, 6: 0, 8: 0.5, 10: 1}},
		{"cosine with restarts, one cycle", Config{Kind: CosineWithRestarts},
			map[int]float64{1: 0.5, 2: 1, 4: 0.5 * (1 + half), 6: 0.5, 10: 0, 12: 0}},
		{"cosine with restarts, two cycles", Config{Kind: CosineWithRestarts, NumCycles: 2},
			map[int]float64{1: 0.5, 2: 1, 4: 0.5, 5: 0.5 * (1 - half), 6: 1, 8: 0.5, 10: 0}},
		{"polynomial of power 1", Config{Kind: Polynomial, LREnd: 0.2},
			map[int]float64{0: 0, 1: 0.5, 2: 1, 4: 0.8, 6: 0.6, 10: 0.2, 11: 0.2}},
		{"polynomial of power 2", Config{Kind: Polynomial, LREnd: 0.2, Power: 2},
			map[int]float64{2: 1, 4: 0.65, 6: 0.4, 8: 0.25, 10: 0.2}},
		{"polynomial ends at 0 unless told", Config{Kind: Polynomial},
			map[int]float64{6: 0.5, 10: 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.cfg.LearningRate, c.cfg.Steps, c.cfg.WarmupSteps = 1, 10, 2
			s, err := New(c.cfg)
			require.NoError(t, err)
			for step, want := range c.want {
				assert.InDelta(t, want, s.At(step), 1e-15, "step %d", step)
			}
		})
	}
}

func TestBaseScales(t *testing.T) {
	s, err := New(Config{Kind: Linear, LearningRate: 0.003, Steps: 4})
	require.NoError(t, err)
	assert.Equal(t, 0.003, s.At(0))
	assert.InEpsilon(t, 0.00225, s.At(1), 1e-15)
	assert.Equal(t, s.At(0), s.At(-1), "no step lies before 0")
}

func TestWarmupSteps(t *testing.T) {
	assert.Equal(t, 3, WarmupSteps(0.1, 30))
	assert.Equal(t, 4, WarmupSteps(0.1, 31), "rounded up")
	assert.Equal(t, 0, WarmupSteps(0, 31))
}

// TestRange: the factor stays in [0, 1] for all settings and any step, also
// where the warm-up is as long as the run or longer.
func TestRange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Config{
			Kind:         Kind(rapid.SampledFrom(Kinds()).Draw(t, "kind")),
			LearningRate: 1,
			Steps:        rapid.IntRange(0, 50).Draw(t, "steps"),
			WarmupSteps:  rapid.IntRange(0, 60).Draw(t, "warmup"),
			NumCycles:    float64(rapid.IntRange(0, 5).Draw(t, "cycles")),
			Power:        rapid.Float64Range(0, 4).Draw(t, "power"),
		}
		s, err := New(c)
		require.NoError(t, err)
		lr := s.At(rapid.IntRange(0, 120).Draw(t, "step"))
		assert.True(t, lr >= 0 && lr <= 1, "lr %v", lr)
	})
}

func TestErrors(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		is   error
		text string
	}{
		{Config{Kind: "cosin"}, ErrKind, `"cosin", expected constant, constant_with_warmup, linear, cosine, cosine_with_restarts or polynomial, did you mean "cosine"?`},
		{Config{}, ErrKind, `expected constant, `},
		{Config{Kind: Linear, LearningRate: math.NaN()}, ErrSetting, "learning rate NaN"},
		{Config{Kind: Linear, LearningRate: -1}, ErrSetting, "learning rate -1"},
		{Config{Kind: Linear, Steps: -1}, ErrSetting, "-1 steps"},
		{Config{Kind: Linear, WarmupSteps: -1}, ErrSetting, "-1 warm-up"},
		{Config{Kind: Cosine, NumCycles: -1}, ErrSetting, "-1 cycles"},
		{Config{Kind: Polynomial, LearningRate: 1, Power: -1}, ErrSetting, "power -1"},
		{Config{Kind: Polynomial, LearningRate: 1e-3, LREnd: 1e-2}, ErrSetting, "ends at 0.01"},
	} {
		_, err := New(c.cfg)
		require.ErrorIs(t, err, c.is)
		assert.ErrorContains(t, err, c.text)
	}
}

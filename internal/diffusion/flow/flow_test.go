package flow

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// golden is what diffusers gives.
type golden struct {
	Schedules []struct {
		Name     string
		Config   json.RawMessage
		Training struct {
			Timesteps []float32 `json:"timesteps_first_last"`
			Sigmas    []float32 `json:"sigmas_first_last"`
		}
		Sampling []struct {
			Steps     int
			Tokens    int `json:"image_seq_len"`
			Mu        *float64
			Sigmas    []float32
			Timesteps []float32
		}
		Default []float32 `json:"default_sigmas_5_steps_mu_0.8"`
	}
	Density struct {
		U, Z   []float32
		Result map[string][]float32
	}
	Weighting struct {
		Sigmas []float32
		Result map[string][]float32
	}
}

func readGolden(t *testing.T) (g golden) {
	raw, err := os.ReadFile("../../../testdata/dit/schedules/schedules.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &g))
	return g
}

func TestSchedules(t *testing.T) {
	for _, want := range readGolden(t).Schedules {
		t.Run(want.Name, func(t *testing.T) {
			s, err := Parse(want.Config)
			require.NoError(t, err)

			table := s.Table()
			at := func(x []float32) []float32 { return []float32{x[0], x[1], x[500], x[len(x)-1]} }
			assert.Equal(t, want.Training.Sigmas, at(table.Sigmas))
			assert.Equal(t, want.Training.Timesteps, at(table.Timesteps))

			for _, w := range want.Sampling {
				mu := 0.0
				if w.Mu != nil {
					mu = s.Mu(w.Tokens)
					assert.Equal(t, *w.Mu, mu)
				}
				l := s.Sample(w.Steps, mu)
				equal(t, s, w.Sigmas, l.Sigmas)
				equal(t, s, w.Timesteps, l.Timesteps)
				assert.Equal(t, w.Steps, l.Steps())
			}
			equal(t, s, want.Default, s.SampleTable(5, 0.8).Sigmas)
		})
	}
}

// equal holds levels to those of diffusers bit by bit; powers of libraries differ in the
// last one.
func equal(t *testing.T, s *Schedule, want, got []float32) {
	if s.Spacing == Even {
		assert.Equal(t, want, got)
		return
	}
	require.Len(t, got, len(want))
	for i := range want {
		assert.InEpsilon(t, want[i]+1, got[i]+1, 1.2e-7, "%v and %v", want[i], got[i])
	}
}

func TestDensities(t *testing.T) {
	g := readGolden(t).Density
	all := map[string]Timesteps{
		"none{}": {Density: Uniform},
		`logit_normal{"logit_mean": 0.0, "logit_std": 1.0}`:  {Density: LogitNormal, Std: 1},
		`logit_normal{"logit_mean": -0.5, "logit_std": 1.4}`: {Density: LogitNormal, Mean: -0.5, Std: 1.4},
		`mode{"mode_scale": 1.29}`:                           {Density: Mode, ModeScale: 1.29},
	}
	require.Len(t, all, len(g.Result))
	for name, want := range g.Result {
		for i, w := range want {
			assert.InDelta(t, w, all[name].Value(g.U[i], g.Z[i]), 1.2e-7, name)
		}
	}
}

func TestWeightings(t *testing.T) {
	g := readGolden(t).Weighting
	for name, want := range g.Result {
		w, err := ParseWeighting(name)
		require.NoError(t, err)
		for i, sigma := range g.Sigmas {
			assert.InEpsilon(t, want[i], w.Weight(sigma), 2e-7, name)
		}
	}
	_, err := ParseWeighting("cosmapp")
	require.ErrorIs(t, err, ErrSchedule)
	assert.ErrorContains(t, err, "cosmap")
}

func TestShifts(t *testing.T) {
	static, err := NamedTimesteps("shift")
	require.NoError(t, err)
	static.By = 3
	table := (&Schedule{Levels: 1000, Shift: 1}).Table()
	rapid.Check(t, func(t *rapid.T) {
		d := NewDraw(rapid.Uint64().Draw(t, "seed"), rapid.IntRange(0, 1<<20).Draw(t, "step"), rapid.IntRange(0, 100).Draw(t, "sample"))
		z := 1 / (1 + math.Exp(-float64(d.Normal())))
		sigma, timestep := static.At(table, d, 4096)
		assert.InDelta(t, 3*z/(1+2*z), sigma, 1e-6)
		assert.InDelta(t, 1000*sigma, timestep, 1e-3)

		for name, mu := range map[string]float64{"flux_shift": 1.15, "qwen_shift": 0.5 + 0.4*(4096-256)/(8192-256)} {
			x, err := NamedTimesteps(name)
			assert.NoError(t, err)
			sigma, _ := x.At(table, d, 4096)
			assert.InDelta(t, math.Exp(mu)/(math.Exp(mu)+1/z-1), sigma, 1e-6)
		}
		plain, _ := NamedTimesteps("none")
		sigma, timestep = plain.At(table, d, 4096)
		assert.InDelta(t, 1000-int(d.Uniform()*1000), timestep, 1e-4)
		assert.InDelta(t, timestep/1000, sigma, 1e-7)
	})
	_, err = NamedTimesteps("flux-shift")
	require.ErrorIs(t, err, ErrSchedule)
	assert.ErrorContains(t, err, "flux_shift")
}

func TestWrongSchedules(t *testing.T) {
	for config, says := range map[string]string{
		`[]`:                                "not a JSON object",
		`{"_class_name": "DDIMScheduler"}`:  "DDIMScheduler",
		`{"use_beta_sigmas": 1}`:            "use_beta_sigmas: found 1",
		`{"stochastic_sampling": true}`:     "stochastic_sampling: found true",
		`{"shift": "a"}`:                    `shift: found "a", expected a number`,
		`{"shift": 0}`:                      "shift: found 0",
		`{"time_shift_type": "exponental"}`: `did you mean "exponential"?`,
		`{"num_train_timesteps": 0}`:        "num_train_timesteps",
		`{"shift_terminal": 1}`:             "shift_terminal",
		`{"sigma_data": 1.5}`:               "sigma_data",
		`{"use_karras_sigmas": true, "use_exponential_sigmas": true}`:                         "at most one",
		`{"use_karras_sigmas": true, "use_beta_sigmas": true}`:                                "use_karras_sigmas and use_beta_sigmas are both true",
		`{"use_dynamic_shifting": true, "base_image_seq_len": 256, "max_image_seq_len": 256}`: "both 256",
	} {
		_, err := Parse([]byte(config))
		require.ErrorIs(t, err, ErrSchedule, config)
		assert.ErrorContains(t, err, says)
	}
	_, err := Parse([]byte(`{"use_beta_sigmas": false, "sigma_min": null, "_diffusers_version": "0.42.1"}`))
	assert.NoError(t, err)
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"shift": 3.0, "use_dynamic_shifting": true}`))
	f.Add([]byte(`{"": 1}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		s, err := Parse(raw)
		if err != nil {
			require.ErrorIs(t, err, ErrSchedule)
			return
		}
		s.Sample(3, s.Mu(1024))
		s.SampleTable(1, 0.5)
	})
}

// A run towards a picture whose velocity is known ends at it, whatever the levels.
func TestStepEndsAtThePicture(t *testing.T) {
	s, err := Parse([]byte(`{"shift": 3.0}`))
	require.NoError(t, err)
	picture, noise := []float32{1, -2, 0.5}, make([]float32, 3)
	NewDraw(1, 0, 0).Noise(noise)
	l := s.Sample(7, 0)
	x := slices.Clone(noise)
	for i := range l.Steps() {
		mixed, target := slices.Clone(picture), slices.Clone(noise)
		Mix(mixed, target, l.Sigmas[i])
		assert.InDeltaSlice(t, mixed, x, 1e-6)
		l.Step(x, target, i)
	}
	assert.InDeltaSlice(t, picture, x, 1e-6)
}

func TestGuidance(t *testing.T) {
	v, u := []float32{3, 4, 1, 0}, []float32{0, 0, 0, 1}
	combine := func(g Guidance) []float32 {
		x := append([]float32(nil), v...)
		g.Combine(x, u, 2, 2)
		return x
	}
	assert.Equal(t, []float32{6, 8, 2, -1}, combine(Extrapolate))
	assert.Equal(t, []float32{9, 12, 3, -2}, combine(Beyond))
	r := float32(1 / math.Sqrt(5))
	assert.InDeltaSlice(t, []float32{3, 4, 2 * r, -r}, combine(Rescale), 1e-6)

	zero := make([]float32, 2)
	Rescale.Combine(zero, []float32{0, 0}, 4, 2)
	assert.Equal(t, []float32{0, 0}, zero)
	assert.True(t, Beyond.Asks(0.5))
	assert.False(t, Rescale.Asks(1))
}

// Draws differ by each of what they are functions of, and are standard normal.
func TestDraws(t *testing.T) {
	first := func(d Draw) [4]float32 {
		var noise, posterior [1]float32
		d.Noise(noise[:])
		d.Posterior(posterior[:])
		return [4]float32{d.Uniform(), d.Normal(), noise[0], posterior[0]}
	}
	seen := map[float32]bool{}
	for _, d := range []Draw{NewDraw(1, 2, 3), NewDraw(2, 2, 3), NewDraw(1, 3, 3), NewDraw(1, 2, 4)} {
		assert.Equal(t, first(d), first(d))
		for _, x := range first(d) {
			assert.False(t, seen[x], "drawn twice")
			seen[x] = true
		}
	}
	x := make([]float32, 10000)
	NewDraw(7, 0, 0).Noise(x)
	mean, square := 0.0, 0.0
	for _, v := range x {
		mean += float64(v) / float64(len(x))
		square += float64(v) * float64(v) / float64(len(x))
	}
	assert.InDelta(t, 0, mean, 0.04)
	assert.InDelta(t, 1, square, 0.06)
}

package session_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/train/session"
	"github.com/lorafuse/lorafuse/internal/train/trainer"
	"github.com/lorafuse/lorafuse/safetensors"
)

// golden is what torch and PEFT make of a session, see scripts/make_session_goldens.py.
type golden struct {
	Model                   string
	Rank, Data              int
	Attention, MLP, Unembed bool
	Runs                    map[string]struct {
		Loss   string
		Config map[string]float64
		Arrays []string
		Sum    float64
		Steps  []struct {
			LearningRate float64 `json:"learning_rate"`
			Beta1, Beta2 float64
			Eps          float64
			WeightDecay  float64 `json:"weight_decay"`
			GradClipNorm float64 `json:"grad_clip_norm"`
			Sum          float64
			GradNorm     float64 `json:"grad_norm"`
		}
		FinalSum float64 `json:"final_sum"`
	}
}

func readGolden(t *testing.T, dir string) (g golden) {
	raw, err := os.ReadFile(filepath.Join(dir, "case.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &g))
	return g
}

// tensors reads arrays of a file.
type tensors struct {
	testing.TB
	f *safetensors.File
}

func readTensors(t testing.TB, path string) tensors {
	f, err := safetensors.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return tensors{t, f}
}

func read[T safetensors.Element](t tensors, name string) []T {
	v, err := t.f.Lookup(name)
	require.NoError(t, err)
	x, err := safetensors.As[T](v)
	require.NoError(t, err)
	return x
}

// datum is datum i of a case, with the arrays that a run reads.
func (t tensors) datum(i int, arrays []string) session.Datum {
	name := func(array string) string { return fmt.Sprintf("%d.%s", i, array) }
	d := session.Datum{Tokens: read[int32](t, name("tokens"))}
	for _, a := range arrays {
		switch a {
		case "targets":
			d.Targets = read[int32](t, name(a))
		case "several":
			d.Targets = read[int32](t, name(a))
			d.K = len(d.Targets) / len(d.Tokens)
		case "weights", "several_weights":
			d.Weights = read[float32](t, name(a))
		case "logprobs":
			d.Logprobs = read[float32](t, name(a))
		case "advantages":
			d.Advantages = read[float32](t, name(a))
		case "clip_low":
			d.ClipLow = read[float32](t, name(a))
		case "clip_high":
			d.ClipHigh = read[float32](t, name(a))
		}
	}
	return d
}

// tolerance is how far results may be from PyTorch's.
func tolerance() float64 {
	if testdevice.Assembly() {
		return 1e-5
	}
	return 2e-5
}

func closeTo(t *testing.T, what string, got, want []float32) {
	t.Helper()
	require.Len(t, got, len(want), what)
	var off testdevice.Deviation
	for i := range want {
		off.Add(float64(got[i]), float64(want[i]))
	}
	require.LessOrEqual(t, off.Relative(), tolerance(), what)
}

func TestGoldens(t *testing.T) {
	cases, err := filepath.Glob("testdata/*/case.json")
	require.NoError(t, err)
	require.NotEmpty(t, cases)
	for _, path := range cases {
		dir := filepath.Dir(path)
		g := readGolden(t, dir)
		whole := func(t *testing.T, parts bool) {
			b := open(t, filepath.Join("../../../testdata", g.Model))
			expected, given := readTensors(t, filepath.Join(dir, "golden.safetensors")), readTensors(t, filepath.Join(dir, "data.safetensors"))
			for name, run := range g.Runs {
				t.Run(name, func(t *testing.T) {
					s, err := session.NewGroup(b).New(t.Context(), session.Options{Rank: g.Rank, Attention: g.Attention, MLP: g.MLP, Unembed: g.Unembed})
					require.NoError(t, err)
					defer s.Close()
					if parts {
						s.SetLogits(5)
					}
					require.NoError(t, s.Load(t.Context(), filepath.Join(dir, "init"), false))
					var data []session.Datum
					for i := range g.Data {
						data = append(data, given.datum(i, run.Arrays))
					}
					loss := session.Loss{Name: run.Loss, Config: run.Config}
					compare := func(out *session.Output) {
						for i, got := range out.Logprobs {
							want := read[float64](expected, fmt.Sprintf("%s.logprobs.%d", name, i))
							require.Len(t, got, len(want))
							for j := range want {
								require.InDelta(t, want[j], got[j], tolerance()*math.Max(1, math.Abs(want[j])))
							}
						}
						near(t, run.Sum, out.Metrics["loss:sum"])
					}
					out, err := s.ForwardBackward(t.Context(), data, loss, true)
					require.NoError(t, err)
					compare(out)
					out, err = s.ForwardBackward(t.Context(), data, loss, false)
					require.NoError(t, err)
					compare(out)
					grads, err := s.Gradients(t.Context())
					require.NoError(t, err)
					for key, got := range grads {
						closeTo(t, key, got, read[float32](expected, name+".gradient."+key))
					}
					for i, x := range run.Steps {
						if i > 0 {
							out, err := s.ForwardBackward(t.Context(), data, loss, false)
							require.NoError(t, err)
							near(t, x.Sum, out.Metrics["loss:sum"])
						}
						m, err := s.OptimStep(t.Context(), trainer.Adam{LearningRate: x.LearningRate, Beta1: x.Beta1, Beta2: x.Beta2, Eps: x.Eps, WeightDecay: x.WeightDecay, MaxGradNorm: x.GradClipNorm})
						require.NoError(t, err)
						near(t, x.GradNorm, m["grad_norm"])
						require.InDelta(t, i+1, m["step"], 0)
					}
					if len(run.Steps) == 0 {
						return
					}
					out, err = s.ForwardBackward(t.Context(), data, loss, true)
					require.NoError(t, err)
					near(t, run.FinalSum, out.Metrics["loss:sum"])
					a, err := s.Adapter(t.Context())
					require.NoError(t, err)
					require.Len(t, a.Names(), len(grads))
					for _, key := range a.Names() {
						got, err := a.Float32s(key)
						require.NoError(t, err)
						closeTo(t, key, got, read[float32](expected, name+".final."+key))
					}
				})
			}
		}
		t.Run(filepath.Base(dir), func(t *testing.T) { whole(t, false) })
		t.Run(filepath.Base(dir)+" in parts", func(t *testing.T) { whole(t, true) })
	}
}

// near compares sums over the data, whose terms are of the size of ones.
func near(t *testing.T, want, got float64) {
	t.Helper()
	require.InDelta(t, want, got, tolerance()*math.Max(10, math.Abs(want)))
}

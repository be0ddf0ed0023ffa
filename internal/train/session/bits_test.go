package session_test

import (
	"crypto/sha256"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/draws"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/host"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/train"
	"github.com/lorafuse/lorafuse/internal/train/session"
	_ "github.com/lorafuse/lorafuse/internal/train/task" // the tasks of runs
	"github.com/lorafuse/lorafuse/internal/train/trainer"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
	"github.com/lorafuse/lorafuse/train/config"
)

const qwen = "../../../testdata/lm/qwen3/model" // whose head is tied

// lesson is a run of data under one loss.
type lesson struct {
	loss session.Loss
	data []session.Datum
}

// drawDatum draws a datum for a loss, of a vocabulary of 512.
func drawDatum(t *rapid.T, loss string, most int) session.Datum {
	n := rapid.IntRange(1, most).Draw(t, "tokens")
	ids := func(n int) []int32 { return rapid.SliceOfN(rapid.Int32Range(0, 511), n, n).Draw(t, "ids") }
	floats := func(n int, low, high float32) []float32 {
		return rapid.SliceOfN(rapid.Float32Range(low, high), n, n).Draw(t, "floats")
	}
	d := session.Datum{Tokens: ids(n)}
	if loss == "cross_entropy" {
		d.K = rapid.IntRange(1, 3).Draw(t, "K")
		d.Targets = ids(n * d.K)
		if rapid.Bool().Draw(t, "weighted") {
			d.Weights = floats(n*d.K, -1, 1)
		}
		return d
	}
	d.Targets, d.Logprobs, d.Advantages = ids(n), floats(n, -7.5, -5), floats(n, -2, 2)
	return d
}

func drawLessons(t *rapid.T) []lesson {
	var all []lesson
	for range rapid.IntRange(1, 2).Draw(t, "lessons") {
		l := lesson{loss: session.Loss{Name: rapid.SampledFrom(session.Losses()).Draw(t, "loss")}}
		if l.loss.Name == "dro" {
			l.loss.Config = map[string]float64{"beta": 0.05}
		}
		for range rapid.IntRange(1, 3).Draw(t, "data") {
			l.data = append(l.data, drawDatum(t, l.loss.Name, 70))
		}
		all = append(all, l)
	}
	return all
}

// take takes two steps over lessons, each cut into calls by cut, which gives the number of
// data of the next one. between is called between any two calls.
func take(t require.TestingT, s *session.Session, lessons []lesson, cut func(left int) int, between func()) {
	for range 2 {
		for _, l := range lessons {
			for left := l.data; len(left) > 0; {
				n := cut(len(left))
				_, err := s.ForwardBackward(ctx, left[:n], l.loss, false)
				require.NoError(t, err)
				left = left[n:]
				between()
			}
		}
		a := session.DefaultAdam()
		a.LearningRate, a.MaxGradNorm, a.WeightDecay = 1e-3, 5, 0.01
		_, err := s.OptimStep(ctx, a)
		require.NoError(t, err)
		between()
	}
}

func digest(t require.TestingT, s *session.Session) lora.Digest {
	a, err := s.Adapter(ctx)
	require.NoError(t, err)
	d, err := a.Digest()
	require.NoError(t, err)
	return d
}

func whole(left int) int { return left }

// An adapter depends on its own data and their order alone: not on how these were divided
// into calls, on the threads, on what was computed before, nor on other sessions.
func TestBits(t *testing.T) {
	var bases [][2]*host.Host
	for _, dir := range []string{llama, qwen} {
		bases = append(bases, [2]*host.Host{openWith(t, dir, backend.Options{Threads: 1}), openWith(t, dir, backend.Options{Threads: 2})})
	}
	draws.Check(t, 10, func(t *rapid.T) {
		b := rapid.SampledFrom(bases).Draw(t, "model")
		one, two := b[0], b[1]
		lessons, others := drawLessons(t), drawLessons(t)
		o := session.Options{Rank: rapid.IntRange(1, 5).Draw(t, "rank"), Seed: 3, Attention: true, Unembed: rapid.Bool().Draw(t, "unembed")}
		alone, err := session.NewGroup(one).New(ctx, o)
		require.NoError(t, err)
		defer alone.Close()
		take(t, alone, lessons, whole, func() {})
		want := digest(t, alone)

		s, err := session.NewGroup(two).New(ctx, o)
		require.NoError(t, err)
		defer s.Close()
		other := o
		other.Seed = 4
		if rapid.Bool().Draw(t, "another shape") {
			other.Rank, other.MLP = 2, true
		}
		beside, err := session.NewGroup(two).New(ctx, other)
		require.NoError(t, err)
		defer beside.Close()
		take(t, s, lessons, func(left int) int { return rapid.IntRange(1, left).Draw(t, "cut") }, func() {
			l := rapid.SampledFrom(others).Draw(t, "beside")
			_, err := beside.ForwardBackward(ctx, l.data, l.loss, rapid.Bool().Draw(t, "forward only"))
			require.NoError(t, err)
			if rapid.Bool().Draw(t, "step") {
				_, err = beside.OptimStep(ctx, session.DefaultAdam())
				require.NoError(t, err)
			}
		})
		require.Equal(t, want, digest(t, s))
		require.NotEqual(t, want, digest(t, beside))
	})
}

// A session that is saved and loaded goes on as if it had not been.
func TestReload(t *testing.T) {
	b := open(t, qwen)
	dir := t.TempDir()
	draws.Check(t, 10, func(t *rapid.T) {
		first, then := drawLessons(t), drawLessons(t)
		o := all
		if rapid.Bool().Draw(t, "8 bits") {
			o.Rank, o.Optimizer = 64, trainer.AdamW8bit
		}
		s, err := session.NewGroup(b).New(ctx, o)
		require.NoError(t, err)
		defer s.Close()
		take(t, s, first, whole, func() {})
		saved := filepath.Join(dir, "saved")
		require.NoError(t, s.Save(ctx, saved, true))

		r, err := session.ReadRecord(saved)
		require.NoError(t, err)
		require.Equal(t, s.Options(), r.Options())
		require.Equal(t, 2, r.Step)
		again, err := session.NewGroup(b).New(ctx, r.Options())
		require.NoError(t, err)
		defer again.Close()
		_, err = again.ForwardBackward(ctx, then[0].data, then[0].loss, false) // which loading forgets
		require.NoError(t, err)
		require.NoError(t, again.Load(ctx, saved, true))
		require.Equal(t, 2, again.Step())
		require.Equal(t, digest(t, s), digest(t, again))
		onDisk, err := lora.Load(saved)
		require.NoError(t, err)
		d, err := onDisk.Digest()
		require.NoError(t, err)
		require.NoError(t, onDisk.Close())
		require.Equal(t, digest(t, s), d)

		fresh, err := session.NewGroup(b).New(ctx, o)
		require.NoError(t, err)
		defer fresh.Close()
		require.NoError(t, fresh.Load(ctx, saved, false))
		require.Zero(t, fresh.Step())
		for _, x := range []*session.Session{s, again, fresh} {
			take(t, x, then, whole, func() {})
		}
		require.Equal(t, digest(t, s), digest(t, again))
		require.NotEqual(t, digest(t, s), digest(t, fresh), "its moments began anew")
	})
}

// A registry takes the adapter of a session at any time, before the first step too, and
// knows it by its bytes.
func TestRegistry(t *testing.T) {
	m, err := model.Open(qwen)
	require.NoError(t, err)
	defer m.Close()
	s, err := session.NewGroup(open(t, qwen)).New(ctx, all)
	require.NoError(t, err)
	dir := filepath.Join(t.TempDir(), "step")
	require.NoError(t, s.Save(ctx, dir, false))
	r, err := lora.NewRegistry(m, m.Config.ModelType, m.Modules(), lora.RegistryOptions{})
	require.NoError(t, err)
	_, err = r.Load(ctx, "run/sampler_weights/0", dir)
	require.ErrorIs(t, err, lora.ErrZeroB)
	v, err := r.LoadStep(ctx, "run/sampler_weights/0", dir)
	require.NoError(t, err)
	require.Equal(t, digest(t, s), v.Digest())
}

// A loop over a session makes the adapter that lorafuse train makes of the same rows: its
// loss is the mean over the labels of a step, here 16, so that weights of 1/16 are the
// same, bit for bit.
func TestTrain(t *testing.T) {
	t.Run("adamw", func(t *testing.T) { sameAsTrain(t, 4, trainer.AdamW) })
	t.Run("adamw_8bit", func(t *testing.T) { sameAsTrain(t, 64, trainer.AdamW8bit) })
}

func sameAsTrain(t *testing.T, rank int, optimizer trainer.Optimizer) {
	const rows, length, accumulated, steps = 8, 9, 2, 6
	dir := t.TempDir()
	ids := make([]int32, rows*length)
	for i := range ids {
		ids[i] = int32(i*i*31+i*7) % 512
	}
	file := filepath.Join(dir, "rows.safetensors")
	require.NoError(t, safetensors.WriteFile(file, []safetensors.Entry{{Name: "input_ids", DType: safetensors.I32, Shape: []int{rows, length}, Data: tensor.BytesOf(ids)}}, nil))
	c := config.Default()
	c.Model, c.OutputDir, c.Data.Train, c.Data.Shuffle = llama, filepath.Join(dir, "output"), config.Strings{file}, false
	c.Adapter.R, c.Adapter.LoraAlpha, c.Optimizer = rank, 32, string(optimizer)
	c.Adapter.TargetModules.List = []string{"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
	c.BatchSize, c.GradientAccumulationSteps, c.Steps, c.Schedule, c.LearningRate = 1, accumulated, steps, "constant", 1e-2
	c.Betas, c.Eps, c.WeightDecay, c.MaxGradNorm, c.Seed = [2]float64{0.9, 0.95}, 1e-12, 0.01, 0, 9
	c.Backend = backend.CPU
	r, err := train.New(ctx, c, train.Observer{})
	require.NoError(t, err)
	defer r.Close()
	summary, err := r.Train(ctx)
	require.NoError(t, err)

	s, err := session.NewGroup(open(t, llama)).New(ctx, session.Options{Rank: rank, Seed: 9, Attention: true, MLP: true, Name: llama, Optimizer: optimizer})
	require.NoError(t, err)
	row, last := 0, 0.0
	for range steps {
		last = 0
		for range accumulated {
			own := ids[row*length : (row+1)*length]
			row = (row + 1) % rows
			weights := slices.Repeat([]float32{1.0 / (accumulated * (length - 1))}, length)
			weights[length-1] = 0
			out, err := s.ForwardBackward(ctx, []session.Datum{{Tokens: own, Targets: append(slices.Clone(own[1:]), 0), Weights: weights}}, session.Loss{Name: "cross_entropy"}, false)
			require.NoError(t, err)
			last += out.Metrics["loss:sum"]
		}
		_, err := s.OptimStep(ctx, trainer.Adam{LearningRate: 1e-2, Beta1: 0.9, Beta2: 0.95, Eps: 1e-12, WeightDecay: 0.01})
		require.NoError(t, err)
	}
	require.InDelta(t, summary.LastLoss, last, 1e-6*math.Abs(last))
	saved := filepath.Join(dir, "saved")
	require.NoError(t, s.Save(ctx, saved, false))
	files := []string{lora.WeightsFile, lora.ConfigFile}
	if !testdevice.Assembly() {
		files = files[1:] // the loss of a session rounds otherwise than that of a run there
	}
	for _, name := range files {
		require.Equal(t, sum(t, filepath.Join(summary.Adapter, name)), sum(t, filepath.Join(saved, name)), name)
	}
}

func sum(t *testing.T, path string) string {
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	return fmt.Sprintf("%x", sha256.Sum256(raw))
}

package session_test

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/host"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/train/session"
	"github.com/lorafuse/lorafuse/internal/train/trainer"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tensor"
)

func policy() session.Datum {
	return session.Datum{Tokens: []int32{1, 2}, Targets: []int32{2, 3}, Logprobs: []float32{-6, -6}, Advantages: []float32{1, -1}}
}

// What is wrong is the caller's fault, is named, and changes nothing.
func TestRefusals(t *testing.T) {
	s, err := session.NewGroup(open(t, llama)).New(ctx, session.Options{Rank: 2, Attention: true, MaxTokens: 100})
	require.NoError(t, err)
	text := session.Datum{Tokens: []int32{1, 2}, Targets: []int32{2, 3}}
	ce, is, ppo := session.Loss{Name: "cross_entropy"}, session.Loss{Name: "importance_sampling"}, session.Loss{Name: "ppo"}
	with := func(d session.Datum, change func(*session.Datum)) []session.Datum {
		change(&d)
		return []session.Datum{text, d}
	}
	config := func(name string, pairs ...any) session.Loss {
		l := session.Loss{Name: name, Config: map[string]float64{}}
		for i := 0; i < len(pairs); i += 2 {
			l.Config[pairs[i].(string)] = pairs[i+1].(float64)
		}
		return l
	}
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, x := range []struct {
		name string
		loss session.Loss
		data []session.Datum
		want string
	}{
		{"no data", ce, nil, "session: data: invalid input: found none"},
		{"no tokens", ce, with(text, func(d *session.Datum) { d.Tokens = nil }), "session: datum 1: tokens: invalid input: found none"},
		{"too long", ce, with(text, func(d *session.Datum) {
			d.Tokens, d.Targets = make([]int32, 101), make([]int32, 101)
		}), "found 101, expected at most 100"},
		{"targets", ce, with(text, func(d *session.Datum) { d.Targets = d.Targets[:1] }), "target_tokens: invalid input: found 1, expected 2"},
		{"rows of targets", ce, with(text, func(d *session.Datum) { d.K = 3 }), "found 2, expected 6"},
		{"K", ce, with(text, func(d *session.Datum) { d.K = -1 }), "K: invalid input: found -1"},
		{"several", is, []session.Datum{{Tokens: []int32{1}, Targets: []int32{1, 2}, K: 2}}, "importance_sampling takes one"},
		{"token", ce, with(text, func(d *session.Datum) { d.Tokens = []int32{1, 512} }), "tokens: invalid input: found 512 at 1, expected 0 to 511"},
		{"target", ce, with(text, func(d *session.Datum) { d.Targets = []int32{-100, 1} }), "target_tokens: invalid input: found -100 at 0"},
		{"weights", ce, with(text, func(d *session.Datum) { d.Weights = []float32{1} }), "weights: invalid input: found 1, expected 2"},
		{"NaN", ce, with(text, func(d *session.Datum) { d.Weights = []float32{1, nan} }), "weights: invalid input: found NaN at 1"},
		{"infinite", is, []session.Datum{{Tokens: []int32{1}, Targets: []int32{1}, Logprobs: []float32{-inf}, Advantages: []float32{1}}}, "logprobs: invalid input: found -Inf at 0"},
		{"no logprobs", is, []session.Datum{text}, "logprobs: invalid input: found none, and importance_sampling reads them"},
		{"not read", ce, []session.Datum{policy()}, "logprobs: invalid input: cross_entropy does not read them"},
		{"weights of a policy", ppo, []session.Datum{func() session.Datum { d := policy(); d.Weights = []float32{1, 1}; return d }()}, "weights: invalid input: ppo does not read them"},
		{"clip of none", is, []session.Datum{func() session.Datum { d := policy(); d.ClipLow = []float32{1, 1}; return d }()}, "clip_low_threshold: invalid input"},
		{"clip", ppo, []session.Datum{func() session.Datum {
			d := policy()
			d.ClipLow, d.ClipHigh = []float32{0, 2}, []float32{1, 1}
			return d
		}()}, "found 2 at 1, expected 0 to 1"},
		{"clip of one", ppo, []session.Datum{func() session.Datum {
			d := policy()
			d.ClipLow = []float32{0, 1.5}
			return d
		}()}, "found 1.5 at 1, expected 0 to 1.2"},
		{"loss", session.Loss{Name: "cross_entrpy"}, []session.Datum{text}, `found "cross_entrpy", expected cross_entropy, importance_sampling, ppo, cispo or dro, did you mean "cross_entropy"?`},
		{"loss of others", session.Loss{Name: "gspo"}, []session.Datum{text}, `found "gspo", expected cross_entropy`},
		{"key", config("ppo", "clip_low_treshold", 0.5), []session.Datum{policy()}, `did you mean "clip_low_threshold"?`},
		{"key of none", config("cross_entropy", "beta", 0.5), []session.Datum{text}, `cross_entropy has no settings, found "beta"`},
		{"value", config("ppo", "clip_low_threshold", math.NaN()), []session.Datum{policy()}, "clip_low_threshold is NaN"},
		{"order", config("ppo", "clip_low_threshold", 2.0), []session.Datum{policy()}, "clip_low_threshold is 2, expected at most 1.2"},
		{"beta", config("dro"), []session.Datum{policy()}, `dro needs "beta"`},
	} {
		t.Run(x.name, func(t *testing.T) {
			for _, forward := range []bool{true, false} {
				_, err := s.ForwardBackward(ctx, x.data, x.loss, forward)
				require.ErrorIs(t, err, session.ErrInput)
				require.ErrorContains(t, err, x.want)
				require.NotContains(t, err.Error(), "\n")
			}
		})
	}
	before := digest(t, s)
	m, err := s.OptimStep(ctx, session.DefaultAdam())
	require.NoError(t, err, "there is nothing to step by")
	require.Equal(t, map[string]float64{"grad_norm": 0, "step": 0}, m)
	for _, change := range []func(*trainer.Adam){
		func(a *trainer.Adam) { a.LearningRate = math.NaN() }, func(a *trainer.Adam) { a.LearningRate = -1 },
		func(a *trainer.Adam) { a.Beta1 = 1 }, func(a *trainer.Adam) { a.Beta2 = -0.1 }, func(a *trainer.Adam) { a.Eps = 0 },
		func(a *trainer.Adam) { a.WeightDecay = math.Inf(1) }, func(a *trainer.Adam) { a.MaxGradNorm = -1 },
	} {
		a := session.DefaultAdam()
		change(&a)
		_, err := s.OptimStep(ctx, a)
		require.ErrorIs(t, err, session.ErrInput)
	}
	require.Equal(t, before, digest(t, s))
}

func TestOptions(t *testing.T) {
	b := open(t, llama)
	for want, o := range map[string]session.Options{
		"rank":             {Attention: true},
		"alpha":            {Rank: 1, Alpha: -1, Attention: true},
		"nothing is train": {Rank: 1},
		"max tokens":       {Rank: 1, MLP: true, MaxTokens: 129},
		"memory":           {Rank: 1, MLP: true, Memory: -1},
	} {
		_, err := session.NewGroup(b).New(ctx, o)
		require.ErrorIs(t, err, session.ErrInput)
		require.ErrorContains(t, err, want)
	}
	s, err := session.NewGroup(b).New(ctx, session.Options{Rank: 3, Unembed: true})
	require.NoError(t, err)
	a, err := s.Adapter(ctx)
	require.NoError(t, err)
	require.Equal(t, []string{"base_model.model.lm_head.lora_A.weight", "base_model.model.lm_head.lora_B.weight"}, a.Names())
	require.InDelta(t, 32, a.Config.LoraAlpha, 0)

	m, err := model.Open("../../../testdata/encoders/bert")
	require.NoError(t, err)
	defer m.Close()
	r := host.Open(testdevice.Open(t, backend.Options{}), m)
	defer r.Close()
	_, err = session.NewGroup(r).New(ctx, all)
	require.ErrorIs(t, err, model.ErrTask)
}

// A step that is not finite changes nothing but the gradients, and the next one is taken.
func TestNotFinite(t *testing.T) {
	s, err := session.NewGroup(open(t, llama)).New(ctx, all)
	require.NoError(t, err)
	text := []session.Datum{{Tokens: []int32{1, 2}, Targets: []int32{2, 3}}}
	train := func(data []session.Datum, loss string) error {
		_, err := s.ForwardBackward(ctx, data, session.Loss{Name: loss}, false)
		require.NoError(t, err)
		_, err = s.OptimStep(ctx, session.DefaultAdam())
		return err
	}
	require.NoError(t, train(text, "cross_entropy"))
	dir := filepath.Join(t.TempDir(), "saved")
	require.NoError(t, s.Save(ctx, dir, true))
	before := digest(t, s)
	for _, q := range []float32{-1000, -90} { // gradients that are infinite, and squares that are
		for _, clip := range []float64{0, 1} {
			far := policy()
			far.Logprobs = []float32{q, -6}
			_, err := s.ForwardBackward(ctx, []session.Datum{far}, session.Loss{Name: "importance_sampling"}, false)
			require.NoError(t, err)
			a := session.DefaultAdam()
			a.MaxGradNorm, a.WeightDecay = clip, 0.1
			_, err = s.OptimStep(ctx, a)
			require.ErrorIs(t, err, trainer.ErrNotFinite)
			require.ErrorContains(t, err, "step 2")
			require.Equal(t, before, digest(t, s))
			require.Equal(t, 1, s.Step())
		}
	}
	require.NoError(t, train(text, "cross_entropy"))
	after := digest(t, s)
	require.NoError(t, s.Load(ctx, dir, true))
	require.NoError(t, train(text, "cross_entropy"))
	require.Equal(t, after, digest(t, s), "the step in between has left its marks")
}

// late is a context that ends when it has been asked so often.
type late struct {
	context.Context
	left int
}

func (l *late) Err() error {
	if l.left--; l.left < 0 {
		return context.Canceled
	}
	return nil
}

// A call that fails on its way takes the gradients with it, which the next step says.
func TestDropped(t *testing.T) {
	b := open(t, llama)
	s, err := session.NewGroup(b).New(ctx, all)
	require.NoError(t, err)
	text, loss := []session.Datum{{Tokens: []int32{1, 2}, Targets: []int32{2, 3}}}, session.Loss{Name: "cross_entropy"}
	_, err = s.ForwardBackward(ctx, text, loss, false)
	require.NoError(t, err)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	for _, forward := range []bool{true, false} { // neither has begun
		_, err = s.ForwardBackward(ended, text, loss, forward)
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, session.ErrInput)
	}
	_, err = s.OptimStep(ctx, session.DefaultAdam())
	require.NoError(t, err)
	before := digest(t, s)

	_, err = s.ForwardBackward(&late{ctx, 3}, slices.Repeat(text, 5), loss, false)
	require.ErrorIs(t, err, context.Canceled)
	_, err = s.ForwardBackward(ctx, text, loss, false)
	require.NoError(t, err)
	_, err = s.OptimStep(ctx, session.DefaultAdam())
	require.ErrorIs(t, err, session.ErrDropped)
	require.Equal(t, before, digest(t, s))
	fresh, err := session.NewGroup(b).New(ctx, all)
	require.NoError(t, err)
	_, err = fresh.ForwardBackward(ctx, text, loss, false)
	require.NoError(t, err)
	_, err = fresh.OptimStep(ctx, session.DefaultAdam())
	require.NoError(t, err)
	for _, x := range []*session.Session{s, fresh} {
		take(t, x, []lesson{{loss, text}}, whole, func() {})
	}
	require.Equal(t, digest(t, fresh), digest(t, s), "the gradients are still there")
}

// Folders that cannot be loaded are named, and leave the session as it is.
func TestUnusable(t *testing.T) {
	b := open(t, llama)
	s, err := session.NewGroup(b).New(ctx, all)
	require.NoError(t, err)
	before := digest(t, s)
	o := all
	o.Seed++
	other, err := session.NewGroup(b).New(ctx, o)
	require.NoError(t, err)
	save := func(t *testing.T, s *session.Session, optimizer bool) string {
		dir := filepath.Join(t.TempDir(), "saved")
		require.NoError(t, s.Save(ctx, dir, optimizer))
		return dir
	}
	for name, x := range map[string]struct {
		make func(t *testing.T) string
		want string
	}{
		"nothing": {func(t *testing.T) string { return t.TempDir() }, "session.json"},
		"without": {func(t *testing.T) string { return save(t, other, false) }, "without the state of the optimizer"},
		"other rank": {func(t *testing.T) string {
			return saved(t, b, session.Options{Rank: 3, Attention: true, MLP: true, Unembed: true})
		}, "has rank 3"},
		"other alpha": {func(t *testing.T) string {
			return saved(t, b, session.Options{Rank: 4, Alpha: 8, Attention: true, MLP: true, Unembed: true})
		}, "scale 2, expected 4 and 8"},
		"less": {func(t *testing.T) string { return saved(t, b, session.Options{Rank: 4, MLP: true, Unembed: true}) }, "has no part in"},
		"damaged": {func(t *testing.T) string {
			dir := save(t, other, true)
			path := filepath.Join(dir, "optimizer.safetensors")
			raw, err := os.ReadFile(path)
			require.NoError(t, err)
			raw[len(raw)-1] ^= 1
			require.NoError(t, os.WriteFile(path, raw, 0o666))
			return dir
		}, "damaged: the checksum of optimizer.safetensors was"},
		"a weight": {func(t *testing.T) string {
			dir := saved(t, b, all)
			a, err := lora.Load(dir)
			require.NoError(t, err)
			var tensors []lora.Tensor
			for _, key := range a.Names() {
				x, _ := a.Tensor(key)
				tensors = append(tensors, lora.Tensor{Key: key, Tensor: x})
			}
			weight, err := tensor.New(tensor.F32, 512, 64)
			require.NoError(t, err)
			other := filepath.Join(t.TempDir(), "adapter")
			require.NoError(t, lora.Save(other, a.Config, append(tensors, lora.Tensor{Key: "base_model.model.lm_head.base_layer.weight", Tensor: weight})))
			return other
		}, "it brings \"base_model.model.lm_head.base_layer.weight\""},
		"cut short": {func(t *testing.T) string {
			dir := save(t, other, true)
			require.NoError(t, os.Truncate(filepath.Join(dir, "adapter_model.safetensors"), 1000))
			return dir
		}, "adapter_model.safetensors"},
		"no record": {func(t *testing.T) string {
			dir := save(t, other, true)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "session.json"), []byte("{"), 0o666))
			return dir
		}, "session.json"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := x.make(t)
			err := s.Load(ctx, dir, name != "a weight")
			require.ErrorIs(t, err, trainer.ErrCheckpoint)
			require.ErrorContains(t, err, x.want)
			require.ErrorContains(t, err, dir)
			require.Equal(t, before, digest(t, s))
		})
	}
}

func saved(t *testing.T, b *host.Host, o session.Options) string {
	s, err := session.NewGroup(b).New(ctx, o)
	require.NoError(t, err)
	defer s.Close()
	dir := filepath.Join(t.TempDir(), "saved")
	require.NoError(t, s.Save(ctx, dir, true))
	return dir
}

// A folder is whole or not there, and one that cannot be written leaves the one before.
func TestSaveIsWhole(t *testing.T) {
	s, err := session.NewGroup(open(t, llama)).New(ctx, all)
	require.NoError(t, err)
	parent := t.TempDir()
	dir := filepath.Join(parent, "saved")
	require.Error(t, s.Save(ctx, filepath.Join(parent, "missing", "saved"), true))
	require.NoError(t, s.Save(ctx, dir, true))
	require.NoError(t, s.Save(ctx, dir, false))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	require.Equal(t, "adapter_config.json adapter_model.safetensors session.json", strings.Join(names, " "))
	entries, err = os.ReadDir(parent)
	require.NoError(t, err)
	require.Len(t, entries, 1)
}

// What a call allocates beside its outputs does not grow with its data.
func TestAllocs(t *testing.T) {
	s, err := session.NewGroup(open(t, llama)).New(ctx, session.Options{Rank: 2, Attention: true})
	require.NoError(t, err)
	d := session.Datum{Tokens: make([]int32, 8), Targets: make([]int32, 8)}
	measure := func(n int) float64 {
		data := slices.Repeat([]session.Datum{d}, n)
		return testing.AllocsPerRun(3, func() {
			_, err := s.ForwardBackward(ctx, data, session.Loss{Name: "cross_entropy"}, false)
			require.NoError(t, err)
		})
	}
	few, many := measure(4), measure(256)
	require.LessOrEqual(t, many-few, 16.0)
}

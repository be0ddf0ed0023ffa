package lora_test

import (
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tensor"
)

func target(init lora.InitMethod, kind lora.Kind, in, out, rank int) lora.Target {
	return lora.Target{Module: lora.Module{Name: "model.layers.3.self_attn.q_proj", Kind: kind, In: in, Out: out}, Rank: rank, Alpha: 3, Scale: 3 / float64(rank), Init: init}
}

func initialize(t testing.TB, target lora.Target, seed uint64, base []float32) lora.Weights {
	t.Helper()
	w, err := target.Initialize(seed, base)
	require.NoError(t, err)
	require.Len(t, w[lora.RoleA], target.Rank*target.In)
	require.Len(t, w[lora.RoleB], target.Out*target.Rank)
	return w
}

// moments are mean, standard deviation and largest magnitude.
func moments(values []float32) (mean, deviation, largest float64) {
	for _, v := range values {
		mean += float64(v) / float64(len(values))
		largest = max(largest, math.Abs(float64(v)))
	}
	for _, v := range values {
		deviation += (float64(v) - mean) * (float64(v) - mean) / float64(len(values))
	}
	return mean, math.Sqrt(deviation), largest
}

func TestInitDistributions(t *testing.T) {
	uniform := func(t *testing.T, values []float32, bound float64) {
		mean, deviation, largest := moments(values)
		assert.InDelta(t, 0, mean/bound, 0.02)
		assert.InDelta(t, bound/math.Sqrt(3), deviation, bound*0.02)
		assert.Less(t, largest, bound)
		assert.Greater(t, largest, bound*0.99)
	}
	normal := func(t *testing.T, values []float32, sigma float64) {
		mean, deviation, largest := moments(values)
		assert.InDelta(t, 0, mean/sigma, 0.03)
		assert.InDelta(t, sigma, deviation, sigma*0.03)
		assert.Greater(t, largest, 3*sigma)
	}
	zero := func(t *testing.T, values []float32) {
		assert.NotEmpty(t, values)
		assert.False(t, slices.ContainsFunc(values, func(v float32) bool { return v != 0 }))
	}
	for _, kind := range []lora.Kind{lora.Linear, lora.Conv1D} {
		w := initialize(t, target(lora.InitDefault, kind, 1000, 50, 8), 1, nil)
		uniform(t, w[lora.RoleA], 1/math.Sqrt(1000))
		zero(t, w[lora.RoleB])
		w = initialize(t, target("", kind, 1000, 50, 8), 1, nil)
		uniform(t, w[lora.RoleA], 1/math.Sqrt(1000))
		w = initialize(t, target("Gaussian", kind, 1000, 50, 8), 1, nil)
		normal(t, w[lora.RoleA], 1./8)
		zero(t, w[lora.RoleB])
		random := target(lora.InitRandom, kind, 1000, 2000, 4)
		random.LoraBias = true
		w = initialize(t, random, 1, nil)
		uniform(t, w[lora.RoleA], 1/math.Sqrt(1000))
		uniform(t, w[lora.RoleB], 0.5)
		_, _, largest := moments(w[lora.RoleBBias])
		assert.InDelta(t, 0.5, largest, 0.01)
	}
	biased := target(lora.InitDefault, lora.Linear, 10, 50, 8)
	biased.LoraBias = true
	zero(t, initialize(t, biased, 1, nil)[lora.RoleBBias])
	for _, method := range []lora.InitMethod{lora.InitDefault, lora.InitGaussian, lora.InitPiSSA, lora.InitOLoRA} {
		w := initialize(t, target(method, lora.Embedding, 30, 1000, 8), 1, nil)
		zero(t, w[lora.RoleA])
		normal(t, w[lora.RoleB], 1)
	}
	w := initialize(t, target(lora.InitRandom, lora.Embedding, 1000, 1000, 8), 1, nil)
	normal(t, w[lora.RoleA], 1)
	normal(t, w[lora.RoleB], 1)
}

// The draws of a module depend on its name and the seed and nothing else, and
// never change: a run must be repeatable by a later version.
func TestInitIsAFunctionOfNameAndSeed(t *testing.T) {
	a := target(lora.InitDefault, lora.Linear, 6, 5, 2)
	w := initialize(t, a, 42, nil)
	assert.Equal(t, w, initialize(t, a, 42, nil))
	assert.NotEqual(t, w[lora.RoleA], initialize(t, a, 43, nil)[lora.RoleA])
	b := a
	b.Name = "model.layers.4.self_attn.q_proj"
	assert.NotEqual(t, w[lora.RoleA], initialize(t, b, 42, nil)[lora.RoleA])
	r := target(lora.InitRandom, lora.Linear, 6, 6, 6)
	r.Rank = 6
	both := initialize(t, r, 42, nil)
	assert.NotEqual(t, both[lora.RoleA], both[lora.RoleB])
	assert.Equal(t, []float32{-0.16209927, -0.044639748, 0.33353677}, w[lora.RoleA][:3])
}

func TestInitErrors(t *testing.T) {
	for _, method := range []lora.InitMethod{"eva", "orthogonal", "mica", "corda"} {
		_, err := target(method, lora.Linear, 4, 4, 2).Initialize(1, nil)
		require.ErrorIs(t, err, lora.ErrUnsupported, method)
		assert.ErrorContains(t, err, string(method))
	}
	_, err := target("nonsense", lora.Linear, 4, 4, 2).Initialize(1, nil)
	require.ErrorIs(t, err, lora.ErrConfig)
	_, err = target(lora.InitPiSSA, lora.Linear, 4, 4, 2).Initialize(1, make([]float32, 15))
	require.ErrorIs(t, err, lora.ErrShape)
	_, err = target(lora.InitPiSSA, lora.Linear, 4, 3, 4).Initialize(1, make([]float32, 12))
	require.ErrorIs(t, err, lora.ErrShape)
	_, err = target(lora.InitOLoRA, lora.Conv1D, 4, 4, 2).Initialize(1, make([]float32, 16))
	require.ErrorIs(t, err, lora.ErrUnsupported)
	bad := target(lora.InitPiSSA, lora.Linear, 4, 4, 2)
	nan := make([]float32, 16)
	nan[7] = float32(math.NaN())
	_, err = bad.Initialize(1, nan)
	assert.ErrorContains(t, err, "row 1, column 3: the matrix is not finite")
	bad.Scale = -1
	_, err = bad.Initialize(1, make([]float32, 16))
	require.ErrorIs(t, err, lora.ErrConfig)
}

// A and B of PiSSA and OLoRA are PEFT's, up to the sign that singular vectors
// leave open, and with the residual the module computes what it did.
func TestInitFactorsAsPEFT(t *testing.T) {
	for _, name := range []string{"init-pissa", "init-pissa-rslora", "init-pissa-patterns", "init-pissa-dora", "init-pissa-wide", "init-olora"} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join("../testdata/peft", name)
			var c struct{ Base string }
			readJSON(t, filepath.Join(dir, "case.json"), &c)
			a := load(t, filepath.Join(dir, "adapter"))
			p, err := lora.NewPlacement(a.Config, readModel(t, filepath.Join(dir, c.Base)))
			require.NoError(t, err)
			base := openFile(t, filepath.Join(dir, c.Base, "model.safetensors"))
			for _, target := range p.Targets {
				require.True(t, target.MutatesBase())
				weight := floats(t, base, target.Name+".weight")
				got := initialize(t, target, 7, weight)
				want, err := a.Weights(target)
				require.NoError(t, err)
				for k := range target.Rank {
					sign := float32(1)
					if dot(got[lora.RoleA][k*target.In:(k+1)*target.In], want[lora.RoleA][k*target.In:]) < 0 {
						sign = -1
					}
					for i := range target.In {
						assert.InDelta(t, want[lora.RoleA][k*target.In+i], sign*got[lora.RoleA][k*target.In+i], 2e-4)
					}
					for o := range target.Out {
						assert.InDelta(t, want[lora.RoleB][o*target.Rank+k], sign*got[lora.RoleB][o*target.Rank+k], 2e-4)
					}
				}
				for i := range got[lora.RoleMagnitude] {
					assert.InDelta(t, want[lora.RoleMagnitude][i], got[lora.RoleMagnitude][i], 1e-5)
				}
				residual := slices.Clone(weight)
				require.NoError(t, target.Residual(residual, got, tensor.F32))
				if target.Rank < min(target.In, target.Out) {
					assert.Greater(t, relative(weight, residual), 0.01)
				}
				require.NoError(t, target.MergeInto(residual, got))
				assert.Less(t, relative(weight, residual), 1e-6)
			}
		})
	}
}

func dot(a, b []float32) (sum float64) {
	for i, v := range a {
		sum += float64(v) * float64(b[i])
	}
	return sum
}

func TestRandomizedPiSSA(t *testing.T) {
	exact, random := target(lora.InitPiSSA, lora.Linear, 30, 40, 3), target("pissa_niter_20", lora.Linear, 30, 40, 3)
	weight := initialize(t, target(lora.InitRandom, lora.Linear, 30, 40, 40), 5, nil)[lora.RoleB][:1200]
	want, got := initialize(t, exact, 1, weight), initialize(t, random, 1, weight)
	x, y := slices.Clone(weight), slices.Clone(weight)
	require.NoError(t, exact.Residual(x, want, tensor.F32))
	require.NoError(t, random.Residual(y, got, tensor.F32))
	assert.Less(t, relative(x, y), 2e-3)
	assert.Equal(t, got, initialize(t, random, 1, weight))
	assert.NotEqual(t, got, initialize(t, random, 2, weight))
}

func TestResidualInBF16(t *testing.T) {
	tg := target(lora.InitOLoRA, lora.Linear, 5, 4, 2)
	weight := initialize(t, target(lora.InitRandom, lora.Linear, 5, 4, 5), 5, nil)[lora.RoleB]
	w := initialize(t, tg, 1, weight)
	residual := slices.Clone(weight)
	require.NoError(t, tg.Residual(residual, w, tensor.BF16))
	for _, v := range residual {
		assert.Equal(t, tensor.BF16ToFloat32(tensor.Float32ToBF16(v)), v)
	}
	require.ErrorIs(t, tg.Residual(residual, w, tensor.I32), lora.ErrDType)
}

// DoRA begins with the norms of the base, whatever A and B are.
func TestMagnitude(t *testing.T) {
	for _, kind := range []lora.Kind{lora.Linear, lora.Conv1D, lora.Embedding} {
		for _, method := range []lora.InitMethod{lora.InitDefault, lora.InitRandom} {
			without := target(method, kind, 5, 4, 2)
			tg := lora.WithMethod(without, "DoRA")
			weight := initialize(t, target(lora.InitRandom, lora.Linear, 5, 4, 5), 5, nil)[lora.RoleB]
			w := initialize(t, tg, 1, weight)
			want := slices.Clone(weight)
			require.NoError(t, without.MergeInto(want, w))
			got := slices.Clone(weight)
			require.NoError(t, tg.MergeInto(got, w))
			assert.Less(t, relative(want, got), 1e-6)
		}
	}
}

func TestPlainConfig(t *testing.T) {
	c, err := parse(t, `"r":4,"lora_alpha":3,"use_rslora":true,"init_lora_weights":"pissa"`).Plain()
	require.NoError(t, err)
	assert.Equal(t, 8, c.R)
	assert.InDelta(t, 3*math.Sqrt2, c.LoraAlpha, 1e-15)
	assert.Equal(t, lora.InitDefault, c.InitLoraWeights)
	_, err = parse(t, `"use_rslora":true,"rank_pattern":{"q":3},"init_lora_weights":"pissa"`).Plain()
	require.ErrorIs(t, err, lora.ErrUnsupported)
	wide, err := lora.NewPlacement(parse(t, `"target_modules":["k_proj"],"r":9,"init_lora_weights":"pissa"`), decoder(false))
	require.NoError(t, err)
	assert.Equal(t, 4, wide.Targets[0].Rank)
	assert.Equal(t, 8./9, wide.Targets[0].Scale)
	w := wide.Targets[0].NewWeights()
	_, err = wide.Targets[0].Plain(w, w)
	require.ErrorIs(t, err, lora.ErrUnsupported)
}

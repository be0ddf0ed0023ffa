package lora_test

import (
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tensor"
)

// peftModel reads testdata/peft/NAME/modules.json.
func peftModel(t testing.TB, dir string) lora.Model {
	var file struct {
		Type    string
		Modules []struct {
			Name, Kind                string
			Shape                     []int
			Bias, Input, Output, Tied bool
		}
	}
	readJSON(t, filepath.Join(dir, "modules.json"), &file)
	m := lora.Model{Type: file.Type}
	embedding := ""
	for _, row := range file.Modules {
		module := lora.Module{Name: row.Name, Bias: row.Bias, InputEmbedding: row.Input, OutputEmbedding: row.Output}
		switch row.Kind {
		case "linear":
			module.Kind, module.Out, module.In = lora.Linear, row.Shape[0], row.Shape[1]
		case "embedding", "conv1d":
			module.Kind, module.In, module.Out = lora.Embedding, row.Shape[0], row.Shape[1]
			if row.Kind == "conv1d" {
				module.Kind = lora.Conv1D
			}
		case "norm":
			module.Kind, module.In, module.Out = lora.Norm, row.Shape[0], row.Shape[0]
		}
		if row.Input {
			embedding = row.Name
		}
		if row.Tied {
			module.TiedTo = embedding
		}
		m.Modules = append(m.Modules, module)
	}
	return m
}

// relative is the largest difference over the largest value.
func relative(want, got []float32) float64 {
	diff, largest := 0.0, 0.0
	for i, w := range want {
		diff = max(diff, math.Abs(float64(w)-float64(got[i])))
		largest = max(largest, math.Abs(float64(w)))
	}
	return diff / largest
}

// Merging gives the weights that PEFT's merge_and_unload gives, and targets
// what PEFT targets.
func TestMergeAsPEFT(t *testing.T) {
	dirs, err := filepath.Glob("testdata/peft/*/*/merged.safetensors")
	require.NoError(t, err)
	require.Len(t, dirs, 23)
	for _, path := range dirs {
		dir := filepath.Dir(path)
		t.Run(filepath.ToSlash(dir), func(t *testing.T) {
			model := peftModel(t, filepath.Dir(dir))
			base := openFile(t, filepath.Join(filepath.Dir(dir), "model.safetensors"))
			merged := openFile(t, path)
			a := load(t, dir)
			p, err := lora.NewPlacement(a.Config, model)
			require.NoError(t, err)
			require.NoError(t, a.Check(p, lora.CheckOptions{}).Err())

			var expected struct {
				Targets []struct {
					Name         string
					R            int
					Alpha, Scale float64
				}
			}
			readJSON(t, filepath.Join(dir, "expected.json"), &expected)
			require.Len(t, p.Targets, len(expected.Targets))
			for _, want := range expected.Targets {
				target, ok := p.Target(want.Name)
				require.True(t, ok, want.Name)
				assert.Equal(t, want.R, target.Rank)
				assert.Equal(t, want.Alpha, target.Alpha)
				assert.InDelta(t, want.Scale, target.Scale, 1e-15)
			}

			m, err := lora.NewMerger(a, p)
			require.NoError(t, err)
			tolerance := 5e-7
			if p.Targets[0].MutatesBase() {
				tolerance = 2e-6 // of PEFT's SVD in float32
			}
			untied := map[string]string{}
			for _, u := range m.Untied() {
				untied[u.Name] = u.From
			}
			names := base.Names()
			for name := range untied {
				names = append(names, name)
			}
			for _, name := range names {
				from := name
				if untied[name] != "" {
					from = untied[name]
				}
				got := floats(t, base, from)
				changed, err := m.Merge(name, got, tensor.F32)
				require.NoError(t, err)
				assert.Equal(t, m.Changes(name), changed)
				want := floats(t, base, from)
				switch whole := filepath.ToSlash(dir); {
				case whole == "testdata/peft/tied/head" && name == "model.embed_tokens.weight":
					// PEFT merges in place and changes the embedding as well,
					// other than before the merge. It must stay.
				case whole == "testdata/peft/tied/head_ensured" && name == "model.embed_tokens.weight":
					// PEFT adds to the one weight for each of its two users.
					for i, v := range floats(t, merged, name) {
						want[i] += (v - want[i]) / 2
					}
				case merged.Has(name):
					want = floats(t, merged, name)
				}
				require.Len(t, got, len(want))
				assert.Less(t, relative(want, got), tolerance, name)
			}
			left := slices.DeleteFunc(m.Remaining(), func(name string) bool { return name == "lm_head.weight" && !base.Has(name) })
			assert.Empty(t, left)
		})
	}
}

func TestUntied(t *testing.T) {
	untied := func(settings string, keys ...string) []lora.Untied {
		p := place(t, settings, decoder(true))
		var tensors []lora.Tensor
		for _, s := range p.Tensors() {
			if !s.Optional || slices.Contains(keys, s.Key) {
				tensors = append(tensors, lora.Tensor{Key: s.Key, Tensor: ramp(t, s.Shape...)})
			}
		}
		a, err := lora.New(p.Config(), tensors)
		require.NoError(t, err)
		m, err := lora.NewMerger(a, p)
		require.NoError(t, err)
		return m.Untied()
	}
	apart := []lora.Untied{{Name: "lm_head.weight", From: "model.embed_tokens.weight"}}
	assert.Empty(t, untied(`"target_modules":["q_proj"]`))
	assert.Equal(t, apart, untied(`"target_modules":["lm_head"]`))
	assert.Equal(t, apart, untied(`"target_modules":["embed_tokens"]`))
	assert.Equal(t, apart, untied(`"modules_to_save":["embed_tokens"]`))
	assert.Equal(t, apart, untied(`"modules_to_save":["lm_head"]`))
	assert.Empty(t, untied(`"trainable_token_indices":[1]`))
	assert.Equal(t, apart, untied(`"trainable_token_indices":{"embed_tokens":[1],"lm_head":[2]}`))
	assert.Equal(t, apart, untied(`"trainable_token_indices":{"lm_head":[2]}`))
	assert.Empty(t, untied(`"target_modules":["lm_head"],"ensure_weight_tying":true`))
	assert.Equal(t, apart, untied(`"target_modules":["lm_head"],"ensure_weight_tying":true,"use_dora":true`))
	assert.Empty(t, untied(`"modules_to_save":["lm_head"],"ensure_weight_tying":true`))
}

// Base weights that PEFT saved with an adapter, because the vocabulary was
// resized or the embedding is targeted, take the place of the model's; a tied
// head follows.
func TestMergeBaseOfTheAdapter(t *testing.T) {
	const prefix = "base_model.model."
	for _, c := range []struct{ settings, key string }{
		{`"target_modules":["q_proj"]`, "model.embed_tokens.weight"},
		{`"target_modules":["embed_tokens"]`, "model.embed_tokens.base_layer.weight"},
	} {
		p := place(t, c.settings, decoder(true))
		values := make([]float32, 20*8)
		for i := range values {
			values[i] = float32(i)
		}
		base, err := tensor.FromFloat32s(values, 20, 8)
		require.NoError(t, err)
		tensors := []lora.Tensor{{Key: prefix + c.key, Tensor: base}}
		for _, target := range p.Targets {
			own, err := target.NewWeights().Tensors(target) // all zero: only the base counts
			require.NoError(t, err)
			tensors = append(tensors, own...)
		}
		a, err := lora.New(p.Config(), tensors)
		require.NoError(t, err)
		require.NoError(t, a.Check(p, lora.CheckOptions{AllowZeroB: true}).Err())
		m, err := lora.NewMerger(a, p)
		require.NoError(t, err)
		for _, name := range []string{"model.embed_tokens.weight", "lm_head.weight"} {
			got := make([]float32, len(values))
			changed, err := m.Merge(name, got, tensor.F32)
			require.NoError(t, err)
			assert.True(t, changed)
			assert.Equal(t, values, got, name)
		}
		_, err = m.Merge("model.layers.0.self_attn.q_proj.weight", make([]float32, 64), tensor.F32)
		require.NoError(t, err)
	}
}

// BenchmarkMergeInto is one weight of an 8B model.
func BenchmarkMergeInto(b *testing.B) {
	t := lora.Target{Module: lora.Module{Name: "m", Kind: lora.Linear, In: 4096, Out: 4096}, Rank: 16, Scale: 1, Init: lora.InitRandom}
	w, err := t.Initialize(1, nil)
	require.NoError(b, err)
	weight := make([]float32, t.In*t.Out)
	b.SetBytes(int64(4 * len(weight)))
	for b.Loop() {
		if err := t.MergeInto(weight, w); err != nil {
			b.Fatal(err)
		}
	}
}

// reference is W + s·BA by the definition, DoRA included, in float64.
func reference(t lora.Target, weight []float32, w lora.Weights) []float64 {
	at := func(o, i int) int {
		if t.Kind == lora.Linear {
			return o*t.In + i
		}
		return i*t.Out + o
	}
	out := make([]float64, len(weight))
	for o := range t.Out {
		norm := 0.0
		for i := range t.In {
			sum := 0.0
			for k := range t.Rank {
				sum += float64(w[lora.RoleB][o*t.Rank+k]) * float64(w[lora.RoleA][k*t.In+i])
			}
			v := float64(weight[at(o, i)]) + t.Scale*sum
			out[at(o, i)] = v
			norm += v * v
		}
		if t.Method() == "DoRA" {
			for i := range t.In {
				out[at(o, i)] *= float64(w[lora.RoleMagnitude][o]) / math.Sqrt(norm)
			}
		}
	}
	return out
}

func TestMergeProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		target := lora.Target{
			Module: lora.Module{Name: "m", Kind: rapid.SampledFrom([]lora.Kind{lora.Linear, lora.Conv1D, lora.Embedding}).Draw(t, "kind"),
				In: rapid.IntRange(1, 9).Draw(t, "in"), Out: rapid.IntRange(1, 9).Draw(t, "out")},
			Rank: rapid.IntRange(1, 5).Draw(t, "rank"), Scale: rapid.Float64Range(-3, 3).Draw(t, "scale"),
		}
		target = lora.WithMethod(target, rapid.SampledFrom([]string{"LoRA", "DoRA"}).Draw(t, "method"))
		value := rapid.Float32Range(0.1, 2)
		fill := func(n int) []float32 { return rapid.SliceOfN(value, n, n).Draw(t, "values") }
		w := lora.Weights{lora.RoleA: fill(target.Rank * target.In), lora.RoleB: fill(target.Rank * target.Out)}
		if target.Method() == "DoRA" {
			w[lora.RoleMagnitude] = fill(target.Out)
		}
		weight := fill(target.In * target.Out)
		want := reference(target, weight, w)
		got := slices.Clone(weight)
		require.NoError(t, target.MergeInto(got, w))
		for i := range want {
			require.InDelta(t, want[i], got[i], 1e-5*(1+math.Abs(want[i])))
		}
		if target.Method() == "LoRA" {
			// What was taken out first comes back.
			back := slices.Clone(weight)
			require.NoError(t, target.Residual(back, w, tensor.F32))
			require.NoError(t, target.MergeInto(back, w))
			for i := range back {
				require.InDelta(t, weight[i], back[i], 1e-4)
			}
		}
	})
}

func TestMergeIndependentOfThreads(t *testing.T) {
	target := lora.Target{Module: lora.Module{Name: "m", Kind: lora.Linear, In: 65, Out: 131}, Rank: 3, Scale: 0.7, Init: lora.InitRandom}
	w, err := target.Initialize(1, nil)
	require.NoError(t, err)
	run := func(threads int) []float32 {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(threads))
		weight := make([]float32, 65*131)
		require.NoError(t, target.MergeInto(weight, w))
		return weight
	}
	assert.Equal(t, run(1), run(2))
	assert.Equal(t, run(1), run(7))
}

func TestMergeErrors(t *testing.T) {
	target := lora.WithMethod(lora.Target{Module: lora.Module{Name: "m", Kind: lora.Linear, In: 3, Out: 2, Bias: true}, Rank: 1, Scale: 1}, "DoRA")
	w := lora.Weights{lora.RoleA: make([]float32, 3), lora.RoleB: make([]float32, 2), lora.RoleMagnitude: make([]float32, 2)}
	require.ErrorIs(t, target.MergeInto(make([]float32, 5), w), lora.ErrShape)
	require.ErrorIs(t, target.MergeInto(make([]float32, 6), lora.Weights{lora.RoleA: w[lora.RoleA], lora.RoleB: w[lora.RoleB]}), lora.ErrShape)
	require.ErrorIs(t, target.MergeInto(make([]float32, 6), lora.Weights{lora.RoleA: w[lora.RoleB], lora.RoleB: w[lora.RoleB]}), lora.ErrShape)
	require.ErrorIs(t, target.MergeInto(make([]float32, 6), w), lora.ErrNotFinite, "a row of zeros has no direction")
	require.ErrorIs(t, target.MergeBias(make([]float32, 3), lora.Weights{lora.RoleBBias: make([]float32, 2)}), lora.ErrShape)
	require.ErrorIs(t, lora.TokenPlacement{Module: target.Module, Tokens: []int{1}}.MergeTokens(make([]float32, 6), make([]float32, 2)), lora.ErrShape)

	p := place(t, `"target_modules":["o_proj"],"lora_bias":true`, decoder(false))
	assert.Len(t, p.Warnings, 2)
	a, err := lora.New(p.Config(), nil)
	require.NoError(t, err)
	_, err = lora.NewMerger(a, p)
	require.ErrorIs(t, err, lora.ErrUnsupported)

	p = place(t, `"target_modules":["q_proj"]`, decoder(false))
	m, err := lora.NewMerger(a, p)
	require.NoError(t, err)
	_, err = m.Merge("model.layers.0.self_attn.q_proj.weight", make([]float32, 64), tensor.F32)
	require.ErrorIs(t, err, lora.ErrMissing)
	changed, err := m.Merge("model.norm.weight", make([]float32, 8), tensor.F32)
	require.NoError(t, err)
	assert.False(t, changed)
	_, err = m.Merge("model.norm.weight", make([]float32, 8), tensor.F32)
	assert.ErrorContains(t, err, "merged already")
	assert.Equal(t, []string{"model.layers.0.self_attn.q_proj.weight", "model.layers.1.self_attn.q_proj.weight"}, m.Remaining())
}

// The trained PiSSA and OLoRA adapters, merged over the residual, and their
// conversions by PEFT, merged over the base, are the same weights.
func TestConvertedAsPEFT(t *testing.T) {
	for _, name := range []string{"init-pissa", "init-pissa-rslora", "init-pissa-patterns", "init-olora", "init-pissa-niter"} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join("../testdata/peft", name)
			var c struct{ Base string }
			readJSON(t, filepath.Join(dir, "case.json"), &c)
			model := readModel(t, filepath.Join(dir, c.Base))
			trained, initial := load(t, filepath.Join(dir, "train/final")), load(t, filepath.Join(dir, "train/init"))
			converted := load(t, filepath.Join(dir, "converted/adapter"))
			p, err := lora.NewPlacement(trained.Config, model)
			require.NoError(t, err)
			plainConfig, err := p.Config().Plain()
			require.NoError(t, err)
			plain, err := lora.NewPlacement(plainConfig, model)
			require.NoError(t, err)
			assert.Equal(t, sortedSets(string(converted.Config.JSON())), string(plain.Config().JSON()))

			var tensors []lora.Tensor
			for _, target := range p.Targets {
				w, err := trained.Weights(target)
				require.NoError(t, err)
				w0, err := initial.Weights(target)
				require.NoError(t, err)
				w, err = target.Plain(w, w0)
				require.NoError(t, err)
				twice, ok := plain.Target(target.Name)
				require.True(t, ok)
				assert.InDelta(t, target.Scale, twice.Scale, 1e-12)
				own, err := w.Tensors(twice)
				require.NoError(t, err)
				tensors = append(tensors, own...)
			}
			out := t.TempDir()
			require.NoError(t, lora.Save(out, plain.Config(), tensors))
			requireEqual(t, converted, load(t, out))
			// PEFT's file, byte for byte.
			want, err := os.ReadFile(filepath.Join(dir, "converted/adapter", lora.WeightsFile))
			require.NoError(t, err)
			got, err := os.ReadFile(filepath.Join(out, lora.WeightsFile))
			require.NoError(t, err)
			assert.Equal(t, want, got)

			if name == "init-pissa-niter" {
				return
			}
			base := openFile(t, filepath.Join(dir, c.Base, "model.safetensors"))
			over, err := lora.NewMerger(trained, p)
			require.NoError(t, err)
			onto, err := lora.NewMerger(converted, plain)
			require.NoError(t, err)
			for _, target := range p.Targets {
				key := target.Name + ".weight"
				x, y := floats(t, base, key), floats(t, base, key)
				_, err = over.Merge(key, x, tensor.F32)
				require.NoError(t, err)
				_, err = onto.Merge(key, y, tensor.F32)
				require.NoError(t, err)
				assert.Less(t, relative(x, y), 2e-5, key) // PEFT's SVD is in float32
			}
		})
	}
}

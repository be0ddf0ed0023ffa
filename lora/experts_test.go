package lora_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// moe is a model of two layers with experts, of the given type.
func moe(modelType string) lora.Model {
	m := decoder(false)
	m.Type = modelType
	for i := range 2 {
		mlp := fmt.Sprintf("model.layers.%d.mlp.", i)
		m.Modules = append(m.Modules,
			lora.Module{Name: mlp + "gate.weight", Kind: lora.Parameter, In: 8, Out: 3, Count: 1, Parts: []string{mlp + "gate.weight"}},
			lora.Module{Name: mlp + "experts.gate_up_proj", Kind: lora.Parameter, In: 8, Out: 12, Count: 3, Parts: []string{mlp + "gate_up"}},
			lora.Module{Name: mlp + "experts.down_proj", Kind: lora.Parameter, In: 6, Out: 8, Count: 3, Parts: []string{mlp + "down"}},
		)
	}
	return m
}

// What configurations mean for a model with experts, as PEFT 0.21.2 has it.
func TestPlanOfExperts(t *testing.T) {
	router, joined, down := "mlp.gate.weight", "mlp.experts.gate_up_proj", "mlp.experts.down_proj"
	for _, c := range []struct {
		config, modules, parameters string // saved
		first                       []string
		rank                        int // of gate_up_proj
	}{
		{`"target_modules":["q_proj","w1","w2","w3"]`, "[q_proj]", "[down_proj gate_up_proj]", []string{"self_attn.q_proj", joined, down}, 16},
		{`"target_modules":["w2"]`, "[]", "[down_proj]", []string{down}, 0},
		{`"target_modules":["experts.0.w1","w3"]`, "[]", "[gate_up_proj]", []string{joined}, 16},
		{`"target_modules":".*(w1|w3|gate|q_proj)"`, "[q_proj]", "[gate.weight gate_up_proj]", []string{"self_attn.q_proj", router, joined}, 16},
		{`"target_modules":["w1","w3"],"rank_pattern":{".*\\.gate_up_proj":3,"q":2}`, "[]", "[gate_up_proj]", []string{joined}, 16},
		{`"target_parameters":["gate_up_proj"]`, "[]", "[gate_up_proj]", []string{joined}, 8},
		{`"target_parameters":["experts.gate_up_proj","experts.gate_up_proj"],"rank_pattern":{"gate_up_proj":3}`, "[]", "[experts.gate_up_proj]", []string{joined}, 3},
		{`"target_parameters":["model.layers.0.mlp.gate.weight"],"target_modules":["q_proj"],"exclude_modules":["gate","experts"],"lora_dropout":0`, "[q_proj]", "[model.layers.0.mlp.gate.weight]", []string{"self_attn.q_proj", router}, 0},
		{`"target_parameters":["down_proj"],"layers_to_transform":[1]`, "[]", "[down_proj]", []string{down}, 0},
	} {
		p := place(t, c.config, moe("mixtral"))
		saved := p.Config()
		assert.Equal(t, c.modules, fmt.Sprint(saved.TargetModules.Names), c.config)
		assert.Equal(t, c.parameters, fmt.Sprint(saved.TargetParameters), c.config)
		assert.NotContains(t, string(saved.JSON()), `"target_modules": null`)
		var first []string
		for _, x := range p.Targets {
			if name, ok := strings.CutPrefix(x.Name, "model.layers.0."); ok {
				first = append(first, name)
			}
			if strings.HasSuffix(x.Name, "gate_up_proj") {
				assert.Equal(t, c.rank, x.Rank, c.config)
				assert.InDelta(t, x.Alpha/float64(x.Rank), x.Scale, 1e-12)
			}
		}
		assert.Equal(t, c.first, first, c.config)
		// The saved configuration means the same.
		again, err := lora.NewPlacement(saved, moe("mixtral"))
		require.NoError(t, err)
		assert.Equal(t, p.Targets, again.Targets, c.config)
		assert.Equal(t, string(saved.JSON()), string(again.Config().JSON()))
	}
	all := place(t, `"target_modules":"all-linear"`, moe("qwen3_moe")).Config()
	assert.Equal(t, "[down_proj gate.weight gate_up_proj]", fmt.Sprint(all.TargetParameters))
	assert.Equal(t, lora.RankPattern{{Key: `.*\.gate_up_proj`, R: 16}}, all.RankPattern)
	assert.Equal(t, lora.AlphaPattern{{Key: `.*\.gate_up_proj`, Alpha: 16}}, all.AlphaPattern)
	require.Len(t, place(t, `"target_modules":["gate_proj"]`, decoder(false)).Targets, 2, "a model without experts")
}

// The wrapper of the parameter that comes last in a module is around the others.
func TestKeysOfExperts(t *testing.T) {
	for config, want := range map[string][]string{
		`"target_parameters":["gate_up_proj","down_proj"],"r":2`: {"experts.base_layer.lora_A.weight[6 8]", "experts.base_layer.lora_B.weight[12 6]", "experts.lora_A.weight[6 6]", "experts.lora_B.weight[8 6]"},
		`"target_parameters":["gate_up_proj"],"r":2`:             {"experts.lora_A.weight[6 8]", "experts.lora_B.weight[12 6]"},
		`"target_parameters":["gate.weight"],"r":2`:              {"gate.lora_A.weight[2 8]", "gate.lora_B.weight[3 2]"},
	} {
		var got []string
		for _, s := range place(t, config, moe("mixtral")).Tensors() {
			if name, ok := strings.CutPrefix(s.Key, "base_model.model.model.layers.1.mlp."); ok {
				got = append(got, name+fmt.Sprint(s.Shape))
			}
		}
		assert.Equal(t, want, got, config)
	}
}

func TestPlanRefusesOfExperts(t *testing.T) {
	for _, c := range []struct {
		config string
		is     error
		text   string
	}{
		{``, lora.ErrConfig, `target_modules: it must be set, or target_parameters: there is no default for models of type "mixtral"`},
		{`"target_modules":["w1"]`, lora.ErrConfig, `["w1"] of the experts is targeted without ["w3"], with which it is one parameter, gate_up_proj`},
		{`"target_modules":["experts"]`, lora.ErrUnsupported, `matches "model.layers.0.mlp.experts", which only holds other modules`},
		{`"target_modules":["w2"],"lora_dropout":0.1`, lora.ErrUnsupported, `lora_dropout: found 0.1, which the adapter of the parameter "model.layers.0.mlp.experts.down_proj" cannot have`},
		{`"target_parameters":["gate.weight"],"use_dora":true`, lora.ErrUnsupported, `use_dora: found true`},
		{`"target_parameters":["gate.weight"],"lora_bias":true`, lora.ErrUnsupported, `lora_bias: found true`},
		{`"target_parameters":["gate.weight"],"fan_in_fan_out":true`, lora.ErrUnsupported, `fan_in_fan_out: found true`},
		{`"target_parameters":["gate_up_proj"],"init_lora_weights":"pissa"`, lora.ErrUnsupported, `init_lora_weights: found "pissa"`},
		{`"target_parameters":["nothing"]`, lora.ErrNoTarget, `target_modules [] and target_parameters ["nothing"] are not in the model`},
		{`"target_parameters":["q_proj.weight"]`, lora.ErrUnsupported, `"model.layers.0.self_attn.q_proj.weight" is of "model.layers.0.self_attn.q_proj", which is a linear layer`},
		{`"target_parameters":["norm.weight"]`, lora.ErrUnsupported, `which is a norm`},
		{`"target_parameters":[""]`, lora.ErrConfig, `target_parameters: the list has an empty name in it`},
		{`"target_modules":["q_proj"],"modules_to_save":["gate"]`, lora.ErrUnsupported, `modules_to_save: "model.layers.0.mlp.gate.weight"`},
		{`"target_modules":["w1","w3"],"r":65536`, lora.ErrConfig, `rank_pattern: ".*\\.gate_up_proj": the rank must be at most 65536`},
	} {
		_, err := lora.NewPlacement(parse(t, c.config), moe("mixtral"))
		require.ErrorIs(t, err, c.is, c.config)
		require.ErrorContains(t, err, c.text, c.config)
	}
	p := place(t, `"target_modules":["q_proj"],"target_parameters":["gate_up_prj"]`, moe("mixtral"))
	require.ErrorContains(t, p.CheckUsed(), `target_parameters: "gate_up_prj", did you mean "gate_up_proj"?`)
	_, err := lora.ParseConfig([]byte(`{"peft_type":"LORA","target_parameters":"gate.weight"}`))
	require.ErrorContains(t, err, "expected a list, found the string")
}

// A stack begins as one linear layer does, whose A has a row for each of all ranks.
func TestInitializeExperts(t *testing.T) {
	model := moe("mixtral")
	model.Modules[len(model.Modules)-1] = lora.Module{Name: "mlp.experts.down_proj", Kind: lora.Parameter, In: 64, Out: 100, Count: 9}
	for init, want := range map[string][2]float64{"true": {1 / 8., 0}, "false": {1 / 8., 1 / 6.}, `"gaussian"`: {}} {
		p := place(t, `"target_parameters":["mlp.experts.down_proj"],"r":4,"init_lora_weights":`+init, lora.Model{Type: "mixtral", Modules: model.Modules[len(model.Modules)-1:]})
		w, err := p.Targets[0].Initialize(5, nil)
		require.NoError(t, err)
		require.Len(t, w[lora.RoleA], 9*4*64)
		require.Len(t, w[lora.RoleB], 100*4*9)
		most := func(x []float32) (most float64) {
			for _, v := range x {
				most = max(most, math.Abs(float64(v)))
			}
			return most
		}
		if init == `"gaussian"` { // of deviation 1/4
			sum := 0.0
			for _, v := range w[lora.RoleA] {
				sum += float64(v) * float64(v)
			}
			require.InDelta(t, 1/4., math.Sqrt(sum/float64(len(w[lora.RoleA]))), 0.01)
		} else {
			require.LessOrEqual(t, most(w[lora.RoleA]), want[0])
			require.Greater(t, most(w[lora.RoleA]), 0.99*want[0])
		}
		require.LessOrEqual(t, most(w[lora.RoleB]), want[1])
		require.GreaterOrEqual(t, most(w[lora.RoleB]), 0.99*want[1])
	}
}

// An adapter that is named as in transformers 4 becomes what PEFT makes of it, byte
// for byte.
func TestFormerExperts(t *testing.T) {
	for _, name := range []string{"mixtral-former", "qwen3-moe-former"} {
		dir := filepath.Join("../testdata/peft", name)
		m := openModel(t, filepath.Join("../testdata/extra", strings.TrimSuffix(name, "-former")))
		s, err := lora.LoadState(filepath.Join(dir, "adapter"), m, m.Config.ModelType, m.Modules())
		require.NoError(t, err)
		out := t.TempDir()
		require.NoError(t, s.Save(out, false))
		want, err := os.ReadFile(filepath.Join(dir, "converted/adapter", lora.WeightsFile))
		require.NoError(t, err)
		got, err := os.ReadFile(filepath.Join(out, lora.WeightsFile))
		require.NoError(t, err)
		require.True(t, string(want) == string(got), "the weights of %s differ", name)
		require.Equal(t, string(load(t, filepath.Join(dir, "converted/adapter")).Config.JSON()), string(load(t, out).Config.JSON()))
	}
}

// What is not whole stays as it is, and is named.
func TestFormerExpertsThatAreNotWhole(t *testing.T) {
	whole := load(t, "../testdata/peft/mixtral-former/adapter")
	m := openModel(t, "../testdata/extra/mixtral")
	p, err := lora.NewPlacement(whole.Config, lora.ModelOf("mixtral", m.Modules()))
	require.NoError(t, err)
	const strange = "base_model.model.model.layers.1.block_sparse_moe.experts.3.w3.lora_B.weight"
	for what, change := range map[string]func(*lora.Tensor) bool{
		"missing":      func(*lora.Tensor) bool { return false },
		"another rank": func(x *lora.Tensor) bool { x.Tensor = ramp(t, 24, 3); return true },
		"three axes":   func(x *lora.Tensor) bool { x.Tensor = ramp(t, 24, 2, 1); return true },
		"another type": func(x *lora.Tensor) bool { x.Tensor, err = ramp(t, 24, 2).Convert(tensor.BF16); return err == nil },
	} {
		var tensors []lora.Tensor
		for _, name := range whole.Names() {
			v, _ := whole.Tensor(name)
			x := lora.Tensor{Key: name, Tensor: v}
			if name != strange || change(&x) {
				tensors = append(tensors, x)
			}
		}
		a, err := lora.New(whole.Config, tensors)
		require.NoError(t, err)
		err = a.Check(p, lora.CheckOptions{}).Err()
		require.ErrorIs(t, err, lora.ErrMissing, what)
		require.ErrorContains(t, err, "experts.base_layer.lora_B.weight", what)
	}
}

// A stack is merged whole or in parts, of one matrix or of some rows of it: what each
// of its matrices gets is the product of its rows of A and columns of B.
func TestMergeStack(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		draw := func(name string, most int) int { return rapid.IntRange(1, most).Draw(rt, name) }
		count, in, each, joined, r := draw("count", 5), draw("in", 9), draw("rows", 7), draw("joined", 2), draw("r", 6)
		out := each * joined
		parts := rapid.SampledFrom([]int{1, count, count * joined}).Draw(rt, "parts")
		m := moe("mixtral")
		at := len(m.Modules) - 2
		m.Modules[at] = lora.Module{Name: "experts.gate_up_proj", Kind: lora.Parameter, In: in, Out: out, Count: count}
		for i := range parts {
			m.Modules[at].Parts = append(m.Modules[at].Parts, fmt.Sprint("part ", i))
		}
		p := place(t, fmt.Sprintf(`"target_parameters":["experts.gate_up_proj"],"r":%d`, r), lora.Model{Type: "mixtral", Modules: m.Modules[at : at+1]})
		target := p.Targets[0]
		w := target.NewWeights()
		for i := range w[lora.RoleA] {
			w[lora.RoleA][i] = float32(i%7) - 3
		}
		for i := range w[lora.RoleB] {
			w[lora.RoleB][i] = float32(i%5) - 1
		}
		want := make([]float32, count*out*in)
		for e := range count {
			for o := range out {
				for i := range in {
					for k := range r {
						want[(e*out+o)*in+i] += float32(target.Scale) * w[lora.RoleB][o*r*count+k*count+e] * w[lora.RoleA][(e*r+k)*in+i]
					}
				}
			}
		}
		whole := make([]float32, len(want))
		require.NoError(t, target.MergeInto(whole, w))
		tensors, err := w.Tensors(target)
		require.NoError(t, err)
		a, err := lora.New(p.Config(), tensors)
		require.NoError(t, err)
		merger, err := lora.NewMerger(a, p)
		require.NoError(t, err)
		require.Len(t, merger.Remaining(), parts)
		var all []float32
		for _, name := range target.Parts {
			values := make([]float32, len(want)/parts)
			changed, err := merger.Merge(name, values, tensor.F32)
			require.NoError(t, err)
			require.True(t, changed)
			all = append(all, values...)
		}
		require.InDeltaSlice(t, want, whole, 1e-3)
		require.Equal(t, whole, all)
	})
}

func TestMergeStackRefuses(t *testing.T) {
	p := place(t, `"target_parameters":["gate_up_proj"],"r":2`, moe("mixtral"))
	target := p.Targets[0]
	tensors, err := target.NewWeights().Tensors(target)
	require.NoError(t, err)
	a, err := lora.New(p.Config(), tensors)
	require.NoError(t, err)
	m, err := lora.NewMerger(a, p)
	require.NoError(t, err)
	_, err = m.Merge("model.layers.0.mlp.gate_up", make([]float32, 5), tensor.F32)
	require.ErrorIs(t, err, lora.ErrShape)
	model := moe("mixtral")
	for i := range model.Modules {
		model.Modules[i].Parts = nil
	}
	_, err = lora.NewMerger(a, place(t, `"target_parameters":["gate_up_proj"],"r":2`, model))
	require.ErrorIs(t, err, lora.ErrShape)
	require.ErrorContains(t, err, "0 parts of 36 rows")
}

// Merged stacks are those of PEFT's merge_and_unload.
func TestMergeExpertsAsPEFT(t *testing.T) {
	for _, name := range []string{"mixtral", "qwen3-moe"} {
		m := openModel(t, filepath.Join("../testdata/extra", name))
		a := load(t, filepath.Join("../testdata/peft", name+"-experts", "adapter"))
		p, err := lora.NewPlacement(a.Config, lora.ModelOf(m.Config.ModelType, m.Modules()))
		require.NoError(t, err)
		require.NoError(t, a.Check(p, lora.CheckOptions{}).Err())
		f := openFile(t, filepath.Join("../testdata/peft", name+"-experts", "merged.safetensors"))
		alone := weightsOf(t, merged(t, m, a, p))
		for _, module := range m.Modules() {
			if !f.Has(module.Name) {
				continue
			}
			var got []float32
			for _, part := range module.Parts {
				got = append(got, alone[part]...)
			}
			require.LessOrEqual(t, relative(floats(t, f, module.Name), got), 1e-6, module.Name)
		}
		require.Equal(t, 3, f.Len())
	}
}

// A checkpoint may have experts stacked: logits, and what is merged into it, are those of one that has them apart.
func TestStackedCheckpoint(t *testing.T) {
	dev := testdevice.Open(t, backend.Options{})
	for _, name := range []string{"mixtral", "qwen3-moe"} {
		m := openModel(t, filepath.Join("../testdata/extra", name))
		stacked := stackedModel(t, m.Dir)
		require.Less(t, len(stacked.Used()), len(m.Used()))
		for _, state := range []string{"", name + "-experts", name + "-former"} {
			ids := tokenRows(t, openFile(t, filepath.Join(m.Dir, "golden.safetensors")), "input_ids")
			var s, of *lora.State
			if state != "" {
				dir := filepath.Join("../testdata/peft", state, "adapter")
				var err error
				s, err = lora.LoadState(dir, m, m.Config.ModelType, m.Modules())
				require.NoError(t, err)
				of, err = lora.LoadState(dir, stacked, m.Config.ModelType, stacked.Modules())
				require.NoError(t, err)
				a := load(t, dir)
				require.NoError(t, a.Check(of.Placement, lora.CheckOptions{}).Err())
				alone := merged(t, stacked, a, of.Placement)
				require.Equal(t, stacked.Used(), alone.Used())
				require.LessOrEqual(t, relative(logits(t, dev, m, s, ids), logits(t, dev, alone, nil, ids)), 2e-6)
			}
			require.LessOrEqual(t, relative(logits(t, dev, m, s, ids), logits(t, dev, stacked, of, ids)), 1e-6)
		}
	}
}

// stackedModel writes the model in dir with each stack as one tensor.
func stackedModel(t *testing.T, dir string) *model.Model {
	m, out := openModel(t, dir), t.TempDir()
	var entries []safetensors.Entry
	add := func(name string, shape []int, parts ...string) {
		var data []byte
		for _, part := range parts {
			w, err := m.Weight(part)
			require.NoError(t, err)
			data = append(data, w.Source.Bytes...)
		}
		w, err := m.Weight(parts[0])
		require.NoError(t, err)
		d, err := safetensors.ParseDType(w.DType.String())
		require.NoError(t, err)
		entries = append(entries, safetensors.Entry{Name: name, DType: d, Shape: shape, Data: data})
	}
	parts := map[string]bool{}
	for _, x := range m.Modules() {
		if x.Count > 1 {
			add(x.Name, []int{x.Count, x.Out, x.In}, x.Parts...)
			for _, part := range x.Parts {
				parts[part] = true
			}
		}
	}
	for _, name := range m.Used() {
		if !parts[name] {
			w, err := m.Weight(name)
			require.NoError(t, err)
			add(name, w.Shape, name)
		}
	}
	require.NoError(t, safetensors.WriteFile(filepath.Join(out, "model.safetensors"), entries, nil))
	config, err := os.ReadFile(filepath.Join(dir, "config.json"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(out, "config.json"), config, 0o644))
	return openModel(t, out)
}

package dialects_test

import (
	"bytes"
	"errors"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/lora/dialects"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

const fixtures = "../../../testdata/dit"

// linear is a model of these layers.
func linear(in, out int, names ...string) lora.Model {
	var m lora.Model
	for _, n := range names {
		m.Modules = append(m.Modules, lora.Module{Name: n, Kind: lora.Linear, In: in, Out: out})
	}
	return m
}

// modelOf is the model whose weights are in a file of diffusers.
func modelOf(t testing.TB, path string) lora.Model {
	t.Helper()
	f, err := safetensors.Open(path)
	require.NoError(t, err)
	defer f.Close()
	var m lora.Model
	for _, name := range f.Names() {
		v, err := f.Lookup(name)
		require.NoError(t, err)
		module, ok := strings.CutSuffix(name, ".weight")
		switch {
		case ok && len(v.Shape) == 2:
			m.Modules = append(m.Modules, lora.Module{Name: module, Kind: lora.Linear, In: v.Shape[1], Out: v.Shape[0], Bias: f.Has(module + ".bias")})
		case ok && len(v.Shape) == 1:
			m.Modules = append(m.Modules, lora.Module{Name: module, Kind: lora.Norm, In: v.Shape[0], Out: v.Shape[0]})
		}
	}
	return m
}

// transformer is the model in a folder of the fixtures.
func transformer(t *testing.T, folder string) lora.Model {
	t.Helper()
	return modelOf(t, filepath.Join(fixtures, folder, "transformer/diffusion_pytorch_model.safetensors"))
}

// qwen and flux are the models that the files of lora-dialects are for.
func qwen() lora.Model {
	return linear(8, 12, "img_in", "transformer_blocks.0.attn.to_q", "transformer_blocks.0.attn.to_k", "transformer_blocks.0.attn.to_add_out",
		"transformer_blocks.1.img_mlp.net.0.proj", "transformer_blocks.1.txt_mod.1", "transformer_blocks.10.attn.add_k_proj")
}

func flux() lora.Model {
	var m lora.Model
	for _, block := range []string{"transformer_blocks.0.attn.", "single_transformer_blocks.3.attn."} {
		m.Modules = append(m.Modules, linear(3072, 3072, block+"to_q", block+"to_k", block+"to_v").Modules...)
	}
	m.Modules = append(m.Modules, linear(3072, 12288, "single_transformer_blocks.3.proj_mlp").Modules...)
	m.Modules = append(m.Modules, linear(3072, 3072, "proj_out").Modules...)
	return m
}

// deltas are scale·B·A·x of all targets for a vector x: what each adapter does.
func deltas(t *testing.T, a *lora.Adapter, model lora.Model) map[string][]float64 {
	t.Helper()
	p, err := lora.NewPlacement(a.Config, model)
	require.NoError(t, err)
	out := map[string][]float64{}
	for _, x := range p.Targets {
		w, err := a.Weights(x)
		require.NoError(t, err)
		out[x.Name] = product(w, x)
	}
	return out
}

func product(w lora.Weights, t lora.Target) []float64 {
	d := make([]float64, t.Out)
	for r := range t.Rank {
		h := 0.0
		for i := range t.In {
			h += float64(w[lora.RoleA][r*t.In+i]) * math.Sin(float64(i*i+1))
		}
		for o := range t.Out {
			d[o] += t.Scale * float64(w[lora.RoleB][o*t.Rank+r]) * h
		}
	}
	return d
}

func same(t *testing.T, want, found map[string][]float64, tolerance float64) {
	t.Helper()
	require.Equal(t, slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(found)))
	for name := range want {
		require.Len(t, found[name], len(want[name]), name)
		worst := 0.0
		for i, w := range want[name] {
			worst = max(worst, w-found[name][i], found[name][i]-w)
		}
		assert.LessOrEqual(t, worst, tolerance, name)
	}
}

// Files of other tools are what diffusers makes of them.
func TestReadAsDiffusers(t *testing.T) {
	for name, model := range map[string]lora.Model{"kohya-flux": flux(), "kohya-qwen": qwen(), "comfy-qwen": qwen()} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(fixtures, "lora-dialects", name)
			a, err := dialects.Read(path+".safetensors", model, dialects.Options{})
			require.NoError(t, err)
			converted, err := dialects.Read(path+".diffusers.safetensors", model, dialects.Options{})
			require.NoError(t, err)
			assert.Equal(t, converted.Config.TargetModules, a.Config.TargetModules)
			want := deltas(t, converted, model)
			same(t, want, deltas(t, a, model), 1e-6*largest(want))
		})
	}
}

func largest(values map[string][]float64) (most float64) {
	for _, v := range values {
		most = max(most, slices.Max(v), -slices.Min(v))
	}
	return most
}

// Adapters that diffusers has saved, with and without metadata, as strong as they are
// there, through every form and back.
func TestWriteAndRead(t *testing.T) {
	for folder, scale := range map[string]float64{"flux": 1, "qwenimage": 1, "flux2": 1, "zimage": 2, "kandinsky5": 2} {
		model := transformer(t, folder)
		for _, file := range []string{"init", "final"} {
			a, err := dialects.Read(filepath.Join(fixtures, folder, "train", file+".safetensors"), model, dialects.Options{})
			require.NoError(t, err, folder)
			p, err := lora.NewPlacement(a.Config, model)
			require.NoError(t, err)
			for _, x := range p.Targets {
				assert.Equal(t, scale, x.Scale, "%s %s", folder, x.Name)
			}
			if file == "init" {
				continue
			}
			want := deltas(t, a, model)
			for _, form := range dialects.Forms() {
				again := rewrite(t, a, model, form)
				same(t, want, deltas(t, again, model), 1e-6*largest(want))
				if form == dialects.Diffusers {
					assert.JSONEq(t, string(p.Config().JSON()), string(again.Config.JSON()))
				}
			}
		}
	}
}

func rewrite(t *testing.T, a *lora.Adapter, model lora.Model, form dialects.Form) *lora.Adapter {
	t.Helper()
	path := filepath.Join(t.TempDir(), dialects.File)
	require.NoError(t, dialects.Write(path, form, model, a.Config, tensorsOf(a)))
	again, err := dialects.Read(path, model, dialects.Options{})
	require.NoError(t, err)
	return again
}

func tensorsOf(a *lora.Adapter) []lora.Tensor {
	var out []lora.Tensor
	for _, name := range a.Names() {
		x, _ := a.Tensor(name)
		out = append(out, lora.Tensor{Key: name, Tensor: x})
	}
	return out
}

// keys are those of a file in one of the forms.
func keys(t *testing.T, a *lora.Adapter, model lora.Model, form dialects.Form) []string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.safetensors")
	require.NoError(t, dialects.Write(path, form, model, a.Config, tensorsOf(a)))
	f, err := safetensors.Open(path)
	require.NoError(t, err)
	defer f.Close()
	return slices.Sorted(slices.Values(f.Names()))
}

// The names of another tool's file come out as they went in.
func TestWriteNames(t *testing.T) {
	for name, x := range map[string]struct {
		model lora.Model
		form  dialects.Form
	}{"kohya-flux": {flux(), dialects.Kohya}, "kohya-qwen": {qwen(), dialects.Kohya}, "comfy-qwen": {qwen(), dialects.ComfyUI}} {
		path := filepath.Join(fixtures, "lora-dialects", name+".safetensors")
		a, err := dialects.Read(path, x.model, dialects.Options{})
		require.NoError(t, err)
		f, err := safetensors.Open(path)
		require.NoError(t, err)
		assert.Equal(t, slices.Sorted(slices.Values(f.Names())), keys(t, a, x.model, x.form))
		again := rewrite(t, a, x.model, x.form)
		assert.True(t, bytes.Equal(a.Config.JSON(), again.Config.JSON()))
		for _, want := range tensorsOf(a) {
			found, _ := again.Tensor(want.Key)
			assert.Equal(t, want.Tensor, found, want.Key)
		}
		require.NoError(t, f.Close())
	}
}

// random is a tensor of ones and other small numbers.
func random(seed int, d tensor.DType, shape ...int) tensor.Tensor {
	n, _ := tensor.NumElements(shape)
	v := make([]float32, n)
	for i := range v {
		v[i] = float32((i*7+seed*13)%11 - 5)
	}
	x, err := tensor.FromFloat32s(v, shape...)
	if err == nil {
		x, err = x.Convert(d)
	}
	if err != nil {
		panic(err)
	}
	return x
}

// adapter makes an adapter with one rank and alpha for each module.
func adapter(t *testing.T, modules []lora.Module, rank func(int) int, scale func(int) float64) *lora.Adapter {
	t.Helper()
	c := lora.DefaultConfig()
	var tensors []lora.Tensor
	for i, m := range modules {
		r := rank(i)
		x := lora.Target{Module: m}
		tensors = append(tensors, lora.Tensor{Key: x.Key(lora.RoleA), Tensor: random(i, tensor.BF16, r, m.In)}, lora.Tensor{Key: x.Key(lora.RoleB), Tensor: random(i+50, tensor.BF16, m.Out, r)})
		c.TargetModules.Names = append(c.TargetModules.Names, m.Name)
		c.RankPattern = append(c.RankPattern, lora.RankRule{Key: "^" + m.Name, R: r})
		c.AlphaPattern = append(c.AlphaPattern, lora.AlphaRule{Key: "^" + m.Name, Alpha: scale(i) * float64(r)})
	}
	a, err := lora.New(c, tensors)
	require.NoError(t, err)
	return a
}

// Layers that are several modules keep what each of these does: with ranks and scales of
// their own, and with some of them alone.
func TestJoinedLayers(t *testing.T) {
	model := transformer(t, "flux")
	var some []lora.Module
	for _, m := range model.Modules {
		for _, name := range []string{"transformer_blocks.0.attn.to_q", "transformer_blocks.0.attn.to_v", "single_transformer_blocks.1.attn.to_q", "single_transformer_blocks.1.attn.to_k", "single_transformer_blocks.1.attn.to_v", "single_transformer_blocks.1.proj_mlp", "transformer_blocks.1.ff.net.2"} {
			if m.Name == name {
				some = append(some, m)
			}
		}
	}
	require.Len(t, some, 7)
	for name, x := range map[string]struct {
		rank  func(int) int
		scale func(int) float64
	}{
		"one rank":       {func(int) int { return 2 }, func(int) float64 { return 2 }},
		"ranks":          {func(i int) int { return 1 + i%3 }, func(int) float64 { return 0.5 }},
		"ranks, scales":  {func(i int) int { return 1 + i%4 }, func(i int) float64 { return 0.25 * float64(1+i%3) }},
		"negative scale": {func(i int) int { return 3 }, func(i int) float64 { return -1.5 }},
	} {
		a := adapter(t, some, x.rank, x.scale)
		want := deltas(t, a, model)
		for _, form := range dialects.Forms() {
			t.Run(name+" "+string(form), func(t *testing.T) {
				same(t, want, deltas(t, rewrite(t, a, model, form), model), 1e-4)
			})
		}
	}
}

// TestLostLayers: an adapter of all linear layers is not written into a file from which
// diffusers would silently load only a part (scripts/check_diffusers_adapter.py).
func TestLostLayers(t *testing.T) {
	const outside = "context_embedder norm_out.linear proj_out time_text_embed.guidance_embedder.linear_1 time_text_embed.guidance_embedder.linear_2 " +
		"time_text_embed.text_embedder.linear_1 time_text_embed.text_embedder.linear_2 time_text_embed.timestep_embedder.linear_1 time_text_embed.timestep_embedder.linear_2 x_embedder"
	const modulation = "double_stream_modulation_img.linear double_stream_modulation_txt.linear norm_out.linear single_stream_modulation.linear " +
		"time_guidance_embed.guidance_embedder.linear_1 time_guidance_embed.guidance_embedder.linear_2"
	for folder, forms := range map[string]map[dialects.Form]string{
		"flux":      {dialects.Diffusers: "", dialects.Kohya: outside, dialects.ComfyUI: outside},
		"flux2":     {dialects.Diffusers: "", dialects.Kohya: modulation, dialects.ComfyUI: "norm_out.linear"},
		"qwenimage": {dialects.Diffusers: "", dialects.Kohya: "", dialects.ComfyUI: ""},
		"zimage":    {dialects.Diffusers: "", dialects.Kohya: "", dialects.ComfyUI: ""},
	} {
		model := transformer(t, folder)
		all := slices.DeleteFunc(slices.Clone(model.Modules), func(m lora.Module) bool { return m.Kind != lora.Linear })
		for form, lost := range forms {
			t.Run(folder+" "+string(form), func(t *testing.T) {
				one := func(int) int { return 1 }
				two := func(int) float64 { return 2 }
				names := strings.Fields(lost)
				a := adapter(t, all, one, two)
				if len(names) > 0 {
					err := dialects.Write(filepath.Join(t.TempDir(), dialects.File), form, model, a.Config, tensorsOf(a))
					require.ErrorIs(t, err, lora.ErrUnsupported)
					_, list, _ := strings.Cut(err.Error(), "adapters of ")
					list, _, _ = strings.Cut(list, ", which")
					assert.ElementsMatch(t, names, strings.Split(list, ", "))
					rest := slices.DeleteFunc(slices.Clone(all), func(m lora.Module) bool { return slices.Contains(names, m.Name) })
					require.Len(t, rest, len(all)-len(names))
					a = adapter(t, rest, one, two)
				}
				same(t, deltas(t, a, model), deltas(t, rewrite(t, a, model, form), model), 1e-4)
			})
		}
	}
}

// TestReadSwapped: the last modulation of FLUX is shift, scale in kohya's files, and scale,
// shift in diffusers.
func TestReadSwapped(t *testing.T) {
	model := transformer(t, "flux")
	i := slices.IndexFunc(model.Modules, func(m lora.Module) bool { return m.Name == "norm_out.linear" })
	m := model.Modules[i]
	b := random(2, tensor.F32, m.Out, 1)
	const name = "lora_unet_final_layer_adaLN_modulation_1"
	a, err := dialects.Read(write(t, nil, map[string]tensor.Tensor{
		name + ".lora_down.weight": random(1, tensor.F32, 1, m.In), name + ".lora_up.weight": b,
	}), model, dialects.Options{})
	require.NoError(t, err)
	found, ok := a.Tensor(lora.Target{Module: m}.Key(lora.RoleB))
	require.True(t, ok)
	half := len(b.Data) / 2
	assert.Equal(t, slices.Concat(b.Data[half:], b.Data[:half]), found.Data)
}

// write makes a file of these tensors.
func write(t testing.TB, metadata map[string]string, tensors map[string]tensor.Tensor) string {
	t.Helper()
	var entries []safetensors.Entry
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		d, err := safetensors.ParseDType(tensors[name].DType.String())
		require.NoError(t, err)
		entries = append(entries, safetensors.Entry{Name: name, DType: d, Shape: tensors[name].Shape, Data: tensors[name].Data})
	}
	path := filepath.Join(t.TempDir(), "adapter.safetensors")
	require.NoError(t, safetensors.WriteFile(path, entries, metadata))
	return path
}

// What does not fit is an error that names the tensor, what was found and what was meant.
func TestReadErrors(t *testing.T) {
	model := qwen()
	const q = "transformer.transformer_blocks.0.attn.to_q"
	a, b := random(1, tensor.F32, 4, 8), random(2, tensor.F32, 12, 4)
	good := map[string]tensor.Tensor{q + ".lora_A.weight": a, q + ".lora_B.weight": b}
	with := func(more map[string]tensor.Tensor) map[string]tensor.Tensor {
		m := maps.Clone(good)
		maps.Copy(m, more)
		return m
	}
	config := func(text string) map[string]string { return map[string]string{"lora_adapter_metadata": text} }
	for name, x := range map[string]struct {
		metadata map[string]string
		tensors  map[string]tensor.Tensor
		kind     error
		text     string
	}{
		"unknown end":       {nil, with(map[string]tensor.Tensor{q + ".lora_C.weight": a}), lora.ErrUnmatched, q + ".lora_C.weight"},
		"no such module":    {nil, with(map[string]tensor.Tensor{"lora_unet_transformer_blocks_0_attn_to_p.lora_down.weight": a}), lora.ErrUnmatched, `did you mean "transformer_blocks_0_attn_to_k"`},
		"no such block":     {nil, with(map[string]tensor.Tensor{"diffusion_model.transformer_blocks.7.attn.to_q.lora_A.weight": a}), lora.ErrUnmatched, `did you mean "transformer_blocks.0.attn.to_q"`},
		"half":              {nil, map[string]tensor.Tensor{q + ".lora.down.weight": a}, lora.ErrMissing, q + ".lora.up.weight"},
		"other half":        {nil, map[string]tensor.Tensor{"lora_unet_img_in.lora_up.weight": b}, lora.ErrMissing, "lora_unet_img_in.lora_down.weight"},
		"alpha alone":       {nil, map[string]tensor.Tensor{"lora_unet_img_in.alpha": random(3, tensor.F32)}, lora.ErrMissing, "lora_unet_img_in.lora_A.weight"},
		"shape of A":        {nil, map[string]tensor.Tensor{q + ".lora_A.weight": random(1, tensor.F32, 4, 9), q + ".lora_B.weight": b}, lora.ErrShape, "found [4 9], expected [rank 8]"},
		"shape of B":        {nil, map[string]tensor.Tensor{q + ".lora_A.weight": a, q + ".lora_B.weight": random(1, tensor.F32, 13, 4)}, lora.ErrShape, "found [13 4], expected [12 rank]"},
		"transposed":        {nil, map[string]tensor.Tensor{q + ".lora_A.weight": random(1, tensor.F32, 8, 4), q + ".lora_B.weight": b}, lora.ErrOrientation, "found [8 4]"},
		"ranks":             {nil, map[string]tensor.Tensor{q + ".lora_A.weight": a, q + ".lora_B.weight": random(1, tensor.F32, 12, 3)}, lora.ErrShape, "its rank is 3"},
		"no dimensions":     {nil, map[string]tensor.Tensor{q + ".lora_A.weight": random(1, tensor.F32), q + ".lora_B.weight": b}, lora.ErrShape, "found []"},
		"alpha of many":     {nil, with(map[string]tensor.Tensor{q + ".alpha": a}), lora.ErrShape, "expected one number"},
		"alpha of zero":     {nil, with(map[string]tensor.Tensor{q + ".alpha": must(tensor.New(tensor.F32))}), lora.ErrConfig, "alpha is 0"},
		"integers":          {nil, map[string]tensor.Tensor{q + ".lora_A.weight": random(1, tensor.I32, 4, 8), q + ".lora_B.weight": b}, lora.ErrDType, "expected a float"},
		"given twice":       {nil, with(map[string]tensor.Tensor{"diffusion_model.transformer_blocks.0.attn.to_q.lora_A.weight": a}), lora.ErrUnmatched, "has the same place"},
		"text encoder":      {nil, with(map[string]tensor.Tensor{"lora_te1_text_model_x.lora_down.weight": a}), dialects.ErrElsewhere, "lora_te1_text_model_x"},
		"LoKr":              {nil, map[string]tensor.Tensor{"lora_unet_img_in.lokr_w1": a}, lora.ErrMissing, "lokr_w2"},
		"nothing":           {nil, map[string]tensor.Tensor{}, lora.ErrMissing, "no tensors"},
		"metadata of junk":  {config("{"), good, lora.ErrConfig, "lora_adapter_metadata"},
		"metadata's rank":   {config(`{"transformer.r": 3, "transformer.lora_alpha": 3}`), good, lora.ErrShape, "its rank is 4, that of the configuration 3"},
		"metadata's type":   {config(`{"transformer.r": "x"}`), good, lora.ErrConfig, `r: expected an integer, found the string "x"`},
		"metadata's alpha":  {config(`{"transformer.r": 4, "transformer.lora_alpha": 8}`), with(map[string]tensor.Tensor{q + ".alpha": one(4)}), lora.ErrConfig, "it is 4, and 8 in the metadata"},
		"metadata's target": {config(`{"transformer.r": 4, "transformer.target_modules": ["to_k", "to_q"]}`), good, lora.ErrMissing, "to_k"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := dialects.Read(write(t, x.metadata, x.tensors), model, dialects.Options{})
			require.Error(t, err)
			assert.True(t, errors.Is(err, x.kind), "%v", err)
			assert.Contains(t, err.Error(), x.text)
			assert.Contains(t, err.Error(), "adapter.safetensors")
			assert.NotContains(t, err.Error(), "\n")
		})
	}
}

func must(t tensor.Tensor, err error) tensor.Tensor {
	if err != nil {
		panic(err)
	}
	return t
}

func one(x float32) tensor.Tensor { return must(tensor.FromFloat32s([]float32{x})) }

package lora_test

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/weights"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/safetensors/torchfile"
	"github.com/lorafuse/lorafuse/tensor"
)

// Every adapter that PEFT wrote is accounted for to the last tensor.
func TestCheckFixtures(t *testing.T) {
	for _, f := range fixtures(t) {
		t.Run(f.name, func(t *testing.T) {
			a := load(t, f.dir)
			p, err := lora.NewPlacement(a.Config, readModel(t, f.model))
			require.NoError(t, err)
			inFile := len(a.Names())
			r := a.Check(p, lora.CheckOptions{AllowZeroB: f.begins, AllowRandomBase: true})
			require.NoError(t, r.Err())
			assert.Equal(t, inFile, r.Tensors)
			assert.Positive(t, r.Params)
			// The other way round: the plan names the tensors of the file.
			for _, s := range p.Tensors() {
				_, ok := a.Tensor(s.Key)
				assert.True(t, ok || s.Optional, s.Key)
			}
			if f.begins && strings.HasPrefix(f.name, "lm/") {
				require.ErrorIs(t, a.Check(p, lora.CheckOptions{}).Err(), lora.ErrZeroB)
			}
		})
	}
}

func TestCheckRandomBase(t *testing.T) {
	a := load(t, "../testdata/peft/init-pissa-niter/adapter")
	p, err := lora.NewPlacement(a.Config, readModel(t, "../testdata/peft/base/small-llama"))
	require.NoError(t, err)
	err = a.Check(p, lora.CheckOptions{}).Err()
	require.ErrorIs(t, err, lora.ErrUnsupported)
	assert.ErrorContains(t, err, "pissa_niter_4")
}

// small is an adapter on q_proj of layer 1, one tensor per key.
func small(t *testing.T) (map[string]tensor.Tensor, *lora.Placement) {
	p := place(t, `"target_modules":["k_proj"],"layers_to_transform":[1],"r":2`, decoder(false))
	return map[string]tensor.Tensor{
		"base_model.model.model.layers.1.self_attn.k_proj.lora_A.weight": ramp(t, 2, 8),
		"base_model.model.model.layers.1.self_attn.k_proj.lora_B.weight": ramp(t, 4, 2),
	}, p
}

func ramp(t testing.TB, shape ...int) tensor.Tensor {
	n, err := tensor.NumElements(shape)
	require.NoError(t, err)
	values := make([]float32, n)
	for i := range values {
		values[i] = float32(i+1) / 8
	}
	v, err := tensor.FromFloat32s(values, shape...)
	require.NoError(t, err)
	return v
}

func adapterOf(t *testing.T, c *lora.Config, tensors map[string]tensor.Tensor) *lora.Adapter {
	var all []lora.Tensor
	for key, v := range tensors {
		all = append(all, lora.Tensor{Key: key, Tensor: v})
	}
	a, err := lora.New(c, all)
	require.NoError(t, err)
	return a
}

func TestCheckProblems(t *testing.T) {
	const (
		keyA = "base_model.model.model.layers.1.self_attn.k_proj.lora_A.weight"
		keyB = "base_model.model.model.layers.1.self_attn.k_proj.lora_B.weight"
	)
	type tensors = map[string]tensor.Tensor
	move := func(from, to string) func(tensors) {
		return func(m tensors) { m[to] = m[from]; delete(m, from) }
	}
	for name, c := range map[string]struct {
		change func(tensors)
		kinds  []error
		want   string
	}{
		"missing":      {func(m tensors) { delete(m, keyB) }, []error{lora.ErrMissing}, keyB + ": tensor is missing"},
		"nothing":      {func(m tensors) { clear(m) }, []error{lora.ErrMissing}, keyA + ": tensor is missing (and 1 more like it)"},
		"extra":        {func(m tensors) { m["base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight"] = m[keyA] }, []error{lora.ErrUnmatched}, `"model.layers.1.self_attn.q_proj" is not targeted by the configuration`},
		"adapter name": {move(keyA, strings.Replace(keyA, ".weight", ".default.weight", 1)), []error{lora.ErrUnmatched, lora.ErrMissing}, `the name "default" of the adapter is in the key, expected ` + keyA},
		"no prefix":    {move(keyA, strings.TrimPrefix(keyA, "base_model.model.")), []error{lora.ErrUnmatched}, `its prefix is "", expected "base_model.model." as in ` + keyA},
		"other prefix": {move(keyA, "base_model.model.model.language_model.layers.1.self_attn.k_proj.lora_A.weight"), []error{lora.ErrUnmatched}, `its prefix is "base_model.model.model.language_model.", expected "base_model.model.model." as in `},
		"diffusers":    {move(keyA, "transformer.layers.1.self_attn.k_proj.lora.down.weight"), []error{lora.ErrUnmatched}, "this is how diffusers names tensors, expected keys such as " + keyA},
		"kohya":        {move(keyA, "lora_unet_layers_1_self_attn_k_proj.lora_down.weight"), []error{lora.ErrUnmatched}, "this is how kohya names tensors"},
		"mlx":          {move(keyA, "model.layers.1.self_attn.k_proj.lora_a"), []error{lora.ErrUnmatched}, "this is how MLX or llama.cpp names tensors"},
		"typing error": {move(keyB, strings.Replace(keyB, "k_proj", "k_porj", 1)), []error{lora.ErrUnmatched, lora.ErrMissing}, "the nearest in the file is base_model.model.model.layers.1.self_attn.k_porj.lora_B.weight"},
		"stranger":     {func(m tensors) { m["x"] = m[keyA] }, []error{lora.ErrUnmatched}, "x: tensor matches no target: expected keys such as " + keyA},
		"transposed A": {func(m tensors) { m[keyA] = ramp(t, 8, 2) }, []error{lora.ErrOrientation, lora.ErrShape}, "found [8 2], expected [2 8]: other tools store A as [in, rank]"},
		"transposed B": {func(m tensors) { m[keyB] = ramp(t, 2, 4) }, []error{lora.ErrOrientation}, "transposed"},
		"other rank":   {func(m tensors) { m[keyA], m[keyB] = ramp(t, 3, 8), ramp(t, 4, 3) }, []error{lora.ErrShape}, "its rank is 3, that of the configuration 2, so the scale 4 would be wrong"},
		"other size":   {func(m tensors) { m[keyA] = ramp(t, 2, 7) }, []error{lora.ErrShape}, "wrong shape: found [2 7], expected [2 8]"},
		"scalar":       {func(m tensors) { m[keyA] = ramp(t) }, []error{lora.ErrShape}, "found [], expected [2 8]"},
		"integers":     {func(m tensors) { m[keyA] = tensor.Tensor{DType: tensor.I8, Shape: []int{2, 8}, Data: make([]byte, 16)} }, []error{lora.ErrDType}, "found I8, expected a float"},
		"NaN":          {func(m tensors) { m[keyA] = with(t, m[keyA], 5, float32(math.NaN())) }, []error{lora.ErrNotFinite}, "element 5 is NaN"},
		"infinity":     {func(m tensors) { m[keyB] = with(t, m[keyB], 7, float32(math.Inf(-1))) }, []error{lora.ErrNotFinite}, "element 7 is -Inf"},
		"B is zero":    {func(m tensors) { m[keyB] = zeros(t, 4, 2) }, []error{lora.ErrZeroB}, keyB + ": does nothing: all of B is zero"},
		"A is zero":    {func(m tensors) { m[keyA] = zeros(t, 2, 8) }, []error{lora.ErrZeroB}, keyA + ": does nothing: all of A is zero"},
		"resized":      {func(m tensors) { m["base_model.model.lm_head.weight"] = ramp(t, 21, 8) }, []error{lora.ErrShape}, "the vocabulary of the base model was resized"},
	} {
		t.Run(name, func(t *testing.T) {
			m, p := small(t)
			c.change(m)
			r := adapterOf(t, p.Config(), m).Check(p, lora.CheckOptions{})
			err := r.Err()
			require.Error(t, err)
			for _, kind := range c.kinds {
				require.ErrorIs(t, err, kind)
			}
			assert.ErrorContains(t, err, c.want)
			assert.NotContains(t, err.Error(), "\n")
			var all *lora.CheckError
			require.ErrorAs(t, err, &all)
			assert.Equal(t, r.Problems, all.Problems)
		})
	}
	m, p := small(t)
	require.NoError(t, adapterOf(t, p.Config(), m).Check(p, lora.CheckOptions{}).Err())
	m["base_model.model.lm_head.weight"] = ramp(t, 20, 8) // as after a resize to the same size
	require.NoError(t, adapterOf(t, p.Config(), m).Check(p, lora.CheckOptions{}).Err())
	m[keyB] = zeros(t, 4, 2)
	require.NoError(t, adapterOf(t, p.Config(), m).Check(p, lora.CheckOptions{AllowZeroB: true}).Err())
}

// Targets that do nothing are a warning, unless no target does anything.
func TestCheckSomeZeroB(t *testing.T) {
	const key = "base_model.model.model.layers.%d.self_attn.k_proj.lora_%s.weight"
	p := place(t, `"target_modules":["k_proj"],"layers_to_transform":[0,1],"r":2`, decoder(false))
	m := map[string]tensor.Tensor{}
	for i := range 2 {
		m[fmt.Sprintf(key, i, "A")], m[fmt.Sprintf(key, i, "B")] = ramp(t, 2, 8), ramp(t, 4, 2)
	}
	m[fmt.Sprintf(key, 1, "B")] = zeros(t, 4, 2)
	r := adapterOf(t, p.Config(), m).Check(p, lora.CheckOptions{})
	require.NoError(t, r.Err())
	require.Contains(t, r.Warnings, "without effect: "+fmt.Sprintf(key, 1, "B")+": all of B is zero, as before training")
	m[fmt.Sprintf(key, 0, "B")] = zeros(t, 4, 2)
	require.ErrorIs(t, adapterOf(t, p.Config(), m).Check(p, lora.CheckOptions{}).Err(), lora.ErrZeroB)
}

// TestCheckWithoutPooler: PEFT also adapts the pooler that transformers adds to an encoder
// whose checkpoint has none, with random weights.
func TestCheckWithoutPooler(t *testing.T) {
	m, p := small(t)
	for _, role := range []string{"A", "B"} {
		m["base_model.model.pooler.dense.lora_"+role+".weight"] = ramp(t, 2, 2)
	}
	r := adapterOf(t, p.Config(), m).Check(p, lora.CheckOptions{})
	require.NoError(t, r.Err())
	require.Contains(t, r.Warnings, "without effect: pooler.dense: the checkpoint has no pooler")

	encoder := decoder(false)
	encoder.Modules = append(encoder.Modules, lora.Module{Name: "pooler.dense", In: 8, Out: 8})
	p = place(t, `"target_modules":["k_proj"],"layers_to_transform":[1],"r":2`, encoder)
	require.ErrorIs(t, adapterOf(t, p.Config(), m).Check(p, lora.CheckOptions{}).Err(), lora.ErrUnmatched)
}

func with(t *testing.T, v tensor.Tensor, i int, f float32) tensor.Tensor {
	values, err := v.Float32s()
	require.NoError(t, err)
	values[i] = f
	v, err = tensor.FromFloat32s(values, v.Shape...)
	require.NoError(t, err)
	return v
}

func zeros(t *testing.T, shape ...int) tensor.Tensor {
	v, err := tensor.New(tensor.F32, shape...)
	require.NoError(t, err)
	return v
}

func TestCheckReportsConfiguration(t *testing.T) {
	m, _ := small(t)
	p := place(t, `"target_modules":["k_proj","nope"],"layers_to_transform":[1],"r":2,"future_key":1`, decoder(false))
	a := adapterOf(t, parse(t, `"future_key":1`), m)
	r := a.Check(p, lora.CheckOptions{})
	require.NoError(t, r.Err())
	assert.Contains(t, r.Warnings, `unknown key "future_key" is ignored`)
	assert.Contains(t, r.Warnings, `without effect: target_modules: "nope", did you mean "norm"?`)
	assert.Equal(t, 2, r.Tensors)
	assert.Equal(t, 24, r.Params)
	assert.Equal(t, 1, r.Targets)
}

func TestLoadErrors(t *testing.T) {
	dir := t.TempDir()
	_, err := lora.Load(dir)
	require.ErrorIs(t, err, os.ErrNotExist)
	config, err := os.ReadFile("../testdata/lm/llama/adapters/lora/adapter_config.json")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, lora.ConfigFile), config, 0o600))
	_, err = lora.Load(dir)
	require.ErrorIs(t, err, os.ErrNotExist)
	assert.ErrorContains(t, err, lora.WeightsFile)
	assert.ErrorContains(t, err, lora.TorchWeightsFile)
	require.NoError(t, os.WriteFile(filepath.Join(dir, lora.TorchWeightsFile), nil, 0o600))
	_, err = lora.Load(dir)
	require.ErrorIs(t, err, torchfile.ErrNotTorch)
	assert.ErrorContains(t, err, dir)
	bin, err := os.ReadFile("../testdata/peft/file-bin/adapter/" + lora.TorchWeightsFile)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, lora.TorchWeightsFile), bin, 0o600))
	a, err := lora.Load(dir)
	require.NoError(t, err)
	require.Equal(t, weights.Source{Path: filepath.Join(dir, lora.TorchWeightsFile), Format: "torch zip", Fallback: true, Why: "the folder has no adapter_model.safetensors"}, a.Source)
	require.NoError(t, a.Close())
	// A broken file is not passed over.
	require.NoError(t, os.WriteFile(filepath.Join(dir, lora.WeightsFile), []byte("12345678"), 0o600))
	_, err = lora.Load(dir)
	require.Error(t, err)
	assert.ErrorContains(t, err, dir)
}

func TestNewErrors(t *testing.T) {
	v := ramp(t, 2)
	_, err := lora.New(lora.DefaultConfig(), []lora.Tensor{{Key: "a", Tensor: v}, {Key: "a", Tensor: v}})
	assert.ErrorContains(t, err, `"a" is given twice`)
	v.Shape = []int{3}
	_, err = lora.New(lora.DefaultConfig(), []lora.Tensor{{Key: "a", Tensor: v}})
	require.ErrorIs(t, err, tensor.ErrLength)
	a, err := lora.New(lora.DefaultConfig(), nil)
	require.NoError(t, err)
	_, err = a.Float32s("a")
	require.ErrorIs(t, err, lora.ErrMissing)
	assert.True(t, errors.Is(err, lora.ErrMissing))
}

// Compressed weights are read when the adapter is, and what is wrong with them is
// found then.
func TestLoadCompressed(t *testing.T) {
	from := "../testdata/peft/file-bin/adapter"
	dir := t.TempDir()
	config, err := os.ReadFile(filepath.Join(from, lora.ConfigFile))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, lora.ConfigFile), config, 0o600))
	r, err := zip.OpenReader(filepath.Join(from, lora.TorchWeightsFile))
	require.NoError(t, err)
	defer r.Close()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, f := range r.File {
		record, err := f.Open()
		require.NoError(t, err)
		to, err := w.Create(f.Name)
		require.NoError(t, err)
		_, err = io.Copy(to, record)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	path := filepath.Join(dir, lora.TorchWeightsFile)
	require.NoError(t, os.WriteFile(path, b.Bytes(), 0o600))
	a := load(t, dir)
	requireEqual(t, load(t, from), a)

	at := bytes.Index(b.Bytes(), []byte("/data/0")) + len("/data/0")
	copy(b.Bytes()[at:], bytes.Repeat([]byte{0xff}, 16))
	require.NoError(t, os.WriteFile(path, b.Bytes(), 0o600))
	_, err = lora.Load(dir)
	require.ErrorIs(t, err, torchfile.ErrZip)
	require.ErrorContains(t, err, "data/0")
}

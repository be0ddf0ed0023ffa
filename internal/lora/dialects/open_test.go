package dialects_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/lora/dialects"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// Open takes files, folders of diffusers and folders of PEFT.
func TestOpen(t *testing.T) {
	model := qwen()
	path := filepath.Join(fixtures, "lora-dialects/kohya-qwen.safetensors")
	a, err := dialects.Open(path, model, dialects.Options{})
	require.NoError(t, err)

	dir := t.TempDir()
	_, err = dialects.Open(dir, model, dialects.Options{})
	require.ErrorIs(t, err, fs.ErrNotExist)
	assert.Contains(t, err.Error(), dialects.File)

	require.NoError(t, dialects.Write(filepath.Join(dir, dialects.File), dialects.Diffusers, model, a.Config, tensorsOf(a)))
	b, err := dialects.Open(dir, model, dialects.Options{})
	require.NoError(t, err)
	assert.ElementsMatch(t, tensorsOf(a), tensorsOf(b))

	peft := t.TempDir()
	require.NoError(t, lora.Save(peft, a.Config, tensorsOf(a)))
	c, err := dialects.Open(peft, model, dialects.Options{})
	require.NoError(t, err)
	defer c.Close()
	assert.ElementsMatch(t, a.Names(), c.Names())
	// The weights of a folder of PEFT's keep the alpha that is beside them.
	d, err := dialects.Open(filepath.Join(peft, lora.WeightsFile), model, dialects.Options{})
	require.NoError(t, err)
	defer d.Close()
	assert.Equal(t, a.Config.LoraAlpha, d.Config.LoraAlpha)
}

// LoadState has the strength of the file, and refuses what does nothing.
func TestLoadState(t *testing.T) {
	model := qwen()
	s, err := dialects.LoadState(filepath.Join(fixtures, "lora-dialects/comfy-qwen.safetensors"), noWeights{}, model, lora.CheckOptions{})
	require.NoError(t, err)
	assert.Equal(t, 0.5, s.Placement.Targets[0].Scale)
	assert.Len(t, s.Values, 10)

	a := random(1, tensor.F32, 4, 8)
	zero := must(tensor.New(tensor.F32, 12, 4))
	path := write(t, nil, map[string]tensor.Tensor{"lora_unet_img_in.lora_down.weight": a, "lora_unet_img_in.lora_up.weight": zero})
	_, err = dialects.LoadState(path, noWeights{}, model, lora.CheckOptions{})
	require.ErrorIs(t, err, lora.ErrZeroB)
	_, err = dialects.LoadState(path, noWeights{}, model, lora.CheckOptions{AllowZeroB: true})
	require.NoError(t, err)
}

type noWeights struct{}

func (noWeights) Weight(name string) (nn.Weight, error) { return nn.Weight{}, nn.ErrMissing }
func (noWeights) Has(string) bool                       { return false }

// Tensors of text encoders can be left out, others never.
func TestTransformerOnly(t *testing.T) {
	model := qwen()
	tensors := map[string]tensor.Tensor{
		"lora_unet_img_in.lora_down.weight":                 random(1, tensor.F16, 4, 8),
		"lora_unet_img_in.lora_up.weight":                   random(2, tensor.F16, 12, 4),
		"lora_te1_text_model_encoder_x.lora_down.weight":    random(1, tensor.F16, 4, 8),
		"text_encoder.text_model.encoder.x.lora_A.weight":   random(1, tensor.F16, 4, 8),
		"text_encoders.clip_l.transformer.x.lora_up.weight": random(1, tensor.F16, 4, 8),
	}
	path := write(t, nil, tensors)
	_, err := dialects.Read(path, model, dialects.Options{})
	require.ErrorIs(t, err, dialects.ErrElsewhere)
	a, err := dialects.Read(path, model, dialects.Options{TransformerOnly: true})
	require.NoError(t, err)
	assert.Len(t, a.Names(), 2)
}

// The configuration names few ends of names, and never more modules than the file has.
func TestTargets(t *testing.T) {
	model := transformer(t, "flux")
	for _, x := range []struct {
		chosen         func(string) bool
		names, exclude []string
	}{
		{func(name string) bool { return hasEnd(name, ".to_q", ".to_out.0") }, []string{"to_out.0", "to_q"}, nil},
		{func(name string) bool { return name == "proj_out" }, []string{"proj_out"}, []string{"single_transformer_blocks.0.proj_out", "single_transformer_blocks.1.proj_out"}},
		{func(name string) bool { return hasEnd(name, "proj_out") }, []string{"proj_out"}, nil},
		{func(name string) bool { return name == "transformer_blocks.0.attn.to_q" }, []string{"transformer_blocks.0.attn.to_q"}, []string{}},
		{func(name string) bool {
			return name == "transformer_blocks.0.ff.net.0.proj" || name == "transformer_blocks.1.ff.net.0.proj"
		}, []string{"ff.net.0.proj"}, nil},
	} {
		tensors := map[string]tensor.Tensor{}
		for _, m := range model.Modules {
			if m.Kind == lora.Linear && x.chosen(m.Name) {
				tensors["transformer."+m.Name+".lora_A.weight"] = random(1, tensor.F32, 2, m.In)
				tensors["transformer."+m.Name+".lora_B.weight"] = random(2, tensor.F32, m.Out, 2)
			}
		}
		a, err := dialects.Read(write(t, nil, tensors), model, dialects.Options{})
		require.NoError(t, err)
		assert.Equal(t, x.names, a.Config.TargetModules.Names)
		assert.ElementsMatch(t, x.exclude, a.Config.ExcludeModules.Names)
		assert.Len(t, a.Names(), len(tensors))
	}
}

func hasEnd(name string, ends ...string) bool {
	for _, e := range ends {
		if len(name) >= len(e) && name[len(name)-len(e):] == e {
			return true
		}
	}
	return false
}

// What a form has no place for is refused.
func TestWriteRefuses(t *testing.T) {
	model := qwen()
	a, err := dialects.Read(filepath.Join(fixtures, "lora-dialects/kohya-qwen.safetensors"), model, dialects.Options{})
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "x.safetensors")
	c := a.Config.Clone()
	c.InitLoraWeights = lora.InitPiSSA
	require.ErrorIs(t, dialects.Write(path, dialects.Diffusers, model, c, tensorsOf(a)), lora.ErrUnsupported)
	require.ErrorIs(t, dialects.Write(path, dialects.Kohya, model, a.Config, tensorsOf(a)[1:]), lora.ErrMissing)
	err = dialects.Write(path, "diffuser", model, a.Config, tensorsOf(a))
	require.ErrorContains(t, err, `did you mean "diffusers"?`)
	assert.NoFileExists(t, path)
}

// FuzzRead: no file makes it panic, and what it reads fits the model.
func FuzzRead(f *testing.F) {
	for _, name := range []string{"kohya-qwen", "comfy-qwen"} {
		data, err := os.ReadFile(filepath.Join(fixtures, "lora-dialects", name+".safetensors"))
		require.NoError(f, err)
		f.Add(data)
	}
	for _, key := range []string{"lora_unet_double_blocks_0_img_attn_qkv", "transformer.proj_out"} {
		path := write(f, map[string]string{"lora_adapter_metadata": `{"transformer.r": 2, "transformer.lora_alpha": 4}`}, map[string]tensor.Tensor{
			key + ".lora_down.weight": random(1, tensor.F32, 2, 3), key + ".lora_up.weight": random(2, tensor.F32, 6, 2), key + ".alpha": one(1),
		})
		data, err := os.ReadFile(path)
		require.NoError(f, err)
		f.Add(data)
	}
	model := qwen()
	small := linear(3, 2, "transformer_blocks.0.attn.to_q", "transformer_blocks.0.attn.to_k", "transformer_blocks.0.attn.to_v", "single_transformer_blocks.0.proj_mlp", "proj_out", "norm_out.linear")
	path := filepath.Join(f.TempDir(), "x.safetensors")
	f.Fuzz(func(t *testing.T, data []byte) {
		require.NoError(t, os.WriteFile(path, data, 0o666))
		if x, err := safetensors.Open(path); err != nil {
			return
		} else {
			x.Close()
		}
		for _, m := range []lora.Model{model, small} {
			a, err := dialects.Read(path, m, dialects.Options{TransformerOnly: true})
			if err != nil {
				continue
			}
			p, err := lora.NewPlacement(a.Config, m)
			require.NoError(t, err)
			require.NoError(t, a.Check(p, lora.CheckOptions{AllowZeroB: true}).Err())
		}
	})
}

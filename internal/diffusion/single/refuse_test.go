package single_test

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/diffusion/single"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/safetensors"
)

// one is a tensor of one number.
func one(name string, d safetensors.DType) safetensors.Entry {
	return safetensors.Entry{Name: name, DType: d, Shape: []int{1}, Data: make([]byte, d.Bits()/8)}
}

// What is no transformer, or not whole, or more than one, is refused with its file and key.
func TestRefusals(t *testing.T) {
	_, plain := fresh(t, narrow, safetensors.BF16)
	original := released(t, "FluxTransformer2DModel", plain)
	without := func(form []safetensors.Entry, name string) []safetensors.Entry {
		left := slices.DeleteFunc(slices.Clone(form), func(e safetensors.Entry) bool { return e.Name == name })
		require.Len(t, left, len(form)-1)
		return left
	}
	with := func(form []safetensors.Entry, names ...string) []safetensors.Entry {
		form = slices.Clone(form)
		for _, name := range names {
			form = append(form, one(name, safetensors.F32))
		}
		return form
	}
	as := func(d safetensors.DType) []safetensors.Entry {
		form := slices.Clone(original)
		form[3].DType, form[3].Shape = d, append([]int{len(form[3].Data) * 8 / d.Bits()}, make([]int, 0)...)
		return form
	}
	cut := slices.Clone(original)
	for i, e := range cut {
		if e.Name == "double_blocks.0.img_attn.qkv.bias" {
			cut[i].Shape, cut[i].Data = []int{e.Shape[0] - 1}, e.Data[2:]
		}
	}
	_, guided := fresh(t, map[string]any{"_class_name": "Flux2Transformer2DModel", "num_layers": 1, "num_single_layers": 1, "num_attention_heads": 1, "in_channels": 16, "joint_attention_dim": 8, "timestep_guidance_channels": 8}, safetensors.F16)

	for name, x := range map[string]struct {
		form   []safetensors.Entry
		prefix string
		is     error
		says   string
	}{
		"empty":          {nil, "", single.ErrFile, "found no tensors"},
		"else":           {with(nil, "rows"), "", single.ErrFile, `found tensors like "rows", expected those of FluxTransformer2DModel`},
		"an adapter":     {with(nil, "transformer.x_embedder.lora_A.weight"), "", single.ErrFile, `"transformer.x_embedder.lora_A.weight" is one of an adapter`},
		"kohya's":        {with(nil, "lora_unet_double_blocks_0_img_attn_qkv.lora_down.weight"), "", single.ErrFile, "is one of an adapter"},
		"a VAE":          {with(nil, "decoder.conv_in.weight"), "", single.ErrFile, `"decoder.conv_in.weight" is one of an autoencoder`},
		"chroma":         {with(without(original, "vector_in.in_layer.weight"), "distilled_guidance_layer.in_proj.bias"), "", single.ErrFile, "is one of Chroma"},
		"unknown":        {with(original, "double_blocks.0.img_attn.qvk.weight"), "", single.ErrFile, `"double_blocks.0.img_attn.qvk.weight": unknown name, did you mean "double_blocks.0.img_attn.qkv"?`},
		"unread":         {with(plain, "transformer_blocks.0.attn.to_w.weight"), "diffusion_model.", single.ErrFile, `"diffusion_model.transformer_blocks.0.attn.to_w.weight": a FluxTransformer2DModel of its configuration reads none of that name, did you mean`},
		"a gap":          {with(plain, "transformer_blocks.2.attn.to_q.weight"), "", single.ErrFile, `"transformer_blocks.2.attn.to_q.weight": a FluxTransformer2DModel of its configuration reads none`},
		"mixed":          {with(original, "transformer_blocks.0.attn.to_q.weight"), "", single.ErrFile, `a mix of forms: tensor "transformer_blocks.0.attn.to_q.weight" has a name of diffusers, the others have those of the first release: it is "double_blocks.0.img_attn.qkv.weight" there`},
		"both":           {slices.Concat(plain, original), "", single.ErrFile, "a mix of forms: it has both"},
		"two":            {slices.Concat(plain, prefixed("diffusion_model.", guided)), "", single.ErrFile, "a mix of forms"},
		"twice":          {with(original, "double_blocks.0.img_attn.norm.query_norm.weight"), "", single.ErrFile, "a mix of forms"},
		"missing":        {without(original, "double_blocks.0.img_attn.qkv.weight"), "", single.ErrFile, "found tensors like"},
		"missing norm":   {without(original, "double_blocks.0.txt_attn.norm.key_norm.scale"), "model.diffusion_model.", nn.ErrMissing, `"model.diffusion_model.double_blocks.0.txt_attn.norm.key_norm.scale" is missing`},
		"missing bias":   {without(plain, "proj_out.bias"), "", nn.ErrMissing, "proj_out.bias"},
		"no layer":       {without(original, "final_layer.linear.weight"), "", single.ErrFile, `found no tensor "final_layer.linear.weight"`},
		"uneven":         {cut, "", single.ErrFile, `"double_blocks.0.img_attn.qkv.bias": found the shape [383], expected rows that are a multiple of 3`},
		"integers":       {as(safetensors.U8), "", single.ErrFile, "found weights of U8, expected F32, F16, BF16, F8_E4M3 or F8_E5M2"},
		"scale of none":  {with(original, "double_blocks.7.img_attn.qkv.scale_weight"), "", single.ErrFile, `"double_blocks.7.img_attn.qkv.scale_weight": found no tensor "double_blocks.7.img_attn.qkv.weight" that it is the scale of`},
		"scale of words": {append(slices.Clone(original), one("img_in.scale_weight", safetensors.I32)), "", single.ErrFile, `its scale "img_in.scale_weight": found I32[1]`},
	} {
		t.Run(name, func(t *testing.T) {
			path := write(t, t.TempDir(), x.prefix, x.form)
			m, err := single.Open(path, "")
			require.Nil(t, m)
			require.ErrorIs(t, err, x.is)
			require.ErrorContains(t, err, x.says)
			require.ErrorContains(t, err, path)
			require.NotContains(t, err.Error(), "\n")
		})
	}
	path := write(t, t.TempDir(), "", original)
	outside := filepath.Join(t.TempDir(), "x.safetensors")
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(outside, raw[:len(raw)-1], 0o666))
	_, err = single.Open(outside, "")
	require.ErrorIs(t, err, safetensors.ErrTruncated)
	_, err = single.Open(filepath.Dir(path), "")
	require.ErrorContains(t, err, "a folder")

	// Other parts of a whole checkpoint are left alone; of another file they are unknown.
	whole := write(t, t.TempDir(), "", with(prefixed("model.diffusion_model.", original), "vae.decoder.conv_in.weight", "text_encoders.t5xxl.logit_scale"))
	m, err := single.Open(whole, "")
	require.NoError(t, err)
	require.NoError(t, m.Close())
	_, err = single.Open(write(t, t.TempDir(), "", with(prefixed("diffusion_model.", original), "vae.decoder.conv_in.weight")), "")
	require.ErrorContains(t, err, `"vae.decoder.conv_in.weight" has not the prefix "diffusion_model." of the others`)
}

func prefixed(prefix string, tensors []safetensors.Entry) []safetensors.Entry {
	tensors = slices.Clone(tensors)
	for i := range tensors {
		tensors[i].Name = prefix + tensors[i].Name
	}
	return tensors
}

// A config.json is that of the class, and of all layers; one of something else is none.
func TestConfigs(t *testing.T) {
	_, plain := fresh(t, narrow, safetensors.BF16)
	dir := t.TempDir()
	path, config := write(t, dir, "", plain), filepath.Join(dir, "config.json")
	put := func(text string) { require.NoError(t, os.WriteFile(config, []byte(text), 0o666)) }
	put(`{"model_type": "t5"}`)
	m, err := single.Open(path, "")
	require.NoError(t, err)
	require.NoError(t, m.Close())
	_, err = single.Open(path, config)
	require.ErrorIs(t, err, model.ErrConfig)
	require.ErrorContains(t, err, `_class_name: found "", expected "FluxTransformer2DModel"`)
	put(`{"_class_name": "AutoencoderKL"}`)
	_, err = single.Open(path, "")
	require.ErrorContains(t, err, config)
	require.ErrorContains(t, err, `_class_name: found "AutoencoderKL", expected "FluxTransformer2DModel"`)
	put(`{`)
	_, err = single.Open(path, "")
	require.ErrorIs(t, err, model.ErrConfig)
	_, err = single.Open(path, filepath.Join(dir, "none.json"))
	require.ErrorContains(t, err, "none.json")

	narrow := strings.ReplaceAll(string(encode(t, narrow)), `"num_layers":1`, `"num_layers":0`)
	put(narrow)
	_, err = single.Open(path, "")
	require.ErrorIs(t, err, single.ErrFile)
	require.ErrorContains(t, err, "of its configuration reads none of that name")
	put(strings.ReplaceAll(narrow, `"num_attention_heads":1`, `"num_attention_heads":2`))
	_, err = single.Open(path, "")
	require.ErrorIs(t, err, nn.ErrShape)
}

// ComfyUI marks the files of Qwen-Image-Edit whose controls are as at timestep 0.
func TestMarkOfEdit(t *testing.T) {
	c, plain := fresh(t, map[string]any{"_class_name": "QwenImageTransformer2DModel", "num_layers": 1, "num_attention_heads": 1, "zero_cond_t": true}, safetensors.F16)
	m, err := single.Open(write(t, t.TempDir(), "model.diffusion_model.", append(plain, one("__index_timestep_zero__", safetensors.F32))), "")
	require.NoError(t, err)
	defer m.Close()
	require.Equal(t, c.Family, m.Config.Family)
}

// FuzzOpen opens files of tensors with any names and shapes: there is a transformer in them,
// or an error, and never a panic.
func FuzzOpen(f *testing.F) {
	_, plain := fresh(f, map[string]any{"_class_name": "FluxTransformer2DModel", "num_layers": 1, "num_single_layers": 1, "num_attention_heads": 1, "attention_head_dim": 4,
		"axes_dims_rope": []int{0, 2, 2}, "in_channels": 4, "joint_attention_dim": 1, "pooled_projection_dim": 1}, safetensors.F8E4M3)
	for _, form := range [][]safetensors.Entry{plain, released(f, "FluxTransformer2DModel", plain), nil} {
		var text strings.Builder
		for _, e := range form {
			text.WriteString(e.Name)
			for _, d := range e.Shape {
				text.WriteString(" " + strconv.Itoa(d))
			}
			text.WriteString("\n")
		}
		f.Add(text.String())
		f.Add(text.String() + "scaled_fp8\nimg_in.scale_weight\nimg_in.weight_scale 4\n")
	}
	f.Add("double_stream_modulation_img.lin.weight 0\nfinal_layer.adaLN_modulation.1.weight")
	f.Add("cap_pad_token 1\nlayers.0.attention.qkv.weight 3 128\nlayers.0.attention.q_norm.weight 128")
	f.Fuzz(func(t *testing.T, text string) {
		var form []safetensors.Entry
		for line := range strings.Lines(text) {
			words := strings.Fields(line)
			if len(words) == 0 {
				continue
			}
			e, n := safetensors.Entry{Name: words[0], DType: safetensors.F8E4M3}, 1
			for _, word := range words[1:] {
				d, err := strconv.Atoi(word)
				if err != nil || d < 0 || d > 1024 || n*d > 1<<16 {
					return
				}
				e.Shape, n = append(e.Shape, d), n*d
			}
			e.Data = make([]byte, n)
			form = append(form, e)
		}
		path := filepath.Join(t.TempDir(), "x.safetensors")
		if safetensors.WriteFile(path, form, nil) != nil {
			return
		}
		m, err := single.Open(path, "")
		if err != nil {
			return
		}
		for _, name := range m.Used() {
			bytesOf(t, m, name)
		}
		require.NoError(t, m.Close())
	})
}

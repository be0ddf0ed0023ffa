package dialects_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/lora/dialects"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tensor"
)

// What is not a LoHa or LoKr of linear layers is rejected by name.
func TestLycorisErrors(t *testing.T) {
	model := qwen()
	const q = "lycoris_transformer_blocks_0_attn_to_q." // [12, 8]
	m := func(rows, columns int) tensor.Tensor { return random(1, tensor.F32, rows, columns) }
	loha := map[string]tensor.Tensor{q + "hada_w1_a": m(12, 2), q + "hada_w1_b": m(2, 8), q + "hada_w2_a": m(12, 2), q + "hada_w2_b": m(2, 8)}
	lokr := map[string]tensor.Tensor{q + "lokr_w1": m(3, 2), q + "lokr_w2": m(4, 4)}
	with := func(base, more map[string]tensor.Tensor) map[string]tensor.Tensor {
		x := maps.Clone(base)
		maps.Copy(x, more)
		return x
	}
	for says, x := range map[string]map[string]tensor.Tensor{
		q + "dora_scale: not supported":                 with(loha, map[string]tensor.Tensor{q + "dora_scale": m(12, 1)}),
		q + "hada_t1: not supported":                    with(loha, map[string]tensor.Tensor{q + "hada_t1": m(2, 2)}),
		q + "lokr_t2: not supported":                    with(lokr, map[string]tensor.Tensor{q + "lokr_t2": m(2, 2)}),
		"lora_down.weight: not supported":               with(loha, map[string]tensor.Tensor{q + "lora_down.weight": m(2, 8)}),
		"hada_w2_b: tensor is missing":                  {q + "hada_w1_a": m(12, 2), q + "hada_w1_b": m(2, 8), q + "hada_w2_a": m(12, 2)},
		"found [12 3], expected [12 2]":                 with(loha, map[string]tensor.Tensor{q + "hada_w2_a": m(12, 3)}),
		"as linear layers have":                         with(loha, map[string]tensor.Tensor{q + "hada_w2_a": random(1, tensor.F32, 12, 2, 1, 1)}),
		"has the same place":                            with(loha, map[string]tensor.Tensor{"diffusion_model.transformer_blocks.0.attn.to_q.hada_w1_a": m(12, 2)}),
		`did you mean "transformer_blocks_0_attn_to_k"`: with(loha, map[string]tensor.Tensor{"lycoris_transformer_blocks_0_attn_to_p.hada_w1_a": m(12, 2)}),
		"or both lokr_w2_a and lokr_w2_b instead":       {q + "lokr_w1": m(3, 2)},
		"which no decompose_factor":                     {q + "lokr_w1": m(6, 2), q + "lokr_w2": m(2, 4), "lycoris_img_in.lokr_w1": m(2, 2), "lycoris_img_in.lokr_w2": m(6, 4)},
		"expected the rank 1":                           {q + "lokr_w1": m(3, 2), q + "lokr_w2_a": m(4, 1), q + "lokr_w2_b": m(2, 4)},
		"alpha is 0":                                    with(loha, map[string]tensor.Tensor{q + "alpha": must(tensor.New(tensor.F32))}),
		"not of the transformer":                        with(loha, map[string]tensor.Tensor{"lora_te1_x.hada_w1_a": m(2, 2)}),
	} {
		_, err := dialects.Read(write(t, nil, x), model, dialects.Options{})
		require.ErrorContains(t, err, says)
	}
	_, err := dialects.Read(write(t, nil, map[string]tensor.Tensor{
		"lora_unet_double_blocks_0_img_attn_qkv.lokr_w1": m(2, 2), "lora_unet_double_blocks_0_img_attn_qkv.lokr_w2": m(2, 2),
	}), transformer(t, "flux"), dialects.Options{})
	require.ErrorIs(t, err, lora.ErrUnsupported)
	require.ErrorContains(t, err, "Kronecker products cannot be divided")
}

// A layer that is several modules here has a LoHa for each: the rows of the left matrices are divided.
func TestLycorisJoined(t *testing.T) {
	model := transformer(t, "flux")
	i := slices.IndexFunc(model.Modules, func(m lora.Module) bool { return m.Name == "transformer_blocks.0.attn.to_q" })
	in, out := model.Modules[i].In, model.Modules[i].Out
	const name = "lora_unet_double_blocks_0_img_attn_qkv."
	left := random(1, tensor.F32, 3*out, 2)
	a, err := dialects.Read(write(t, nil, map[string]tensor.Tensor{
		name + "hada_w1_a": left, name + "hada_w1_b": random(2, tensor.F32, 2, in), name + "hada_w2_a": random(3, tensor.F32, 3*out, 2), name + "hada_w2_b": random(4, tensor.F32, 2, in), name + "alpha": one(3),
	}), model, dialects.Options{})
	require.NoError(t, err)
	for k, module := range []string{"to_q", "to_k", "to_v"} {
		x, ok := a.Tensor("base_model.model.transformer_blocks.0.attn." + module + ".hada_w1_a")
		require.True(t, ok)
		require.Equal(t, left.Data[k*out*2*4:(k+1)*out*2*4], x.Data)
	}
	require.Equal(t, 3.0, a.Config.LoraAlpha)
	require.Equal(t, 2, a.Config.R)
	require.Len(t, a.Names(), 12)
}

// LoKr of whole factors has the scale 1 in LyCORIS, whatever its alpha is. Other scales of PEFT are in the second factor
// of the file.
func TestLycorisWholeFactors(t *testing.T) {
	model := qwen()
	const q = "lycoris_transformer_blocks_0_attn_to_q."
	first, second := random(1, tensor.F32, 3, 2), random(2, tensor.F32, 4, 4)
	a, err := dialects.Read(write(t, nil, map[string]tensor.Tensor{q + "lokr_w1": first, q + "lokr_w2": second, q + "alpha": one(7)}), model, dialects.Options{})
	require.NoError(t, err)
	p, err := lora.NewPlacement(a.Config, model)
	require.NoError(t, err)
	require.Equal(t, 1.0, p.Targets[0].Scale)
	a.Config.LoraAlpha *= 3
	path := filepath.Join(t.TempDir(), "x.safetensors")
	require.NoError(t, dialects.Write(path, dialects.Lycoris, model, a.Config, tensorsOf(a)))
	b, err := dialects.Read(path, model, dialects.Options{})
	require.NoError(t, err)
	want, err := second.Float32s()
	require.NoError(t, err)
	key := slices.IndexFunc(b.Names(), func(n string) bool { return strings.HasSuffix(n, "lokr_w2") })
	got, err := b.Float32s(b.Names()[key])
	require.NoError(t, err)
	for i := range want {
		require.InDelta(t, 3*want[i], got[i], 1e-6)
	}
}

// Reading never panics.
func FuzzReadLycoris(f *testing.F) {
	for _, name := range []string{"loha-lycoris", "lokr-lycoris"} {
		data, err := os.ReadFile(filepath.Join(fixtures, "lycoris", name+".safetensors"))
		require.NoError(f, err)
		f.Add(data)
	}
	models := []lora.Model{modelOf(f, filepath.Join(fixtures, "zimage/transformer/diffusion_pytorch_model.safetensors")), qwen()}
	path := filepath.Join(f.TempDir(), "x.safetensors")
	f.Fuzz(func(t *testing.T, data []byte) {
		require.NoError(t, os.WriteFile(path, data, 0o666))
		for _, m := range models {
			_, _ = dialects.Read(path, m, dialects.Options{})
		}
	})
}

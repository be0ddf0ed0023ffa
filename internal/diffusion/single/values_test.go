package single_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/diffusion/single"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

func encode(t testing.TB, x any) []byte {
	raw, err := json.Marshal(x)
	require.NoError(t, err)
	return raw
}

// narrow is a FLUX.1 of one head.
var narrow = map[string]any{"_class_name": "FluxTransformer2DModel", "num_layers": 1, "num_single_layers": 1, "num_attention_heads": 1,
	"in_channels": 16, "joint_attention_dim": 8, "pooled_projection_dim": 8}

// Weights of 8 bits are what they are times their scale: one of the matrix, or one of each row,
// which parts of a matrix have of their own rows.
func TestEightBits(t *testing.T) {
	_, plain := fresh(t, narrow, safetensors.F8E4M3)
	form := released(t, "FluxTransformer2DModel", plain)
	for name, x := range map[string]struct {
		suffix string
		rows   bool
		d      safetensors.DType
	}{
		"plain": {}, "comfyui": {".scale_weight", false, safetensors.F32}, "newer": {".weight_scale", false, safetensors.BF16}, "rows": {".weight_scale", true, safetensors.F32},
	} {
		t.Run(name, func(t *testing.T) {
			file := append([]safetensors.Entry{}, form...)
			factor := map[string][]float32{} // by the matrix
			for i, e := range form {
				module, ok := strings.CutSuffix(e.Name, ".weight")
				if !ok || x.suffix == "" {
					continue
				}
				n := 1
				if x.rows {
					n = e.Shape[0]
				}
				all := make([]float32, n)
				for k := range all {
					all[k] = float32(1+(i+k)%7) / 4
				}
				factor[e.Name] = all
				s := safetensors.Entry{Name: module + x.suffix, DType: x.d, Shape: []int{n, 1}, Data: make([]byte, n*x.d.Bits()/8)}
				if !x.rows {
					s.Shape = nil
				}
				require.NoError(t, tensor.FromFloat32(s.Data, all, map[safetensors.DType]tensor.DType{safetensors.F32: tensor.F32, safetensors.BF16: tensor.BF16}[x.d]))
				file = append(file, s, safetensors.Entry{Name: module + ".scale_input", DType: safetensors.F32, Data: make([]byte, 4)})
			}
			if x.suffix != "" {
				file = append(file, safetensors.Entry{Name: "scaled_fp8", DType: safetensors.F8E4M3, Shape: []int{0}})
			}
			m, err := single.Open(write(t, t.TempDir(), "", file), "")
			require.NoError(t, err)
			defer m.Close()

			// What the released form of what the model has should be.
			wide := make([]safetensors.Entry, len(plain))
			for i, e := range plain {
				wide[i] = safetensors.Entry{Name: e.Name, DType: safetensors.F32, Shape: e.Shape, Data: tensor.BytesOf(valuesOf(t, m, e.Name))}
			}
			got := map[string][]byte{}
			for _, e := range released(t, "FluxTransformer2DModel", wide) {
				got[e.Name] = e.Data
			}
			for _, e := range form {
				values := make([]float32, len(e.Data))
				for i, b := range e.Data {
					values[i] = tensor.F8E4M3ToFloat32(b)
					if all := factor[e.Name]; all != nil {
						values[i] *= all[i/(len(values)/len(all))]
					}
				}
				require.Equal(t, tensor.BytesOf(values), got[e.Name], e.Name)
			}
			require.Len(t, velocity(t, m), 4*4*4)
		})
	}
}

// valuesOf are what a weight stands for.
func valuesOf(t testing.TB, m *model.Model, name string) []float32 {
	w, err := m.Weight(name)
	require.NoError(t, err)
	values, err := w.Float32s()
	require.NoError(t, err)
	return values
}

// The other kind of 8 bits becomes BF16, times its scale.
func TestFewerBits(t *testing.T) {
	_, plain := fresh(t, narrow, safetensors.F8E5M2)
	file := append(released(t, "FluxTransformer2DModel", plain), scaleOf("img_in", 0.5))
	m, err := single.Open(write(t, t.TempDir(), "", file), "")
	require.NoError(t, err)
	defer m.Close()
	require.Equal(t, "weights of F8_E5M2 are widened to BF16", m.Source.Why)
	for _, e := range plain {
		values := make([]float32, len(e.Data))
		for i, b := range e.Data {
			values[i] = tensor.F8E5M2ToFloat32(b)
			if e.Name == "x_embedder.weight" {
				values[i] *= 0.5
			}
		}
		require.Equal(t, values, valuesOf(t, m, e.Name), e.Name)
	}
	require.NoError(t, m.Quantize(quant.Bit4, nil))
	require.Len(t, velocity(t, m), 4*4*4)
}

func scaleOf(module string, x float32) safetensors.Entry {
	return safetensors.Entry{Name: module + ".scale_weight", DType: safetensors.F32, Data: tensor.BytesOf([]float32{x})}
}

package model_test

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/testdevice"
	"github.com/lorafuse/lorafuse/internal/generate"
	"github.com/lorafuse/lorafuse/internal/model"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// TestMXFP4: a gpt-oss with experts in mxfp4 computes as one whose experts have the same values in
// bf16, which are stored transposed.
func TestMXFP4(t *testing.T) {
	const experts, hidden, units = 4, 32, 64
	from := "../../testdata/extra/gpt-oss"
	raw, err := os.ReadFile(filepath.Join(from, "config.json"))
	require.NoError(t, err)
	config := map[string]any{}
	require.NoError(t, json.Unmarshal(raw, &config))
	config["intermediate_size"] = units
	f, err := safetensors.Open(filepath.Join(from, "model.safetensors"))
	require.NoError(t, err)
	defer f.Close()
	var packed, plain []safetensors.Entry
	draw := rand.New(rand.NewPCG(1, 2))
	for _, name := range f.Names() {
		v, err := f.Lookup(name)
		require.NoError(t, err)
		out, in := 2*units, hidden
		if strings.Contains(name, "down_proj") {
			out, in = hidden, units
		}
		switch {
		case !strings.Contains(name, ".experts."):
			e := safetensors.Entry{Name: name, DType: v.DType, Shape: v.Shape, Data: v.Bytes()}
			packed, plain = append(packed, e), append(plain, e)
		case strings.HasSuffix(name, "_bias"):
			e := safetensors.Entry{Name: name, DType: safetensors.F32, Shape: []int{experts, out}, Data: make([]byte, 4*experts*out)}
			packed, plain = append(packed, e), append(plain, e)
		default:
			codes, scales := make([]byte, experts*out*in/2), make([]byte, experts*out*in/32)
			for i := range codes {
				codes[i] = byte(draw.Uint32())
			}
			for i := range scales {
				scales[i] = byte(123 + draw.IntN(3))
			}
			packed = append(packed, safetensors.Entry{Name: name + "_blocks", DType: safetensors.U8, Shape: []int{experts, out, in / 32, 16}, Data: codes},
				safetensors.Entry{Name: name + "_scales", DType: safetensors.U8, Shape: []int{experts, out, in / 32}, Data: scales})
			plain = append(plain, safetensors.Entry{Name: name, DType: safetensors.F32, Shape: []int{experts, in, out}, Data: widenMXFP4(codes, scales, experts, out, in)})
		}
	}
	want := logitsWith(t, config, plain)
	config["quantization_config"] = map[string]any{"quant_method": "mxfp4", "modules_to_not_convert": []string{"lm_head"}}
	require.Equal(t, want, logitsWith(t, config, packed))
	m, err := model.Open(writeModel(t, config, packed))
	require.NoError(t, err)
	defer m.Close()
	shown := 0
	for _, name := range m.Used() {
		wide, err := m.Weight(name)
		require.NoError(t, err)
		blocks, err := m.InBlocks().Weight(name)
		require.NoError(t, err)
		if blocks.DType != tensor.MXFP4 {
			continue
		}
		shown++
		require.Equal(t, tensor.BF16, wide.DType)
		require.Equal(t, 17*wide.Size()/64, blocks.Size(), "4.25 bits instead of 16")
		values, err := wide.Float32s()
		require.NoError(t, err)
		inBlocks, err := blocks.Float32s()
		require.NoError(t, err)
		require.Equal(t, values, inBlocks)
	}
	require.Equal(t, 2*m.Config.Layers, shown)
	require.Equal(t, []string{"quantize in the file: 4 stacks of experts as mxfp4 in 25.5 KiB"}, m.Quantization().Lines())

	for i := range packed {
		if strings.HasSuffix(packed[i].Name, "_scales") {
			packed[i].Shape = []int{experts, len(packed[i].Data) / experts}
			break
		}
	}
	_, err = model.Open(writeModel(t, config, packed))
	require.ErrorIs(t, err, model.ErrQuantized)
	require.ErrorContains(t, err, "_scales")
}

// widenMXFP4 returns the values of blocks in float32, each matrix transposed.
func widenMXFP4(codes, scales []byte, experts, out, in int) []byte {
	values := []float32{0, 0.5, 1, 1.5, 2, 3, 4, 6}
	all := make([]float32, experts*out*in)
	for i := range all {
		c := codes[i/2] >> (4 * (i % 2)) & 15
		x := values[c&7]
		if c > 7 {
			x = -x
		}
		for range 127 - int(scales[i/32]) {
			x /= 2
		}
		e, o, k := i/(out*in), i/in%out, i%in
		all[(e*in+k)*out+o] = x
	}
	return tensor.BytesOf(all)
}

func writeModel(t *testing.T, config map[string]any, entries []safetensors.Entry) string {
	dir := t.TempDir()
	raw, err := json.Marshal(config)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), raw, 0o644))
	require.NoError(t, safetensors.WriteFile(filepath.Join(dir, "model.safetensors"), entries, nil))
	return dir
}

func logitsWith(t *testing.T, config map[string]any, entries []safetensors.Entry) []float32 {
	m, err := model.Open(writeModel(t, config, entries))
	require.NoError(t, err)
	defer m.Close()
	require.Empty(t, m.Unread())
	s, err := generate.NewScorer(testdevice.Open(t, backend.Options{Threads: 1}), m, nil, 8)
	require.NoError(t, err)
	defer s.Close()
	logits, err := s.Logits(t.Context(), [][]int32{{3, 1, 4, 1, 5}})
	require.NoError(t, err)
	return logits
}

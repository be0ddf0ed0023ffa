package gputest

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/internal/weights"
	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// Weighted returns tensors of a file, of a type and of shapes that make blocks of all kinds: full and not, of zeros, of
// tiny and of large numbers.
func Weighted(t *testing.T, d tensor.DType, shapes ...[]int) []*safetensors.View {
	t.Helper()
	var entries []safetensors.Entry
	r := rand.New(rand.NewPCG(7, uint64(d)))
	for i, shape := range shapes {
		n, err := tensor.NumElements(shape)
		require.NoError(t, err)
		values := make([]float32, n)
		for j := range values {
			scale := []float64{1, 0, 1e-3, 1e-39, 1e-44, 3e4, 1e-7, 0.02}[j/64%8]
			values[j] = float32(r.NormFloat64() * scale / 4)
			if r.IntN(9) == 0 { // on a code, and half way between two
				values[j] = float32(scale*float64(r.IntN(9)-4)) / 4
			}
		}
		data := make([]byte, d.Bytes(n))
		require.NoError(t, tensor.FromFloat32(data, values, d))
		name, err := safetensors.ParseDType(d.String())
		require.NoError(t, err)
		entries = append(entries, safetensors.Entry{Name: fmt.Sprintf("w%d", i), DType: name, Shape: shape, Data: data})
	}
	return StoredViews(t, entries)
}

// BlocksOf returns what the host makes of a view.
func BlocksOf(t *testing.T, v *safetensors.View, from, to tensor.DType) (blocks []byte) {
	t.Helper()
	require.NoError(t, v.WithBytes(func(data []byte) error {
		if from == to {
			blocks = bytes.Clone(data)
			return nil
		}
		values := make([]float32, len(data)/from.Size())
		blocks = make([]byte, to.Bytes(len(values)))
		if err := tensor.ToFloat32(values, data, from); err != nil {
			return err
		}
		return quant.Quantize(blocks, values, to)
	}))
	return blocks
}

// StoredViews writes tensors to a file, opens it and returns their views, in this order.
func StoredViews(t *testing.T, entries []safetensors.Entry) []*safetensors.View {
	t.Helper()
	header, data := map[string]any{}, []byte{}
	for _, e := range entries {
		header[e.Name] = map[string]any{"dtype": e.DType.String(), "shape": e.Shape, "data_offsets": []int{len(data), len(data) + len(e.Data)}}
		data = append(data, e.Data...)
	}
	text, err := json.Marshal(header)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "model.safetensors")
	content := append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)
	require.NoError(t, os.WriteFile(path, append(content, data...), 0o600))
	set, err := weights.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = set.Close() })
	var views []*safetensors.View
	for _, e := range entries {
		v, err := set.Lookup(e.Name)
		require.NoError(t, err)
		views = append(views, v)
	}
	return views
}

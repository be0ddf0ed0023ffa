package weights_test

import (
	"encoding/json"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/internal/gguf"
	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/internal/weights"
	"github.com/lorafuse/lorafuse/tensor"
)

// Blocks of matrices in a GGUF file, and of those in a stack of experts, have the values of the
// tensors.
func TestGGUFBlocks(t *testing.T) {
	const experts, rows, columns = 3, 5, 64
	data := make([]byte, gguf.Q4_0.Bytes(experts*rows*columns))
	r := rand.New(rand.NewPCG(1, 2))
	for i := range data {
		data[i] = byte(r.IntN(120)) // no scale is infinite
	}
	write := func(data []byte) func(io.Writer) error {
		return func(w io.Writer) error { _, err := w.Write(data); return err }
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "m.gguf")
	require.NoError(t, gguf.Write(path, []gguf.KeyValue{{Key: "general.architecture", Value: "llama"}}, []gguf.Entry{
		{Name: "stack", Type: gguf.Q4_0, Shape: []int{experts, rows, columns}, Write: write(data)},
		{Name: "one", Type: gguf.Q4_0, Shape: []int{experts * rows, columns}, Write: write(data)},
	}))
	index := weights.GGUF{File: path, Tensors: []weights.GGUFTensor{{Name: "one", From: "one"}}}
	for i, name := range []string{"0", "1", "2"} {
		index.Tensors = append(index.Tensors, weights.GGUFTensor{Name: name, From: "stack", Expert: i, Experts: experts})
	}
	raw, err := json.Marshal(index)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, weights.GGUFIndex), raw, 0o666))
	s, err := weights.OpenModel(dir)
	require.NoError(t, err)
	defer s.Close()
	for _, x := range index.Tensors {
		v, err := s.Lookup(x.Name)
		require.NoError(t, err)
		b, ok, err := s.Blocks(x.Name)
		require.NoError(t, err)
		require.True(t, ok, x.Name)
		require.Equal(t, v.Shape, b.Shape)
		require.True(t, b.View.InPlace())
		values := make([]float32, v.Len()/4)
		require.NoError(t, quant.Dequantize(values, b.View.Bytes(), 0, b.DType))
		require.Equal(t, v.Bytes(), tensor.BytesOf(values))
	}
}

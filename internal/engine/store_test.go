package engine_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	_ "github.com/lorafuse/lorafuse/backend/cpu"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/internal/weights"
	"github.com/lorafuse/lorafuse/tensor"
)

// made are weights that are made when they are asked for.
type made map[string]nn.Weight

func (m made) Has(name string) bool { _, ok := m[name]; return ok }

func (m made) Weight(name string) (nn.Weight, error) {
	w, ok := m[name]
	if !ok {
		return w, fmt.Errorf("%w: %q", nn.ErrMissing, name)
	}
	return w, nil
}

// counted is a weight of n blocks whose scales are 1, 2, … and whose codes are
// all 1, made a block at a time, last one first.
func counted(n int) nn.Weight {
	const size = tensor.QuantBlock + 4
	return nn.Weight{DType: tensor.Q8, Shape: []int{n, tensor.QuantBlock}, Fill: func(put func(int, []byte) error) error {
		values, block := make([]float32, tensor.QuantBlock), make([]byte, size)
		for b := n - 1; b >= 0; b-- {
			for i := range values {
				values[i] = float32(127 * (b + 1))
			}
			if err := quant.Quantize(block, values, tensor.Q8); err != nil {
				return err
			}
			if err := put(b*size, block); err != nil {
				return err
			}
		}
		return nil
	}}
}

// plain hides what a device can do beside what all can.
type plain struct{ backend.Device }

func devices(t *testing.T, test func(t *testing.T, dev backend.Device)) {
	dev, err := backend.Open(backend.CPU, backend.Options{Threads: 1})
	require.NoError(t, err)
	defer dev.Close()
	t.Run("divided", func(t *testing.T) { test(t, dev) })
	t.Run("apart", func(t *testing.T) { test(t, plain{dev}) })
}

func TestImportMakesWeights(t *testing.T) {
	floats := []float32{1, 2, 3}
	w := made{
		"a": counted(3), "b": counted(40),
		"c": {DType: tensor.F32, Shape: []int{3}, Source: weights.Data{Bytes: tensor.BytesOf(floats)}},
	}
	devices(t, func(t *testing.T, dev backend.Device) {
		s := engine.NewStore(dev)
		defer s.Free()
		require.NoError(t, s.Import(t.Context(), w, []string{"a", "c", "b", "a"}))
		require.NoError(t, s.Import(t.Context(), w, []string{"b"}), "which is there")
		require.Equal(t, 43*68+12, s.Bytes())
		for name, n := range map[string]int{"a": 3, "b": 40} {
			data, values := make([]byte, 68*n), make([]float32, 64*n)
			require.NoError(t, s.Get(context.Background(), name, data))
			require.NoError(t, quant.Dequantize(values, data, 0, tensor.Q8))
			direct, err := w[name].Float32s()
			require.NoError(t, err)
			require.Equal(t, direct, values)
			for i, x := range values {
				require.EqualValues(t, 127*(i/64+1), x)
			}
		}
	})
}

func TestImportFails(t *testing.T) {
	broken := errors.New("broken")
	beyond := counted(2)
	fill := beyond.Fill
	beyond.Fill = func(put func(int, []byte) error) error {
		return fill(func(offset int, data []byte) error { return put(offset+1, data) })
	}
	w := made{
		"good": counted(2), "beyond": beyond,
		"broken": {DType: tensor.NF4, Shape: []int{1, 64}, Fill: func(func(int, []byte) error) error { return broken }},
		"large":  {DType: tensor.NF4, Shape: []int{1 << 30, 1 << 30}, Fill: func(func(int, []byte) error) error { return nil }},
	}
	devices(t, func(t *testing.T, dev backend.Device) {
		s := engine.NewStore(dev)
		defer s.Free()
		err := s.Import(t.Context(), w, []string{"good", "broken"})
		require.ErrorIs(t, err, broken)
		require.ErrorContains(t, err, `tensor "broken"`)
		require.ErrorContains(t, s.Import(t.Context(), w, []string{"beyond"}), `tensor "beyond"`)
		require.ErrorIs(t, s.Import(t.Context(), w, []string{"nowhere"}), nn.ErrMissing)
		require.ErrorIs(t, s.Import(t.Context(), w, []string{"good", "large"}), backend.ErrOutOfMemory)
	})
	_, err := beyond.Float32s()
	require.ErrorIs(t, err, tensor.ErrLength)
	_, err = w["broken"].Float32s()
	require.ErrorIs(t, err, broken)
}

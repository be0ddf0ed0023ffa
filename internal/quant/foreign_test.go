package quant_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/tensor"
)

// foreign lists the block types of other programs.
func foreign() (all []tensor.DType) {
	for d := tensor.Q4_0; d.Foreign(); d++ {
		all = append(all, d)
	}
	return all
}

// Any part of a row has the values that the whole row has.
func TestForeignParts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := rapid.SampledFrom(foreign()).Draw(t, "type")
		n := rapid.IntRange(1, 4).Draw(t, "blocks") * d.BlockElements()
		data := make([]byte, d.Bytes(n))
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		for i := range data {
			data[i] = byte(r.IntN(124)) // no scale is infinite
		}
		whole := make([]float32, n)
		require.NoError(t, quant.Dequantize(whole, data, 0, d))
		first := rapid.IntRange(0, n).Draw(t, "first")
		part := make([]float32, rapid.IntRange(0, n-first).Draw(t, "length"))
		require.NoError(t, quant.Dequantize(part, data, first, d))
		require.Equal(t, whole[first:first+len(part)], part)
		require.ErrorIs(t, quant.Dequantize(make([]float32, n+1), data, 0, d), quant.ErrLength)
		require.ErrorIs(t, quant.Quantize(data, whole, d), quant.ErrDType)
	})
}

func BenchmarkForeign(b *testing.B) {
	for _, d := range foreign() {
		b.Run(fmt.Sprint(d), func(b *testing.B) {
			const n = 1 << 14
			dst, data := make([]float32, n), make([]byte, d.Bytes(n))
			for b.Loop() {
				_ = quant.Dequantize(dst, data, 0, d)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/element")
		})
	}
}

package vae

import (
	"context"
	"math"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/cputime"
	"github.com/lorafuse/lorafuse/dev/testdevice"
)

// BenchmarkEncode prints the least time in which one worker encodes a picture by the
// autoencoder in the folder that VAE_BENCH names, of VAE_BENCH_SIDE pixels a side:
// processor time, which scripts/bench_images.py compares with torch's.
func BenchmarkEncode(b *testing.B) {
	dir := os.Getenv("VAE_BENCH")
	if dir == "" {
		b.Skip("VAE_BENCH names no folder")
	}
	side, err := strconv.Atoi(os.Getenv("VAE_BENCH_SIDE"))
	require.NoError(b, err)
	v, err := Open(testdevice.Open(b, backend.Options{Threads: 1}), dir, Options{})
	require.NoError(b, err)
	defer func() { require.NoError(b, v.Close()) }()
	p := Picture{v.Space().Colours, side, side, make([]float32, v.Space().Colours*side*side)}
	for i := range p.Values {
		p.Values[i] = float32(math.Sin(float64(i * i)))
	}
	least := cputime.Least(b, 1, nil, func(int) {
		_, err := v.Encode(context.Background(), p)
		require.NoError(b, err)
	})
	b.ReportMetric(least[0].Seconds()*1e3, "ms")
}

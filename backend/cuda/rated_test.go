//go:build cuda && linux

package cuda_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cuda"
)

// What data sheets say, in Tflop/s.
func TestFlops(t *testing.T) {
	for _, c := range []struct {
		name                   string
		capability, processors int
		clock                  float64
		f32, bf16              float64
	}{
		{"NVIDIA A100-SXM4-80GB", 80, 108, 1410, 19.5, 312},
		{"NVIDIA A40", 86, 84, 1740, 37.4, 149.7},
		{"NVIDIA GeForce RTX 3090", 86, 82, 1695, 35.6, 71},
		{"NVIDIA L4", 89, 58, 2040, 30.3, 121},
		{"NVIDIA RTX 6000 Ada Generation", 89, 142, 2505, 91.1, 364.2},
		{"NVIDIA GeForce RTX 4090", 89, 128, 2520, 82.6, 165.2},
		{"NVIDIA H100 80GB HBM3", 90, 132, 1980, 66.9, 989.4},
		{"NVIDIA H100 PCIe", 90, 114, 1755, 51.2, 756},
		{"NVIDIA B200", 100, 148, 1965, 74.4, 2250},
		{"NVIDIA GeForce RTX 5090", 120, 170, 2407, 104.8, 209.5},
	} {
		assert.InEpsilon(t, 1e12*c.f32, cuda.Flops(c.name, c.capability, c.processors, c.clock, backend.F32), 5e-3, c.name)
		assert.InEpsilon(t, 1e12*c.bf16, cuda.Flops(c.name, c.capability, c.processors, c.clock, backend.BF16), 5e-3, c.name)
	}
	assert.Zero(t, cuda.Flops("a later one", 130, 200, 3000, backend.BF16))
}

// The simulated GPU of capability 8.0 is an A100.
func TestRated(t *testing.T) {
	if !onSimulator(t, "LFSIM_CC=8.0") {
		return
	}
	for precision, want := range map[backend.Precision]float64{backend.F32: 19.5e12, backend.BF16: 312e12} {
		peak := opened(t, backend.Options{Precision: precision}).Info().Rated
		assert.InEpsilon(t, want, peak.FlopsPerSecond, 5e-3)
		assert.InEpsilon(t, 1555e9, peak.BytesPerSecond, 5e-3)
	}
	infos, err := cuda.Devices()
	require.NoError(t, err)
	require.Equal(t, "6c6f7261-6675-7365-2d73-696d2d677000", infos[0].UUID)
}

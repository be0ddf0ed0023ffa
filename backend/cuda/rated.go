//go:build cuda && linux

package cuda

import (
	"strings"

	"github.com/lorafuse/lorafuse/backend"
)

// speed holds the floating-point operations per clock of a multiprocessor. A multiply-add counts as two.
type speed struct {
	fma    float64 // float32
	tensor float64 // bfloat16 with float32 sums, dense
	// boost is the clock for which the rates of tensor cores are specified, as a fraction of the maximum clock that
	// the driver reports.
	boost float64
}

// speeds maps compute capabilities to speeds. The comment after an entry names the device used to check the numbers,
// and its data sheet: multiprocessors, maximum clock, and Tflop/s of both kinds.
var speeds = map[int]speed{
	// A100, 108, 1410 MHz: 19.5 and 312 (NVIDIA A100 Tensor Core GPU Architecture, table 2).
	80: {128, 2048, 1},
	// A40, 84, 1740 MHz: 37.4 and 149.7 (NVIDIA A40 data sheet).
	86: {256, 1024, 1},
	// RTX 6000 Ada, 142, 2505 MHz: 91.1 and 364.2 (NVIDIA Ada GPU Architecture, appendix).
	89: {256, 1024, 1},
	// H100 SXM and H200, 132, 1980 MHz and 1830 for tensor cores: 66.9 and 989.4; H100 PCIe,
	// 114, 1755 and 1620: 51.2 and 756 (NVIDIA H100 Tensor Core GPU Architecture, table 3).
	90: {256, 4096, 0.924},
	// B200, 148, 1965 MHz: 74.4 and 2250 (NVIDIA Blackwell data sheet).
	100: {256, 8192, 0.944},
	// RTX PRO 6000 Blackwell, 188, 2617 MHz: 126 and 503.8 (NVIDIA RTX Blackwell GPU Architecture, appendix).
	120: {256, 1024, 1},
}

// flops returns the peak floating-point operations per second of the GPU at a precision, or 0 if unknown. The tensor
// cores of GeForce cards run at half speed with float32 accumulation: RTX 3090, 82 at 1695 MHz, 71; RTX 4090, 128 at
// 2520, 165.2; RTX 5090, 170 at 2407, 209.5.
func (p *properties) flops(precision backend.Precision) float64 {
	s := speeds[p.capability]
	clocks := float64(p.processors) * float64(p.clock)
	if precision != backend.BF16 {
		return clocks * s.fma
	}
	if strings.Contains(p.name, "GeForce") {
		s.tensor /= 2
	}
	return clocks * s.boost * s.tensor
}

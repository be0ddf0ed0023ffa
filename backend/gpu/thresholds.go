package gpu

import (
	"strings"

	"github.com/lorafuse/lorafuse/backend"
)

// Thresholds are the sizes at which the planner changes from one variant of a kernel to another. All variants compute
// the same values, in another order of summation; only a measurement shows which of them is fastest on a device. Zero
// means that a device has no kernels of a variant.
type Thresholds struct {
	// VectorRows is the number of rows up to which gemv computes a product, at most 8.
	VectorRows int
	// ThinRows is the number of rows up to which gemm_thin computes a product with weights in bfloat16 or 8-bit
	// floats, at most 64.
	ThinRows int
	// LargeTiles is the least number of tiles of 128 by 128 in a product or a convolution. If there would be fewer,
	// its tiles are 64 by 64. gemm_bf16 has only large tiles.
	LargeTiles int
	// WideTiles is the least number of tiles of 128 by 256 in a product by gemm_bf16. If there would be fewer, its
	// tiles are 128 by 128.
	WideTiles int
	// NarrowRows is the least number of rows of an adapter's products by gemm_narrow.
	NarrowRows int
	// TiledQueries is the number of queries above which attention over pages computes tiles of queries.
	TiledQueries int
}

// tuned lists the thresholds of devices. gpubench kernels -thresholds measures both variants on each side of them.
var tuned = []struct {
	// device is a backend, which a compute capability and the name of a card may follow: "cuda 9.0 NVIDIA H200".
	device string
	// source is "derived", or "measured" with the commit and the card.
	source string
	Thresholds
}{
	{backend.CUDA, "derived", Thresholds{VectorRows: 8, ThinRows: 64, LargeTiles: 108, WideTiles: 108, NarrowRows: 512, TiledQueries: 64}},
	{backend.Metal, "derived", Thresholds{VectorRows: 8, TiledQueries: 64}},
}

// ThresholdsOf returns the thresholds of a device. Its description is the backend, on CUDA the compute capability, and
// the name of the card, such as "cuda 9.0 NVIDIA H200". The longest entry of the table that it begins with counts; the
// thresholds are zero if there is none.
func ThresholdsOf(device string) (t Thresholds) {
	longest := -1
	for i := range tuned {
		if e := &tuned[i]; len(e.device) > longest && (device == e.device || strings.HasPrefix(device, e.device+" ")) {
			longest, t = len(e.device), e.Thresholds
		}
	}
	return t
}

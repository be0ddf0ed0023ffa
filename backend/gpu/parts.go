package gpu

import "github.com/lorafuse/lorafuse/internal/ir"

// Products with few tiles of output divide their k axis between blocks:
// kernels/cuda/parts.cuh. The parts are added up in their order.

const (
	stageK = 32 // elements of the k axis that stages are counted in
	// Outputs of few tiles are computed in parts of the k axis of at least leastStages each, until there are
	// enoughBlocks blocks.
	enoughBlocks = 512
	leastStages  = 8
	mostParts    = 64
)

// partsOf returns the number of parts into which the k axis is divided. It depends only on the shape, so that results
// are the same on every device.
func partsOf(tiles, stages int) int {
	return max(1, min(enoughBlocks/max(tiles, 1), stages/leastStages, mostParts))
}

// partial returns the largest scratch memory for the parts of an output with the given number of elements and at most
// the given number of stages. It never exceeds enoughBlocks small tiles.
func partial(elements, stages int) int {
	parts := min(stages/leastStages, mostParts)
	if parts < 2 {
		return 0
	}
	return 4 * min(parts*elements, enoughBlocks*smallTile*smallTile)
}

// sumParts fills in a kernel that sums the parts in the scratch memory; stored is that of terms. The caller adds the
// remaining parameters, the addresses of bias and addend.
func sumParts(k *Kernel, r *Run, out ir.Ref, size, n, batch, parts, stored int) *Kernel {
	return k.grid(blocks(size, 256), min(batch, maxGrid), 1).long("size", size).int("n", n).int("batch", batch).int("parts", parts).int("stored", stored).pointer("out", r.at(out)).pointer("partial", r.Scratch)
}

package gpu

import "github.com/lorafuse/lorafuse/ir"

// Products with few tiles of output divide their k axis between blocks:
// kernels/cuda/parts.cuh. The parts are added up in their order.

const (
	stageK = 32 // elements of the k axis that stages are counted in
	// Outputs of few tiles are computed in parts of the k axis of at least
	// leastStages each, until there are so many blocks.
	enoughBlocks = 512
	leastStages  = 8
	mostParts    = 64
)

// partsOf is into how many parts the k axis is divided. It follows from the
// shape alone, so that results do not depend on the device.
func partsOf(tiles, stages int) int {
	return max(1, min(enoughBlocks/max(tiles, 1), stages/leastStages, mostParts))
}

// partial is the scratch memory that parts of an output of so many elements can
// need, with at most so many stages: never more than enoughBlocks small tiles.
func partial(elements, stages int) int {
	parts := min(stages/leastStages, mostParts)
	if parts < 2 {
		return 0
	}
	return 4 * min(parts*elements, enoughBlocks*smallTile*smallTile)
}

// sumParts adds up what parts have left in the scratch memory; the addresses of
// bias and addend are the parameters that are missing.
func sumParts(k *Kernel, r *Run, out ir.Ref, size, n, batch, parts int) *Kernel {
	return k.grid(blocks(size, 256), min(batch, maxGrid), 1).long("size", size).int("n", n).int("batch", batch).int("parts", parts).pointer("out", r.at(out)).pointer("partial", r.Scratch)
}

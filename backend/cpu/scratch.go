package cpu

import (
	"fmt"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/ir"
)

// Scratch returns the memory in bytes that the programs need in addition to arenas and arguments: packed operands,
// tiles of attention, and partial results of kernels. Errors: backend.ErrUnsupported.
func (d *Device) Scratch(programs ...*ir.Program) (int64, error) {
	var all needs
	sum := int64(0)
	for _, p := range programs {
		if err := supported(p); err != nil {
			return 0, err
		}
		r, _ := newRun(d, p, backend.PackNever)
		n := r.need
		sum += 4*int64(n.temp+d.pool.Workers()*n.wide) + int64(n.masks) // of each program; the engines serve all of them
		all.blocks, all.serial = max(all.blocks, n.blocks), all.serial.With(n.serial)
		all.products = all.products.With(n.products)
		all.scores = all.scores.With(n.scores)
	}
	sum += d.gemm.Bytes(all.products) + 4*int64(all.blocks) + d.gemm.SerialBytes(all.serial)
	if all.scores.Queries > 0 {
		sum += d.attention.Bytes(all.scores)
	}
	return sum, nil
}

// supported returns an error for the first launch without a kernel.
func supported(p *ir.Program) error {
	for i := range p.Launches {
		if kernels[p.Launches[i].Op] == nil {
			return fmt.Errorf("cpu: %w: %v", backend.ErrUnsupported, p.Launches[i].Op)
		}
	}
	return nil
}

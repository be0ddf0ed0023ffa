//go:build cgo && (darwin || (metal && metalfake))

package metal

import (
	"fmt"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/gpu"
	"github.com/lorafuse/lorafuse/ir"
)

// SetPack allows nothing: kernels read weights where they lie.
func (d *Device) SetPack(backend.Pack, int64) int64 { return 0 }

// PackedBytes is nothing.
func (d *Device) PackedBytes(backend.Pack, ...*ir.Program) (int64, error) { return 0, nil }

// Scratch is the memory in bytes that the launches of programs keep in passing,
// beside arenas and arguments: that of each program is its own. Errors:
// backend.ErrUnsupported.
func (d *Device) Scratch(programs ...*ir.Program) (sum int64, err error) {
	for _, p := range programs {
		plan, err := gpu.New(p, d.target())
		if err != nil {
			return 0, fmt.Errorf("metal: %w", err)
		}
		sum += int64(plan.Scratch)
	}
	return sum, nil
}

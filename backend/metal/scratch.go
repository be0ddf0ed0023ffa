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

// Scratch is gpu.Scratch of programs on the device.
func (d *Device) Scratch(programs ...*ir.Program) (int64, error) {
	sum, err := gpu.Scratch(d.target(), programs...)
	if err != nil {
		return 0, fmt.Errorf("metal: %w", err)
	}
	return sum, nil
}

//go:build cuda && linux

package cuda

import (
	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/ir"
)

// SetPack allows nothing: kernels read weights where they lie.
func (d *Device) SetPack(backend.Pack, int64) int64 { return 0 }

// PackedBytes is nothing.
func (d *Device) PackedBytes(backend.Pack, ...*ir.Program) (int64, error) { return 0, nil }

// Scratch is the memory in bytes that the launches of programs keep in passing,
// beside arenas and arguments: that of each program is its own. Errors:
// backend.ErrUnsupported.
func (d *Device) Scratch(programs ...*ir.Program) (int64, error) {
	sum := int64(0)
	for _, p := range programs {
		if err := supported(p); err != nil {
			return 0, err
		}
		err := d.queue.do(func() error {
			c, _, err := d.compile(p)
			if err == nil {
				sum += int64(c.scratch)
			}
			return err
		})
		if err != nil {
			return 0, err
		}
	}
	return sum, nil
}

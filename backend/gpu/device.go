package gpu

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// Device implements memory, copies and programs on top of a Driver. All GPU backends share it.
type Device struct {
	Precision backend.Precision
	Profile   *backend.Profile // nil if no profile is recorded

	name   string // of the backend, for errors
	driver Driver
	target func() Target
	tuned  *Thresholds // if not nil, replaces the thresholds of target
	memory memory
	lost   atomic.Pointer[error] // the error that made the device unusable

	programs map[*Executable]struct{} // that are not closed; of the device's turn
}

// Init prepares a device of a backend. Programs are planned for target.
func (d *Device) Init(kind string, driver Driver, target func() Target) {
	d.name, d.driver, d.target = kind, driver, target
	d.memory.live, d.programs = map[*Block]struct{}{}, map[*Executable]struct{}{}
}

// Thresholds returns the thresholds that the device plans programs with.
func (d *Device) Thresholds() Thresholds { return d.planned().Thresholds }

// SetThresholds replaces the thresholds of the device. Programs that are already loaded keep theirs. It is for
// benchmarks that compare variants, and not safe for concurrent use.
func (d *Device) SetThresholds(t Thresholds) { d.tuned = &t }

// planned returns the target for which programs are planned.
func (d *Device) planned() Target {
	t := d.target()
	if d.tuned != nil {
		t.Thresholds = *d.tuned
	}
	return t
}

// End releases all memory, including buffers that callers have not freed. No work may be in progress, and no job may
// follow.
func (d *Device) End() {
	for e := range d.programs {
		e.dispose()
	}
	d.forget()
}

// Do runs f in the device's turn and waits for it. Errors: backend.ErrClosed and the errors of f.
func (d *Device) Do(f func() error) error {
	c := &call{f: f, done: make(chan error, 1)}
	if err := d.driver.Send(c); err != nil {
		return err
	}
	return <-c.done
}

// Alive returns the error that has made the device useless, if any.
func (d *Device) Alive() error {
	if err := d.lost.Load(); err != nil {
		return *err
	}
	return nil
}

// Failed explains an error of the driver, and remembers it if the device is lost.
func (d *Device) Failed(err error) error {
	if err = d.driver.Explain(err); errors.Is(err, backend.ErrLost) {
		d.lost.CompareAndSwap(nil, &err)
	}
	return err
}

// Supports reports whether there are kernels for the composite op.
func (d *Device) Supports(op ir.Op, attr any, in []ir.Type) bool { return Supports(op, attr, in) }

// Stores reports whether there are kernels that read or write bf16 there; only precision bf16 allows values to be
// rounded.
func (d *Device) Stores(op ir.Op, attr any, in []ir.Type, at ir.Place, as tensor.DType) bool {
	return d.Precision == backend.BF16 && as == tensor.BF16 && Stores(op, attr, in, at)
}

// SetPack returns 0: kernels read weights in place, without packing.
func (d *Device) SetPack(backend.Pack, int64) int64 { return 0 }

// PackedBytes returns 0.
func (d *Device) PackedBytes(backend.Pack, ...*ir.Program) (int64, error) { return 0, nil }

// Scratch returns the scratch memory that programs take on the device.
func (d *Device) Scratch(programs ...*ir.Program) (int64, error) {
	sum, err := Scratch(d.planned(), programs...)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", d.name, err)
	}
	return sum, nil
}

// Alloc allocates zeroed memory.
func (d *Device) Alloc(bytes int) (backend.Buffer, error) {
	if bytes < 0 {
		return nil, fmt.Errorf("%s: %d bytes", d.name, bytes)
	}
	b, err := d.Request(bytes, UseBuffer, "a buffer")
	if err != nil {
		return nil, err
	}
	return &Buffer{dev: d, Block: b, bytes: bytes}, nil
}

// AllocAll divides one zeroed allocation into buffers.
func (d *Device) AllocAll(sizes []int) ([]backend.Buffer, error) {
	division, err := backend.LayoutBlock(sizes, backend.PartAlign)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.name, err)
	}
	whole, err := d.Request(division.Bytes, UseBuffer, fmt.Sprintf("%d buffers", len(sizes)))
	if err != nil {
		return nil, err
	}
	parts := make([]backend.Buffer, len(sizes))
	for i, n := range sizes {
		parts[i] = &Buffer{dev: d, Block: whole, off: division.Offsets[i], bytes: n, tenants: division}
	}
	return parts, nil
}

// Part returns n bytes of a buffer, from byte off on, as a buffer.
func (d *Device) Part(b backend.Buffer, off, n int) (backend.Buffer, error) {
	whole, err := d.BufferOf(b)
	if err != nil {
		return nil, err
	}
	if off < 0 || n < 0 || off > whole.bytes || n > whole.bytes-off || off%backend.PartAlign != 0 {
		return nil, fmt.Errorf("%s: a part of %d bytes at %d of a buffer of %d", d.name, n, off, whole.bytes)
	}
	return &Buffer{dev: d, Block: whole.Block, off: whole.off + off, bytes: n, readOnly: whole.readOnly, of: whole}, nil
}

// Upload copies src, which is the caller's again when Upload returns.
func (d *Device) Upload(dst backend.Buffer, off int, src []byte) (backend.Fence, error) {
	b, err := d.BufferOf(dst)
	if err != nil {
		return nil, err
	}
	if b.readOnly {
		return nil, fmt.Errorf("%s: upload into an imported buffer", d.name)
	}
	if off < 0 || off > b.bytes || len(src) > b.bytes-off {
		return nil, fmt.Errorf("%s: upload of %d bytes at %d into a buffer of %d", d.name, len(src), off, b.bytes)
	}
	return d.driver.Upload(b, off, src)
}

// Download copies into dst, which is complete when the fence is reached.
func (d *Device) Download(dst []byte, src backend.Buffer, off int) (backend.Fence, error) {
	b, err := d.BufferOf(src)
	if err != nil {
		return nil, err
	}
	if off < 0 || off > b.bytes || len(dst) > b.bytes-off {
		return nil, fmt.Errorf("%s: download of %d bytes at %d from a buffer of %d", d.name, len(dst), off, b.bytes)
	}
	return d.driver.Download(dst, b, off)
}

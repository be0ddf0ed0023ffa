// Package null implements a device without hardware: it plans, compiles and accounts for memory, but runs nothing.
// Use it to find out how much memory a program needs, and whether it fits, on a machine that is not available. It is
// never selected automatically.
package null

import (
	"context"
	"fmt"
	"math"
	"sync"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/weights"
	"github.com/lorafuse/lorafuse/tensor"
)

func init() {
	backend.Register(backend.Null, backend.Driver{
		Rank:    -1,
		Devices: func() ([]backend.Info, error) { return []backend.Info{(&Device{}).Info()}, nil },
		Open: func(o backend.Options) (backend.Device, error) {
			if o.Index != 0 {
				return nil, fmt.Errorf("%w: device %d, there is only device 0", backend.ErrUnavailable, o.Index)
			}
			return &Device{Precision: o.Precision}, nil
		},
	})
}

// Device counts the memory that it is asked for. The zero Device claims every
// composite and has no end of memory. It is safe for concurrent use.
type Device struct {
	// Memory is the size of the memory in bytes; 0 means no limit.
	Memory int64
	// Claims reports which composites the simulated device runs itself; nil means all.
	Claims func(op ir.Op, attr any, in []ir.Type) bool

	// Precision of products. With BF16 values of f32 may be stored so.
	Precision backend.Precision
	// Keeps is the Stores method of the simulated device; nil means always true.
	Keeps func(op ir.Op, attr any, in []ir.Type, at ir.Place) bool

	mu         sync.Mutex
	held, peak int64
	closed     bool
}

// Info describes the device.
func (d *Device) Info() backend.Info {
	return backend.Info{Backend: backend.Null, Name: "no device", Memory: d.Memory, Precision: d.Precision, Detail: "plans only, runs nothing"}
}

// Supports returns the result of Claims.
func (d *Device) Supports(op ir.Op, attr any, in []ir.Type) bool {
	return d.Claims == nil || d.Claims(op, attr, in)
}

// Stores returns the result of Keeps if the precision is BF16.
func (d *Device) Stores(op ir.Op, attr any, in []ir.Type, at ir.Place, as tensor.DType) bool {
	return d.Precision == backend.BF16 && as == tensor.BF16 && (d.Keeps == nil || d.Keeps(op, attr, in, at))
}

// Held returns the memory in use and its peak, in bytes.
func (d *Device) Held() (now, peak int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.held, d.peak
}

// Alloc counts bytes. Errors: ErrOutOfMemory, where Memory would be exceeded.
func (d *Device) Alloc(bytes int) (backend.Buffer, error) {
	if bytes < 0 {
		return nil, fmt.Errorf("null: %d bytes", bytes)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fmt.Errorf("null: device: %w", backend.ErrClosed)
	}
	most := int64(math.MaxInt64 / 2)
	if d.Memory > 0 {
		most = d.Memory
	}
	if int64(bytes) > most-d.held {
		return nil, fmt.Errorf("null: %w: asked for %d bytes, %d of %d are free", backend.ErrOutOfMemory, bytes, most-d.held, most)
	}
	d.held += int64(bytes)
	d.peak = max(d.peak, d.held)
	return &buffer{dev: d, size: bytes}, nil
}

// Import counts the bytes of src.
func (d *Device) Import(src weights.Data) (backend.Buffer, error) { return d.Alloc(len(src.Bytes)) }

// Upload checks its arguments.
func (d *Device) Upload(dst backend.Buffer, off int, src []byte) (backend.Fence, error) {
	return within(dst, off, len(src))
}

// Download checks its arguments and gives zeros: nothing was ever computed.
func (d *Device) Download(dst []byte, src backend.Buffer, off int) (backend.Fence, error) {
	f, err := within(src, off, len(dst))
	if err == nil {
		clear(dst)
	}
	return f, err
}

func within(b backend.Buffer, off, n int) (backend.Fence, error) {
	size, err := sizeOf(b)
	if err != nil {
		return nil, err
	}
	if off < 0 || off+n > size {
		return nil, fmt.Errorf("null: %d bytes at %d of a buffer of %d", n, off, size)
	}
	return backend.Done{}, nil
}

func sizeOf(b backend.Buffer) (int, error) {
	c, ok := b.(*buffer)
	if !ok {
		return 0, fmt.Errorf("null: a %T is not a buffer of this backend", b)
	}
	c.dev.mu.Lock()
	defer c.dev.mu.Unlock()
	if c.freed || c.whole != nil && c.whole.freed {
		return 0, fmt.Errorf("null: buffer: %w", backend.ErrClosed)
	}
	return c.size, nil
}

// Compile verifies p and counts its arena.
func (d *Device) Compile(p *ir.Program) (backend.Executable, error) {
	e, err := d.compile(p)
	if err != nil {
		return nil, err
	}
	arena, err := d.Alloc(p.Arena)
	if err != nil {
		return nil, err
	}
	e.arena, e.own = arena.(*buffer), true
	return e, nil
}

// CompileIn verifies p, and that the arena is large enough.
func (d *Device) CompileIn(p *ir.Program, arena backend.Buffer) (backend.Executable, error) {
	if _, err := within(arena, 0, p.Arena); err != nil {
		return nil, err
	}
	e, err := d.compile(p)
	if err != nil {
		return nil, err
	}
	e.arena = arena.(*buffer)
	return e, nil
}

func (d *Device) compile(p *ir.Program) (*executable, error) {
	if err := p.Verify(); err != nil {
		return nil, fmt.Errorf("null: %w", err)
	}
	for _, l := range p.Launches {
		types := make([]ir.Type, len(l.In))
		for i, r := range l.In {
			types[i] = r.Type
		}
		if l.Op.IsComposite() && !d.Supports(l.Op, l.Attr, types) {
			return nil, fmt.Errorf("null: %w: %v", backend.ErrUnsupported, l.Op)
		}
	}
	return &executable{prog: p}, nil
}

// AllocAll counts the bytes of all buffers.
func (d *Device) AllocAll(sizes []int) ([]backend.Buffer, error) {
	division, err := backend.LayoutBlock(sizes, backend.PartAlign)
	if err != nil {
		return nil, fmt.Errorf("null: %w", err)
	}
	whole, err := d.Alloc(division.Bytes)
	if err != nil {
		return nil, err
	}
	parts := make([]backend.Buffer, len(sizes))
	for i, n := range sizes {
		parts[i] = &buffer{dev: d, size: n, division: division, whole: whole.(*buffer)}
	}
	if len(sizes) == 0 {
		whole.Free()
	}
	return parts, nil
}

// Scratch returns 0, since no kernels run.
func (d *Device) Scratch(...*ir.Program) (int64, error) { return 0, nil }

// SetPack returns 0: no copies are kept.
func (d *Device) SetPack(backend.Pack, int64) int64 { return 0 }

// PackedBytes returns 0.
func (d *Device) PackedBytes(backend.Pack, ...*ir.Program) (int64, error) { return 0, nil }

// Part returns a part of a buffer.
func (d *Device) Part(b backend.Buffer, off, n int) (backend.Buffer, error) {
	if _, err := within(b, off, n); err != nil {
		return nil, err
	}
	if n < 0 || off%backend.PartAlign != 0 {
		return nil, fmt.Errorf("null: a part of %d bytes at %d", n, off)
	}
	return &buffer{dev: d, size: n, whole: b.(*buffer)}, nil
}

// Close makes all later allocations fail.
func (d *Device) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	return nil
}

type buffer struct {
	dev   *Device
	size  int
	freed bool
	// whole is the buffer that contains this part, division the division of whole, if any.
	whole    *buffer
	division *backend.BlockLayout
}

// Size returns the number of bytes.
func (b *buffer) Size() int { return b.size }

// Free returns the memory to the device. Freeing twice does nothing.
func (b *buffer) Free() {
	b.dev.mu.Lock()
	defer b.dev.mu.Unlock()
	if b.freed {
		return
	}
	b.freed = true
	switch {
	case b.whole == nil:
		b.dev.held -= int64(b.size)
	case b.division != nil && b.division.Release():
		b.whole.freed = true
		b.dev.held -= int64(b.whole.size)
	}
}

type executable struct {
	prog   *ir.Program
	arena  *buffer
	own    bool // the arena is not the caller's
	closed bool
}

// Run checks the arguments.
func (e *executable) Run(ctx context.Context, args backend.Args) (backend.Fence, error) {
	if _, err := sizeOf(e.arena); err != nil || e.closed {
		return nil, fmt.Errorf("null: executable: %w", backend.ErrClosed)
	}
	if len(args.Buffers) != len(e.prog.Args) {
		return nil, fmt.Errorf("null: %d buffers, expected %d", len(args.Buffers), len(e.prog.Args))
	}
	dims := e.prog.MaxDims()
	copy(dims, args.Dims)
	for i, b := range args.Buffers {
		if _, err := within(b, 0, e.prog.Args[i].Bytes(dims)); err != nil {
			return nil, fmt.Errorf("argument %q: %w", e.prog.Args[i].Name, err)
		}
	}
	return backend.Done{}, ctx.Err()
}

// Close frees the arena.
func (e *executable) Close() error {
	e.closed = true
	if e.own {
		e.arena.Free()
	}
	return nil
}

package cpu

import (
	"context"
	"fmt"
	"iter"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/cpu/internal/attention"
	"github.com/lorafuse/lorafuse/backend/cpu/internal/gemm"
	"github.com/lorafuse/lorafuse/backend/cpu/internal/pool"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/weights"
)

// MaxThreads is the most workers that a device can have: each has memory of its
// own to pack operands in.
const MaxThreads = 1024

func init() {
	backend.Register(backend.CPU, backend.Driver{
		Devices: func() ([]backend.Info, error) { return []backend.Info{info(runtime.GOMAXPROCS(0))}, nil },
		Open:    func(o backend.Options) (backend.Device, error) { return Open(o) },
	})
}

// Device is the host's processor with a pool of workers.
type Device struct {
	pool       *pool.Pool
	gemm       *gemm.Engine
	attention  *attention.Engine
	prefetcher *prefetcher
	precision  backend.Precision
	invariant  bool
	profile    *backend.Profile // nil without profiling
	packing    packing

	launching sync.Mutex // held by the launch under way, of whatever program
	wide      []float32  // weights that it widens

	mu     sync.Mutex
	closed bool
}

// Open starts a device with o.Threads workers, or as many as the process may
// run at once.
func Open(o backend.Options) (*Device, error) {
	if o.Index != 0 {
		return nil, fmt.Errorf("%w: device %d, there is only device 0", backend.ErrUnavailable, o.Index)
	}
	if o.Threads < 0 || o.Threads > MaxThreads {
		return nil, fmt.Errorf("%d threads, expected 1 to %d, or 0 for all", o.Threads, MaxThreads)
	}
	if o.Load == backend.LoadRing || o.Load == backend.LoadRegister {
		return nil, fmt.Errorf("%w %v: they are used in place, where they are mapped; expected auto or plain", backend.ErrLoad, o.Load)
	}
	isa, err := gemm.Select(os.Getenv(gemm.EnvCPU))
	if err != nil {
		return nil, err
	}
	threads := o.Threads
	if threads == 0 {
		threads = min(runtime.GOMAXPROCS(0), MaxThreads)
	}
	p := pool.New(threads)
	g := gemm.NewISA(p, isa)
	if o.Precision == backend.BF16 {
		g.SetPrecision(gemm.BF16)
	}
	g.SetInvariant(o.BatchInvariant)
	scores := attention.New(p, g)
	scores.SetInvariant(o.BatchInvariant)
	d := &Device{pool: p, gemm: g, attention: scores, prefetcher: newPrefetcher(g, threads), precision: o.Precision, invariant: o.BatchInvariant, profile: o.Profile}
	p.SetIdleWork(d.prefetcher.bite)
	return d, nil
}

func info(threads int) backend.Info {
	isa, err := gemm.Select(os.Getenv(gemm.EnvCPU))
	detail := fmt.Sprintf("%v, %d threads", isa, threads)
	if err != nil {
		detail = err.Error()
	}
	return backend.Info{Backend: backend.CPU, Name: fmt.Sprintf("%s/%s", runtime.GOOS, runtime.GOARCH), Memory: hostMemory(), Unified: true, Blocks: true, Detail: detail}
}

// Info describes the processor, its instruction set and the workers.
func (d *Device) Info() backend.Info {
	i := info(d.pool.Workers())
	i.BatchInvariant, i.Precision = d.invariant, d.precision
	return i
}

// Supports reports whether there is a kernel for op. A batch-invariant device has none for dropout
// inside a matrix multiplication: many rows are then split into several multiplications, and their sums depend on the
// split.
func (d *Device) Supports(op ir.Op, attr any, in []ir.Type) bool {
	switch op {
	case ir.LoRADown, ir.LoRADownGrad, ir.LoRADownInputGrad:
		return !d.invariant
	case ir.Gemm: // weights in 8-bit floats are widened before
		return attr.(ir.GemmAttr).Float8 == 0
	case ir.Activate, ir.ActivateGrad:
		_, ok := activations[attr.(ir.ActivateAttr).Act]
		return ok
	case ir.GLU, ir.GLUGrad:
		_, ok := activations[attr.(ir.GLUAttr).Act]
		return ok
	}
	return kernels[op] != nil
}

// Alloc returns zeroed memory.
func (d *Device) Alloc(bytes int) (backend.Buffer, error) {
	if bytes < 0 {
		return nil, fmt.Errorf("cpu: %d bytes", bytes)
	}
	b, err := allocate(bytes)
	if err != nil {
		return nil, fmt.Errorf("cpu: %w: asked for %d bytes, the host has %d: %w", backend.ErrOutOfMemory, bytes, hostMemory(), err)
	}
	return b, nil
}

// AllocAll divides one block of zeroed memory into buffers, aligned to cache lines.
func (d *Device) AllocAll(sizes []int) ([]backend.Buffer, error) {
	const line = 64
	division, err := backend.LayoutBlock(sizes, line)
	if err != nil {
		return nil, fmt.Errorf("cpu: %w", err)
	}
	whole, err := d.Alloc(division.Bytes)
	if err != nil {
		return nil, err
	}
	parts := make([]backend.Buffer, len(sizes))
	for i, n := range sizes {
		from := division.Offsets[i]
		parts[i] = &buffer{data: whole.(*buffer).data[from : from+n : from+n], keep: whole, release: func() {
			if division.Release() {
				whole.Free()
			}
		}}
	}
	if len(sizes) == 0 {
		whole.Free()
	}
	return parts, nil
}

// Part returns a part of a buffer.
func (d *Device) Part(b backend.Buffer, off, n int) (backend.Buffer, error) {
	data, err := bytesOf(b)
	if err != nil {
		return nil, err
	}
	if off < 0 || n < 0 || off > len(data) || n > len(data)-off || off%backend.PartAlign != 0 {
		return nil, fmt.Errorf("cpu: a part of %d bytes at %d of a buffer of %d", n, off, len(data))
	}
	whole := b.(*buffer)
	return &buffer{data: data[off : off+n : off+n], parent: whole, readOnly: whole.readOnly}, nil
}

// Import returns a buffer over the bytes of src, without a copy.
func (d *Device) Import(src weights.Data) (backend.Buffer, error) {
	return &buffer{data: src.Bytes, keep: src.Keep, readOnly: true, brief: src.Brief}, nil
}

// Upload copies src into dst.
func (d *Device) Upload(dst backend.Buffer, off int, src []byte) (backend.Fence, error) {
	b, err := bytesOf(dst)
	if err != nil {
		return nil, err
	}
	if dst.(*buffer).readOnly {
		return nil, fmt.Errorf("cpu: upload into an imported buffer")
	}
	if off < 0 || off+len(src) > len(b) {
		return nil, fmt.Errorf("cpu: upload of %d bytes at %d into a buffer of %d", len(src), off, len(b))
	}
	copy(b[off:], src)
	return backend.Done{}, nil
}

// Download copies from src into dst.
func (d *Device) Download(dst []byte, src backend.Buffer, off int) (backend.Fence, error) {
	b, err := bytesOf(src)
	if err != nil {
		return nil, err
	}
	if off < 0 || off+len(dst) > len(b) {
		return nil, fmt.Errorf("cpu: download of %d bytes at %d from a buffer of %d", len(dst), off, len(b))
	}
	copy(dst, b[off:])
	return backend.Done{}, nil
}

// Compile prepares the launches of p and allocates its arena and their scratch
// memory: runs allocate nothing.
func (d *Device) Compile(p *ir.Program) (backend.Executable, error) {
	arena, err := d.Alloc(p.Arena)
	if err != nil {
		return nil, err
	}
	e, err := d.compile(p, arena.(*buffer))
	if err != nil {
		arena.Free()
		return nil, err
	}
	e.own = e.arena
	return e, nil
}

// CompileIn compiles p with the caller's arena.
func (d *Device) CompileIn(p *ir.Program, arena backend.Buffer) (backend.Executable, error) {
	b, err := bytesOf(arena)
	if err != nil {
		return nil, err
	}
	if len(b) < p.Arena {
		return nil, fmt.Errorf("cpu: an arena of %d bytes for a program of %d", len(b), p.Arena)
	}
	return d.compile(p, arena.(*buffer))
}

func (d *Device) compile(p *ir.Program, arena *buffer) (*executable, error) {
	if err := supported(p); err != nil {
		return nil, err
	}
	e := &executable{dev: d, prog: p, arena: arena}
	e.run, e.steps = newRun(d, p, d.packMode())
	e.pause = e.rest
	e.prefetches = newPrefetches(e.steps)
	n := e.run.need
	floats := n.temp + d.pool.Workers()*n.wide
	scratch, err := d.Alloc(4*floats + n.masks)
	if err != nil {
		return nil, err
	}
	e.scratch = scratch.(*buffer)
	memory := view[float32](e.scratch.data, floats)
	e.run.scratch = memory[:n.temp]
	e.run.makeRooms(memory[n.temp:])
	e.run.keepMasks(e.scratch.data[4*floats:])
	d.reserve(n)
	return e, nil
}

// Close ends the workers.
func (d *Device) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.closed = true
		d.pool.Close()
	}
	return nil
}

// reserve prepares the engines for the launches of a program. No program may be running.
func (d *Device) reserve(n needs) {
	d.launching.Lock()
	defer d.launching.Unlock()
	d.gemm.Reserve(n.products)
	if n.blocks > len(d.wide) {
		d.wide = make([]float32, n.blocks)
	}
	d.gemm.ReserveSerial(n.serial)
	if n.scores.Queries > 0 {
		d.attention.Reserve(n.scores)
	}
}

// executable runs a program's launches in sequence; each uses all workers. Launches of concurrent programs alternate.
type executable struct {
	dev            *Device
	prog           *ir.Program
	run            *run
	steps          []step
	prefetches     *prefetches
	arena, scratch *buffer
	own            *buffer // the arena unless the caller passed one, or nil
	yield          func() (over func())
	over           func() // of the launch under way
	pause          func() // rest, made once
	closed         bool
}

// Run runs the program; it is done when Run returns.
func (e *executable) Run(ctx context.Context, args backend.Args) (f backend.Fence, err error) {
	if e.closed || e.arena.freed {
		return nil, fmt.Errorf("cpu: executable: %w", backend.ErrClosed)
	}
	r := e.run
	r.arena, r.dims = e.arena.data, args.Dims
	r.args, r.buffers = r.args[:0], r.buffers[:0]
	for i, b := range args.Buffers {
		data, err := bytesOf(b)
		if err != nil {
			return nil, fmt.Errorf("argument %q: %w", e.prog.Args[i].Name, err)
		}
		if e.prog.Args[i].Written && b.(*buffer).readOnly {
			return nil, fmt.Errorf("cpu: the program writes %q, which is an imported buffer", e.prog.Args[i].Name)
		}
		r.args, r.buffers = append(r.args, data), append(r.buffers, b.(*buffer))
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true)) // see run.do
	e.prefetches.update(r, e.steps)
	if e.yield, r.rest = backend.Yield(ctx), nil; e.yield != nil {
		r.rest = e.pause
	}
	for i := range e.steps {
		if err := e.launch(ctx, i); err != nil {
			return nil, err
		}
	}
	return backend.Done{}, nil
}

// launch runs step i when the workers are free for it.
func (e *executable) launch(ctx context.Context, i int) error {
	e.begin()
	defer e.end()
	if err := ctx.Err(); err != nil {
		return err
	}
	e.dev.prefetcher.next.Store(e.prefetches.steps[i])
	return e.step(i)
}

// begin waits until a launch may run, and end lets others.
func (e *executable) begin() {
	if e.yield != nil {
		e.over = e.yield()
	}
	e.dev.launching.Lock()
}

func (e *executable) end() {
	e.dev.launching.Unlock()
	if e.yield != nil {
		e.over()
	}
}

// rest lets other programs run in the middle of a long launch.
func (e *executable) rest() {
	e.end()
	e.begin()
}

// step runs step i and reports its time to the profile, if any. The time of a step with several launches is divided
// among them by the bytes that they move.
func (e *executable) step(i int) error {
	if e.dev.profile == nil {
		return e.run.do(&e.steps[i])
	}
	start := time.Now()
	err := e.run.do(&e.steps[i])
	took := time.Since(start)
	if e.steps[i].later {
		return err
	}
	first := i
	for first > 0 && e.steps[first-1].later {
		first--
	}
	all := 0
	for l := range launchesOf(e.steps[first : i+1]) {
		_, bytes := l.Cost(e.run.dims)
		all += bytes
	}
	for l := range launchesOf(e.steps[first : i+1]) {
		part := 1.0
		if _, bytes := l.Cost(e.run.dims); all > 0 {
			part = float64(bytes) / float64(all)
		}
		e.dev.profile.Add(l, e.run.dims, e.run.flops(l), time.Duration(part*float64(took)))
	}
	return err
}

// launchesOf iterates over the launches of steps.
func launchesOf(steps []step) iter.Seq[*ir.Launch] {
	return func(yield func(*ir.Launch) bool) {
		for i := range steps {
			for j := range steps[i].launches {
				if !yield(&steps[i].launches[j]) {
					return
				}
			}
		}
	}
}

// Close frees the arena.
func (e *executable) Close() error {
	e.dev.prefetcher.next.Store(nil)
	e.closed = true
	for _, b := range []*buffer{e.own, e.scratch} {
		if b != nil {
			b.Free()
		}
	}
	return nil
}

package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/graph/exec"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/nn"
	"github.com/lorafuse/lorafuse/internal/suggest"
	"github.com/lorafuse/lorafuse/tensor"
)

// ErrResult reports a result that the program does not have.
var ErrResult = errors.New("no result")

// Program is a compiled program of a runtime.
type Program struct {
	r          *Runtime
	draft      *Draft
	exe        *exec.Executable
	arena      *arena // nil if the program has its own
	results    map[string]*result
	inputs     inputs
	shapes     [][]string // of the adapters of the slots that it runs with
	precompute []*Program // for each slot, the program to run first, or nil

	bound []*Slot // whose buffers are bound, nil if none are
	runs  runs
}

// Plan returns the compiled program.
func (p *Program) Plan() *ir.Program { return p.draft.Program }

// Flops returns the work of a run with the given arrays. The arrays set the sizes of their
// axes; other axes keep their current sizes.
func (p *Program) Flops(given nn.Arrays) int {
	sized := uint64(0)
	for _, f := range p.inputs.fields {
		if f.table != nil {
			continue
		}
		if data, ok := f.in.Array(given); ok && len(data) > 0 && axis(p.exe, f.in, len(data), &sized) != nil {
			return 0
		}
	}
	return p.exe.Flops()
}

// Arena returns the size of the program's arena in bytes.
func (p *Program) Arena() int64 {
	if p.arena != nil {
		return int64(p.arena.buffer.Size())
	}
	return int64(p.draft.Program.Arena)
}

// SharesArena reports whether p and q compute in the same memory.
func (p *Program) SharesArena(q *Program) bool {
	return p == q || p.arena != nil && p.arena == q.arena
}

// Run starts one run on texts of at most length tokens. It does not wait for earlier runs.
// [Program.Read] waits for the run and reads its results. If the program was not loaded with
// the slot, but fits it, Run uploads the slot first. After a run that changes parameters of
// the slot, call Changed. Errors: nn.ErrInput, ErrSlot for a slot that does not fit, and
// errors of the device or of earlier runs. After an error no run is pending.
func (p *Program) Run(ctx context.Context, s *Slot, given nn.Arrays, length int) error {
	err := p.begin(ctx, s, given, length)
	if err != nil {
		_ = p.r.settle() // pending runs belong to the failed work
	}
	return err
}

func (p *Program) begin(ctx context.Context, s *Slot, given nn.Arrays, length int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !p.has(s) {
		if err := p.Bring(ctx, s); err != nil {
			return err
		}
	}
	for i, part := range s.parts {
		first := p.precompute[i]
		if first == nil || part.vacant || slices.Contains(part.made, first) {
			continue
		}
		if err := first.make(ctx, part); err != nil {
			return err
		}
		part.made = append(part.made, first) // unless that run fails
	}
	if err := p.bind(s); err != nil {
		return err
	}
	if err := p.inputs.set(p.exe, s.arrays(given), length); err != nil {
		return err
	}
	if err := p.inputs.upload(p.r.dev); err != nil {
		return err
	}
	return p.runs.begin(ctx, p.exe, s, p.r.launch)
}

// Bring uploads the tensors that the program reads and writes of a slot. Run does the same for
// a slot that the program was not loaded with. Errors: ErrSlot and errors of the device.
func (p *Program) Bring(ctx context.Context, s *Slot) error {
	if !p.Fits(s) {
		return fmt.Errorf("engine: %w: the program was planned for adapters of other shapes", ErrSlot)
	}
	if err := p.draft.check(s); err != nil {
		return err
	}
	if err := s.fill(ctx, p.draft); err != nil {
		return err
	}
	return p.bind(s)
}

// make starts a run of a program that computes values from parameters alone.
func (p *Program) make(ctx context.Context, s *Slot) error {
	if err := p.bind(s); err != nil {
		return err
	}
	return p.runs.begin(ctx, p.exe, s, p.r.launch)
}

// Fits reports whether the program can run with a slot: its adapters must have the shapes that
// the program was planned for. The check is conservative.
func (p *Program) Fits(s *Slot) bool {
	return slices.ContainsFunc(p.shapes, func(shapes []string) bool { return slices.Equal(shapes, s.shapes) })
}

// has reports whether the buffers of these slots are bound.
func (p *Program) has(s *Slot) bool { return p.bound != nil && slices.Equal(p.bound, s.parts) }

// Combines reports whether the program ran last with several slots, one of which is s.
func (p *Program) Combines(s *Slot) bool { return len(p.bound) > 1 && slices.Contains(p.bound, s) }

// bind binds the buffers of the slots and every other buffer that is not bound yet.
func (p *Program) bind(s *Slot) error {
	if p.has(s) {
		return nil
	}
	had := p.bound
	p.bound = nil
	dims := p.draft.Program.MaxDims()
	for i, a := range p.draft.args {
		if had != nil && (a.part < 0 || had[a.part] == s.parts[a.part] || had[a.part].vacant && s.parts[a.part].vacant) {
			continue
		}
		b, err := p.buffer(s, a, &p.draft.Program.Args[i], dims)
		if err != nil {
			return err
		}
		if err := p.exe.BindAt(i, b); err != nil {
			return err
		}
	}
	p.bound = s.parts
	return nil
}

// buffer returns the buffer of an argument, which belongs to a slot, the inputs, the weights, the
// cache, a table or a result. Arguments that a slot does not have share buffers of zeros.
func (p *Program) buffer(s *Slot, at arg, a *ir.Arg, dims []int) (backend.Buffer, error) {
	if at.part >= 0 {
		part := s.parts[at.part]
		if name := part.tensor(at); name != "" {
			return part.store.Alloc(name, a.Bytes(dims))
		}
		return p.r.store.Alloc(fmt.Sprintf("vacant %d", a.Bytes(dims)), a.Bytes(dims))
	}
	if b := p.inputs.part(a.Name); b != nil {
		return b, nil
	}
	if b := p.r.weights.buffer(a.Name); b != nil {
		return b, nil
	}
	if c := p.draft.spec.Cache; c != nil && c.tables[a.Name] {
		return c.store.Alloc(a.Name, a.Bytes(dims))
	}
	if !a.Written {
		return p.r.store.Alloc(a.Name, a.Bytes(dims))
	}
	if p.results[a.Name] == nil {
		x, err := p.r.result(a.Name, a.Bytes(dims))
		if err != nil {
			return nil, err
		}
		if p.results == nil {
			p.results = map[string]*result{}
		}
		p.results[a.Name] = x
	}
	return p.results[a.Name].buffer, nil
}

// Len returns the number of elements that the last run wrote to a result, 0 if the program
// has no such result.
func (p *Program) Len(result string) int {
	i := p.draft.Program.ArgIndex(result)
	if i < 0 || p.results[result] == nil {
		return 0
	}
	return p.draft.Program.Args[i].Type.Shape.Elements(p.exe.Dims())
}

// Read waits for all pending runs and copies the first len(dst) elements of a result. Results
// with the same name and size share memory across programs: Read returns the values of the
// last run of any of them. Errors: ErrResult and errors of the runs.
func (p *Program) Read(ctx context.Context, result string, dst []float32) error {
	return p.ReadParts(ctx, Part{result, 0, dst})
}

// Part is a range of elements of a result, to be copied to Into.
type Part struct {
	Result string
	Start  int // index of the first element
	Into   []float32
}

// ReadParts waits for all pending runs and copies parts of results, as Read does.
func (p *Program) ReadParts(ctx context.Context, parts ...Part) error {
	err := p.download(ctx, parts)
	return cmp.Or(p.r.settle(), err)
}

// download copies parts of results. All copies are enqueued before it waits for the first.
func (p *Program) download(ctx context.Context, parts []Part) (err error) {
	var fences []backend.Fence
	for _, part := range parts {
		x := p.results[part.Result]
		if x == nil {
			err = fmt.Errorf("engine: %w %q of the program%s", ErrResult, part.Result, suggest.DidYouMean(part.Result, slices.Sorted(maps.Keys(p.results))))
			break
		}
		f, failed := p.r.dev.Download(tensor.BytesOf(part.Into), x.buffer, tensor.F32.Size()*part.Start)
		if failed != nil {
			err = fmt.Errorf("engine: result %q: %w", part.Result, failed)
			break
		}
		fences = append(fences, f)
	}
	for i, f := range fences {
		if failed := f.Wait(ctx); failed != nil && err == nil {
			err = fmt.Errorf("engine: result %q: %w", parts[i].Result, failed)
		}
	}
	return err
}

func (p *Program) close() {
	_ = p.runs.settle()
	p.exe.Close()
	p.inputs.free()
	for _, x := range p.results {
		p.r.forget(x)
	}
	p.results = nil
	p.r.release(p.arena)
	p.arena = nil
}

// inputs holds the arrays of a run, concatenated in one device buffer, and the host copy in
// which they are assembled.
type inputs struct {
	fields []field
	host   []byte
	end    int              // end of the used part of host
	whole  backend.Buffer   // nil if each field has its own buffer
	parts  []backend.Buffer // of the fields
	length int              // of the texts that derived tables are for
}

// field locates an array within the inputs.
type field struct {
	in     nn.Input
	table  *nn.Derived // nil unless the array is a derived table
	offset int
	used   int // bytes used in the current run
}

// lay assigns an offset to each array that a program reads.
func (x *inputs) lay(r *Runtime, e *exec.Executable, d *Draft) error {
	size, dims := 0, d.Program.MaxDims()
	var sizes []int
	add := func(f field) {
		if !e.Uses(f.in.Param) {
			return
		}
		f.offset = (size + backend.PartAlign - 1) / backend.PartAlign * backend.PartAlign
		n := f.in.Type.Bytes(dims)
		size = f.offset + n
		sizes = append(sizes, n)
		x.fields = append(x.fields, f)
	}
	for _, in := range d.inputs {
		add(field{in: in})
	}
	for i := range d.tables {
		if t := &d.tables[i]; t.Changes() {
			add(field{in: nn.Input{Name: t.Name, Param: t.Name, Type: t.Type()}, table: t})
		}
	}
	x.host = make([]byte, size)
	if len(sizes) == 0 {
		return nil
	}
	var err error
	if r.memory == nil {
		for _, n := range sizes {
			b, err := r.dev.Alloc(n)
			if err != nil {
				return err
			}
			x.parts = append(x.parts, b)
		}
		return nil
	}
	if x.whole, err = r.dev.Alloc(size); err != nil {
		return err
	}
	for i, f := range x.fields {
		b, err := r.memory.Part(x.whole, f.offset, sizes[i])
		if err != nil {
			return err
		}
		x.parts = append(x.parts, b)
	}
	return nil
}

// part returns the buffer of a param, or nil if it is not an input.
func (x *inputs) part(param string) backend.Buffer {
	i := slices.IndexFunc(x.fields, func(f field) bool { return f.in.Param == param })
	if i < 0 {
		return nil
	}
	return x.parts[i]
}

// set assembles the arrays of a run and sets the sizes of their outer axes.
func (x *inputs) set(e *exec.Executable, given nn.Arrays, length int) error {
	sized := uint64(0) // axes that were set
	x.end = 0
	for i := range x.fields {
		f := &x.fields[i]
		if f.table == nil {
			data, ok := f.in.Array(given)
			if !ok {
				return fmt.Errorf("%w: the model reads %q %v, which it is not given", nn.ErrInput, f.in.Name, f.in.Type)
			}
			if err := axis(e, f.in, len(data), &sized); err != nil {
				return err
			}
			f.used = copy(x.host[f.offset:], data)
		} else if x.length != length {
			f.used = copy(x.host[f.offset:], tensor.BytesOf(f.table.Values(length)))
		}
		x.end = f.offset + f.used
	}
	x.length = length
	return nil
}

// axis sets the outer axis of an input by the bytes that it is given. sized has a
// bit for each axis that another input has set.
func axis(e *exec.Executable, in nn.Input, bytes int, sized *uint64) error {
	row, outer := in.Type, ir.Static(1)
	if len(row.Shape) > 0 && row.Shape[0].Var != 0 {
		outer, row.Shape = row.Shape[0], row.Shape[1:]
	}
	each := outer.N * row.Bytes(nil)
	if each == 0 || bytes%each != 0 || outer.Var == 0 && bytes != each {
		return fmt.Errorf("%w: %q %v is given %d bytes", nn.ErrInput, in.Name, in.Type, bytes)
	}
	if outer.Var == 0 {
		return nil
	}
	n := bytes / each
	if *sized>>outer.Var&1 == 1 {
		if now := e.Dim(outer.Var); now != n {
			return fmt.Errorf("%w: %q has %d rows where the arrays before it have %d", nn.ErrInput, in.Name, n, now)
		}
		return nil
	}
	*sized |= 1 << outer.Var
	if err := e.SetDim(e.Program().Bounds[outer.Var].Name, n); err != nil {
		return fmt.Errorf("%w: %q: %w", nn.ErrInput, in.Name, err)
	}
	return nil
}

// upload copies the arrays to the device, in one transfer if they share a buffer. Devices
// execute work in order, so upload waits neither for the transfer nor for earlier runs that
// read the same memory.
func (x *inputs) upload(dev backend.Device) error {
	if x.whole != nil {
		_, err := dev.Upload(x.whole, 0, x.host[:x.end])
		return err
	}
	for i, f := range x.fields {
		if _, err := dev.Upload(x.parts[i], 0, x.host[f.offset:f.offset+f.used]); err != nil {
			return err
		}
	}
	return nil
}

func (x *inputs) free() {
	for _, b := range x.parts {
		b.Free()
	}
	if x.whole != nil {
		x.whole.Free()
	}
}

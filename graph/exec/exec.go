package exec

import (
	"context"
	"errors"
	"fmt"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/suggest"
)

// ErrArgument is wrapped by errors for arguments that do not match the program.
var ErrArgument = errors.New("argument")

// Executable is a compiled graph with its arguments. It is not safe for concurrent use.
type Executable struct {
	prog    *ir.Program
	exe     backend.Executable
	buffers []backend.Buffer
	dims    []int
	need    []int // bytes of each argument at the maximum dimensions
	owned   []backend.Buffer
}

// Compile plans the graph for the device and compiles the program on it.
func Compile(g *ir.Graph, spec Spec, dev backend.Device) (*Executable, error) {
	if spec.Stores == nil {
		spec.Stores = dev.Stores
	}
	prog, err := Plan(g, spec, dev.Supports)
	if err != nil {
		return nil, err
	}
	return Load(prog, dev, nil)
}

// Load compiles a planned program on the device. It computes in the arena of the caller,
// which programs that take turns may share on a backend.Memory, or in one of its own if arena
// is nil. All programs are compiled here.
func Load(prog *ir.Program, dev backend.Device, arena backend.Buffer) (*Executable, error) {
	var exe backend.Executable
	var err error
	if arena == nil {
		exe, err = dev.Compile(prog)
	} else if memory, ok := dev.(backend.Memory); ok {
		exe, err = memory.CompileIn(prog, arena)
	} else {
		err = fmt.Errorf("exec: %w: an arena of the caller on %s", backend.ErrUnsupported, dev.Info().Backend)
	}
	if err != nil {
		return nil, err
	}
	e := &Executable{prog: prog, exe: exe, buffers: make([]backend.Buffer, len(prog.Args)), dims: prog.MaxDims()}
	for _, a := range prog.Args {
		e.need = append(e.need, a.Bytes(e.dims))
	}
	return e, nil
}

// Program returns the compiled program.
func (e *Executable) Program() *ir.Program { return e.prog }

// Uses reports whether the program has an argument called name. Params that no result depends on are removed.
func (e *Executable) Uses(name string) bool { return e.prog.ArgIndex(name) >= 0 }

// Bind binds buf to the argument called name for all later runs. It fails with ErrArgument if there is no such argument
// or buf is too small.
func (e *Executable) Bind(name string, buf backend.Buffer) error {
	i := e.prog.ArgIndex(name)
	if i < 0 {
		names := make([]string, len(e.prog.Args))
		for j, a := range e.prog.Args {
			names[j] = a.Name
		}
		return fmt.Errorf("exec: %w: the program has no %q%s", ErrArgument, name, suggest.DidYouMean(name, names))
	}
	return e.BindAt(i, buf)
}

// BindAt binds buf to argument i of the program; see Bind.
func (e *Executable) BindAt(i int, buf backend.Buffer) error {
	name := e.prog.Args[i].Name
	if buf.Size() < e.need[i] {
		return fmt.Errorf("exec: %w: %q has %d bytes, expected %d for %v", ErrArgument, name, buf.Size(), e.need[i], e.prog.Args[i].Type)
	}
	e.buffers[i] = buf
	return nil
}

// Own transfers ownership of buf to the executable, which frees it in Close.
func (e *Executable) Own(buf backend.Buffer) { e.owned = append(e.owned, buf) }

// SetDim sets the bounded dimension called name for later runs.
func (e *Executable) SetDim(name string, n int) error {
	for v, b := range e.prog.Bounds {
		if v > 0 && b.Name == name {
			if n < 1 || n > b.Max {
				return fmt.Errorf("exec: %w: %s = %d, expected 1 to %d", ErrArgument, name, n, b.Max)
			}
			e.dims[v] = n
			return nil
		}
	}
	return fmt.Errorf("exec: %w: the program has no dimension %q", ErrArgument, name)
}

// Dims returns the current sizes of the bounded dimensions, which the caller must not change.
func (e *Executable) Dims() []int { return e.dims }

// Dim returns the current size of a bounded dimension.
func (e *Executable) Dim(v ir.Var) int { return e.dims[v] }

// Run enqueues a run with the current arguments and dimensions. Several may be in progress; see [backend.Executable].
func (e *Executable) Run(ctx context.Context) (backend.Fence, error) {
	for i, b := range e.buffers {
		if b == nil {
			return nil, fmt.Errorf("exec: %w: %q %v is not bound", ErrArgument, e.prog.Args[i].Name, e.prog.Args[i].Type)
		}
	}
	return e.exe.Run(ctx, backend.Args{Buffers: e.buffers, Dims: e.dims})
}

// RunWait runs the program and waits for the end.
func (e *Executable) RunWait(ctx context.Context) error {
	f, err := e.Run(ctx)
	if err != nil {
		return err
	}
	return f.Wait(ctx)
}

// Flops returns the number of floating-point operations of a run with the current dimensions.
func (e *Executable) Flops() int { return e.prog.Flops(e.dims) }

// Close frees the arena and the owned buffers.
func (e *Executable) Close() error {
	err := e.exe.Close()
	for _, b := range e.owned {
		b.Free()
	}
	e.owned = nil
	return err
}

package graph

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/graph/exec"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/weights"
	"github.com/lorafuse/lorafuse/tensor"
)

// plan is a compiled formula with the buffers of its arguments.
type plan struct {
	formula *formula
	ready   chan struct{} // closed after compiling, successful or not
	err     error
	turn    chan struct{} // semaphore: one run at a time may use the fields below
	dev     backend.Device
	exe     *exec.Executable
	inPlace bool // the device reads host memory without copying
	args    []arg
	dims    []int // maximum sizes of the bounded dimensions

	users int    // guarded by the evaluator
	used  uint64 // time of last use: guarded by the evaluator
}

// arg is an argument of the program: an input of the formula or a result.
type arg struct {
	input  int // index among the params of the formula, or -1
	result int // index among the roots, or -1
	typ    ir.Type
	bytes  int            // at the maximum dimensions
	buffer backend.Buffer // nil for inputs until one is copied
}

// importsInPlace reports whether the device reads host memory without copying.
func importsInPlace(dev backend.Device) bool {
	host, seen := make([]byte, 64), make([]byte, 64)
	b, err := dev.Import(weights.Data{Bytes: host})
	if err != nil {
		return false
	}
	defer b.Free()
	host[0] = 1
	f, err := dev.Download(seen, b, 0)
	return err == nil && f.Wait(context.Background()) == nil && seen[0] == 1
}

// compile compiles the program and allocates its buffers.
func (p *plan) compile(e *Evaluator, g *Graph, r *reading) (err error) {
	var spec exec.Spec
	for i, v := range r.roots {
		spec.Results = append(spec.Results, exec.Result{Name: fmt.Sprintf("result.%d", i), Value: v})
	}
	if p.exe, err = exec.Compile(g.ir, spec, e.dev); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	p.dev, p.inPlace, p.args = e.dev, e.inPlace(), nil
	prog := p.exe.Program()
	p.dims = prog.MaxDims()
	for _, a := range prog.Args {
		x := arg{input: -1, result: -1, typ: a.Type, bytes: a.Bytes(p.dims)}
		if v, ok := g.ir.Lookup(a.Name); ok {
			x.input = slices.Index(r.params, v)
		} else {
			x.result = slices.IndexFunc(spec.Results, func(r exec.Result) bool { return r.Name == a.Name })
		}
		if x.result >= 0 {
			if x.buffer, err = e.dev.Alloc(x.bytes); err != nil {
				return err
			}
			if err = p.exe.BindAt(len(p.args), x.buffer); err != nil {
				return err
			}
		}
		p.args = append(p.args, x)
	}
	return nil
}

// compiled reports whether the plan is ready to run.
func (p *plan) compiled() bool {
	select {
	case <-p.ready:
		return p.err == nil
	default:
		return false
	}
}

func (p *plan) close() error {
	for i := range p.args {
		if b := p.args[i].buffer; b != nil {
			b.Free()
			p.args[i].buffer = nil
		}
	}
	if p.exe == nil {
		return nil
	}
	exe := p.exe
	p.exe = nil
	return exe.Close()
}

// call is one evaluation: a plan and its data.
type call struct {
	plan     *plan
	data     [][]byte         // data of the inputs, by argument
	at       []int            // sizes of the bounded dimensions
	imported []backend.Buffer // buffers that wrap the data
}

// gather collects and checks the data of the inputs.
func (c *call) gather(g *Graph, r *reading, args map[string]*tensor.Tensor, dims map[string]int) error {
	p := c.plan
	c.at = p.dims
	if len(dims) > 0 {
		c.at = slices.Clone(p.dims)
		for name, n := range dims {
			v := slices.IndexFunc(p.formula.bounds, func(b ir.Bound) bool { return b.Name == name })
			switch {
			case v <= 0:
				return fmt.Errorf("graph: %w: there is no dimension %q", exec.ErrArgument, name)
			case n < 1 || n > p.formula.bounds[v].Max:
				return fmt.Errorf("graph: %w: %s = %d, expected 1 to %d", exec.ErrArgument, name, n, p.formula.bounds[v].Max)
			}
			c.at[v] = n
		}
	}
	c.data = slices.Grow(c.data[:0], len(p.args))[:len(p.args)]
	for i := range p.args {
		a := &p.args[i]
		if a.input < 0 {
			continue
		}
		v := r.params[a.input]
		t, ok := g.values[v]
		if !ok {
			name := g.ir.Node(v).Attr.(ir.ParamAttr).Name
			given := args[name]
			if given == nil {
				return fmt.Errorf("graph: %w: param %q wants %v, found nothing; give it by EvalWith, or make it by Graph.Value", exec.ErrArgument, name, a.typ)
			}
			if given.DType != a.typ.DType || len(given.Data) != a.typ.Bytes(c.at) {
				return fmt.Errorf("graph: %w: param %q wants %v, found %v%v with %d bytes, expected %d",
					exec.ErrArgument, name, a.typ, given.DType, given.Shape, len(given.Data), a.typ.Bytes(c.at))
			}
			t = *given
		}
		c.data[i] = t.Data
	}
	return nil
}

// run waits for the plan to be free, uploads the data, runs the program and returns the results. When it returns, the
// device no longer uses the data.
func (c *call) run(ctx context.Context) ([]*tensor.Tensor, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case c.plan.turn <- struct{}{}:
	default:
		select {
		case c.plan.turn <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	defer func() { <-c.plan.turn }()
	defer c.unbind()
	if err := c.bind(ctx); err != nil {
		return nil, err
	}
	f, err := c.plan.exe.Run(ctx)
	if err = settle(ctx, f, err); err != nil {
		return nil, err
	}
	return c.results(ctx)
}

// settle waits for f. If ctx ends first, it still waits until the device no longer uses the memory, and then returns
// the error of ctx.
func settle(ctx context.Context, f backend.Fence, err error) error {
	if err != nil {
		return err
	}
	if err = f.Wait(ctx); err != nil && ctx.Err() != nil {
		_ = f.Wait(context.WithoutCancel(ctx))
	}
	return err
}

// bind sets the dimensions and uploads the inputs.
func (c *call) bind(ctx context.Context) error {
	p := c.plan
	for v := 1; v < len(c.at); v++ {
		if err := p.exe.SetDim(p.formula.bounds[v].Name, c.at[v]); err != nil {
			return err
		}
	}
	for i := range p.args {
		if p.args[i].input < 0 {
			continue
		}
		b, err := c.input(ctx, &p.args[i], c.data[i])
		if err == nil {
			err = p.exe.BindAt(i, b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// input returns a buffer with the data of an input. It wraps the bytes if the device can read them in place and they
// are large enough, and copies them otherwise.
func (c *call) input(ctx context.Context, a *arg, data []byte) (b backend.Buffer, err error) {
	const small = 4 << 10
	if c.plan.inPlace && len(data) >= small && len(data) == a.bytes && isAligned(data) {
		if b, err = c.plan.dev.Import(weights.Data{Bytes: data}); err == nil {
			c.imported = append(c.imported, b)
		}
		return b, err
	}
	if a.buffer == nil {
		if a.buffer, err = c.plan.dev.Alloc(a.bytes); err != nil {
			return nil, err
		}
	}
	f, err := c.plan.dev.Upload(a.buffer, 0, data)
	return a.buffer, settle(ctx, f, err)
}

// unbind releases the caller's data.
func (c *call) unbind() {
	for _, b := range c.imported {
		b.Free()
	}
	c.imported = c.imported[:0]
}

// reset prepares the call for reuse.
func (c *call) reset() {
	clear(c.data)
	clear(c.imported[:cap(c.imported)])
	c.plan, c.at = nil, nil
}

// results copies the results to the host.
func (c *call) results(ctx context.Context) ([]*tensor.Tensor, error) {
	n := len(c.plan.formula.roots)
	out, all := make([]*tensor.Tensor, n), make([]tensor.Tensor, n)
	shapes := make([]int, 0, n*ir.MaxRank)
	for i := range c.plan.args {
		a := &c.plan.args[i]
		if a.result < 0 {
			continue
		}
		t, at := &all[a.result], len(shapes)
		for _, d := range a.typ.Shape {
			shapes = append(shapes, d.Resolve(c.at))
		}
		t.DType, t.Shape, t.Data = a.typ.DType, shapes[at:len(shapes):len(shapes)], words(a.typ.Bytes(c.at))
		f, err := c.plan.dev.Download(t.Data, a.buffer, 0)
		if err = settle(ctx, f, err); err != nil {
			return nil, err
		}
		out[a.result] = t
	}
	return out, nil
}

// words returns n bytes at an address that is a multiple of eight.
func words(n int) []byte {
	w := make([]uint64, (n+7)/8)
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(w))), n)
}

// isAligned reports whether elements of up to eight bytes may be read in place.
func isAligned(b []byte) bool {
	return uintptr(unsafe.Pointer(unsafe.SliceData(b)))%8 == 0
}

// Package program makes programs for benchmarks: graphs compiled for a device,
// with arguments of random numbers, that can be run again and again.
package program

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/bench"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/graph/exec"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/internal/philox"
	"github.com/lorafuse/lorafuse/internal/quant"
	"github.com/lorafuse/lorafuse/tensor"
)

// Spec holds the results of a graph to compile.
type Spec struct {
	Graph   *graph.Graph
	Results []graph.Tensor
	// Words are the contents of params of integers; others are zero.
	Words map[string][]int32
	// Copies is the number of times that the graph has the measured operation, each with operands of its own; 0 means 1.
	// See [Machine.Copies].
	Copies int
}

// Program is compiled and has its arguments. It is not safe for concurrent use.
type Program struct {
	exe     *exec.Executable
	buffers []backend.Buffer
	copies  int
}

// New compiles a graph. The arguments are random numbers in [-1, 1), the same
// ones each time. Close the program when it is done with.
func New(ctx context.Context, dev backend.Device, s Spec) (*Program, error) {
	var spec exec.Spec
	for i, t := range s.Results {
		spec.Results = append(spec.Results, exec.Result{Name: fmt.Sprintf("result.%d", i), Value: t.Value()})
	}
	e, err := exec.Compile(s.Graph.IR(), spec, dev)
	if err != nil {
		return nil, err
	}
	p := &Program{exe: e, copies: max(1, s.Copies)}
	if err := p.bind(ctx, dev, s.Words); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// bind makes the arguments.
func (p *Program) bind(ctx context.Context, dev backend.Device, words map[string][]int32) error {
	prog := p.exe.Program()
	for i, a := range prog.Args {
		n := a.Bytes(prog.MaxDims())
		b, err := dev.Alloc(n)
		if err != nil {
			return fmt.Errorf("program: %q: %w", a.Name, err)
		}
		p.buffers = append(p.buffers, b)
		if err := p.exe.Bind(a.Name, b); err != nil {
			return err
		}
		if w := words[a.Name]; w != nil {
			if 4*len(w) != n {
				return fmt.Errorf("program: %q: found %d words, expected %d bytes", a.Name, len(w), n)
			}
			err = upload(ctx, dev, b, 0, tensor.BytesOf(w))
		} else {
			// Results are filled too, since writing a buffer makes its pages resident.
			err = fill(ctx, dev, b, a.Stored(), n, uint32(i))
		}
		if err != nil {
			return fmt.Errorf("program: %q: %w", a.Name, err)
		}
	}
	return nil
}

// fill writes n bytes of random elements, a repeated block.
func fill(ctx context.Context, dev backend.Device, b backend.Buffer, d tensor.DType, n int, stream uint32) error {
	stretch := min(n, 1<<20)
	if size := d.BlockBytes(); size > 0 && n > 0 {
		stretch = max(1, stretch/size) * size
	}
	block := make([]byte, stretch)
	if err := randomElements(block, d, philox.NewStream(0, 0, stream)); err != nil {
		return err
	}
	for at := 0; at < n; at += len(block) {
		if err := upload(ctx, dev, b, at, block[:min(len(block), n-at)]); err != nil {
			return err
		}
	}
	return nil
}

// randomElements draws numbers; integers stay zero.
func randomElements(dst []byte, d tensor.DType, random philox.Stream) error {
	n := 0
	switch {
	case d.Quantized():
		n = len(dst) / d.BlockBytes() * tensor.QuantBlock
	case d.IsFloat():
		n = len(dst) / d.Size()
	default:
		return nil
	}
	numbers := make([]float32, n)
	for i := range numbers {
		numbers[i] = 2*random.Uniform(uint64(i)) - 1
	}
	if d.Quantized() {
		return quant.Quantize(dst, numbers, d)
	}
	return tensor.FromFloat32(dst, numbers, d)
}

func upload(ctx context.Context, dev backend.Device, b backend.Buffer, at int, data []byte) error {
	f, err := dev.Upload(b, at, data)
	if err != nil {
		return err
	}
	return f.Wait(ctx)
}

// Cost returns the floating-point operations and the bytes read and written by one run, computed from shapes; see
// [ir.Cost].
func (p *Program) Cost() (flops, bytes int) {
	prog := p.exe.Program()
	for i := range prog.Launches {
		f, b := prog.Launches[i].Cost(prog.MaxDims())
		flops += f
		bytes += b
	}
	return flops, bytes
}

// Launches lists the operations in the order in which they run.
func (p *Program) Launches() []ir.Op {
	var ops []ir.Op
	for _, l := range p.exe.Program().Launches {
		ops = append(ops, l.Op)
	}
	return ops
}

// Run runs the program once and waits for it.
func (p *Program) Run(ctx context.Context) error { return p.exe.RunWait(ctx) }

// inTurn runs the program n times and waits for each run.
func (p *Program) inTurn(ctx context.Context, n int) error {
	for range n {
		if err := p.Run(ctx); err != nil {
			return err
		}
	}
	return nil
}

// queued runs the program n times, with several runs in progress.
func (p *Program) queued(ctx context.Context, n int) error { return enqueue(ctx, p.exe.Run, n) }

// enqueue calls run n times, with as many runs in progress as a device allows, and waits for all.
func enqueue(ctx context.Context, run func(context.Context) (backend.Fence, error), n int) (err error) {
	var fences [backend.MaxInFlight]backend.Fence
	for i := range n + len(fences) {
		f := &fences[i%len(fences)]
		if *f != nil {
			if err := (*f).Wait(ctx); err != nil {
				return err
			}
		}
		if *f = nil; i < n {
			if *f, err = run(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// Close frees the memory.
func (p *Program) Close() error {
	for _, b := range p.buffers {
		b.Free()
	}
	p.buffers = nil
	return p.exe.Close()
}

// MinSample is the minimum duration of a sample on a CPU. It makes clock error and the wake-up of workers negligible.
// On a GPU, where a wait costs more, samples are MinSampleGPU or longer.
const (
	MinSample    = 5 * time.Millisecond
	MinSampleGPU = 20 * time.Millisecond
)

// Sampler returns a Sampler of the run time of one copy of p's operation, with samples of the given duration. If
// asynchronous is true, the runs of a sample are enqueued one after another and only the last ones are waited for, as
// in real programs and as PyTorch is measured: launching a run then costs time only if it takes longer than the run
// before. Otherwise each run is waited for. Closing the Sampler closes p.
func (p *Program) Sampler(stretch time.Duration, asynchronous bool) bench.Sampler {
	run := p.inTurn
	if asynchronous {
		run = p.queued
	}
	return &sampler{bench.Repeat(run, stretch), p}
}

type sampler struct {
	bench.Sampler
	p *Program
}

func (s *sampler) Sample(ctx context.Context) (float64, error) {
	seconds, err := s.Sampler.Sample(ctx)
	return seconds / float64(s.p.copies), err
}

func (s *sampler) Close() error { return s.p.Close() }

// Gradients returns the gradient of y for each of wrt, if the gradient of y is dy.
func Gradients(y, dy graph.Tensor, wrt []graph.Tensor) []graph.Tensor {
	loss := y.Mul(dy)
	for range y.Type().Shape {
		loss = loss.Sum(0)
	}
	return y.Graph().Gradients(loss, wrt, false)
}

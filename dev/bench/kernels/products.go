package kernels

import (
	"context"
	"fmt"
	"slices"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/bench"
	"github.com/lorafuse/lorafuse/dev/bench/program"
	"github.com/lorafuse/lorafuse/graph"
	"github.com/lorafuse/lorafuse/internal/ir"
	"github.com/lorafuse/lorafuse/tensor"
)

// form is a matrix multiplication as layers use it: op(A) is [m,k], op(B) is [k,n], and B is the weight, if any.
type form struct {
	name   string
	ta, tb bool
	weight bool // B is a weight, stored in the type of the kind
	stored bool // A is an activation that is stored in bfloat16
}

var (
	forward  = form{name: "x·Wᵀ", tb: true, weight: true}
	backward = form{name: "dy·W", weight: true}
	down     = form{name: "LoRA x·Aᵀ", tb: true}
	up       = form{name: "LoRA h·Bᵀ", tb: true}
	gradA    = form{name: "LoRA dA = dhᵀ·x", ta: true}
	gradB    = form{name: "LoRA dB = dyᵀ·h", ta: true}
)

// withStored returns the form with an A that is stored in bfloat16.
func (f form) withStored() form {
	f.stored = true
	return f
}

// a returns the type of A.
func (f form) a() tensor.DType {
	if f.stored {
		return tensor.BF16
	}
	return tensor.F32
}

// kind describes how a product is computed: the type of the weight, and whether operands may be rounded.
type kind struct {
	name      string
	weights   tensor.DType
	precision backend.Precision
	peer      string // torch's name for the type; empty if torch lacks it
}

// bf16 is the index of the kind whose operands are rounded.
const bf16 = 2

var kinds = []kind{
	{"f32", tensor.F32, backend.F32, "f32"},
	{"f32 × bf16 weights", tensor.BF16, backend.F32, "f32"}, // torch lacks such a product: it widens the weights first
	{"bf16", tensor.BF16, backend.BF16, "bf16"},
	{"f32 × int8 weights", tensor.Q8, backend.F32, ""},
	{"f32 × nf4 weights", tensor.NF4, backend.F32, ""},
}

type size struct{ m, k, n int }

// products holds the matrix multiplications of one form.
type products struct {
	form  form
	sizes []size
}

// shapes are the sizes of a layer of 2,048 channels, with 5,632 in its MLP and adapters of rank 8 to 64.
var shapes = []products{
	{forward, []size{{1, 2048, 2048}, {8, 2048, 2048}, {16, 2048, 2048}, {64, 2048, 2048}, {512, 2048, 2048}, {2048, 2048, 2048},
		{1, 2048, 8192}, {8, 2048, 8192}, {16, 2048, 8192}, {64, 2048, 5632}, {512, 2048, 5632}, {2048, 2048, 5632}}},
	{backward, []size{{64, 5632, 2048}, {512, 5632, 2048}, {2048, 5632, 2048}, {2048, 2048, 2048}}},
	{down, []size{{1024, 2048, 8}, {1024, 2048, 16}, {1024, 2048, 64}}},
	{up, []size{{1024, 8, 2048}, {1024, 16, 2048}, {1024, 64, 2048}}},
	{gradA, []size{{8, 1024, 2048}, {16, 1024, 2048}, {64, 1024, 2048}}},
	{gradB, []size{{2048, 1024, 8}, {2048, 1024, 16}, {2048, 1024, 64}}},
}

// products returns the tasks of all products, each with its peers.
func (s *suite) products(shapes []products, kinds []kind) (tasks []bench.Task) {
	for _, g := range shapes {
		sizes := g.sizes
		if g.form == forward && s.machine.OnGPU() && !s.Models {
			sizes = append(slices.Clone(sizes), target)
		}
		for _, z := range sizes {
			for _, k := range kinds {
				if k.precision == backend.F32 && k.weights != tensor.F32 && !g.form.weight {
					continue // the same as f32
				}
				tasks = append(tasks, s.product(g.form, k, z)...)
			}
		}
	}
	return tasks
}

// target is the size at which GPU products are compared with the peak: large enough to use the whole GPU.
var target = size{4096, 4096, 4096}

// shrink divides a size.
func (s *suite) shrink(z size) size {
	return size{s.shrunk(z.m, 1), s.shrunk(z.k, 8), s.shrunk(z.n, 8)}
}

// row returns a row with the name and the cost of a product.
func row(program string, f form, k kind, z size) *bench.Row {
	return &bench.Row{Group: f.name, Program: program, Name: k.name, Input: fmt.Sprintf("m=%d k=%d n=%d", z.m, z.k, z.n),
		Flops: 2 * float64(z.m) * float64(z.k) * float64(z.n)}
}

// product returns the tasks of one product, of lorafuse and of its peers.
func (s *suite) product(f form, k kind, z size) []bench.Task {
	full := z
	z = s.shrink(z)
	mine := row(ours, f, k, z)
	mine.Bytes = k.moved(f, z)
	spec := func() program.Spec {
		a, b := f.a(), tensor.F32
		if f.weight {
			b = k.weights
		}
		spec := program.Spec{Graph: graph.New(), Copies: s.machine.Copies(mine.Bytes)}
		g := spec.Graph
		for i := range spec.Copies {
			x, y := g.Param(fmt.Sprint("a.", i), a, dims(z.m, z.k, f.ta)...), g.Param(fmt.Sprint("b.", i), b, dims(z.k, z.n, f.tb)...)
			p := ir.Product{A: x.Value(), B: y.Value(), TA: f.ta, TB: f.tb, Alpha: 1}
			spec.Results = append(spec.Results, g.Gemm([]ir.Product{p}, graph.Tensor{}, graph.Tensor{}))
		}
		return spec
	}
	own := s.machine.Task(mine, k.precision, spec)
	if s.machine.OnGPU() && full == target && k.precision == backend.BF16 {
		own.Marks = []bench.Mark{{Name: bench.TargetProduct, Row: mine.ID(), FlopPeak: bench.LeastProduct}}
	}
	tasks := []bench.Task{own}
	if s.torch == nil || k.peer == "" {
		return tasks
	}
	for _, program := range []string{torch, openBLAS} {
		if program == openBLAS && k.peer != "f32" {
			continue
		}
		theirs := row(program, f, k, z)
		tasks = append(tasks, bench.Task{Row: theirs, Foreign: true, Begin: func(ctx context.Context) (bench.Sampler, error) {
			return s.torch.Begin(ctx, map[string]any{"op": "matmul", "m": z.m, "k": z.k, "n": z.n, "ta": f.ta, "tb": f.tb, "dtype": k.peer, "numpy": program == openBLAS})
		}})
	}
	return tasks
}

// moved returns the bytes that a lorafuse product reads and writes, each counted once.
func (k kind) moved(f form, z size) int64 {
	first, second := f.a().Bytes(z.m*z.k), 4*z.k*z.n
	if f.weight {
		second = k.weights.Bytes(z.k * z.n)
	}
	return int64(first + second + 4*z.m*z.n)
}

// dims returns the dimensions of a matrix or of its transpose.
func dims(rows, cols int, transposed bool) []ir.Dim {
	if transposed {
		rows, cols = cols, rows
	}
	return ir.ShapeOf(rows, cols)
}

// Package plan computes what programs cost on a GPU, without one. It plans each program as the GPU backends do, and
// counts kernel launches, bytes of memory traffic, and memory.
package plan

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/gpu"
	"github.com/lorafuse/lorafuse/backend/null"
	"github.com/lorafuse/lorafuse/dev/bench"
	"github.com/lorafuse/lorafuse/internal/ir"
)

// ErrUnknown is wrapped if a program has no axis of a given name, or a model has no programs to plan.
var ErrUnknown = errors.New("not planned")

// Device is a kind of GPU.
type Device struct {
	Name   string // of its backend
	Target gpu.Target
	Cards  []Card
}

// Card holds the rates of a GPU.
type Card struct {
	Name  string
	Bytes float64 // per second
	Flops float64 // per second, in matrix multiplications
}

// Devices returns the GPUs that programs are planned for, with the precision that "auto" selects on each, and Metal with bf16 too. The rates of
// NVIDIA cards were measured with PyTorch; the others are the published ones.
func Devices() []Device {
	m4 := []Card{{"M4 Max", 546e9, 18.4e12}}
	return []Device{
		{backend.CUDA, gpu.Target{Precision: backend.BF16, Sizes: gpu.DefaultSizes()}, []Card{{"H100", 3.0e12, 798e12}, {"H200", 4.3e12, 798e12}}},
		{backend.Metal, gpu.MetalTarget(backend.F32, 1024), m4},
		{backend.Metal + ", bf16", gpu.MetalTarget(backend.BF16, 1024), m4},
	}
}

// Program is a program to be planned.
type Program struct {
	Name string
	Plan func(dev backend.Device) (*ir.Program, error)
	Dims map[string]int // sizes of axes in the run; other axes have their maximum
}

// Cost is the cost of one run of a program.
type Cost struct {
	Program    string         `json:"program"`
	Device     string         `json:"device"`
	Launches   int            `json:"launches"`             // of kernels
	Read       int            `json:"read_bytes"`           // by kernels
	Written    int            `json:"written_bytes"`        // by kernels
	Arena      int            `json:"arena_bytes"`          // memory for values of the program
	Scratch    int            `json:"scratch_bytes"`        // memory for values within operations
	Decomposed map[string]int `json:"decomposed,omitempty"` // operations without kernels, which others replace
	Derived    []Time         `json:"derived"`
}

// Time is the derived duration of a run on a card.
type Time struct {
	Card    string  `json:"card"`
	Seconds float64 `json:"seconds"`
}

// Count plans a program for a device. Times are lower bounds: each operation takes as long as its bytes at the bandwidth
// of the card or its floating-point operations at the peak rate, whichever is more. Errors: of Program.Plan,
// ErrUnknown, backend.ErrUnsupported.
func (d Device) Count(p Program) (Cost, error) {
	c := Cost{Program: p.Name, Device: d.Name, Decomposed: map[string]int{}}
	dev := &null.Device{
		Precision: d.Target.Precision,
		Claims: func(op ir.Op, attr any, in []ir.Type) bool {
			ok := gpu.Supports(op, attr, in)
			if !ok {
				c.Decomposed[op.String()]++
			}
			return ok
		},
		Keeps: gpu.Stores,
	}
	prog, err := p.Plan(dev)
	if err == nil {
		err = c.count(prog, d, p.Dims)
	}
	if err != nil {
		return Cost{}, fmt.Errorf("plan: %s, %s: %w", d.Name, p.Name, err)
	}
	return c, nil
}

func (c *Cost) count(prog *ir.Program, d Device, sizes map[string]int) error {
	dims := prog.MaxDims()
	for name, n := range sizes {
		i := slices.IndexFunc(prog.Bounds, func(b ir.Bound) bool { return b.Name == name })
		if i < 0 {
			var names []string
			for _, b := range prog.Bounds[1:] {
				names = append(names, b.Name)
			}
			return fmt.Errorf("%w: axis %q, expected %s", ErrUnknown, name, strings.Join(names, ", "))
		}
		if n < 1 || n > dims[i] {
			return fmt.Errorf("%w: axis %q of size %d, expected 1 to %d", ErrUnknown, name, n, dims[i])
		}
		dims[i] = n
	}
	plan, err := gpu.New(prog, d.Target)
	if err != nil {
		return err
	}
	c.Arena, c.Scratch = prog.Arena, plan.Scratch
	launches := make([]gpu.Launch, len(plan.Kernels))
	plan.Bind(launches)
	const apart = 1 << 40 // addresses only have to differ, and be aligned
	run := gpu.Run{Dims: dims, Arena: apart, Scratch: 2 * apart, Trap: 3 * apart, Args: make([]gpu.Pointer, len(prog.Args))}
	for i := range run.Args {
		run.Args[i] = gpu.Pointer(i+4) * apart
	}
	seconds := make([]float64, len(d.Cards))
	for i := range plan.Len() {
		plan.Fill(i, &run)
		flops, _ := plan.Cost(i, dims)
		read, written := plan.Traffic(i, &run)
		c.Read += read
		c.Written += written
		for k, card := range d.Cards {
			seconds[k] += max(float64(read+written)/card.Bytes, float64(flops)/card.Flops)
		}
	}
	for i := range launches {
		if launches[i].Grid[0] > 0 {
			c.Launches++
		}
	}
	for k, card := range d.Cards {
		c.Derived = append(c.Derived, Time{card.Name, seconds[k]})
	}
	return nil
}

// Table returns rows of text: a header, and a row for each cost.
func Table(costs []Cost) [][]string {
	rows := [][]string{{"program", "device", "launches", "GB moved", "read", "written", "arena GB", "scratch GB", "derived time", "decomposed"}}
	for _, c := range costs {
		var times, decomposed []string
		for _, t := range c.Derived {
			times = append(times, fmt.Sprintf("%s %s ms", t.Card, digits(1e3*t.Seconds)))
		}
		for _, op := range slices.Sorted(maps.Keys(c.Decomposed)) {
			decomposed = append(decomposed, fmt.Sprintf("%s %d", op, c.Decomposed[op]))
		}
		rows = append(rows, []string{c.Program, c.Device, grouped(c.Launches), gigabytes(c.Read + c.Written), gigabytes(c.Read), gigabytes(c.Written), gigabytes(c.Arena), gigabytes(c.Scratch),
			strings.Join(times, ", "), strings.Join(decomposed, ", ")})
	}
	return rows
}

// digits formats x with three digits, or all of its integer part.
func digits(x float64) string {
	return strconv.FormatFloat(x, 'f', max(0, 2-int(math.Floor(math.Log10(x)))), 64)
}

// grouped formats n with commas.
func grouped(n int) string {
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%s,%03d", grouped(n/1000), n%1000)
}

func gigabytes(n int) string { return fmt.Sprintf("%.3f", float64(n)/1e9) }

// Markdown returns the table as Markdown.
func Markdown(costs []Cost) string {
	var b strings.Builder
	for i, row := range Table(costs) {
		bench.MarkdownLine(&b, row...)
		if i == 0 {
			b.WriteString("|---|---|--:|--:|--:|--:|--:|--:|---|---|\n")
		}
	}
	return b.String()
}

package kernels

import (
	"context"
	"fmt"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/gpu"
	"github.com/lorafuse/lorafuse/dev/bench"
)

// tunable is a device whose thresholds can be changed.
type tunable interface {
	Thresholds() gpu.Thresholds
	SetThresholds(t gpu.Thresholds)
}

// threshold is one of gpu.Thresholds with the kernels on both sides of it, which are measured with the same operands.
type threshold struct {
	name     string
	form     form
	sizes    []size // of products in bf16
	parts    []int  // tokens of a prompt whose attention is measured
	variants [2]variant
}

// variant is the beginning of the names of kernels, and the thresholds that select them.
type variant struct {
	kernel string
	set    func(t *gpu.Thresholds)
}

const always, never = 1, 1 << 30

// thresholds have sizes of Llama 3.1 8B near the present values.
var thresholds = []threshold{
	{name: "VectorRows", form: forward, sizes: []size{{4, 4096, 4096}, {8, 4096, 4096}}, variants: [2]variant{
		{"gemv_", func(t *gpu.Thresholds) { t.VectorRows = 8 }},
		{"gemm_thin_", func(t *gpu.Thresholds) { t.VectorRows, t.ThinRows = 0, 64 }},
	}},
	{name: "ThinRows", form: forward.withStored(), sizes: []size{{16, 4096, 4096}, {64, 4096, 4096}}, variants: [2]variant{
		{"gemm_thin_", func(t *gpu.Thresholds) { t.ThinRows = 64 }},
		{"gemm_mma_64", func(t *gpu.Thresholds) { t.ThinRows, t.LargeTiles = 0, never }},
	}},
	{name: "LargeTiles", form: forward.withStored(), sizes: []size{{256, 4096, 4096}, {512, 4096, 4096}}, variants: [2]variant{
		{"gemm_bf16_nt_128", func(t *gpu.Thresholds) { t.LargeTiles, t.WideTiles = always, never }},
		{"gemm_mma_64", func(t *gpu.Thresholds) { t.LargeTiles = never }},
	}},
	{name: "WideTiles", form: forward.withStored(), sizes: []size{{512, 4096, 4096}, {1024, 4096, 4096}, {2048, 4096, 4096}}, variants: [2]variant{
		{"gemm_bf16_nt_256", func(t *gpu.Thresholds) { t.LargeTiles, t.WideTiles = always, always }},
		{"gemm_bf16_nt_128", func(t *gpu.Thresholds) { t.LargeTiles, t.WideTiles = always, never }},
	}},
	{name: "NarrowRows", form: down.withStored(), sizes: []size{{256, 4096, 16}, {1024, 4096, 16}}, variants: [2]variant{
		{"gemm_narrow_", func(t *gpu.Thresholds) { t.NarrowRows = always }},
		{"gemm_mma_64", func(t *gpu.Thresholds) { t.NarrowRows, t.LargeTiles = never, never }},
	}},
	{name: "TiledQueries", parts: []int{32, 128}, variants: [2]variant{
		{"attention_queries_", func(t *gpu.Thresholds) { t.TiledQueries = always }},
		{"attention_decode_", func(t *gpu.Thresholds) { t.TiledQueries = never }},
	}},
}

// variantTasks returns tasks for the variants of all thresholds.
func (s *suite) variantTasks() (tasks []bench.Task, err error) {
	dev, ok := s.machine.Device(backend.BF16).(tunable)
	if !ok {
		return nil, fmt.Errorf("%w: thresholds of %s; expected a GPU", bench.ErrOptions, s.machine.Info.Backend)
	}
	for i := range thresholds {
		e := &thresholds[i]
		for _, v := range e.variants {
			for _, t := range s.threshold(e) {
				t.Row.Group, t.Row.Name = e.name, v.kernel
				begin := t.Begin
				t.Begin = func(ctx context.Context) (bench.Sampler, error) {
					before := dev.Thresholds()
					defer dev.SetThresholds(before)
					now := before
					v.set(&now)
					dev.SetThresholds(now)
					return begin(ctx)
				}
				tasks = append(tasks, t)
			}
		}
	}
	return tasks, nil
}

// threshold returns tasks for the sizes of a threshold.
func (s *suite) threshold(e *threshold) (tasks []bench.Task) {
	for _, z := range e.sizes {
		tasks = append(tasks, s.product(e.form, kinds[bf16], z)[0])
	}
	for _, n := range e.parts {
		t := s.attention(s.part(n))
		t.Row.Input = t.Row.Name + ", " + t.Row.Input
		tasks = append(tasks, t)
	}
	return tasks
}

// part is the attention of n tokens of a prompt over pages, behind 4,096.
func (s *suite) part(n int) attention {
	return attention{heads: modelHeads, texts: 1, length: 16 * s.shrunk(n/16, 1), cached: 16 * s.shrunk(256, 1), page: 16, precision: backend.BF16}
}

package kernels

import (
	"context"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/bench"
)

// models are the matrix multiplications of Llama 3.1 8B with adapters of rank 16: a step of 8,192 tokens, and decoding
// one and 64 tokens.
var models = []products{
	{forward, []size{{8192, 4096, 4096}, {8192, 4096, 1024}, {8192, 4096, 14336}, {8192, 14336, 4096}, {1, 4096, 4096}, {1, 4096, 14336}, {64, 4096, 4096}, {64, 4096, 14336}}},
	{backward, []size{{8192, 4096, 4096}, {8192, 14336, 4096}, {8192, 4096, 14336}}},
	{down, []size{{8192, 4096, 16}, {8192, 14336, 16}}},
	{up, []size{{8192, 16, 4096}, {8192, 16, 14336}}},
	{gradA, []size{{16, 8192, 4096}}},
	{gradB, []size{{4096, 8192, 16}}},
}

// modelHeads describes Llama 3.1 8B, and pictureHeads FLUX.1.
var (
	modelHeads   = heads{queries: 32, keys: 8, dim: 128}
	pictureHeads = heads{queries: 24, keys: 24, dim: 128}
)

// attentionsOfModels returns attentions over four sequences, over one long sequence, and over the image and text of
// FLUX.1 at 1024 × 1024 pixels.
func (s *suite) attentionsOfModels() (all []attention) {
	for _, a := range []attention{{heads: modelHeads, texts: 4, length: 2048}, {heads: modelHeads, texts: 1, length: 8192}, {heads: pictureHeads, texts: 1, length: 4608, whole: true}} {
		a.precision, a.length = backend.BF16, s.shrunk(a.length, 1)
		for _, a.back = range []bool{false, true} {
			all = append(all, a)
		}
	}
	return all
}

func (s *suite) modelAttentions() (tasks []bench.Task) {
	for _, a := range s.attentionsOfModels() {
		tasks = append(tasks, s.attention(a))
	}
	one := attention{heads: modelHeads, texts: 1, length: 1, cached: s.shrunk(4095, 1)}
	return append(tasks, s.attention(one), s.attention(s.part(256)))
}

// yardsticks returns tasks that run the models' matrix multiplications and attention with torch on the GPU, under the
// names of lorafuse's rows.
func (s *suite) yardsticks() (tasks []bench.Task) {
	add := func(row *bench.Row, what map[string]any) {
		row.Bytes = 0 // of types of its own
		what["device"] = s.machine.Info.Backend
		tasks = append(tasks, bench.Task{Row: row, Foreign: true, Begin: func(ctx context.Context) (bench.Sampler, error) { return s.Torch.Begin(ctx, what) }})
	}
	for _, g := range append([]products{{forward, []size{target}}}, models...) {
		for _, z := range g.sizes {
			z = s.shrink(z)
			copies := s.machine.Copies(2 * int64(z.m*z.k+z.k*z.n+z.m*z.n))
			add(row(torch, g.form, kinds[bf16], z), map[string]any{"op": "matmul", "m": z.m, "k": z.k, "n": z.n, "ta": g.form.ta, "tb": g.form.tb, "dtype": "bf16", "copies": copies})
		}
	}
	for _, a := range s.attentionsOfModels() {
		add(a.row(torch), map[string]any{"op": "attention", "texts": a.texts, "heads": a.queries, "kv_heads": a.keys, "length": a.length, "dim": a.dim, "causal": !a.whole, "back": a.back, "dtype": "bf16"})
	}
	return tasks
}

package engine_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/bench/checkpoint"
	"github.com/lorafuse/lorafuse/dev/cputime"
	"github.com/lorafuse/lorafuse/internal/engine"
)

// BenchmarkPlanMix is a program for a mix, of 24 layers: how long those wait who ask for
// adapters that no program is there for.
func BenchmarkPlanMix(b *testing.B) {
	shape := checkpoint.Shape{Name: "bench", Hidden: 128, Layers: 24, Inter: 256, Heads: 4, KVHeads: 2, Vocab: 512, Positions: 512}
	dir := b.TempDir()
	require.NoError(b, shape.Write(dir))
	var built []string
	for range 16 {
		built = append(built, `"target_modules":"all-linear","r":16`)
	}
	x := newMixture(b, dir, backend.Options{Threads: 1}, nil, built...)
	for _, n := range []int{1, 4, 16} {
		b.Run(fmt.Sprintf("adapters %d", n), func(b *testing.B) {
			mix := x.r.NewMix(x.slots[:n]...)
			least := cputime.Least(b, 1, nil, func(int) { x.r.Unload(x.load(b, mix)) })
			b.ReportMetric(float64(least[0].Microseconds()), "program-µs")
		})
	}
}

// BenchmarkMix prints the time of a batch of 64 texts of one token with 16 adapters
// by that of the same batch with one adapter of rank 16: the least of each,
// taken in turns, in processor time of one worker.
func BenchmarkMix(b *testing.B) {
	shape := checkpoint.Shape{Name: "bench", Hidden: 1024, Layers: 2, Inter: 2816, Heads: 16, KVHeads: 8, Vocab: 4096, Positions: 512}
	dir := b.TempDir()
	require.NoError(b, shape.Write(dir))
	for _, c := range []struct {
		ranks     []int
		invariant bool
	}{{[]int{16}, false}, {[]int{16, 8, 32, 64}, false}, {[]int{16}, true}} {
		b.Run(fmt.Sprintf("ranks %v, batch invariant %v", c.ranks, c.invariant), func(b *testing.B) {
			var built []string
			for i := range 16 {
				built = append(built, fmt.Sprintf(`"target_modules":"all-linear","r":%d`, c.ranks[i%len(c.ranks)]))
			}
			x := newMixture(b, dir, backend.Options{Threads: 1, BatchInvariant: c.invariant}, nil, built...)
			var texts []text
			for i := range 64 {
				texts = append(texts, text{[]int32{int32(i)}, int32(i % 16)})
			}
			mix := x.r.NewMix(x.slots[:16]...)
			slots := []*engine.Slot{x.slots[0], mix}
			programs := []*engine.Program{x.load(b, slots[0]), x.load(b, mix)}
			least := cputime.Least(b, 2, nil, func(i int) { _ = x.run(b, programs[i], slots[i], texts) })
			b.ReportMetric(float64(least[1])/float64(least[0]), "price")
			b.ReportMetric(float64(least[0].Microseconds()), "one-µs")
		})
	}
}

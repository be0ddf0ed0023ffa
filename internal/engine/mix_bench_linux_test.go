package engine_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/dev/bench/checkpoint"
	"github.com/lorafuse/lorafuse/dev/cputime"
	"github.com/lorafuse/lorafuse/internal/engine"
	"github.com/lorafuse/lorafuse/lora"
	"github.com/lorafuse/lorafuse/tensor"
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
			mix := x.r.NewMultiAdapter(x.slots[:n]...)
			least := cputime.Least(b, 1, nil, func(int) { x.r.Unload(x.load(b, mix)) })
			b.ReportMetric(float64(least[0].Microseconds()), "program-µs")
		})
	}
}

// BenchmarkMix prints the time of a batch of 64 texts of one token with 16 adapters
// by that of the same batch with one adapter of rank 16: the least of each,
// taken in turns, in processor time of one worker. positions is the time of the same batch in a
// program with 8 positions or 16 of each of five ranks, by that of one compiled for the 16 adapters.
func BenchmarkMix(b *testing.B) {
	shape := checkpoint.Shape{Name: "bench", Hidden: 1024, Layers: 2, Inter: 2816, Heads: 16, KVHeads: 8, Vocab: 4096, Positions: 512}
	dir := b.TempDir()
	require.NoError(b, shape.Write(dir))
	for _, c := range []struct {
		ranks     []int
		modules   string
		invariant bool
	}{{[]int{16}, `"all-linear"`, false}, {[]int{16, 8, 32, 64}, `"all-linear"`, false}, {[]int{16}, `["q_proj","v_proj"]`, false}, {[]int{16}, `"all-linear"`, true}} {
		b.Run(fmt.Sprintf("ranks %v of %s, batch invariant %v", c.ranks, c.modules, c.invariant), func(b *testing.B) {
			var built []string
			for i := range 16 {
				built = append(built, fmt.Sprintf(`"target_modules":%s,"r":%d`, c.modules, c.ranks[i%len(c.ranks)]))
			}
			x := newMixture(b, dir, backend.Options{Threads: 1, BatchInvariant: c.invariant}, nil, built...)
			var texts []text
			for i := range 64 {
				texts = append(texts, text{[]int32{int32(i)}, int32(i % 16)})
			}
			mix := x.r.NewMultiAdapter(x.slots[:16]...)
			open, numbers := x.open(c.ranks)
			slots := []*engine.Slot{x.slots[0], mix, open}
			programs := []*engine.Program{x.load(b, slots[0]), x.load(b, mix), x.load(b, open)}
			atPositions := slices.Clone(texts)
			for i := range atPositions {
				atPositions[i].adapter = numbers[atPositions[i].adapter]
			}
			least := cputime.Least(b, 3, nil, func(i int) {
				given := texts
				if i == 2 {
					given = atPositions
				}
				_ = x.run(b, programs[i], slots[i], given)
			})
			b.ReportMetric(float64(least[1])/float64(least[0]), "price")
			b.ReportMetric(float64(least[2])/float64(least[1]), "positions")
			b.ReportMetric(float64(least[0].Microseconds()), "one-µs")
		})
	}
}

// open gives the 16 adapters, whose ranks repeat, positions in a program with 8 or 16 of each of five
// ranks. It returns their numbers there too.
func (x *mixture) open(ranks []int) (*engine.Slot, []int32) {
	var positions engine.Positions
	for _, rank := range []int{4, 8, 16, 32, 64} {
		for range max(8, 16/len(ranks)) {
			positions.Sizes = append(positions.Sizes, lora.FactorType{Rank: rank, A: tensor.F32, B: tensor.F32})
		}
	}
	slots, numbers := make([]*engine.Slot, len(positions.Sizes)), []int32(nil)
	for _, s := range x.slots[:16] {
		i := 0
		for slots[i] != nil || positions.Sizes[i] != s.Sizes()[0] {
			i++
		}
		slots[i], numbers = s, append(numbers, int32(i))
	}
	return x.r.NewOpenMultiAdapter(positions, slots...), numbers
}

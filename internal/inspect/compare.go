package inspect

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/lorafuse/lorafuse/internal/chunks"
	"github.com/lorafuse/lorafuse/safetensors"
)

// Pair is two tensors to compare. They must have the same shape; their types
// may differ.
type Pair struct{ A, B *safetensors.View }

// Difference describes how two tensors differ. Equal numbers in different types
// are equal, and so are NaN and NaN, 0 and -0.
type Difference struct {
	// Differ is the number of elements that differ.
	Differ int64
	// MaxAbs is the largest |a-b|; for C64, the largest absolute value of the
	// complex difference. It is infinite if only one of the two is NaN or
	// infinite, or if float64 overflows. Relative is MaxAbs divided by the
	// largest finite |a|; it is infinite if that is 0 or MaxAbs is infinite.
	MaxAbs, Relative float64
	// At is the first element with that difference, A and B are its values. They
	// are empty if no element differs.
	At   []int
	A, B string
}

// Compare compares tensors element by element, without rounding, even for pairs of 64-bit integers. It skips equal
// bytes at memory speed.
//
// It fails with ErrDType if the values of a type are unknown (F4, F6, F8_E8M0 and the FNUZ floats) and the bytes
// differ, or if only one of the two is complex; with ErrShape if the shapes differ; with read errors; and with the
// error of ctx.
func Compare(ctx context.Context, pairs []Pair, o Options) ([]Difference, error) {
	lengths := make([]int64, len(pairs))
	compared := make([]comparison, len(pairs))
	for i, p := range pairs {
		lengths[i] = int64(p.A.Len())
		if !slices.Equal(p.A.Shape, p.B.Shape) {
			return nil, fmt.Errorf("tensor %q: %v and %v: %w", p.A.Name, p.A.Shape, p.B.Shape, ErrShape)
		}
		c := &compared[i]
		c.pair, c.n = p, chunks.Count(lengths[i], chunkSize)
		var err error
		if c.kind, err = mix(p.A.DType, p.B.DType); err != nil {
			return nil, fmt.Errorf("tensor %q: %w", p.A.Name, err)
		}
	}
	cut := chunks.Options{Size: chunkSize, Threads: o.Threads, Progress: o.Progress}
	err := chunks.Each(ctx, lengths, cut, func() func(chunks.Chunk) error {
		w := &comparer{}
		return func(p chunks.Chunk) error {
			c := &compared[p.Run]
			gap, err := w.chunk(ctx, c, p.From, p.Length)
			if err != nil {
				return err
			}
			c.keep(p.Number, gap)
			return nil
		}
	})
	if err != nil {
		return nil, err
	}
	return finishAll(ctx, compared, o)
}

// comparison is the state of comparing a pair.
type comparison struct {
	pair Pair
	kind kind

	mu   sync.Mutex
	gaps []gap // by chunk; nil until a chunk differs or was skipped
	n    int64 // chunks
}

func (c *comparison) keep(chunk int, g gap) {
	if g == (gap{skipped: true}) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gaps == nil {
		c.gaps = make([]gap, c.n)
		for i := range c.gaps {
			c.gaps[i].skipped = true
		}
	}
	c.gaps[chunk] = g
}

// gap summarizes the differences in some of the elements.
type gap struct {
	differ  int64
	most    float64
	at      int64 // the first element with that difference
	largest float64
	skipped bool // equal bytes were skipped without looking at their values
}

// add merges the gap of the following elements into g.
func (g *gap) add(o *gap) {
	if o.differ > 0 && (g.differ == 0 || o.most > g.most) {
		g.most, g.at = o.most, o.at
	}
	g.differ += o.differ
	g.largest = max(g.largest, o.largest)
	g.skipped = g.skipped || o.skipped
}

// finishAll scans a tensor again if it differs and equal parts of it were
// skipped: its largest value may be in such a part.
func finishAll(ctx context.Context, compared []comparison, o Options) ([]Difference, error) {
	totals := make([]gap, len(compared))
	var again []*safetensors.View
	var which []int
	for i := range compared {
		c := &compared[i]
		for j := range c.gaps {
			totals[i].add(&c.gaps[j])
		}
		if totals[i].differ > 0 && totals[i].skipped && c.pair.A.DType != safetensors.C64 {
			again, which = append(again, c.pair.A), append(which, i)
		}
	}
	values, err := Scan(ctx, again, Options{Threads: o.Threads})
	if err != nil {
		return nil, err
	}
	for i := range values {
		if values[i].Err != nil {
			return nil, values[i].Err
		}
		totals[which[i]].largest = max(number(values[i].Min), number(values[i].Max))
	}
	differences := make([]Difference, len(compared))
	for i := range compared {
		if differences[i], err = compared[i].describe(&totals[i]); err != nil {
			return nil, err
		}
	}
	return differences, nil
}

// number returns the absolute value of a number from Scan, 0 if it is empty.
func number(n json.Number) float64 {
	x, _ := n.Float64()
	return math.Abs(x)
}

// describe converts the gap to a Difference.
func (c *comparison) describe(g *gap) (Difference, error) {
	d := Difference{Differ: g.differ}
	if g.differ == 0 {
		return d, nil
	}
	d.MaxAbs = g.most
	d.Relative = g.most / g.largest
	if g.largest > 0 && g.most <= math.MaxFloat64 {
		d.Relative = min(d.Relative, math.MaxFloat64)
	}
	at := g.at
	d.At = make([]int, len(c.pair.A.Shape))
	for i := len(d.At) - 1; i >= 0; i-- {
		d.At[i] = int(at % int64(c.pair.A.Shape[i]))
		at /= int64(c.pair.A.Shape[i])
	}
	var err error
	if d.A, err = text(c.pair.A, g.at); err == nil {
		d.B, err = text(c.pair.B, g.at)
	}
	return d, err
}

// comparer is the scratch memory of one goroutine.
type comparer struct {
	buffers [2][]byte // for tensors that are not in place
	narrow  [2][]float32
	wide    [2][]float64
	whole   [2][]whole
}

// compareBlock is the number of elements that are compared while they are in
// the cache. It is an integral number of bytes for every type.
const compareBlock = 16 << 10

// chunk compares a range of bytes of A with B.
func (w *comparer) chunk(ctx context.Context, c *comparison, from, length int64) (gap, error) {
	a, b := c.pair.A, c.pair.B
	var all gap
	first := from * 8 / int64(a.DType.Bits())
	n := length * 8 / int64(a.DType.Bits())
	for done := int64(0); done < n; done += compareBlock {
		if err := ctx.Err(); err != nil {
			return gap{}, err
		}
		count := min(compareBlock, n-done)
		var g gap
		err := lendElements(a, first+done, count, &w.buffers[0], func(x []byte) error {
			return lendElements(b, first+done, count, &w.buffers[1], func(y []byte) error {
				if a.DType == b.DType && bytes.Equal(x, y) {
					g.skipped = true
					return nil
				}
				if c.kind == asBytes {
					return fmt.Errorf("tensor %q: %v: %w", a.Name, a.DType, ErrDType)
				}
				return w.block(&g, c.kind, x, y, a.DType, b.DType, int(count))
			})
		})
		if err != nil {
			return gap{}, err
		}
		g.at += first + done
		all.add(&g)
	}
	return all, nil
}

// lendElements calls lend for a range of elements.
func lendElements(v *safetensors.View, first, count int64, room *[]byte, fn func([]byte) error) error {
	bits := int64(v.DType.Bits())
	return lend(v, first*bits/8, count*bits/8, room, fn)
}

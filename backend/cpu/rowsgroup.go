package cpu

import (
	"fmt"

	"github.com/lorafuse/lorafuse/internal/ir"
)

// rowGroups holds the rows of a value grouped by index; rows of a group keep their order.
type rowGroups struct {
	order  []int32 // rows, group after group
	starts []int32 // of the groups in order; the last entry is where rows without a group begin
	next   []int32 // while they are counted
}

// wordsOfGroups returns the memory in words that sort needs for this number of rows and groups.
func wordsOfGroups(rows, groups int) int { return rows + 2*(groups+1) }

// sort groups rows by their index, in memory of wordsOfGroups words; rows with a negative index come last. It returns
// an error for an index out of range.
func (g *rowGroups) sort(memory []int32, index []int32, groups int) error {
	g.order, memory = memory[:len(index)], memory[len(index):]
	g.starts, g.next = memory[:groups+1], memory[groups+1:2*(groups+1)]
	clear(g.next)
	for i, e := range index {
		if int(e) >= groups {
			return fmt.Errorf("index %d at %d, there are %d matrices", e, i, groups)
		}
		if e < 0 {
			e = int32(groups)
		}
		g.next[e]++
	}
	at := int32(0)
	for e, n := range g.next {
		g.starts[e], g.next[e] = at, at
		at += n
	}
	for i, e := range index {
		if e < 0 {
			e = int32(groups)
		}
		g.order[g.next[e]] = int32(i)
		g.next[e]++
	}
	return nil
}

// group returns the rows of group e, and their start in order.
func (g *rowGroups) group(e int) (rows []int32, first int) {
	first = int(g.starts[e])
	return g.order[first:g.starts[e+1]], first
}

// together reports whether rows are contiguous.
func together(rows []int32) bool {
	return len(rows) > 0 && int(rows[len(rows)-1]-rows[0]) == len(rows)-1
}

// gathered are rows of a matrix in the order of their groups.
type gathered struct {
	r        *run
	cols     int
	src, dst []float32
	order    []int32
	part     func(lo, hi int)
}

func newGathered(r *run, v ir.Ref) *gathered {
	g := &gathered{r: r, cols: v.Type.Last().N}
	g.part = func(lo, hi int) {
		for p := lo; p < hi; p++ {
			i := int(g.order[p])
			copy(g.dst[p*g.cols:p*g.cols+g.cols], g.src[i*g.cols:])
		}
	}
	return g
}

// copyRows copies the rows of src into dst, in order.
func (g *gathered) copyRows(dst, src []float32, order []int32) {
	g.dst, g.src, g.order = dst, src, order
	g.r.rows(len(order), g.cols, g.part)
}

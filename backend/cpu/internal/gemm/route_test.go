//go:build amd64 && !purego

package gemm

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/backend/cpu/internal/pool"
)

// The way of each of some 250 products on each instruction set, of this machine or not, is
// what the file says: a change of a threshold is a change of that file. To write it again:
//
//	GOLDEN=write go test ./backend/cpu/internal/gemm -run TestRoutes
func TestRoutes(t *testing.T) {
	const file = "testdata/routes.txt"
	got := routesOf(routeShapes())
	if os.Getenv("GOLDEN") == "write" {
		require.NoError(t, os.WriteFile(file, []byte(got), 0o666))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, strings.Split(string(want), "\n"), strings.Split(got, "\n"))
}

// set is an instruction set whose ways are asked for, without being run.
type set struct {
	name string
	k    *kernels
	bf16 bool // operands may be rounded, and values lie in bfloat16
}

// sets are all instruction sets, with bf16 where operands may be rounded or, with stored,
// everywhere.
func sets(stored bool) (list []set) {
	add := func(name string, k kernels) {
		list = append(list, set{name, &k, false})
		if k.pairs != nil || stored {
			list = append(list, set{name + "~", &k, true})
		}
	}
	late := func(k kernels, late bool) kernels { k.fetchesLate = late; return k }
	add("portable", portable)
	add("avx2", late(avx2, false))
	add("avx2-intel", late(avx2, true))
	add("avx512", late(avx512, false))
	add("avx512-intel", late(avx512, true))
	add("avx512bf16", late(avx512BF16, false))
	add("avx512bf16-intel", late(avx512BF16, true))
	add("amx", late(amx, true))
	neon := kernels{isa: NEON, pairSize: 1, mr: 8, nr: 12, grain: 1, kc: 512 + kcRank,
		direct: portableDirect, directRows: 8, block: avx2Block, blockRows: []int{0, 4, 4, 4, 4, 4, 4}, blockLanes: 4}
	add("neon", neon)
	neon.pairs = &kernels{isa: NEONBF16, pairSize: 2, run: 2, mr: 8, nr: 12, grain: 2, kc: 512 + kcRank}
	add("neonbf16", neon)
	return list
}

// routesOf lists the ways of products.
func routesOf(list []product) string {
	p := pool.New(1)
	defer p.Close()
	var b strings.Builder
	for i := range list {
		fmt.Fprintln(&b, &list[i])
		var ways []string
		of := map[string][]string{}
		for _, s := range sets(list[i].stored) {
			e := &Engine{pool: p, k: s.k, packed: packedFloats}
			if s.bf16 {
				e.precision = BF16
			}
			w := describe(e, list[i].call())
			if of[w] == nil {
				ways = append(ways, w)
			}
			of[w] = append(of[w], s.name)
		}
		for _, w := range ways {
			fmt.Fprintf(&b, "\t%s: %s\n", w, strings.Join(of[w], " "))
		}
	}
	return b.String()
}

// describe is the way of a call and what chooses within it.
func describe(e *Engine, c *Call) string {
	j := newJob(e)
	j.c = c
	kernelsName := func(k *kernels) string {
		switch k {
		case e.k:
			return "floats"
		case e.k.pairs:
			return "pairs"
		case e.k.thirds:
			return "piecesOfA"
		case e.k.sixths:
			return "piecesOfBoth"
		}
		return "?"
	}
	perPair := func(name string, of func(p *Pair) string) string {
		var list []string
		for i := range c.Pairs {
			if p := &c.Pairs[i]; !p.idle() {
				list = append(list, of(p))
			}
		}
		return name + " " + strings.Join(list, "+")
	}
	w := j.way()
	text, of, rows := "nothing", w, 0
	if w == &j.inRows {
		of, rows = j.inRows.one()
	}
	switch of {
	case &j.turned:
		text = "tilesTransposed " + kernelsName(j.turned.kern)
		if j.turned.flat {
			text = "tilesFewColumns " + kernelsName(j.turned.kern)
		}
	case &j.grid:
		text = perPair("rowsInPlace", func(p *Pair) string {
			switch {
			case j.isShort(p):
				return "short"
			case e.besideGrid(p, c):
				return "shortRows"
			}
			return kernelsName(e.gridOf(c, p).kern)
		})
	case &j.deep:
		text = perPair("longK", func(p *Pair) string {
			if k := j.outers(p); k != nil {
				return "outer " + kernelsName(k)
			}
			return "direct"
		})
	case &j.fewRows:
		text = perPair("fewRows", func(p *Pair) string {
			switch {
			case p.B.Elem.Quantized() && !p.B.Trans:
				return "directWidened"
			case p.B.Elem.Quantized() && !p.B.inBlocks(p.K):
				return "dotWidened"
			case p.B.Elem.Quantized() && c.M == 1 && p.K > deepK && j.k.deepBlocks != nil:
				return "dotBlocksLong"
			case p.B.Elem.Quantized():
				return "dotBlocks"
			case j.fewRows.splits(p):
				return "dotSplit"
			case j.isShort(p):
				return "short"
			case p.B.Trans:
				return "dots"
			}
			return "direct"
		})
	case &j.fewCols:
		b := j.k.blocks(c.N)
		if e.Rounds() && j.k.pairs.block != nil {
			b = j.k.pairs.blocks(c.N)
		}
		text = "fewColumns strips " + kernelsName(b.kern)
		if b.fans {
			text = "fewColumns spread"
		}
	case &j.flipped:
		inner := c.transposed(nil)
		text = "transposeResult of " + describe(e, &inner)
	case &j.packed:
		kern := j.k.panelKernels(c, e.Rounds())
		if w == &j.inRows {
			kern = j.k.manyRows(c.Pairs, e.Rounds())
		}
		text = "panels " + kernelsName(kern)
		if kern.inTiles() && c.deepens() {
			text += " thin"
		}
	}
	if w == &j.inRows && of != &j.packed {
		text += fmt.Sprintf(", %d rows at a time", rows)
	}
	if w == &j.flipped || len(c.Pairs) == 0 {
		return text
	}
	with := func(a, b Filter) bool {
		filtered := *c
		filtered.Pairs = append([]Pair(nil), c.Pairs...)
		filtered.Pairs[0].FilterA, filtered.Pairs[0].FilterB = a, b
		return e.Filters(&filtered)
	}
	none := func(dst, src []float32, start int) {}
	if with(none, nil) {
		text += ", filters A"
	}
	if with(nil, none) {
		text += ", filters B"
	}
	if p := &c.Pairs[0]; !p.A.Trans && p.A.Elem == F32 && w != nil && (w != &j.inRows && e.UsesPanels(c) || w == &j.inRows && of == &j.packed) {
		text += ", reads prepacked B"
	}
	if !c.Pairs[0].idle() && c.M > 0 {
		var carried []string
		for _, n := range []int{7, 8, 32, 33, 64, 65} {
			other := unsafe.Pointer(&make([]float32, 1)[0])
			low := c.Pairs[0]
			low.B = Matrix{Data: other, Stride: n}
			down := &Call{M: c.M, N: n, C: make([]float32, 1), LDC: n, Pairs: []Pair{low}}
			if e.Carries([]*Call{down}, []*Call{c}) {
				carried = append(carried, fmt.Sprint(n))
			}
		}
		if len(carried) > 0 {
			text += fmt.Sprintf(", carries %s to %s", carried[0], carried[len(carried)-1])
		}
	}
	return text
}

package gemm

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// The way of each of some 280 products on each instruction set, of this machine or not, is
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
	lines := strings.Split(string(want), "\n")
	for i, line := range strings.Split(got, "\n") {
		require.Less(t, i, len(lines))
		require.Equal(t, lines[i], line, "line %d of %s", i+1, file)
	}
	require.Equal(t, len(string(want)), len(got))
}

// set is an instruction set whose ways are asked for, without being run.
type set struct {
	name   string
	limits limits
	mode   mode
}

// sets are all instruction sets, and those of processors of which some fetch too little:
// with bf16 where operands may be rounded or, with stored, everywhere.
func sets(stored bool) (list []set) {
	add := func(name string, l limits) {
		list = append(list, set{name, l, mode{}})
		if l.pairs || stored {
			list = append(list, set{name + "~", l, mode{bf16: true}})
		}
	}
	for isa := range isaCount {
		l := limitsOf[isa]
		add(isa.String(), l)
		if l.inPlaceRows > 0 && !l.lateFetch {
			l.lateFetch = true
			add(isa.String()+"-intel", l)
		}
	}
	return list
}

// routesOf lists the ways of products.
func routesOf(list []product) string {
	var b strings.Builder
	for i := range list {
		fmt.Fprintln(&b, &list[i])
		var ways []string
		of := map[string][]string{}
		for _, s := range sets(list[i].stored) {
			w := describe(&s, list[i].call())
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

// describe is the way of a call and what it can do there.
func describe(on *set, c *Call) string {
	s := shapeOf(c, &on.limits, on.mode)
	r, text := s.route(), s.describe()
	if r.name == "transposeResult" {
		inner := c.transposed(nil)
		return r.name + " of " + describe(on, &inner)
	}
	if len(c.Pairs) == 0 {
		return text
	}
	with := func(a, b Filter) bool {
		filtered := *c
		filtered.Pairs = append([]Pair(nil), c.Pairs...)
		filtered.Pairs[0].FilterA, filtered.Pairs[0].FilterB = a, b
		s := shapeOf(&filtered, &on.limits, on.mode)
		return s.filters(s.route())
	}
	none := func(dst, src []float32, start int) {}
	if with(none, nil) {
		text += ", filters A"
	}
	if with(nil, none) {
		text += ", filters B"
	}
	if p := &c.Pairs[0]; !p.A.Trans && p.A.Elem == F32 && s.readsPrepacked() {
		text += ", reads prepacked B"
	}
	if !c.Pairs[0].idle() && c.M > 0 {
		var carried []string
		for _, n := range []int{7, 8, 32, 33, 64, 65} {
			other := unsafe.Pointer(&make([]float32, 1)[0])
			low := c.Pairs[0]
			low.B = Matrix{Data: other, Stride: n}
			down := &Call{M: c.M, N: n, C: make([]float32, 1), LDC: n, Pairs: []Pair{low}}
			if s.carries([]*Call{down}) {
				carried = append(carried, fmt.Sprint(n))
			}
		}
		if len(carried) > 0 {
			text += fmt.Sprintf(", carries %s to %s", carried[0], carried[len(carried)-1])
		}
	}
	return text
}

// The limits of an instruction set name the kernels that it has.
func TestLimitsAreThoseOfKernels(t *testing.T) {
	for isa := range isaCount {
		k, l := kernelsOf(isa), limitsOf[isa]
		if k.isa != isa {
			continue // another architecture's
		}
		ofPairs := k.pairs
		if ofPairs == nil {
			ofPairs = &kernels{}
		}
		require.Equal(t, l.pairs, k.pairs != nil, isa)
		require.Equal(t, l.tiles, ofPairs.transposed != nil && k.piecesOfA != nil && k.piecesOfBoth != nil, isa)
		require.Equal(t, l.inPlaceRows > 0, k.inPlace != nil && k.fetch != nil, isa)
		require.Equal(t, l.inPlacePairs, ofPairs.inPlace != nil, isa)
		require.Equal(t, l.dotSplit, k.rows.dotSplit != nil && k.rows.split != nil, isa)
		require.Equal(t, l.short, k.rows.short != nil, isa)
		require.Equal(t, l.longBlocks, k.rows.dotBlocksLong != nil, isa)
		require.Equal(t, l.outer, k.outer != nil, isa)
		require.Equal(t, l.outerPairs, ofPairs.outer != nil, isa)
		require.Equal(t, l.strips, k.strips != nil, isa)
		require.Equal(t, l.stripsPairs, ofPairs.strips != nil, isa)
		require.Equal(t, l.spreadLanes > 0, k.spread != nil, isa)
		l.lateFetch = k.limits.lateFetch // the processor's
		require.Equal(t, l, k.limits, isa)
	}
}

// docs/gemm.md has the table of routes and that of limits as they are here. GOLDEN=write
// writes them.
func TestPage(t *testing.T) {
	const file = "../../../../docs/gemm.md"
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	page := string(raw)
	for mark, table := range map[string]string{"routes": routeTable(), "limits": limitTable()} {
		begin, end := fmt.Sprintf("<!-- %s -->\n", mark), fmt.Sprintf("<!-- /%s -->\n", mark)
		before, rest, ok := strings.Cut(page, begin)
		require.True(t, ok, begin)
		_, after, ok := strings.Cut(rest, end)
		require.True(t, ok, end)
		page = before + begin + table + end + after
	}
	if os.Getenv("GOLDEN") == "write" {
		require.NoError(t, os.WriteFile(file, []byte(page), 0o666))
		return
	}
	require.Equal(t, page, string(raw), "GOLDEN=write go test ./backend/cpu/internal/gemm -run TestPage")
}

func routeTable() string {
	var b strings.Builder
	b.WriteString("| | way | for | kernels | filters | what it gains |\n|---|---|---|---|---|---|\n")
	for i, r := range routes {
		filters := ""
		for _, f := range []struct {
			name string
			does bool
		}{{"A ", r.filtersA}, {"B", r.filtersB}} {
			if f.does {
				filters += f.name
			}
		}
		fmt.Fprintf(&b, "| %d | `%s` | %s | %s | %s | %s |\n", i+1, r.name, r.class, r.needs, strings.TrimSpace(filters), r.why)
	}
	return b.String()
}

func limitTable() string {
	var b, line strings.Builder
	b.WriteString("| limit |")
	line.WriteString("|---|")
	for isa := range isaCount {
		fmt.Fprintf(&b, " %v |", isa)
		line.WriteString("---|")
	}
	fmt.Fprintf(&b, "\n%s\n", line.String())
	for i := range reflect.TypeFor[limits]().NumField() {
		fmt.Fprintf(&b, "| `%s` |", reflect.TypeFor[limits]().Field(i).Name)
		for _, l := range limitsOf {
			switch v := fmt.Sprint(reflect.ValueOf(l).Field(i)); v {
			case "true":
				b.WriteString(" yes |")
			case "false", "0":
				b.WriteString(" |")
			default:
				fmt.Fprintf(&b, " %s |", v)
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

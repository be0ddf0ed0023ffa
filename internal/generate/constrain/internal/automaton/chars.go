package automaton

import (
	"slices"
	"unicode/utf8"
)

// Chars is a deterministic automaton over the characters of a string. State 0 is the start state; an automaton without
// states matches nothing. Characters are Unicode characters without surrogates.
type Chars struct{ states []charState }

type charState struct {
	arcs  []charArc // sorted by lo, without overlap
	final bool
}

// charArc leads to another state by the characters from lo to hi.
type charArc struct {
	lo, hi rune
	to     int32
}

// every lists all characters.
var every = []charRange{{0, 0xD7FF}, {0xE000, utf8.MaxRune}}

type charRange struct{ lo, hi rune }

// Empty reports whether the automaton matches nothing.
func (c *Chars) Empty() bool { return len(c.states) == 0 }

// Match reports whether the automaton matches all of s.
func (c *Chars) Match(s string) bool {
	if c.Empty() {
		return false
	}
	q := int32(0)
	for _, r := range s {
		if q = c.next(q, r); q == Dead {
			return false
		}
	}
	return c.states[q].final
}

func (c *Chars) next(q int32, r rune) int32 {
	arcs := c.states[q].arcs
	i, found := slices.BinarySearchFunc(arcs, r, func(a charArc, r rune) int {
		switch {
		case r < a.lo:
			return 1
		case r > a.hi:
			return -1
		}
		return 0
	})
	if !found {
		return Dead
	}
	return arcs[i].to
}

// Any returns an automaton that matches every string.
func Any() *Chars { return &Chars{[]charState{{arcs: always(0), final: true}}} }

// always returns arcs that lead to one state by every character.
func always(to int32) []charArc {
	var arcs []charArc
	for _, r := range every {
		arcs = append(arcs, charArc{r.lo, r.hi, to})
	}
	return arcs
}

// Words returns an automaton that matches exactly the given strings.
func Words(b *Budget, words []string) (*Chars, error) {
	c := &Chars{[]charState{{}}}
	for _, w := range words {
		q := int32(0)
		for _, r := range w {
			to := c.next(q, r)
			if to == Dead {
				if err := b.Spend(1); err != nil {
					return nil, err
				}
				to = int32(len(c.states))
				c.states = append(c.states, charState{})
				arcs := c.states[q].arcs
				i, _ := slices.BinarySearchFunc(arcs, r, func(a charArc, r rune) int { return int(a.lo - r) })
				c.states[q].arcs = slices.Insert(arcs, i, charArc{r, r, to})
			}
			q = to
		}
		c.states[q].final = true
	}
	return c.trim(), nil
}

// Length returns an automaton that matches strings of min to max characters. A negative max means no limit.
func Length(b *Budget, min, max int) (*Chars, error) {
	last := max
	if max < 0 {
		last = min
	}
	if last < min {
		return &Chars{}, nil
	}
	if err := b.Spend(last + 1); err != nil {
		return nil, err
	}
	c := &Chars{make([]charState, last+1)}
	for q := range c.states {
		c.states[q].final = q >= min
		switch {
		case q < last:
			c.states[q].arcs = always(int32(q + 1))
		case max < 0:
			c.states[q].arcs = always(int32(q))
		}
	}
	return c, nil
}

// Both returns the intersection of a and c.
func Both(b *Budget, a, c *Chars) (*Chars, error) { return product(b, a, c, false) }

// Except returns the strings of a without the strings of c.
func Except(b *Budget, a, c *Chars) (*Chars, error) { return product(b, a, c, true) }

type pair struct{ a, c int32 }

// product runs two automata in parallel. With except, the second may be dead and must not be final.
func product(b *Budget, a, c *Chars, except bool) (*Chars, error) {
	if a.Empty() || c.Empty() && !except {
		return &Chars{}, nil
	}
	first := pair{0, 0}
	if c.Empty() {
		first.c = Dead
	}
	number := map[pair]int32{first: 0}
	pairs := []pair{first}
	var p Chars
	for i := 0; i < len(pairs); i++ {
		if err := b.Spend(1); err != nil {
			return nil, err
		}
		at := pairs[i]
		second := at.c != Dead && c.states[at.c].final
		s := charState{final: a.states[at.a].final && second != except}
		var arcs []charArc
		if at.c != Dead {
			arcs = c.states[at.c].arcs
		}
		if err := b.work(len(a.states[at.a].arcs) + len(arcs)); err != nil {
			return nil, err
		}
		add := func(lo, hi rune, to pair) {
			n, ok := number[to]
			if !ok {
				n = int32(len(pairs))
				number[to] = n
				pairs = append(pairs, to)
			}
			s.add(lo, hi, n)
		}
		j := 0
		for _, x := range a.states[at.a].arcs {
			lo := x.lo
			for j > 0 && arcs[j-1].hi >= lo { // arc of c that extends past the last one of a
				j--
			}
			for ; j < len(arcs) && arcs[j].lo <= x.hi; j++ {
				y := arcs[j]
				if y.hi < lo {
					continue
				}
				if y.lo > lo && except {
					add(lo, y.lo-1, pair{x.to, Dead})
				}
				from, to := max(lo, y.lo), min(x.hi, y.hi)
				add(from, to, pair{x.to, y.to})
				lo = to + 1
			}
			if lo <= x.hi && except {
				add(lo, x.hi, pair{x.to, Dead})
			}
		}
		p.states = append(p.states, s)
	}
	return p.trim(), nil
}

// add appends an arc, or extends the last one if it leads to the same state.
func (s *charState) add(lo, hi rune, to int32) {
	if n := len(s.arcs); n > 0 && s.arcs[n-1].to == to && s.arcs[n-1].hi+1 == lo {
		s.arcs[n-1].hi = hi
		return
	}
	s.arcs = append(s.arcs, charArc{lo, hi, to})
}

// trim removes the states that cannot reach a final one.
func (c *Chars) trim() *Chars {
	before, final := make([][]int32, len(c.states)), make([]bool, len(c.states))
	for q, s := range c.states {
		final[q] = s.final
		for _, a := range s.arcs {
			before[a.to] = append(before[a.to], int32(q))
		}
	}
	good := backwards(before, final)
	if len(good) == 0 || !good[0] {
		return &Chars{}
	}
	number, n := make([]int32, len(c.states)), int32(0)
	for q := range c.states {
		if good[q] {
			number[q] = n
			n++
		}
	}
	out := &Chars{}
	for q, s := range c.states {
		if !good[q] {
			continue
		}
		t := charState{final: s.final}
		for _, a := range s.arcs {
			if good[a.to] {
				t.add(a.lo, a.hi, number[a.to])
			}
		}
		out.states = append(out.states, t)
	}
	return out
}

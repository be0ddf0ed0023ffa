package automaton

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// Pattern returns an automaton that matches strings in which a regular expression is found, like the keyword pattern of
// JSON Schema. The match may be anywhere, unless the expression has ^ or $. It fails with ErrPattern and ErrTooLarge.
func Pattern(b *Budget, text string) (*Chars, error) {
	s, err := parsePattern(text)
	if err != nil {
		return nil, err
	}
	return search(b, s)
}

// Whole returns an automaton that matches the strings that a regular expression matches from start
// to end.
func Whole(b *Budget, text string) (*Chars, error) {
	s, err := parsePattern(text)
	if err != nil {
		return nil, err
	}
	return search(b, &syntax{kind: isSequence, parts: []*syntax{{kind: isBegin}, s, {kind: isEnd}}})
}

// search returns the automaton of the strings in which a pattern is found.
func search(b *Budget, s *syntax) (*Chars, error) {
	n := &machine{budget: b}
	anything := &syntax{kind: isRepeat, max: -1, parts: []*syntax{{chars: every}}}
	end, err := n.compile(anything, n.add(spot{kind: matched}))
	if err != nil {
		return nil, err
	}
	n.last = end + 1
	start, err := n.compile(&syntax{kind: isSequence, parts: []*syntax{anything, s}}, end)
	if err != nil {
		return nil, err
	}
	return n.determine(start)
}

// machine is a nondeterministic automaton over characters.
type machine struct {
	budget *Budget
	places []spot
	last   int32 // the last place of the suffix that matches anything

	todo []int32 // scratch memory of closure
	cuts []rune  // scratch memory of pieces
}

// spot is a place of a pattern.
type spot struct {
	kind  placeKind
	chars []charRange // characters that lead to next[0]
	next  [2]int32
}

type placeKind int8

const (
	reads placeKind = iota
	forks
	atStart // only at the start of the string
	ends    // only at the end of the string
	matched
)

func (n *machine) add(p spot) int32 {
	n.places = append(n.places, p)
	return int32(len(n.places) - 1)
}

// compile adds a pattern before a place and returns the place at which it starts.
func (n *machine) compile(s *syntax, to int32) (int32, error) {
	if err := n.budget.work(steps / 4); err != nil {
		return 0, err
	}
	var err error
	switch s.kind {
	case isBegin:
		return n.add(spot{kind: atStart, next: [2]int32{to}}), nil
	case isEnd:
		return n.add(spot{kind: ends, next: [2]int32{to}}), nil
	case isSequence:
		for _, part := range slices.Backward(s.parts) {
			if to, err = n.compile(part, to); err != nil {
				return 0, err
			}
		}
		return to, nil
	case isChoice:
		at := Dead
		for _, part := range slices.Backward(s.parts) {
			from, err := n.compile(part, to)
			if err != nil {
				return 0, err
			}
			if at == Dead {
				at = from
			} else {
				at = n.add(spot{kind: forks, next: [2]int32{from, at}})
			}
		}
		return at, nil
	case isRepeat:
		return n.repeat(s, to)
	}
	return n.add(spot{kind: reads, chars: s.chars, next: [2]int32{to}}), nil
}

func (n *machine) repeat(s *syntax, to int32) (int32, error) {
	part := s.parts[0]
	at := to
	if s.max < 0 {
		at = n.add(spot{kind: forks, next: [2]int32{to, to}})
		again, err := n.compile(part, at)
		if err != nil {
			return 0, err
		}
		n.places[at].next[0] = again
	}
	for range s.max - s.min {
		from, err := n.compile(part, at)
		if err != nil {
			return 0, err
		}
		at = n.add(spot{kind: forks, next: [2]int32{from, to}})
	}
	var err error
	for range s.min {
		if at, err = n.compile(part, at); err != nil {
			return 0, err
		}
	}
	return at, nil
}

// closure adds the places that p leads to without a character. It keeps places that read a character, match, or wait
// for the end.
func (n *machine) closure(set []int32, seen []bool, p int32, atBegin, atEnd bool) []int32 {
	todo := append(n.todo[:0], p)
	defer func() { n.todo = todo }()
	for len(todo) > 0 {
		p := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if seen[p] {
			continue
		}
		seen[p] = true
		switch at := n.places[p]; at.kind {
		case reads, matched:
			set = append(set, p)
		case forks:
			todo = append(todo, at.next[0], at.next[1])
		case atStart:
			if atBegin {
				todo = append(todo, at.next[0])
			}
		case ends:
			if atEnd {
				todo = append(todo, at.next[0])
			} else {
				set = append(set, p)
			}
		}
	}
	return set
}

// determine returns the deterministic automaton, whose states are sets of places.
func (n *machine) determine(start int32) (*Chars, error) {
	seen := make([]bool, len(n.places))
	// A pattern like ^$ needs the start and the end at once, which only the first set has.
	first := n.closure(nil, seen, start, true, false)
	clear(seen)
	empty := n.matches(n.closure(nil, seen, start, true, true))
	number := map[string]int32{}
	var sets [][]int32
	var key []byte
	// add returns the state of a set, which it copies.
	add := func(set []int32) int32 {
		if n.matches(set) {
			set = slices.DeleteFunc(set, func(p int32) bool { return p > n.last })
		}
		slices.Sort(set)
		key = key[:0]
		for _, p := range set {
			key = binary.LittleEndian.AppendUint32(key, uint32(p))
		}
		q, ok := number[string(key)]
		if !ok {
			q = int32(len(sets))
			number[string(key)] = q
			sets = append(sets, slices.Clone(set))
		}
		return q
	}
	c := &Chars{}
	spend := func(work int) error {
		err := n.budget.determinize(work)
		if err != nil {
			err = fmt.Errorf("%w: the pattern needs more than %d states, which overlapping repetitions such as .*a.{20} multiply", err, len(c.states))
		}
		return err
	}
	sets = append(sets, first) // not merged with equal sets, because it is the start
	var set, all []int32
	var ranges []charRange
	for i := 0; i < len(sets); i++ {
		if err := spend(steps); err != nil {
			return nil, err
		}
		s := charState{final: empty}
		if i > 0 {
			clear(seen)
			all = all[:0]
			for _, p := range sets[i] {
				all = n.closure(all, seen, p, false, true)
			}
			s.final = n.matches(all)
		}
		ranges = n.splitRanges(ranges[:0], sets[i])
		for _, r := range ranges {
			if err := spend(8 + len(sets[i]) + len(seen)/16); err != nil {
				return nil, err
			}
			clear(seen)
			set = set[:0]
			for _, p := range sets[i] {
				if at := n.places[p]; at.kind == reads && contains(at.chars, r.lo) {
					set = n.closure(set, seen, at.next[0], false, false)
				}
			}
			if len(set) > 0 {
				s.add(r.lo, r.hi, add(set))
			}
		}
		c.states = append(c.states, s)
	}
	return c.trim(), nil
}

func (n *machine) matches(set []int32) bool {
	return slices.ContainsFunc(set, func(p int32) bool { return n.places[p].kind == matched })
}

// splitRanges appends ranges of characters to out, split so that each place reads all or nothing of a range.
func (n *machine) splitRanges(out []charRange, set []int32) []charRange {
	cuts := n.cuts[:0]
	for _, r := range every {
		cuts = append(cuts, r.lo, r.hi+1)
	}
	for _, p := range set {
		for _, r := range n.places[p].chars {
			cuts = append(cuts, r.lo, r.hi+1)
		}
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	n.cuts = cuts
	for i := range len(cuts) - 1 {
		if contains(every, cuts[i]) {
			out = append(out, charRange{cuts[i], cuts[i+1] - 1})
		}
	}
	return out
}

// contains reports whether one of the sorted ranges contains r.
func contains(ranges []charRange, r rune) bool {
	_, found := slices.BinarySearchFunc(ranges, r, func(c charRange, r rune) int {
		switch {
		case r < c.lo:
			return 1
		case r > c.hi:
			return -1
		}
		return 0
	})
	return found
}

// Package automaton builds deterministic finite automata: over bytes ([DFA]), for matching text, and over characters
// ([Chars]), for patterns and lengths of strings.
package automaton

import "slices"

// Dead is the state without continuation. It is not stored.
const Dead = int32(-1)

// DFA is a deterministic automaton over bytes. State 0 is the start state, and every state can reach a final one. A DFA
// without states matches nothing.
type DFA struct {
	class   [256]uint8
	classes int
	next    []int32 // by state and class
	final   []bool
	ends    []bool // states without successors

	// Loop is the state between two characters of a string whose characters are counted, or Dead if they are not.
	Loop int32
}

// Next returns the state after q for a byte, or Dead.
func (d *DFA) Next(q int32, b byte) int32 { return d.next[int(q)*d.classes+int(d.class[b])] }

// Moves reports whether any byte can follow a state.
func (d *DFA) Moves(q int32) bool {
	for b := range 256 {
		if d.Next(q, byte(b)) != Dead {
			return true
		}
	}
	return false
}

// Final reports whether the text may end in q.
func (d *DFA) Final(q int32) bool { return d.final[q] }

// Ends reports whether q has no successors.
func (d *DFA) Ends(q int32) bool { return d.ends[q] }

// States returns the number of states.
func (d *DFA) States() int { return len(d.final) }

// Bytes returns the memory size of the states.
func (d *DFA) Bytes() int { return 4*len(d.next) + len(d.final) + len(d.ends) }

// Match reports whether the automaton matches all of text.
func (d *DFA) Match(text string) bool {
	if d.States() == 0 {
		return false
	}
	q := int32(0)
	for i := range len(text) {
		if q = d.Next(q, text[i]); q == Dead {
			return false
		}
	}
	return d.final[q]
}

// Leaves reports whether every state that can be reached by the bytes in seen can reach a final one by the bytes in has
// alone.
func (d *DFA) Leaves(seen, has *[256]bool) bool {
	n := d.States()
	reached := make([]bool, n)
	queue := []int32{0}
	reached[0] = true
	before := make([][]int32, n) // predecessors by bytes in has
	for len(queue) > 0 {
		q := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		for b := range 256 {
			to := d.Next(q, byte(b))
			if to == Dead || !seen[b] {
				continue
			}
			if has[b] {
				before[to] = append(before[to], q)
			}
			if !reached[to] {
				reached[to] = true
				queue = append(queue, to)
			}
		}
	}
	good := backwards(before, d.final)
	for q := range reached {
		if reached[q] && !good[q] {
			return false
		}
	}
	return true
}

// backwards marks the states that can reach a final state.
func backwards(before [][]int32, final []bool) []bool {
	good := slices.Clone(final)
	var queue []int32
	for q, f := range final {
		if f {
			queue = append(queue, int32(q))
		}
	}
	for len(queue) > 0 {
		q := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		for _, from := range before[q] {
			if !good[from] {
				good[from] = true
				queue = append(queue, from)
			}
		}
	}
	return good
}

// computed is the cost of a state whose 256 successors are computed instead of looked up. That takes most of the time
// of building a grammar.
const computed = 4

// row holds the successors of a state as runs: a run extends from its byte to the start of the next run. Rows of UTF-8
// automata have few runs.
type row []run

type run struct {
	from uint8
	to   int32
}

// add appends the successor for byte b. Bytes must be added in order.
func (r row) add(b uint8, to int32) row {
	if len(r) > 0 && r[len(r)-1].to == to {
		return r
	}
	return append(r, run{b, to})
}

// expand returns the successor for every byte.
func (r row) expand() (all [256]int32) {
	for i, x := range r {
		end := 256
		if i+1 < len(r) {
			end = int(r[i+1].from)
		}
		for b := int(x.from); b < end; b++ {
			all[b] = x.to
		}
	}
	return all
}

// Build returns the DFA of the states that step can reach from start. Each state costs cost units of the budget.
func Build[S comparable](b *Budget, cost int, start S, step func(S, byte) (S, bool), final func(S) bool) (*DFA, error) {
	number := map[S]int32{start: 0}
	states := []S{start}
	var rows []row
	var finals []bool
	var scratch row
	for i := 0; i < len(states); i++ {
		if err := b.Spend(cost); err != nil {
			return nil, err
		}
		next := scratch[:0]
		var last S
		n := Dead // number of the state last
		for c := range 256 {
			to, ok := step(states[i], byte(c))
			if !ok {
				next = next.add(byte(c), Dead)
				continue
			}
			if n == Dead || to != last {
				var known bool
				if n, known = number[to]; !known {
					n = int32(len(states))
					number[to] = n
					states = append(states, to)
				}
				last = to
			}
			next = next.add(byte(c), n)
		}
		scratch = next
		rows = append(rows, slices.Clone(next))
		finals = append(finals, final(states[i]))
	}
	return pack(rows, finals), nil
}

// pack removes the states that cannot reach a final one, and assigns the same class to bytes that no state
// distinguishes.
func pack(rows []row, finals []bool) *DFA {
	before := make([][]int32, len(rows))
	for q := range rows {
		for _, x := range rows[q] {
			if x.to != Dead {
				before[x.to] = append(before[x.to], int32(q))
			}
		}
	}
	good := backwards(before, finals)
	d := &DFA{Loop: Dead}
	if !good[0] {
		return d
	}
	renumbered := make([]int32, len(rows))
	for q := range rows {
		renumbered[q] = Dead
		if good[q] {
			renumbered[q] = int32(len(d.final))
			d.final = append(d.final, finals[q])
		}
	}
	kept := rows[:0]
	for q := range rows {
		if !good[q] {
			continue
		}
		for i, x := range rows[q] {
			if x.to != Dead {
				rows[q][i].to = renumbered[x.to]
			}
		}
		kept = append(kept, rows[q])
	}
	d.class, d.classes = classesOf(kept)
	d.next = make([]int32, len(kept)*d.classes)
	d.ends = make([]bool, len(kept))
	for q := range kept {
		d.ends[q] = true
		for c, to := range kept[q].expand() {
			d.next[q*d.classes+int(d.class[c])] = to
			d.ends[q] = d.ends[q] && to == Dead
		}
	}
	return d
}

// classesOf numbers the classes of bytes. Bytes have the same class if all rows agree on them.
func classesOf(rows []row) (class [256]uint8, n int) {
	n = 1
	type split struct {
		class uint8
		to    int32
	}
	for q := range rows {
		next := rows[q].expand()
		if agrees(&class, &next) {
			continue
		}
		numbers := make(map[split]uint8, n)
		for c, to := range next {
			s := split{class[c], to}
			k, ok := numbers[s]
			if !ok {
				k = uint8(len(numbers))
				numbers[s] = k
			}
			class[c] = k
		}
		n = len(numbers)
	}
	return class, n
}

// agrees reports whether a row treats all bytes of each class alike.
func agrees(class *[256]uint8, row *[256]int32) bool {
	var first [256]int32
	var seen [256]bool
	for c, to := range row {
		k := class[c]
		if !seen[k] {
			seen[k], first[k] = true, to
		} else if first[k] != to {
			return false
		}
	}
	return true
}

package arm64

import (
	"cmp"
	"log"
	"slices"
)

// span is the live range of a virtual register: from the first to the last instruction that names it.
type span struct {
	reg         V
	first, last int
}

// allocate assigns machine registers to virtual ones in the order of their first use (linear scan). A register that is
// named before a loop and in it stays live to the end of the loop.
func (f *Func) allocate() {
	if f.virtual == machine {
		return
	}
	free := make([]bool, machine)
	for i := range free {
		free[i] = true
	}
	spans := f.spans(free)
	home := map[V]V{}
	var active []span
	for _, s := range spans {
		active = slices.DeleteFunc(active, func(a span) bool {
			if a.last > s.first {
				return false
			}
			free[home[a.reg]] = true // last read by the instruction that writes s
			return true
		})
		r := slices.Index(free, true)
		if r < 0 {
			log.Fatalf("%s needs more vector registers, at instruction %d", f.name, s.first)
		}
		free[r] = false
		home[s.reg] = V(r)
		active = append(active, s)
	}
	for i := range f.code {
		c := &f.code[i]
		for k, r := range c.regs {
			if r >= machine {
				c.regs[k] = home[r]
			}
		}
		for k, a := range c.args {
			if r, ok := a.(V); ok && r >= machine {
				c.args[k] = home[r]
			}
		}
	}
}

// spans returns the live ranges of the virtual registers in order of first use, and removes machine registers that the
// function names from free.
func (f *Func) spans(free []bool) []span {
	at := map[V]*span{}
	labels := map[string]int{}
	var loops [][2]int
	for i, c := range f.code {
		if c.label != "" {
			labels[c.label] = i
		}
		if to, ok := labels[c.branch]; ok && c.branch != "" {
			loops = append(loops, [2]int{to, i})
		}
		for _, r := range c.vectors() {
			if r < machine {
				free[r] = false
				continue
			}
			if s := at[r]; s != nil {
				s.last = i
			} else {
				at[r] = &span{r, i, i}
			}
		}
	}
	for range loops { // an inner loop may extend into the next one
		for _, l := range loops {
			for _, s := range at {
				if s.first < l[0] && s.last >= l[0] {
					s.last = max(s.last, l[1])
				}
			}
		}
	}
	var list []span
	for _, s := range at {
		list = append(list, *s)
	}
	slices.SortFunc(list, func(a, b span) int {
		return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(a.reg, b.reg))
	})
	return list
}

// vectors returns the vector registers that an instruction names.
func (i instr) vectors() []V {
	list := slices.Clone(i.regs)
	for _, a := range i.args {
		if r, ok := a.(V); ok {
			list = append(list, r)
		}
	}
	return list
}

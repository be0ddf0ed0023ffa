package constrain

import "slices"

// frontier is all that a text may be in the middle of, as Earley's algorithm keeps it
// (Communications of the ACM 13, 1970): alternatives that are not told apart yet are
// followed at once, and share what waits for their end.
type frontier struct {
	threads []thread
	done    bool // the text may end
}

// thread is one lexeme that is being written, and where it leads.
type thread struct {
	lexeme *lexeme
	at     int32 // of its automaton
	chars  int32 // that it has, where they are counted
	next   item
}

// item is a state of a rule, and where in the text the rule began.
type item struct {
	state  int32
	origin *origin
	items  int32 // of the array that the rule is
}

// origin is one rule that begins at one place of the text, and all that goes on where
// it ends; this is known when the place is passed.
type origin struct{ waiting []item }

// tracker follows texts of a grammar. It keeps scratch memory.
type tracker struct {
	grammar *Grammar
	root    *origin

	todo  []item
	seen  map[item]bool // of todo, where it is long
	begun []begun       // at this place
}

// begun is a rule and its origin.
type begun struct {
	rule int32
	*origin
}

// begin is the frontier before the first byte.
func (t *tracker) begin(f *frontier) {
	t.root = &origin{}
	f.reset()
	t.enter(item{t.grammar.rules[t.grammar.root].start, t.root, 0})
	t.close(f)
}

func (f *frontier) reset() { f.threads, f.done = f.threads[:0], false }

// alive reports whether the text can be one of the grammar, or its beginning.
func (f *frontier) alive() bool { return f.done || len(f.threads) > 0 }

// step makes to the frontier behind one more byte.
func (t *tracker) step(to *frontier, from []thread, b byte) {
	to.reset()
	for _, x := range from {
		d := x.lexeme.dfa
		was := x.at
		if x.at = d.Next(was, b); x.at < 0 {
			continue
		}
		if d.Loop >= 0 {
			if was == d.Loop && !d.Final(x.at) && x.chars == x.lexeme.max || d.Final(x.at) && x.chars < x.lexeme.min {
				continue
			}
			if completes(d, was, x.at) {
				x.chars++
			}
		}
		if d.Final(x.at) {
			t.enter(x.next)
		}
		if !d.Ends(x.at) {
			to.threads = append(to.threads, x)
		}
	}
	t.close(to)
}

// follow makes to the frontier behind the lexeme of a thread.
func (t *tracker) follow(to *frontier, x thread) {
	to.reset()
	t.enter(x.next)
	t.close(to)
}

// manyItems is from where on a map finds items faster.
const manyItems = 24

// enter notes that a state is reached.
func (t *tracker) enter(x item) {
	if len(t.todo) < manyItems {
		if slices.Contains(t.todo, x) {
			return
		}
	} else {
		if len(t.todo) == manyItems {
			if t.seen == nil {
				t.seen = map[item]bool{}
			}
			for _, y := range t.todo {
				t.seen[y] = true
			}
		}
		if t.seen[x] {
			return
		}
		t.seen[x] = true
	}
	t.todo = append(t.todo, x)
}

// close adds to f all that the states reached lead to without a byte.
func (t *tracker) close(f *frontier) {
	for i := 0; i < len(t.todo); i++ {
		x := t.todo[i]
		s := &t.grammar.states[x.state]
		if s.final {
			f.done = f.done || x.origin == t.root
			for _, w := range x.origin.waiting {
				t.enter(w)
			}
		}
		for j := range s.arcs {
			a := &s.arcs[j]
			if x.items < a.least || a.most >= 0 && x.items > a.most {
				continue
			}
			next := item{a.to, x.origin, x.items}
			if a.items > 0 {
				next.items = min(x.items+a.items, a.limit)
			}
			switch {
			case a.lexeme != nil:
				f.threads = append(f.threads, thread{lexeme: a.lexeme, next: next})
			case a.rule == none:
				t.enter(next)
			default:
				t.open(a.rule, next)
			}
		}
	}
	if len(t.todo) > manyItems {
		clear(t.seen)
	}
	t.todo, t.begun = t.todo[:0], t.begun[:0]
}

// open begins a rule, behind which the text goes on at next. No rule ends before it
// has a byte, so none of those waiting is too late.
func (t *tracker) open(rule int32, next item) {
	for _, b := range t.begun {
		if b.rule == rule {
			b.waiting = append(b.waiting, next)
			return
		}
	}
	o := &origin{waiting: []item{next}}
	t.begun = append(t.begun, begun{rule, o})
	t.enter(item{t.grammar.rules[rule].start, o, 0})
}

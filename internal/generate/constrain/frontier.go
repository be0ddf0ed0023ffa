package constrain

import "slices"

// frontier is the set of all possible parser states at a position in a text, as in Earley's algorithm (Communications
// of the ACM 13, 1970). Alternatives that are not decided yet are followed in parallel and share their continuations.
type frontier struct {
	threads []thread
	done    bool // the text may end here
}

// thread is a lexeme in progress and its continuation.
type thread struct {
	lexeme *lexeme
	at     int32 // state of its automaton
	chars  int32 // characters so far, if they are counted
	next   item
}

// item is a state of a rule and the position at which the rule started.
type item struct {
	state  int32
	origin *origin
	items  int32 // items so far, if the rule is an array
}

// origin is a rule that started at a position of the text, and the items that continue after it. All of them are known
// once the position is passed.
type origin struct{ waiting []item }

// tracker follows texts of a grammar. It has scratch memory.
type tracker struct {
	grammar *Grammar
	root    *origin

	todo  []item
	seen  map[item]bool // items of todo, if it is long
	begun []begun       // rules started at this position
}

// begun is a rule and its origin.
type begun struct {
	rule int32
	*origin
}

// start sets f to the frontier before the first byte.
func (t *tracker) start(f *frontier) {
	t.root = &origin{}
	f.reset()
	t.enter(item{t.grammar.rules[t.grammar.root].start, t.root, 0})
	t.close(f)
}

func (f *frontier) reset() { f.threads, f.done = f.threads[:0], false }

// alive reports whether the text is a text of the grammar or a prefix of one.
func (f *frontier) alive() bool { return f.done || len(f.threads) > 0 }

// step sets to to the frontier after one more byte.
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

// follow sets to to the frontier after the lexeme of a thread.
func (t *tracker) follow(to *frontier, x thread) {
	to.reset()
	t.enter(x.next)
	t.close(to)
}

// manyItems is the number of items above which a map is faster than a search.
const manyItems = 24

// enter adds a reached state.
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

// close adds everything to f that the reached states lead to without a byte.
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

// open starts a rule, after which the text continues at next. A rule cannot end before its first byte, so waiting items
// are never too late.
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

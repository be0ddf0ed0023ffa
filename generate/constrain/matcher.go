package constrain

import (
	"fmt"
	"math/bits"
)

// Matcher follows one text of a grammar, token by token. The tokens that end a text are
// not among those it allows: they are to be allowed where Done says so, and only there.
// It is not safe for concurrent use.
type Matcher struct {
	tracker
	vocabulary *Vocabulary
	now        frontier
	count      int // tokens

	beyond map[exit][]int32
	levels []*frontier // scratch
	mask   []uint64
}

// exit is a place in a lexeme and where it leads.
type exit struct {
	place
	next item
}

// maxExits bounds what a matcher remembers.
const maxExits = 64

// Matcher begins a text. An error, ErrVocabulary, means that texts of the grammar might
// not be ended with the tokens that there are: every byte that such a text may need is
// expected to be a token too.
func (g *Grammar) Matcher(v *Vocabulary) (*Matcher, error) {
	if err := v.writes(g); err != nil {
		return nil, err
	}
	m := &Matcher{tracker: tracker{grammar: g}, vocabulary: v, beyond: map[exit][]int32{}}
	m.begin(&m.now)
	return m, nil
}

// Vocabulary is that of the tokens.
func (m *Matcher) Vocabulary() *Vocabulary { return m.vocabulary }

// Done reports whether the text is complete. It may go on even so, unless Ended says
// otherwise: 1 may become 12.
func (m *Matcher) Done() bool { return m.now.done }

// Ended reports whether the text is complete and nothing can follow.
func (m *Matcher) Ended() bool { return m.now.done && len(m.now.threads) == 0 }

// Mask sets the bits of the tokens that can follow, bit id%64 of dst[id/64], and clears
// all others. dst has room for the vocabulary: Size()+63 bits. Where the text has not
// ended, some token can follow.
func (m *Matcher) Mask(dst []uint64) {
	clear(dst)
	for i := range m.now.threads {
		x := &m.now.threads[i]
		p := m.place(x)
		w := m.vocabulary.walk(p)
		for j, b := range w.bits {
			dst[j] |= b
		}
		set(dst, w.tokens)
		if len(w.exits) > 0 {
			set(dst, m.exits(exit{p, x.next}, w, *x))
		}
	}
}

func set(dst []uint64, tokens []int32) {
	for _, id := range tokens {
		dst[id>>6] |= 1 << (id & 63)
	}
}

// Forced gives the one token that can follow, where there is one alone and the text
// cannot end: it need not be sampled.
func (m *Matcher) Forced() (id int32, ok bool) {
	if m.now.done {
		return 0, false
	}
	if m.mask == nil {
		m.mask = make([]uint64, words(m.vocabulary.Size()))
	}
	m.Mask(m.mask)
	for i, w := range m.mask {
		if w == 0 {
			continue
		}
		if ok || w&(w-1) != 0 {
			return 0, false
		}
		id, ok = int32(64*i+bits.TrailingZeros64(w)), true
	}
	return id, ok
}

// Accept goes on behind a token. Where it cannot follow, the error is ErrToken, and the
// matcher is as it was.
func (m *Matcher) Accept(id int32) error {
	if id < 0 || int(id) >= m.vocabulary.Size() {
		return fmt.Errorf("constrain: %w: token %d as number %d, the vocabulary has %d", ErrToken, id, m.count, m.vocabulary.Size())
	}
	token := m.vocabulary.tokens[id]
	if len(token) == 0 {
		return fmt.Errorf("constrain: %w: token %d as number %d has no bytes", ErrToken, id, m.count)
	}
	from := m.now.threads
	for i, b := range token {
		to := m.level(i % 2)
		m.step(to, from, b)
		if !to.alive() {
			return fmt.Errorf("constrain: %w: token %d, %q, as number %d: found %q, expected %s", ErrToken, id, token, m.count, b, expected(from))
		}
		from = to.threads
	}
	last := m.level((len(token) - 1) % 2)
	m.now, *last = *last, m.now
	m.count++
	return nil
}

// expected names the bytes that threads can go on with.
func expected(threads []thread) string {
	var can [256]bool
	for _, x := range threads {
		for b := range can {
			can[b] = can[b] || x.lexeme.dfa.Next(x.at, byte(b)) >= 0
		}
	}
	var bytes []byte
	for b, ok := range can {
		if ok {
			bytes = append(bytes, byte(b))
		}
	}
	switch {
	case len(bytes) == 0:
		return "the end"
	case len(bytes) > 20:
		return fmt.Sprintf("one of %d other bytes", len(bytes))
	}
	return fmt.Sprintf("one of %q", bytes)
}

func (m *Matcher) level(i int) *frontier {
	for len(m.levels) <= i {
		m.levels = append(m.levels, &frontier{})
	}
	return m.levels[i]
}

// place is where a thread is, for the vocabulary.
func (m *Matcher) place(x *thread) place {
	p := place{dfa: x.lexeme.dfa, at: x.at}
	if p.dfa.Loop >= 0 {
		beyond := m.vocabulary.longest + 1
		p.need, p.room = min(max(x.lexeme.min-x.chars, 0), beyond), beyond
		if x.lexeme.max >= 0 {
			p.room = min(x.lexeme.max-x.chars, beyond)
		}
	}
	return p
}

// exits gives the tokens that begin within the lexeme of a thread and end behind it.
func (m *Matcher) exits(e exit, w *walk, x thread) []int32 {
	tokens, ok := m.beyond[e]
	if ok {
		return tokens
	}
	behind := m.level(0)
	m.follow(behind, x)
	tokens = []int32{}
	for _, n := range w.exits {
		tokens = m.descend(tokens, n, behind.threads, 1)
	}
	if len(m.beyond) >= maxExits {
		clear(m.beyond)
	}
	m.beyond[e] = tokens
	return tokens
}

// descend adds the tokens below a node of the trie that threads can follow.
func (m *Matcher) descend(tokens []int32, n int32, threads []thread, depth int) []int32 {
	nodes := m.vocabulary.nodes
	to := m.level(depth)
	for child := n + 1; child < nodes[n].end; child = nodes[child].end {
		m.step(to, threads, nodes[child].b)
		if !to.alive() {
			continue
		}
		for id := nodes[child].token; id != none; id = m.vocabulary.alike[id] {
			tokens = append(tokens, id)
		}
		if nodes[child].end > child+1 {
			tokens = m.descend(tokens, child, to.threads, depth+1)
		}
	}
	return tokens
}

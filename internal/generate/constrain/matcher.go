package constrain

import (
	"fmt"
	"math/bits"
)

// Matcher follows one text of a grammar, token by token. Its masks never include end tokens: the caller must allow
// these if and only if Done returns true. It is not safe for concurrent use.
type Matcher struct {
	tracker
	vocabulary *Vocabulary
	now        frontier
	count      int // number of tokens so far

	beyond map[exit][]int32
	levels []*frontier // scratch memory
	mask   []uint64
}

// exit is a place in a lexeme and its continuation.
type exit struct {
	place
	next item
}

// maxExits is the maximum number of cached exits.
const maxExits = 64

// Matcher returns a matcher at the start of a text. It fails with ErrVocabulary if the tokens might be unable to
// complete a text of the grammar: every byte that a text may need must also be a token of its own.
func (g *Grammar) Matcher(v *Vocabulary) (*Matcher, error) {
	if err := v.writes(g); err != nil {
		return nil, err
	}
	m := &Matcher{tracker: tracker{grammar: g}, vocabulary: v, beyond: map[exit][]int32{}}
	m.start(&m.now)
	return m, nil
}

// Vocabulary returns the vocabulary of the matcher.
func (m *Matcher) Vocabulary() *Vocabulary { return m.vocabulary }

// Done reports whether the text is complete. It may still continue, unless Ended returns true: 1 may become 12.
func (m *Matcher) Done() bool { return m.now.done }

// Ended reports whether the text is complete and nothing can follow.
func (m *Matcher) Ended() bool { return m.now.done && len(m.now.threads) == 0 }

// Mask sets the bits of the allowed tokens, bit id%64 of dst[id/64], and clears all others. dst must have at least
// Size() bits, rounded up to whole words. Unless the text has ended, at least one token is allowed.
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

// Forced returns the only token that may follow, if there is exactly one and the text cannot end. Such a token need not
// be sampled.
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

// Accept advances by a token. If the token is not allowed, Accept fails with ErrToken and leaves the matcher unchanged.
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

// expected lists the bytes that may follow, for an error message.
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

// place returns the place of a thread, as a key of the vocabulary's cache.
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

// exits returns the tokens that start inside the lexeme of a thread and end after it.
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

// descend appends the tokens below a node of the trie that threads allow.
func (m *Matcher) descend(tokens []int32, n int32, threads []thread, depth int) []int32 {
	nodes := m.vocabulary.nodes
	to := m.level(depth)
	for child := n + 1; child < nodes[n].end; child = nodes[child].end {
		m.step(to, threads, nodes[child].b)
		if !to.alive() {
			continue
		}
		for id := nodes[child].token; id != none; id = m.vocabulary.sameBytes[id] {
			tokens = append(tokens, id)
		}
		if nodes[child].end > child+1 {
			tokens = m.descend(tokens, child, to.threads, depth+1)
		}
	}
	return tokens
}

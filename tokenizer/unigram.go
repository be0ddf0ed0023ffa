package tokenizer

import (
	"encoding/json"
	"fmt"
	"math"
	"unicode/utf8"
)

// unigram splits text so that the sum of the tokens' scores (log probabilities) is
// maximal.
type unigram struct {
	pieces  []string
	scores  []float64
	ids     map[string]int32
	trie    scoreTrie
	unknown *int32
	penalty float64 // score of an unknown character
	bytes   *[256]int32
	cache   *wordCache
}

func readUnigram(raw json.RawMessage) (model, error) {
	var c struct {
		Vocab        [][2]json.RawMessage `json:"vocab"`
		Unknown      *int32               `json:"unk_id"`
		ByteFallback bool                 `json:"byte_fallback"`
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, malformed("model Unigram: %v", err)
	}
	m := &unigram{
		pieces: make([]string, len(c.Vocab)), scores: make([]float64, len(c.Vocab)),
		ids: make(map[string]int32, len(c.Vocab)), unknown: c.Unknown, cache: newWordCache(),
	}
	if c.Unknown != nil && (*c.Unknown < 0 || int(*c.Unknown) >= len(c.Vocab)) {
		return nil, malformed("model Unigram: unk_id %d of %d tokens", *c.Unknown, len(c.Vocab))
	}
	lowest := math.Inf(1)
	for i, entry := range c.Vocab {
		if err := json.Unmarshal(entry[0], &m.pieces[i]); err != nil {
			return nil, malformed("model Unigram: token %d: %v", i, err)
		}
		if err := json.Unmarshal(entry[1], &m.scores[i]); err != nil {
			return nil, malformed("model Unigram: score of token %d: %v", i, err)
		}
		m.ids[m.pieces[i]] = int32(i)
		lowest = min(lowest, m.scores[i])
	}
	for token, id := range m.ids {
		m.trie.add(token, id)
	}
	m.penalty = lowest - 10
	if c.ByteFallback {
		m.bytes = byteTokens(m.ids)
	}
	return m, nil
}

func (m *unigram) id(token string) (int32, bool) {
	id, ok := m.ids[token]
	return id, ok
}

func (m *unigram) token(id int32) (string, bool) {
	if id < 0 || int(id) >= len(m.pieces) {
		return "", false
	}
	return m.pieces[id], true
}

func (m *unigram) size() int { return len(m.pieces) }

func (m *unigram) encode(dst []int32, text string) ([]int32, error) {
	dst, ok := m.cache.get(dst, text)
	if ok {
		return dst, nil
	}
	cuts, err := m.bestCuts(text)
	if err != nil {
		return nil, err
	}
	n := len(dst)
	for _, c := range cuts {
		token := text[c.start:c.end]
		if id, ok := m.ids[token]; ok {
			dst = append(dst, id)
			continue
		}
		if m.bytes != nil {
			if dst, ok = appendByteTokens(dst, m.bytes, token); ok {
				continue
			}
		}
		dst = append(dst, *m.unknown)
	}
	m.cache.add(text, dst[n:])
	return dst, nil
}

// bestCuts finds the best split with the Viterbi algorithm over the positions of
// text. It returns adjacent unknown characters as one span.
func (m *unigram) bestCuts(text string) ([]span, error) {
	type node struct {
		id    int32
		score float64 // of the best path that ends here
		start int     // start of the path's last token; -1 if not reached
	}
	best := make([]node, len(text)+1)
	for i := range best {
		best[i].start = -1
	}
	reach := func(from, to int, id int32, score float64) {
		score += best[from].score
		if n := &best[to]; n.start < 0 || score > n.score {
			*n = node{id, score, from}
		}
	}
	for i := 0; i < len(text); {
		_, size := utf8.DecodeRuneInString(text[i:])
		single := false
		m.trie.prefixes(text[i:], func(length int, id int32) {
			reach(i, i+length, id, m.scores[id])
			single = single || length == size
		})
		if !single {
			// The character is not a token: it can be unknown, if that scores
			// best.
			if m.unknown == nil {
				if n := &best[i+size]; n.start < 0 || m.penalty+best[i].score > n.score {
					return nil, fmt.Errorf("%w: %q, and there is no unk_id", ErrUnknownText, text[i:i+size])
				}
			} else {
				reach(i, i+size, *m.unknown, m.penalty)
			}
		}
		i += size
	}
	var cuts []span // from the end to the beginning
	open := false   // the last cut is unknown and may grow
	for end := len(text); end > 0; end = best[end].start {
		isUnknown := m.unknown != nil && best[end].id == *m.unknown
		if isUnknown && open {
			cuts[len(cuts)-1].start = best[end].start
		} else {
			cuts = append(cuts, span{start: best[end].start, end: end})
		}
		open = isUnknown
	}
	for i, j := 0, len(cuts)-1; i < j; i, j = i+1, j-1 {
		cuts[i], cuts[j] = cuts[j], cuts[i]
	}
	return cuts, nil
}

// scoreTrie finds all tokens that are prefixes of a text. Children are linked lists in
// one slice, because nearly all nodes have a single child.
type scoreTrie struct{ nodes []scoreNode }

type scoreNode struct {
	child, sibling int32 // 0 if none; the root is never a child
	id             int32
	label          byte
}

func (t *scoreTrie) add(token string, id int32) {
	if t.nodes == nil {
		t.nodes = []scoreNode{{id: noID}}
		// The first level is dense: every byte has a node, in order.
		for b := range 256 {
			t.nodes = append(t.nodes, scoreNode{id: noID, label: byte(b)})
		}
	}
	if token == "" {
		return
	}
	node := int32(token[0]) + 1
	for i := 1; i < len(token); i++ {
		child := t.find(node, token[i])
		if child == 0 {
			child = int32(len(t.nodes))
			t.nodes = append(t.nodes, scoreNode{id: noID, label: token[i], sibling: t.nodes[node].child})
			t.nodes[node].child = child
		}
		node = child
	}
	t.nodes[node].id = id
}

func (t *scoreTrie) find(node int32, label byte) int32 {
	child := t.nodes[node].child
	for child != 0 && t.nodes[child].label != label {
		child = t.nodes[child].sibling
	}
	return child
}

// prefixes calls visit for every token that is a prefix of text, shortest
// first.
func (t *scoreTrie) prefixes(text string, visit func(length int, id int32)) {
	if t.nodes == nil || text == "" {
		return
	}
	node := int32(text[0]) + 1
	for length := 1; ; length++ {
		if id := t.nodes[node].id; id != noID {
			visit(length, id)
		}
		if length == len(text) {
			return
		}
		if node = t.find(node, text[length]); node == 0 {
			return
		}
	}
}

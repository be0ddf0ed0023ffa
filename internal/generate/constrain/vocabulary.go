package constrain

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"sync"

	"github.com/lorafuse/lorafuse/internal/generate/constrain/internal/automaton"
)

// Vocabulary holds the tokens of a model as bytes, in a trie, and caches the allowed tokens of lexemes, which grammars
// share. Create it once per model. It is safe for concurrent use.
type Vocabulary struct {
	tokens    [][]byte
	nodes     []node
	sameBytes []int32 // next token with the same bytes, or none, by token
	// alone marks the bytes that are a token of their own, any the bytes that occur in a token.
	alone, any [256]bool
	longest    int32 // length of the longest token, in bytes

	mu           sync.Mutex
	fresh, stale map[place]*walk
	counted      map[place]*paths // by lexeme, for lexemes that count characters
}

// node is a prefix of tokens. Its descendants follow it up to end.
type node struct {
	end   int32
	token int32 // token that ends here, or none
	depth int32 // length in bytes
	b     byte  // the last byte
}

// NewVocabulary returns a vocabulary of the bytes of each token, as tokenizer.Tokenizer.TokenBytes returns them. Tokens
// without bytes, such as special tokens, are never allowed.
func NewVocabulary(tokens [][]byte) (*Vocabulary, error) {
	v := &Vocabulary{tokens: tokens, sameBytes: make([]int32, len(tokens)), fresh: map[place]*walk{}, counted: map[place]*paths{}}
	var ids []int32
	for id, token := range tokens {
		v.sameBytes[id] = none
		if len(token) == 0 {
			continue
		}
		if len(token) > maxToken {
			return nil, fmt.Errorf("constrain: %w: token %d has %d bytes, at most %d are expected", ErrVocabulary, id, len(token), maxToken)
		}
		ids = append(ids, int32(id))
		v.longest = max(v.longest, int32(len(token)))
		v.alone[token[0]] = v.alone[token[0]] || len(token) == 1
		for _, b := range token {
			v.any[b] = true
		}
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("constrain: %w: no token has bytes", ErrVocabulary)
	}
	slices.SortFunc(ids, func(a, b int32) int {
		return cmp.Or(bytes.Compare(tokens[a], tokens[b]), cmp.Compare(a, b))
	})
	v.nodes = []node{{token: none}}
	var open []int32 // path to the last token, from the root
	open = append(open, 0)
	closeTo := func(depth int) {
		for _, n := range open[depth:] {
			v.nodes[n].end = int32(len(v.nodes))
		}
		open = open[:depth]
	}
	var last []byte
	for _, id := range ids {
		token := tokens[id]
		same := 0
		for same < min(len(token), len(last)) && token[same] == last[same] {
			same++
		}
		closeTo(same + 1)
		for i, b := range token[same:] {
			open = append(open, int32(len(v.nodes)))
			v.nodes = append(v.nodes, node{token: none, depth: int32(same + i + 1), b: b})
		}
		n := &v.nodes[open[len(open)-1]]
		v.sameBytes[id], n.token = n.token, id
		last = token
	}
	closeTo(0)
	return v, nil
}

// maxToken is the maximum length of a token in bytes.
const maxToken = 1 << 12

// Size returns the number of tokens, including tokens without bytes.
func (v *Vocabulary) Size() int { return len(v.tokens) }

// writes returns an error if a text of the grammar might be impossible to complete with these tokens. It never fails if
// all bytes are tokens.
func (v *Vocabulary) writes(g *Grammar) error {
	for _, dfa := range g.lexemes {
		if !dfa.Leaves(&v.any, &v.alone) {
			return fmt.Errorf("constrain: %w: a text of the grammar could not be ended: %s", ErrVocabulary, missing(dfa, &v.alone))
		}
	}
	return nil
}

// missing returns bytes of a lexeme that are not tokens, for an error message.
func missing(dfa *automaton.DFA, alone *[256]bool) string {
	var lacking []byte
	for b := range 256 {
		for q := range dfa.States() {
			if !alone[b] && dfa.Next(int32(q), byte(b)) != automaton.Dead {
				lacking = append(lacking, byte(b))
				break
			}
		}
	}
	if len(lacking) > 8 {
		return fmt.Sprintf("no token is the byte %q alone, nor are %d others", lacking[:1], len(lacking)-1)
	}
	return fmt.Sprintf("no tokens are the bytes %q alone", lacking)
}

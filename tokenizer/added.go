package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// An addedToken is a token that is matched in the text before the model encodes
// the rest.
type addedToken struct {
	ID         int32  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"` // match only if no word character is adjacent
	LStrip     bool   `json:"lstrip"`      // swallows white space to its left
	RStrip     bool   `json:"rstrip"`      // swallows white space to its right
	Normalized bool   `json:"normalized"`  // match in the normalized text
	Special    bool   `json:"special"`     // may be omitted when decoding
}

// addedVocabulary holds the added tokens and finds them in text.
type addedVocabulary struct {
	byContent map[string]int32
	byID      map[int32]*addedToken
	special   map[string]bool
	// normalizedForm is the content of a normalized token after normalization, if it
	// differs.
	normalizedForm map[int32]string
	raw            tokenTrie // tokens to match in the original text
	normal         tokenTrie // tokens to match in the normalized text
}

// newAddedVocabulary adds tokens in order. Like the library it ignores the ids in the
// file: a token that the model knows keeps the model's id, and new tokens get ids after
// the vocabulary.
func newAddedVocabulary(tokens []addedToken, m model, n normalizer) *addedVocabulary {
	v := &addedVocabulary{
		byContent:      map[string]int32{},
		byID:           map[int32]*addedToken{},
		special:        map[string]bool{},
		normalizedForm: map[int32]string{},
	}
	next := int32(m.size())
	for _, t := range tokens {
		if t.Content == "" {
			continue
		}
		if id, ok := v.byContent[t.Content]; ok {
			t.ID = id
		} else if id, ok := m.id(t.Content); ok {
			t.ID = id
		} else {
			t.ID = next
			next++
		}
		delete(v.normalizedForm, t.ID)
		if t.Normalized && n != nil {
			if form, _ := n.normalize(t.Content); form != t.Content {
				v.normalizedForm[t.ID] = form
			}
		}
		v.byContent[t.Content] = t.ID
		v.byID[t.ID] = &t
		if t.Special {
			v.special[t.Content] = true
		}
	}
	for id, t := range v.byID {
		if !t.Normalized {
			v.raw.add(t.Content, id)
		} else if form, ok := v.normalizedForm[id]; ok {
			v.normal.add(form, id)
		} else {
			v.normal.add(t.Content, id)
		}
	}
	return v
}

// cut splits s into the added tokens that trie finds and the text between them, and
// appends the pieces to out.
func (v *addedVocabulary) cut(out []piece, s string, atStart bool, trie *tokenTrie) []piece {
	done := 0 // end of the part of s that is in out
	for from := 0; from < len(s); {
		start, end, id := trie.find(s, from)
		if id == noID {
			break
		}
		from = end
		t := v.byID[id]
		if t.SingleWord {
			before, _ := utf8.DecodeLastRuneInString(s[:start])
			after, _ := utf8.DecodeRuneInString(s[end:])
			if start > 0 && isWord(before) || end < len(s) && isWord(after) {
				continue
			}
		}
		if t.LStrip {
			start = max(len(strings.TrimRightFunc(s[:start], isSpace)), done)
		}
		if t.RStrip {
			end = len(s) - len(strings.TrimLeftFunc(s[end:], isSpace))
		}
		if done < start {
			out = append(out, piece{s[done:start], noID, atStart && done == 0})
		}
		out = append(out, piece{s[start:end], id, false})
		done = end
	}
	if done < len(s) {
		out = append(out, piece{s[done:], noID, atStart && done == 0})
	}
	return out
}

// tokenTrie finds the leftmost match of a set of strings, and the longest one
// at that position.
type tokenTrie struct {
	nodes []trieNode
	first [256]bool // first bytes of the tokens
	only  int       // the single such byte, or noID
}

type trieNode struct {
	next map[byte]int32
	id   int32
}

func (t *tokenTrie) add(s string, id int32) {
	if s == "" {
		return
	}
	if t.nodes == nil {
		t.nodes = []trieNode{{id: noID}}
		t.only = int(s[0])
	} else if t.only != int(s[0]) {
		t.only = noID
	}
	t.first[s[0]] = true
	node := int32(0)
	for i := 0; i < len(s); i++ {
		child, ok := t.nodes[node].next[s[i]]
		if !ok {
			child = int32(len(t.nodes))
			t.nodes = append(t.nodes, trieNode{id: noID})
			if t.nodes[node].next == nil {
				t.nodes[node].next = map[byte]int32{}
			}
			t.nodes[node].next[s[i]] = child
		}
		node = child
	}
	t.nodes[node].id = max(id, t.nodes[node].id)
}

// find returns the first token at or after from, or noID.
func (t *tokenTrie) find(s string, from int) (start, end int, id int32) {
	if t.nodes == nil {
		return 0, 0, noID
	}
	for i := from; i < len(s); i++ {
		if t.only != noID {
			n := strings.IndexByte(s[i:], byte(t.only))
			if n < 0 {
				break
			}
			i += n
		} else if !t.first[s[i]] {
			continue
		}
		id = noID
		for node, j := int32(0), i; j < len(s); j++ {
			child, ok := t.nodes[node].next[s[j]]
			if !ok {
				break
			}
			node = child
			if t.nodes[node].id != noID {
				id, end = t.nodes[node].id, j+1
			}
		}
		if id != noID {
			return i, end, id
		}
	}
	return 0, 0, noID
}

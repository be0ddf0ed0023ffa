package tokenizer

import "slices"

// layout lists the parts of the ids of one text, or of two joined texts.
type layout []part

// part is a sequence of special tokens or, if special is nil, one of the texts.
type part struct {
	special []int32
	text    int   // index of the text
	typ     int32 // token type id
}

// layoutOf returns the layout of one or two texts.
func layoutOf(p postProcessor, texts int) (l layout, err error) {
	pieces := []layout{{{text: 0, typ: 0}}, {{text: 1, typ: 1}}}[:texts]
	if p != nil {
		if pieces, err = p.arrange(pieces); err != nil {
			return nil, err
		}
	}
	return slices.Concat(pieces...), nil
}

// specials returns the number of special tokens.
func (l layout) specials() int {
	n := 0
	for _, p := range l {
		n += len(p.special)
	}
	return n
}

// typed returns a copy of l with the given token type id everywhere.
func (l layout) typed(typ int32) layout {
	l = slices.Clone(l)
	for i := range l {
		l[i].typ = typ
	}
	return l
}

// join returns the ids of the texts with the special tokens around them.
func (l layout) join(texts ...[]int32) []int32 {
	if len(l) == 1 && l[0].special == nil {
		return texts[l[0].text]
	}
	n := l.specials()
	for _, ids := range texts {
		n += len(ids)
	}
	out := make([]int32, 0, n)
	for _, p := range l {
		out = append(out, p.ids(texts)...)
	}
	return out
}

// types returns the token type ids of the tokens that join returns.
func (l layout) types(texts ...[]int32) []int32 {
	out := []int32{}
	for _, p := range l {
		out = append(out, slices.Repeat([]int32{p.typ}, len(p.ids(texts)))...)
	}
	return out
}

func (p part) ids(texts [][]int32) []int32 {
	if p.special != nil {
		return p.special
	}
	return texts[p.text]
}

package tokenizer

import "fmt"

// NumSpecialTokens returns the number of special tokens that Encode adds to a text.
func (t *Tokenizer) NumSpecialTokens() int { return t.single.specials() }

// EncodeWithin encodes text with special tokens and truncates it to most tokens in
// total, keeping the special tokens. It truncates at the end, or at the beginning
// if tokenizer_config.json has a truncation_side of left. cut reports whether it
// truncated.
func (t *Tokenizer) EncodeWithin(text string, most int) (ids []int32, cut bool, err error) {
	if ids, err = t.Encode(text, false); err != nil {
		return nil, false, err
	}
	kept := t.keep(ids, max(0, most-t.NumSpecialTokens()))
	return t.single.join(kept), len(kept) < len(ids), nil
}

// EncodeJoined returns the ids of one text, or of two joined texts, with special tokens
// and token type ids as defined by the post-processor of tokenizer.json: a model may
// have an embedding for tokens of the second text. The type ids are 0 if transformers
// passes none to the model: if model_input_names in tokenizer_config.json omits
// token_type_ids, or the tokenizer class does not belong to a model.
//
// The result has at most `most` tokens in total, and cut reports whether it was truncated.
// Truncation works as in EncodeWithin; of two texts the longer one is truncated first,
// until both have the same length, like the strategy longest_first of transformers. If
// the special tokens alone exceed the limit, it fails with [ErrRoom].
func (t *Tokenizer) EncodeJoined(texts []string, most int) (ids, types []int32, cut bool, err error) {
	var l layout
	switch len(texts) {
	case 1:
		l = t.single
	case 2:
		if l, err = t.pair, t.pairErr; err != nil {
			return nil, nil, false, err
		}
	default:
		return nil, nil, false, fmt.Errorf("tokenizer: found %d texts to join, expected 1 or 2", len(texts))
	}
	room := most - l.specials()
	if room < 0 {
		return nil, nil, false, fmt.Errorf("%w: found %d tokens, expected at least the %d that stand around and between texts", ErrRoom, most, l.specials())
	}
	parts, lengths := make([][]int32, len(texts)), [2]int{}
	for i, text := range texts {
		if parts[i], err = t.Encode(text, false); err != nil {
			return nil, nil, false, err
		}
		lengths[i] = len(parts[i])
	}
	lengths = longestFirst(lengths, room)
	for i, ids := range parts {
		parts[i] = t.keep(ids, lengths[i])
		cut = cut || len(parts[i]) < len(ids)
	}
	ids = l.join(parts...)
	if t.untyped {
		return ids, make([]int32, len(ids)), cut, nil
	}
	return ids, l.types(parts...), cut, nil
}

// keep truncates ids to most ids.
func (t *Tokenizer) keep(ids []int32, most int) []int32 {
	switch {
	case len(ids) <= most:
		return ids
	case t.cutLeft:
		return ids[len(ids)-most:]
	}
	return ids[:most]
}

// longestFirst returns the number of tokens to keep of two texts with room tokens in
// total. The shorter text is kept whole if it takes at most half. The last token of an
// odd room goes to the longer text, or to the second one.
func longestFirst(lengths [2]int, room int) [2]int {
	short, long := 0, 1
	if lengths[0] > lengths[1] {
		short, long = 1, 0
	}
	if lengths[short]+lengths[long] > room {
		lengths[short] = min(lengths[short], room/2)
		lengths[long] = room - lengths[short]
	}
	return lengths
}

// Lowercased returns a copy of t that converts texts to lower case before any other step, for
// sentence-transformers models whose settings have do_lower_case.
func (t *Tokenizer) Lowercased() *Tokenizer {
	lower := *t
	lower.normalizer = normalizerSequence{lowercaser{}}
	if t.normalizer != nil {
		lower.normalizer = normalizerSequence{lowercaser{}, t.normalizer}
	}
	return &lower
}

package tokenizer

import "fmt"

// Specials is the number of tokens that Encode adds to a text.
func (t *Tokenizer) Specials() int { return t.single.specials() }

// EncodeWithin is Encode with special tokens, of a text that is cut to so many tokens
// altogether: those around it stay. It is cut at its end, or at its beginning where
// tokenizer_config.json has a truncation_side of left. cut reports whether it was.
func (t *Tokenizer) EncodeWithin(text string, most int) (ids []int32, cut bool, err error) {
	if ids, err = t.Encode(text, false); err != nil {
		return nil, false, err
	}
	kept := t.keep(ids, max(0, most-t.Specials()))
	return t.single.join(kept), len(kept) < len(ids), nil
}

// EncodeJoined gives the ids of one text, or of two that are joined, with special tokens
// and the type of each token, as the post-processor of tokenizer.json has them: a model
// may have an embedding for tokens of the second text. Types are 0 where transformers
// gives the model none: where model_input_names of tokenizer_config.json leave
// token_type_ids out, or the class of the tokenizer is that of no model.
//
// The result has at most so many tokens altogether, and cut reports whether it took a
// cut: as with EncodeWithin, and of two texts the longer one is cut first, until both
// are of one length, as the strategy longest_first of transformers has it. Where the
// special tokens alone are more it gives [ErrRoom].
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

// keep cuts ids to so many.
func (t *Tokenizer) keep(ids []int32, most int) []int32 {
	switch {
	case len(ids) <= most:
		return ids
	case t.cutLeft:
		return ids[len(ids)-most:]
	}
	return ids[:most]
}

// longestFirst gives how many tokens are kept of two texts in so much room: of the
// shorter all while it takes no more than half, of an odd room the last of the longer,
// or of the second.
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

// Lowercased is t for texts that are brought to lower case before anything else.
func (t *Tokenizer) Lowercased() *Tokenizer {
	lower := *t
	lower.normalizer = normalizerSequence{lowercaser{}}
	if t.normalizer != nil {
		lower.normalizer = normalizerSequence{lowercaser{}, t.normalizer}
	}
	return &lower
}

package tokenizer

// Specials is the number of tokens that Encode adds to a text.
func (t *Tokenizer) Specials() int {
	if t.postProcessor == nil {
		return 0
	}
	return len(t.postProcessor.process(nil))
}

// EncodeWithin is Encode with special tokens, of a text that is cut to so many tokens
// altogether: those around it stay. It is cut at its end, or at its beginning where
// tokenizer_config.json has a truncation_side of left. cut reports whether it was.
func (t *Tokenizer) EncodeWithin(text string, most int) (ids []int32, cut bool, err error) {
	if ids, err = t.Encode(text, false); err != nil {
		return nil, false, err
	}
	if keep := max(0, most-t.Specials()); len(ids) > keep {
		cut = true
		if t.cutLeft {
			ids = ids[len(ids)-keep:]
		} else {
			ids = ids[:keep]
		}
	}
	if t.postProcessor != nil {
		ids = t.postProcessor.process(ids)
	}
	return ids, cut, nil
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

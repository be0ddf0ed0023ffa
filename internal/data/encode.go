package data

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lorafuse/lorafuse/tokenizer/chat"
)

// sample is a tokenized record: a row to keep, or the reason to leave it out.
type sample struct {
	ids       []int32
	loss      []Span // ranges of tokens that carry loss
	truncated bool
	dropped   bool      // longer than max_length
	empty     bool      // nothing to predict
	texts     [][]int32 // texts of a whole-row task
	types     []int32   // token types, if it has a label
	label     *label    // label of a labelled row
	answers   [][]Span  // ranges of the answers of a preference
}

// encoder tokenizes records. It is stateless.
type encoder struct {
	Options
}

// text tokenizes a document; all tokens carry loss.
func (e encoder) text(text string) (sample, error) {
	ids, err := e.document(text)
	if err != nil {
		return sample{}, err
	}
	s, err := e.fit(sample{ids: ids, loss: []Span{{0, len(ids)}}})
	s.empty = !s.dropped && s.targets() == 0
	return s, err
}

// windows tokenizes a document and cuts it into rows of MaxLength. The last row may be shorter.
func (e encoder) windows(text string) ([]sample, error) {
	if e.MaxLength == 0 {
		return nil, problem(ErrOption, "max_length: found none, expected the length of the windows to cut plain text into (or give document_separator)")
	}
	ids, err := e.document(text)
	if err != nil {
		return nil, err
	}
	var rows []sample
	for window := range slices.Chunk(ids, e.MaxLength) {
		rows = append(rows, sample{ids: window, loss: []Span{{0, len(window)}}, empty: len(window) < 2})
	}
	return rows, nil
}

// document returns the ids of a text, ending with the end token.
func (e encoder) document(text string) ([]int32, error) {
	ids, err := e.encode(text, true)
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	if eos, ok := e.Tokenizer.EOS(); ok && ids[len(ids)-1] != eos {
		ids = append(ids, eos)
	}
	return ids, nil
}

// completion tokenizes prompt and completion separately, joins them and adds the end token. The ids at the boundary are
// then the same as in generation, which joint tokenization would not guarantee.
func (e encoder) completion(prompt, completion string) (sample, error) {
	eos, ok := e.Tokenizer.EOS()
	if !ok {
		return sample{}, problem(ErrOption, "the tokenizer has no end token (eos_token in tokenizer_config.json), which completions need")
	}
	ids, err := e.encode(prompt, true)
	if err != nil {
		return sample{}, err
	}
	answer, err := e.encode(completion, false)
	if err != nil {
		return sample{}, err
	}
	from := len(ids)
	ids = append(append(ids, answer...), eos)
	if e.TrainOn == TrainOnAll {
		from = 0
	}
	return e.answered(sample{ids: ids, loss: []Span{{from, len(ids)}}})
}

// conversation tokenizes a rendered chat.
func (e encoder) conversation(k kind, c Conversation) (sample, error) {
	if e.Template == nil {
		rows := "messages"
		if k != kindMessages {
			rows = string(k) + " rows"
		}
		return sample{}, problem(ErrOption, "%s need a chat template, and the tokenizer has none: name one with chat_template (%s, or a file)", rows, strings.Join(chat.BuiltIn(), ", "))
	}
	text, answers, err := e.Template.RenderSpans(c)
	if err != nil {
		return sample{}, fmt.Errorf("messages: %w", err)
	}
	if e.TrainOn == TrainOnAll {
		if answers, err = e.loud(c, text, answers); err != nil {
			return sample{}, err
		}
	}
	if len(answers) == 0 {
		return sample{}, problem(ErrNoTarget, "messages hold no answer of the assistant, so nothing is learned from them: leave the line out, or train_on all")
	}
	ids, loss, err := e.spans(text, answers)
	if err != nil {
		return sample{}, err
	}
	return e.answered(sample{ids: ids, loss: loss})
}

// loud returns the ranges of a text outside the answers that are not learned.
func (e encoder) loud(c Conversation, text string, answers []Span) ([]Span, error) {
	if len(c.Silent) == 0 {
		return []Span{{0, len(text)}}, nil
	}
	c.Silent = nil
	_, all, err := e.Template.RenderSpans(c)
	if err != nil {
		return nil, fmt.Errorf("messages: %w", err)
	}
	loud, from := []Span(nil), 0
	for _, a := range all {
		if !slices.Contains(answers, a) {
			loud, from = append(loud, Span{from, a.Start}), a.End
		}
	}
	return append(loud, Span{from, len(text)}), nil
}

// spans tokenizes a text and returns the token ranges of byte ranges in it. The text is tokenized as a whole if the
// ranges start and end between tokens. If a token straddles a boundary, the parts are tokenized separately.
func (e encoder) spans(text string, ranges []Span) ([]int32, []Span, error) {
	whole, err := e.encode(text, false)
	if err != nil {
		return nil, nil, err
	}
	seams := make([]int, 0, 2*len(ranges)+1)
	last := 0
	for _, r := range ranges {
		if r.Start < last || r.End < r.Start || r.End > len(text) {
			return nil, nil, problem(ErrFormat, "messages: the template marks bytes %d to %d of %d as an answer, after byte %d", r.Start, r.End, len(text), last)
		}
		seams, last = append(seams, r.Start, r.End), r.End
	}
	seams = append(seams, len(text))

	var apart []int32
	cuts := make([]int, len(seams)) // token index of each boundary
	for i, from := 0, 0; i < len(seams); from, i = seams[i], i+1 {
		ids, err := e.encode(text[from:seams[i]], false)
		if err != nil {
			return nil, nil, err
		}
		apart = append(apart, ids...)
		cuts[i] = len(apart)
	}
	ids := apart
	if !slices.Equal(apart, whole) {
		// Some tokenizers change the first token of any text, so the parts may differ although every boundary is
		// between tokens.
		prefixes, ok, err := e.prefixes(text, seams, whole)
		if err != nil {
			return nil, nil, err
		}
		if ok {
			ids, cuts = whole, prefixes
		}
	}
	loss := make([]Span, len(ranges))
	for i := range ranges {
		loss[i] = Span{cuts[2*i], cuts[2*i+1]}
	}
	return ids, loss, nil
}

// prefixes returns the number of tokens before each boundary. It reports false if the ids of the text up to a boundary
// are not a prefix of the ids of the whole.
func (e encoder) prefixes(text string, seams []int, whole []int32) ([]int, bool, error) {
	cuts := make([]int, len(seams))
	for i, seam := range seams {
		ids, err := e.encode(text[:seam], false)
		if err != nil {
			return nil, false, err
		}
		if len(ids) > len(whole) || !slices.Equal(ids, whole[:len(ids)]) {
			return nil, false, nil
		}
		cuts[i] = len(ids)
	}
	return cuts, true, nil
}

// answered applies the length limit to a row that must keep a target.
func (e encoder) answered(s sample) (sample, error) {
	length := len(s.ids)
	s, err := e.fit(s)
	if err != nil || s.dropped || s.targets() > 0 {
		return s, err
	}
	if s.truncated {
		return s, problem(ErrNoTarget, "%d tokens, cut to max_length %d, keep no token of the answer: raise max_length, shorten the prompt, or set on_too_long to drop", length, e.MaxLength)
	}
	return s, problem(ErrNoTarget, "%d tokens hold none that carries loss", length)
}

// fit applies OnTooLong to a long row.
func (e encoder) fit(s sample) (sample, error) {
	length := len(s.ids)
	if e.MaxLength == 0 || length <= e.MaxLength {
		return s, nil
	}
	switch e.OnTooLong {
	case Drop:
		return sample{dropped: true}, nil
	case RefuseLong:
		return s, problem(ErrTooLong, "%d tokens, expected at most max_length %d", length, e.MaxLength)
	}
	s.ids, s.truncated = s.ids[:e.MaxLength], true
	for i := range s.loss {
		s.loss[i].Start = min(s.loss[i].Start, e.MaxLength)
		s.loss[i].End = min(s.loss[i].End, e.MaxLength)
	}
	return s, nil
}

// targets returns the number of tokens that carry loss after the shift by one.
func (s sample) targets() int {
	n := 0
	for _, span := range s.loss {
		n += max(0, span.End-max(span.Start, 1))
	}
	return n
}

// encode calls the tokenizer and checks its ids.
func (e encoder) encode(text string, addSpecial bool) ([]int32, error) {
	ids, err := e.Tokenizer.Encode(text, addSpecial)
	if err != nil {
		return nil, err
	}
	return slices.Clip(ids), e.checkIDs(ids)
}

// checkIDs checks ids against the size of the vocabulary.
func (e encoder) checkIDs(ids []int32) error {
	for _, id := range ids {
		switch {
		case id < 0:
			return problem(ErrTokenID, "token id %d, expected ≥ 0", id)
		case e.VocabSize > 0 && int(id) >= e.VocabSize:
			return problem(ErrTokenID, "token id %d, expected 0 to %d as the model's vocabulary has them", id, e.VocabSize-1)
		}
	}
	return nil
}

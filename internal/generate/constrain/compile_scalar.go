package constrain

import (
	"errors"
	"fmt"

	"github.com/lorafuse/lorafuse/internal/generate/constrain/internal/automaton"
)

// number returns the automaton of the numbers that f allows.
func (c *compiler) number(f *facts) (*automaton.DFA, error) {
	integer := f.types&isNumber == 0
	if f.low == nil && f.high == nil && f.multiple == nil {
		if integer {
			return anyInteger(), nil
		}
		return anyNumber(), nil
	}
	dfa, err := automaton.Number(c.budget, automaton.Numbers{Integer: integer, Min: f.low, Max: f.high, Multiple: f.multiple})
	if errors.Is(err, automaton.ErrNumber) {
		err = fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	if err != nil {
		return nil, failed(f.at(), err)
	}
	return dfa, nil
}

// text returns the lexeme of the strings that f allows, or nil if there are none. Without a pattern, characters are
// counted while they are written, so that lengths need no states, and all escapes are allowed.
func (c *compiler) text(f *facts) (*lexeme, error) {
	if len(f.patterns) == 0 {
		if f.maxLength >= 0 && f.minLength > f.maxLength {
			return nil, nil
		}
		return &lexeme{dfa: anyString(), min: int32(f.minLength), max: int32(f.maxLength)}, nil
	}
	dfa, err := c.patterned(f)
	return &lexeme{dfa: dfa, max: -1}, err
}

// patterned returns the automaton of strings that match patterns.
func (c *compiler) patterned(f *facts) (*automaton.DFA, error) {
	if shared := formatLexemes[f.patterns[0].text]; shared != nil && len(f.patterns) == 1 && f.minLength == 0 && f.maxLength < 0 {
		return shared()
	}
	chars, err := c.chars(f)
	if err != nil {
		return nil, err
	}
	dfa, err := automaton.Quoted(c.budget, chars)
	if err != nil {
		return nil, failed(f.patterns[0].at, err)
	}
	return dfa, nil
}

// chars returns the automaton of the patterns and lengths of a string, or nil without constraints.
func (c *compiler) chars(f *facts) (*automaton.Chars, error) {
	if f.chars != nil {
		return f.chars, nil
	}
	var all *automaton.Chars
	and := func(at string, x *automaton.Chars, err error) error {
		if err == nil && all != nil {
			x, err = automaton.Both(c.budget, all, x)
		}
		if errors.Is(err, automaton.ErrPattern) {
			err = fmt.Errorf("%w: %w", ErrUnsupported, err)
		}
		if err != nil {
			return failed(at, err)
		}
		all = x
		return nil
	}
	for _, p := range f.patterns {
		x, err := automaton.Pattern(c.budget, p.text)
		if err := and(p.at, x, err); err != nil {
			return nil, err
		}
	}
	if f.minLength > 0 || f.maxLength >= 0 {
		x, err := automaton.Length(c.budget, f.minLength, f.maxLength)
		if err := and(f.at(), x, err); err != nil {
			return nil, err
		}
	}
	f.chars = all
	return all, nil
}

// enum adds one lexeme for all values.
func (c *compiler) enum(f *facts, start, end int32) error {
	var texts []automaton.Text
	for _, v := range f.enum {
		text, spaces := v.spelled()
		texts = append(texts, automaton.Text{Bytes: text, Spaces: spaces})
	}
	dfa, err := automaton.Texts(c.budget, texts)
	if err != nil {
		return failed(f.at(), err)
	}
	c.grammar.connect(start, byLexeme(&lexeme{dfa: dfa, max: -1}, end))
	return nil
}

package constrain

import (
	"fmt"
	"math/big"
	"slices"

	"github.com/lorafuse/lorafuse/internal/generate/constrain/internal/automaton"
)

// facts are the combined constraints of a conjunction without groups.
type facts struct {
	conjunction
	never bool
	types types
	enum  []*value // nil: no enum; else the remaining values

	low, high *automaton.Bound
	multiple  *big.Rat

	minLength, maxLength int // a negative maxLength means no limit
	patterns             []pattern
	chars                *automaton.Chars // automaton of patterns and lengths, built on first use

	minItems, maxItems int
	shapes             bool // arrays or objects are constrained
}

func (c *compiler) facts(all conjunction) (*facts, error) {
	f := &facts{conjunction: all, types: anyType, maxLength: -1, maxItems: -1}
	var enums [][]*value
	for _, s := range all.parts {
		f.never = f.never || s.never
		f.types &= s.types
		enums = append(enums, s.enums...)
		for _, b := range s.low {
			f.low = tighter(f.low, b, 1)
		}
		for _, b := range s.high {
			f.high = tighter(f.high, b, -1)
		}
		for _, m := range s.multiples {
			f.multiple = commonMultiple(f.multiple, m)
		}
		f.minLength, f.maxLength = max(f.minLength, s.minLength), lower(f.maxLength, s.maxLength)
		f.minItems, f.maxItems = max(f.minItems, s.minItems), lower(f.maxItems, s.maxItems)
		f.patterns = append(f.patterns, s.patterns...)
		f.shapes = f.shapes || s.properties != nil || s.required != nil || s.additional != nil || s.prefix != nil || s.rest != nil
	}
	f.shapes = f.shapes || f.minItems > 0 || f.maxItems >= 0
	if len(enums) == 0 {
		return f, nil
	}
	f.enum = []*value{}
	for _, v := range enums[0] {
		ok, err := c.holds(f, v)
		if err != nil {
			return nil, err
		}
		for _, others := range enums[1:] {
			ok = ok && slices.ContainsFunc(others, v.equals)
		}
		if ok && !slices.ContainsFunc(f.enum, v.equals) {
			f.enum = append(f.enum, v)
		}
	}
	f.never = f.never || len(f.enum) == 0
	return f, nil
}

// lower returns the lower of two limits; a negative one means no limit.
func lower(a, b int) int {
	if a < 0 || b >= 0 && b < a {
		return b
	}
	return a
}

// tighter returns the tighter of two bounds: the larger if sign is 1, the smaller if it is -1.
func tighter(a *automaton.Bound, b automaton.Bound, sign int) *automaton.Bound {
	if a != nil {
		if order := sign * a.Rat().Cmp(b.Rat()); order > 0 || order == 0 && a.Exclusive {
			return a
		}
	}
	return &b
}

// commonMultiple returns the least common multiple.
func commonMultiple(a, b *big.Rat) *big.Rat {
	if a == nil {
		return b
	}
	denominator := new(big.Int).Mul(a.Denom(), b.Denom())
	x, y := new(big.Int).Mul(a.Num(), b.Denom()), new(big.Int).Mul(b.Num(), a.Denom())
	gcd := new(big.Int).GCD(nil, nil, x, y)
	return new(big.Rat).SetFrac(x.Mul(x, y.Div(y, gcd)), denominator)
}

// equals compares values as JSON Schema does: numbers by value, objects regardless of member order.
func (v *value) equals(w *value) bool {
	if v.kind != w.kind || len(v.elements) != len(w.elements) || len(v.members) != len(w.members) {
		return false
	}
	switch v.kind {
	case isNumber:
		a, errA := automaton.ParseDecimal(v.text)
		b, errB := automaton.ParseDecimal(w.text)
		if errA != nil || errB != nil {
			return v.text == w.text
		}
		return a == b
	case isArray:
		return slices.EqualFunc(v.elements, w.elements, (*value).equals)
	case isObject:
		for _, m := range v.members {
			other := w.member(m.name)
			if other == nil || !m.value.equals(other) {
				return false
			}
		}
		return true
	}
	return v.text == w.text
}

// holds reports whether a value of an enum satisfies all other constraints.
func (c *compiler) holds(f *facts, v *value) (bool, error) {
	switch v.kind {
	case isNumber:
		d, err := automaton.ParseDecimal(v.text)
		if err != nil {
			return false, failed(f.at(), fmt.Errorf("%w: %w", ErrUnsupported, err))
		}
		r := d.Rat()
		return (f.types&isNumber != 0 || f.types&isInteger != 0 && r.IsInt()) && f.inRange(r), nil
	case isString:
		if f.types&isString == 0 {
			return false, nil
		}
		chars, err := c.chars(f)
		return err == nil && (chars == nil || chars.Match(v.text)), err
	case isArray, isObject:
		if f.types&v.kind != 0 && f.shapes {
			return false, unsupported(f.at(), "an enum of arrays or objects beside what else says how these are made")
		}
	}
	return f.types&v.kind != 0, nil
}

func (f *facts) inRange(r *big.Rat) bool {
	if b := f.low; b != nil {
		if order := r.Cmp(b.Rat()); order < 0 || order == 0 && b.Exclusive {
			return false
		}
	}
	if b := f.high; b != nil {
		if order := r.Cmp(b.Rat()); order > 0 || order == 0 && b.Exclusive {
			return false
		}
	}
	return f.multiple == nil || new(big.Rat).Quo(r, f.multiple).IsInt()
}

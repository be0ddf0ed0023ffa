package constrain

import (
	"slices"

	"github.com/lorafuse/lorafuse/internal/generate/constrain/internal/automaton"
)

// exclusive returns an error if two alternatives of a oneOf are not recognizably exclusive. A text that matches one
// could also match the other, and would then be invalid.
func (c *compiler) exclusive(g *group, options []conjunction) error {
	made := make([]*facts, len(options))
	for i, o := range options {
		var err error
		if made[i], err = c.facts(o); err != nil {
			return err
		}
	}
	for i := range made {
		for j := range i {
			if err := c.spend(g.at, 1); err != nil {
				return err
			}
			apart, err := c.areExclusive(made[j], made[i], 0)
			if err != nil {
				return err
			}
			if !apart {
				return unsupported(g.at, "the alternatives %d and %d may both hold; anyOf allows that, or a property that has another const in each tells them apart", j, i)
			}
		}
	}
	return nil
}

// maxLooking is the maximum depth to which properties are compared.
const maxLooking = 8

// areExclusive reports whether a and b are recognizably exclusive. It does not look into their groups.
func (c *compiler) areExclusive(a, b *facts, depth int) (bool, error) {
	if a.never || b.never {
		return true, nil
	}
	if a.enum != nil || b.enum != nil {
		return c.enumApart(a, b)
	}
	both := a.types & b.types
	if both&(isNull|isBoolean) != 0 {
		return false, nil
	}
	if both&(isInteger|isNumber) != 0 && !below(a, b) && !below(b, a) {
		return false, nil
	}
	if both&isArray != 0 && !(a.maxItems >= 0 && a.maxItems < b.minItems) && !(b.maxItems >= 0 && b.maxItems < a.minItems) {
		return false, nil
	}
	if both&isString != 0 {
		if apart, err := c.stringsApart(a, b); err != nil || !apart {
			return false, err
		}
	}
	if both&isObject != 0 {
		return c.objectsApart(a, b, depth)
	}
	return true, nil
}

func (c *compiler) enumApart(a, b *facts) (bool, error) {
	if a.enum == nil {
		a, b = b, a
	}
	for _, v := range a.enum {
		if b.enum != nil {
			if slices.ContainsFunc(b.enum, v.equals) {
				return false, nil
			}
			continue
		}
		if b.types&v.kind != 0 && (v.kind == isArray || v.kind == isObject) {
			return false, nil
		}
		if ok, err := c.holds(b, v); ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

// below reports whether all numbers of a are less than all numbers of b.
func below(a, b *facts) bool {
	if a.high == nil || b.low == nil {
		return false
	}
	order := a.high.Rat().Cmp(b.low.Rat())
	return order < 0 || order == 0 && (a.high.Exclusive || b.low.Exclusive)
}

func (c *compiler) stringsApart(a, b *facts) (bool, error) {
	x, err := c.chars(a)
	if err != nil {
		return false, err
	}
	y, err := c.chars(b)
	if err != nil || x == nil || y == nil {
		return false, err
	}
	both, err := automaton.Both(c.budget, x, y)
	if err != nil {
		return false, failed(a.at(), err)
	}
	return both.Empty(), nil
}

// objectsApart searches for a property that one of the objects requires and the other forbids in that form.
func (c *compiler) objectsApart(a, b *facts, depth int) (bool, error) {
	if depth > maxLooking {
		return false, nil
	}
	namesA, requiredA := a.names()
	namesB, requiredB := b.names()
	var names []string
	for i, n := range namesA {
		if requiredA[i] {
			names = append(names, n)
		}
	}
	for i, n := range namesB {
		if requiredB[i] && !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	for _, n := range names {
		if err := c.spend(a.at(), 1); err != nil {
			return false, err
		}
		x, err := c.facts(a.property(n))
		if err != nil {
			return false, err
		}
		y, err := c.facts(b.property(n))
		if err != nil {
			return false, err
		}
		// An optional property distinguishes the schemas only if one of them forbids it.
		if !a.requires(n) && !x.never || !b.requires(n) && !y.never {
			continue
		}
		if apart, err := c.areExclusive(x, y, depth+1); apart || err != nil {
			return apart, err
		}
	}
	return false, nil
}

func (f *facts) requires(name string) bool {
	return slices.ContainsFunc(f.parts, func(s *schema) bool { return slices.Contains(s.required, name) })
}

package constrain

import (
	"math/big"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/lorafuse/lorafuse/internal/generate/constrain/internal/automaton"
	"github.com/lorafuse/lorafuse/internal/suggest"
)

func percentDecoded(s string) string {
	if d, err := url.PathUnescape(s); err == nil {
		return d
	}
	return s
}

func (p *parser) types(s *schema, v *value, at string) error {
	names := v.elements
	if v.kind == isString {
		names = []*value{v}
	}
	if len(names) == 0 {
		return malformed(at, "expected a type or a list of types")
	}
	s.types = 0
	for _, n := range names {
		t, ok := typeOf(n.text)
		if n.kind != isString || !ok {
			return malformed(at, "type: %s", suggest.Expected(n.text, typeNames))
		}
		s.types |= t
	}
	return nil
}

func (p *parser) enum(s *schema, v *value, at string) error {
	if v.kind != isArray || len(v.elements) == 0 {
		return malformed(at, "expected a list of values")
	}
	s.enums = append(s.enums, v.elements)
	return nil
}

func (p *parser) constant(s *schema, v *value, _ string) error {
	s.enums = append(s.enums, []*value{v})
	return nil
}

func (p *parser) properties(s *schema, v *value, at string) error {
	if v.kind != isObject {
		return malformed(at, "found %s, expected an object of schemas", v.kind)
	}
	for _, m := range v.members {
		child, err := p.parse(m.value, at+"/"+escapePointer(m.name))
		if err != nil {
			return err
		}
		s.properties = append(s.properties, property{m.name, child})
	}
	return nil
}

func (p *parser) required(s *schema, v *value, at string) error {
	for _, e := range v.elements {
		if e.kind != isString {
			return malformed(at, "found %s in the list, expected names", e.kind)
		}
		if !slices.Contains(s.required, e.text) {
			s.required = append(s.required, e.text)
		}
	}
	if v.kind != isArray {
		return malformed(at, "found %s, expected a list of names", v.kind)
	}
	return nil
}

func (p *parser) additional(s *schema, v *value, at string) (err error) {
	s.additional, err = p.parse(v, at)
	return err
}

func (p *parser) items(s *schema, v *value, at string) (err error) {
	if v.kind == isArray {
		return unsupported(at, "a list of schemas; it is called prefixItems in draft 2020-12")
	}
	s.rest, err = p.parse(v, at)
	return err
}

func (p *parser) prefixItems(s *schema, v *value, at string) (err error) {
	s.prefix, err = p.list(v, at)
	return err
}

func (p *parser) unique(_ *schema, v *value, at string) error {
	switch {
	case v.kind != isBoolean:
		return malformed(at, "found %s, expected a boolean", v.kind)
	case v.text == "true":
		return unsupported(at, `"uniqueItems": items are not compared`)
	}
	return nil
}

// maxCount is the maximum of counts and lengths.
const maxCount = 1 << 30

// counts parses the keywords that limit counts and lengths.
func (p *parser) counts(s *schema, v *value, at string) error {
	d, err := automaton.ParseDecimal(v.text)
	if v.kind != isNumber || err != nil || !d.Rat().IsInt() || d.Rat().Sign() < 0 {
		return malformed(at, "found %s, expected a whole number", v.text)
	}
	n := maxCount
	if i := d.Rat().Num(); i.IsInt64() {
		n = int(min(i.Int64(), maxCount))
	}
	_, name, _ := cutLast(at)
	switch name {
	case "minItems":
		s.minItems = n
	case "maxItems":
		s.maxItems = n
	case "minLength":
		s.minLength = n
	case "maxLength":
		s.maxLength = n
	}
	return nil
}

func cutLast(pointer string) (before, name string, found bool) {
	i := strings.LastIndexByte(pointer, '/')
	if i < 0 {
		return "", pointer, false
	}
	return pointer[:i], pointer[i+1:], true
}

func (p *parser) pattern(s *schema, v *value, at string) error {
	if v.kind != isString {
		return malformed(at, "found %s, expected a string", v.kind)
	}
	s.patterns = append(s.patterns, pattern{at, v.text})
	return nil
}

func (p *parser) format(s *schema, v *value, at string) error {
	if v.kind != isString {
		return malformed(at, "found %s, expected a string", v.kind)
	}
	text, ok := formats[v.text]
	if !ok {
		return unsupported(at, "format: %s", suggest.Expected(v.text, formatNames))
	}
	s.patterns = append(s.patterns, pattern{at, text})
	return nil
}

func (p *parser) bound(s *schema, v *value, at string) error {
	_, name, _ := cutLast(at)
	if v.kind == isBoolean {
		return unsupported(at, "a boolean; since draft 6 it is a number")
	}
	if v.kind != isNumber {
		return malformed(at, "found %s, expected a number", v.kind)
	}
	d, err := automaton.ParseDecimal(v.text)
	if err != nil {
		return unsupported(at, "%v", err)
	}
	b := automaton.Bound{Decimal: d, Exclusive: strings.HasPrefix(name, "exclusive")}
	if strings.HasSuffix(strings.ToLower(name), "minimum") {
		s.low = append(s.low, b)
	} else {
		s.high = append(s.high, b)
	}
	return nil
}

func (p *parser) multiple(s *schema, v *value, at string) error {
	if v.kind != isNumber {
		return malformed(at, "found %s, expected a number", v.kind)
	}
	d, err := automaton.ParseDecimal(v.text)
	if err != nil {
		return unsupported(at, "%v", err)
	}
	if d.Rat().Sign() <= 0 {
		return malformed(at, "found %s, expected more than 0", strconv.Quote(v.text))
	}
	s.multiples = append(s.multiples, new(big.Rat).Set(d.Rat()))
	return nil
}

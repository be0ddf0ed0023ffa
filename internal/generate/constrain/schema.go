package constrain

import (
	"math/big"
	"strconv"
	"strings"

	"github.com/lorafuse/lorafuse/internal/generate/constrain/internal/automaton"
)

// schema is a parsed schema of a document. References are kept as such.
type schema struct {
	id    int
	at    string // JSON pointer
	never bool   // the schema false

	types  types // allowed types
	enums  [][]*value
	ref    *schema
	allOf  []*schema
	groups []*group // one alternative of each must match

	properties []property
	required   []string
	additional *schema // nil: anything allowed

	prefix   []*schema
	rest     *schema // items after prefix; nil: anything allowed
	minItems int
	maxItems int // negative: no limit

	minLength int
	maxLength int // negative: no limit
	patterns  []pattern

	low, high []automaton.Bound
	multiples []*big.Rat
}

type property struct {
	name   string
	schema *schema
}

// group is an anyOf or, if exclusive, a oneOf.
type group struct {
	id           int
	at           string
	alternatives []*schema
	exclusive    bool
}

// pattern is a regular expression and its location.
type pattern struct{ at, text string }

// maxSchemas is the maximum number of schemas in a document.
const maxSchemas = 20000

// parser parses the schemas of a document, each once.
type parser struct {
	root    *value
	schemas map[string]*schema // by JSON pointer
	groups  int
}

// parse parses the schema at a JSON pointer.
func (p *parser) parse(v *value, at string) (*schema, error) {
	if s := p.schemas[at]; s != nil {
		return s, nil
	}
	if len(p.schemas) >= maxSchemas {
		return nil, tooLarge(at, "more than %d schemas", maxSchemas)
	}
	s := &schema{id: len(p.schemas), at: at, types: anyType, maxItems: -1, maxLength: -1}
	p.schemas[at] = s
	switch {
	case v.kind == isBoolean:
		s.never = v.text == "false"
		return s, nil
	case v.kind != isObject:
		return nil, malformed(at, "found %s, expected an object or a boolean", v.kind)
	}
	for _, m := range v.members {
		k, err := lookUp(m.name, at)
		if err != nil {
			return nil, err
		}
		if k.read == nil {
			continue
		}
		if err := k.read(p, s, m.value, at+"/"+escapePointer(m.name)); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func escapePointer(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}

// list parses a list of schemas.
func (p *parser) list(v *value, at string) ([]*schema, error) {
	if v.kind != isArray || len(v.elements) == 0 {
		return nil, malformed(at, "expected a list of schemas")
	}
	var out []*schema
	for i, e := range v.elements {
		s, err := p.parse(e, at+"/"+strconv.Itoa(i))
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

func (p *parser) allOf(s *schema, v *value, at string) (err error) {
	s.allOf, err = p.list(v, at)
	return err
}

func (p *parser) anyOf(s *schema, v *value, at string) error { return p.group(s, v, at, false) }
func (p *parser) oneOf(s *schema, v *value, at string) error { return p.group(s, v, at, true) }

func (p *parser) group(s *schema, v *value, at string, exclusive bool) error {
	alternatives, err := p.list(v, at)
	if err != nil {
		return err
	}
	s.groups = append(s.groups, &group{p.groups, at, alternatives, exclusive})
	p.groups++
	return nil
}

// definitions parses schemas that others may refer to, so that errors in unused ones are reported too.
func (p *parser) definitions(_ *schema, v *value, at string) error {
	if v.kind != isObject {
		return malformed(at, "found %s, expected an object of schemas", v.kind)
	}
	for _, m := range v.members {
		if _, err := p.parse(m.value, at+"/"+escapePointer(m.name)); err != nil {
			return err
		}
	}
	return nil
}

// reference resolves a JSON pointer within the document.
func (p *parser) reference(s *schema, v *value, at string) error {
	if v.kind != isString {
		return malformed(at, "found %s, expected a string", v.kind)
	}
	pointer, ok := strings.CutPrefix(v.text, "#")
	if !ok || pointer != "" && pointer[0] != '/' {
		return unsupported(at, "%q: a reference within the schema, such as #/$defs/name, is expected", v.text)
	}
	target, canonical := p.root, ""
	for _, part := range strings.Split(pointer, "/")[1:] {
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(percentDecoded(part))
		var next *value
		switch target.kind {
		case isObject:
			next = target.member(part)
		case isArray:
			if i, err := strconv.Atoi(part); err == nil && 0 <= i && i < len(target.elements) {
				next = target.elements[i]
			}
		}
		if next == nil {
			return malformed(at, "there is nothing at %q", v.text)
		}
		target, canonical = next, canonical+"/"+escapePointer(part)
	}
	var err error
	s.ref, err = p.parse(target, canonical)
	return err
}

package constrain

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/lorafuse/lorafuse/internal/generate/constrain/internal/automaton"
)

// maxStates is the maximum number of states of a grammar, including all its automata.
const maxStates = 1 << 17

// Schema compiles a JSON Schema; see the package comment for the supported subset. It fails with ErrSchema,
// ErrUnsupported, ErrTooLarge, and with ErrNothing if no value matches.
func Schema(raw []byte) (*Grammar, error) {
	document, err := parseDocument(raw)
	if err != nil {
		return nil, err
	}
	p := &parser{root: document, schemas: map[string]*schema{}}
	root, err := p.parse(document, "")
	if err != nil {
		return nil, err
	}
	if err := acyclic(p.schemas); err != nil {
		return nil, err
	}
	c := &compiler{grammar: &Grammar{}, budget: automaton.NewBudget(maxStates), rules: map[string]int32{}}
	if c.grammar.root, err = c.rule(conjunction{}.with(root)); err != nil {
		return nil, err
	}
	if !c.grammar.trim() {
		return nil, fmt.Errorf("constrain: %w", ErrNothing)
	}
	return c.grammar, nil
}

// acyclic returns an error for schemas that refer to themselves without consuming input.
func acyclic(schemas map[string]*schema) error {
	const open, done = 1, 2
	marks := make([]int8, len(schemas))
	var visit func(s *schema) error
	visit = func(s *schema) error {
		switch marks[s.id] {
		case done:
			return nil
		case open:
			return malformed(s.at, "it refers to itself, with nothing in between")
		}
		marks[s.id] = open
		for _, next := range s.same() {
			if err := visit(next); err != nil {
				return err
			}
		}
		marks[s.id] = done
		return nil
	}
	for _, s := range schemas {
		if err := visit(s); err != nil {
			return err
		}
	}
	return nil
}

// same returns the schemas that apply to the same value as s.
func (s *schema) same() []*schema {
	out := slices.Clone(s.allOf)
	if s.ref != nil {
		out = append(out, s.ref)
	}
	for _, g := range s.groups {
		out = append(out, g.alternatives...)
	}
	return out
}

// conjunction is a set of schemas that must all match, and of groups that must each match by one alternative. An empty
// conjunction matches any value.
type conjunction struct {
	parts  []*schema // unique; includes schemas that they refer to
	groups []*group
}

// with returns c extended by more schemas.
func (c conjunction) with(more ...*schema) conjunction {
	c.parts, c.groups = slices.Clip(c.parts), slices.Clip(c.groups)
	seen := make(map[*schema]bool, len(c.parts))
	for _, s := range c.parts {
		seen[s] = true
	}
	var add func(s *schema)
	add = func(s *schema) {
		if seen[s] {
			return
		}
		seen[s] = true
		if !s.free() {
			c.parts = append(c.parts, s)
		}
		c.groups = append(c.groups, s.groups...)
		if s.ref != nil {
			add(s.ref)
		}
		for _, x := range s.allOf {
			add(x)
		}
	}
	for _, s := range more {
		add(s)
	}
	return c
}

// free reports whether s has no constraints of its own, apart from references.
func (s *schema) free() bool {
	return !s.never && s.types == anyType && s.enums == nil && s.properties == nil && s.required == nil && s.additional == nil &&
		s.prefix == nil && s.rest == nil && s.minItems == 0 && s.maxItems < 0 && s.minLength == 0 && s.maxLength < 0 &&
		s.patterns == nil && s.low == nil && s.high == nil && s.multiples == nil && s.groups == nil
}

// key returns a map key for a conjunction.
func (c conjunction) key() string {
	var key []byte
	for _, s := range c.parts {
		key = binary.LittleEndian.AppendUint32(key, uint32(s.id))
	}
	key = append(key, '|')
	for _, g := range c.groups {
		key = binary.LittleEndian.AppendUint32(key, uint32(g.id))
	}
	return string(key)
}

// at returns the JSON pointer to name in errors about c.
func (c conjunction) at() string {
	if len(c.parts) == 0 {
		return ""
	}
	return c.parts[0].at
}

// compiler compiles conjunctions to rules.
type compiler struct {
	grammar *Grammar
	budget  *automaton.Budget
	rules   map[string]int32
}

// rule returns the rule of a conjunction. It is compiled once, and recursive references to a rule in progress are
// possible.
func (c *compiler) rule(all conjunction) (int32, error) {
	key := all.key()
	if r, ok := c.rules[key]; ok {
		return r, nil
	}
	r, start, end := c.grammar.newRule()
	c.rules[key] = r
	if err := c.spend(all.at(), 2+len(all.parts)); err != nil {
		return r, err
	}
	if len(all.groups) > 0 {
		return r, c.alternatives(all, start, end)
	}
	f, err := c.facts(all)
	if err != nil || f.never {
		return r, err
	}
	return r, c.value(f, start, end)
}

// spend deducts states from the budget.
func (c *compiler) spend(at string, states int) error {
	if c.budget.Spend(states) != nil {
		return tooLarge(at, "the grammar needs more than %d states", maxStates)
	}
	return nil
}

// failed adds the location in the schema to an error of an automaton.
func failed(at string, err error) error {
	if err == automaton.ErrTooLarge { // without its own reason
		return tooLarge(at, "the grammar needs more than %d states", maxStates)
	}
	return fmt.Errorf("constrain: #%s: %w", at, err)
}

// alternatives expands the first group.
func (c *compiler) alternatives(all conjunction, start, end int32) error {
	g := all.groups[0]
	rest := conjunction{all.parts, all.groups[1:]}
	var options []conjunction
	for _, s := range g.alternatives {
		options = append(options, rest.with(s))
	}
	if g.exclusive {
		if err := c.exclusive(g, options); err != nil {
			return err
		}
	}
	for _, o := range options {
		r, err := c.rule(o)
		if err != nil {
			return err
		}
		c.grammar.connect(start, byRule(r, end))
	}
	return nil
}

// value adds the arcs of each allowed type.
func (c *compiler) value(f *facts, start, end int32) error {
	g := c.grammar
	if f.enum != nil {
		return c.enum(f, start, end)
	}
	if f.types&isNull != 0 {
		g.connect(start, byLexeme(nullLexeme(), end))
	}
	if f.types&isBoolean != 0 {
		g.connect(start, byLexeme(yes(), end))
		g.connect(start, byLexeme(no(), end))
	}
	if f.types&(isInteger|isNumber) != 0 {
		dfa, err := c.number(f)
		if err != nil {
			return err
		}
		g.connect(start, byLexeme(&lexeme{dfa: dfa, max: -1}, end))
	}
	if f.types&isString != 0 {
		l, err := c.text(f)
		if err != nil {
			return err
		}
		if l != nil {
			g.connect(start, byLexeme(l, end))
		}
	}
	if f.types&isArray != 0 {
		if err := c.array(f, start, end); err != nil {
			return err
		}
	}
	if f.types&isObject != 0 {
		return c.object(f, start, end)
	}
	return nil
}

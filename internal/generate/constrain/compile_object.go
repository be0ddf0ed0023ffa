package constrain

import (
	"slices"

	"github.com/lorafuse/lorafuse/internal/generate/constrain/internal/automaton"
)

// object adds the states of an object. Properties are written in the order of the schema, optional ones may be omitted,
// and additional properties follow them.
func (c *compiler) object(f *facts, start, end int32) error {
	g := c.grammar
	names, required := f.names()
	if err := c.spend(f.at(), 4*len(names)+6+len(names)*len(f.parts)/16); err != nil {
		return err
	}
	value := make([]int32, len(names)) // rules of the properties
	key := make([]*lexeme, len(names))
	for i, name := range names {
		var err error
		if value[i], err = c.rule(f.property(name)); err != nil {
			return err
		}
		if key[i], err = c.key(f, name); err != nil {
			return err
		}
	}
	more, otherKey, err := c.additionalProperties(f, names)
	if err != nil {
		return err
	}
	last := 0 // the properties from here on are optional
	for i := range names {
		if required[i] {
			last = i + 1
		}
	}
	// behind[i] is the state after a member, when the properties before i are written or omitted.
	behind := make([]int32, len(names)+1)
	for i := range behind {
		behind[i] = g.newState(false)
	}
	open := g.newState(false)
	g.connect(start, byLexeme(openObject(), open))
	// members adds the states before the key of each property.
	members := func() []int32 {
		before := make([]int32, len(names)+1)
		for i := range before {
			before[i] = g.newState(false)
		}
		for i := range names {
			inside := g.newState(false)
			g.connect(before[i], byLexeme(key[i], inside))
			g.connect(inside, byRule(value[i], behind[i+1]))
			if !required[i] {
				g.connect(before[i], byNothing(before[i+1]))
			}
		}
		if otherKey != nil {
			named, inside := g.newState(false), g.newState(false)
			g.connect(before[len(names)], byLexeme(otherKey, named))
			g.connect(named, byLexeme(colon(), inside))
			g.connect(inside, byRule(more, behind[len(names)]))
		}
		return before
	}
	first, next := members(), members()
	g.connect(open, byNothing(first[0]))
	if last == 0 {
		g.connect(open, byLexeme(closeObject(), end))
	}
	for i := range behind {
		if i >= last {
			g.connect(behind[i], byLexeme(closeObject(), end))
		}
		g.connect(behind[i], byLexeme(comma(), next[i]))
	}
	return nil
}

// names returns the names of the known properties in order, and whether each is required.
func (f *facts) names() (names []string, required []bool) {
	number := map[string]int{}
	add := func(name string) int {
		i, ok := number[name]
		if !ok {
			i = len(names)
			number[name] = i
			names = append(names, name)
			required = append(required, false)
		}
		return i
	}
	for _, s := range f.parts {
		for _, p := range s.properties {
			add(p.name)
		}
	}
	for _, s := range f.parts {
		for _, name := range s.required {
			required[add(name)] = true
		}
	}
	return names, required
}

// property returns the constraints on the property called name.
func (f *facts) property(name string) conjunction {
	var all conjunction
	for _, s := range f.parts {
		i := slices.IndexFunc(s.properties, func(p property) bool { return p.name == name })
		switch {
		case i >= 0:
			all = all.with(s.properties[i].schema)
		case s.additional != nil:
			all = all.with(s.additional)
		}
	}
	return all
}

// additionalProperties returns the rule of additional properties and the lexeme of their names, nil if none are allowed. Each name
// has only one spelling, so a known property cannot be repeated in another spelling. If the schema lists properties,
// additional ones are generated only if it asks for them, since it lists the ones that its reader uses.
func (c *compiler) additionalProperties(f *facts, names []string) (r int32, key *lexeme, err error) {
	var all conjunction
	named, asked := false, false
	for _, s := range f.parts {
		named = named || s.properties != nil
		if s.additional != nil {
			all, asked = all.with(s.additional), true
		}
	}
	if named && !asked {
		return none, nil, nil
	}
	if len(all.groups) == 0 {
		if x, err := c.facts(all); err != nil || x.never {
			return none, nil, err
		}
	}
	if r, err = c.rule(all); err != nil {
		return r, nil, err
	}
	if len(names) == 0 {
		return r, &lexeme{dfa: anyString(), max: -1}, nil
	}
	known, err := automaton.Words(c.budget, names)
	if err == nil {
		known, err = automaton.Except(c.budget, automaton.Any(), known)
	}
	var dfa *automaton.DFA
	if err == nil {
		dfa, err = automaton.Quoted(c.budget, known)
	}
	if err != nil {
		return r, nil, failed(f.at(), err)
	}
	return r, &lexeme{dfa: dfa, max: -1}, nil
}

// key returns the lexeme of a name and its colon.
func (c *compiler) key(f *facts, name string) (*lexeme, error) {
	text, _ := (&value{kind: isString, text: name}).spelled()
	dfa, err := automaton.Texts(c.budget, []automaton.Text{{Bytes: text + ":", Spaces: []int{len(text) + 1}}})
	if err != nil {
		return nil, failed(f.at(), err)
	}
	return &lexeme{dfa: dfa, max: -1}, nil
}

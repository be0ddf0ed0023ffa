package chat

import (
	"strconv"
	"strings"
)

// formatMethod implements Python's str.format for the fields {}, {0} and {name}, with !s or !r.
func formatMethod(in *meter, s string, args *arguments) (any, error) {
	var b strings.Builder
	if err := in.read(s); err != nil {
		return nil, err
	}
	next := 0 // argument of the next {}
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c != '{' && c != '}':
			b.WriteByte(c)
			i++
			continue
		case i+1 < len(s) && s[i+1] == c:
			b.WriteByte(c)
			i += 2
			continue
		}
		end := strings.IndexByte(s[i:], '}')
		if c == '}' || end < 0 {
			return nil, typeError("a single %q in the format %s", c, brief(s))
		}
		field := s[i+1 : i+end]
		name, conversion, converted := strings.Cut(field, "!")
		if strings.ContainsAny(field, ":.[{") || converted && conversion != "s" && conversion != "r" {
			return nil, typeError("the field {%s} of a format; known are {}, {0} and {name}, with !s or !r", field)
		}
		if name == "" {
			name = strconv.Itoa(next)
			next++
		}
		v, ok := args.lookup(name)
		if !ok {
			return nil, typeError("format: there is no argument %s", brief(name))
		}
		if u, ok := v.(*undefined); ok && conversion != "r" {
			return nil, u.fail()
		}
		text := in.text(v)
		if conversion == "r" {
			text = in.repr(v)
		}
		if err := in.read(text); err != nil {
			return nil, err
		}
		b.WriteString(text)
		i += end + 1
	}
	return b.String(), nil
}

// lookup returns an argument by position or by name.
func (a *arguments) lookup(name string) (any, bool) {
	if i, err := strconv.Atoi(name); err == nil {
		if i < 0 || i >= len(a.pos) {
			return nil, false
		}
		return a.pos[i], true
	}
	for _, n := range a.named {
		if n.name == name {
			return n.value, true
		}
	}
	return nil, false
}

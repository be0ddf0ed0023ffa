package chat

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// formatMethod implements Python's str.format.
func formatMethod(in *meter, s string, args *arguments) (any, error) {
	f := &braceFormat{meter: in, args: args}
	out, err := f.expand(s, 0)
	return out, err
}

type braceFormat struct {
	*meter
	args *arguments
	auto int // number of {} so far
}

// expand replaces the fields of s. Fields within a format specification are one level
// deeper.
func (f *braceFormat) expand(s string, depth int) (string, error) {
	if depth > 1 && strings.Contains(s, "{") {
		return "", typeError("the fields of a format are nested too deeply")
	}
	if err := f.read(s); err != nil {
		return "", err
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		c := s[i]
		if c != '{' && c != '}' {
			b.WriteByte(c)
			i++
			continue
		}
		if i+1 < len(s) && s[i+1] == c {
			b.WriteByte(c)
			i += 2
			continue
		}
		end := fieldEnd(s, i)
		if c == '}' || end < 0 {
			return "", typeError("a single %q in the format %s", c, brief(s))
		}
		text, err := f.field(s[i+1:end], depth)
		if err != nil {
			return "", err
		}
		if err := f.read(text); err != nil {
			return "", err
		}
		b.WriteString(text)
		i = end + 1
	}
	return b.String(), nil
}

func fieldEnd(s string, start int) int {
	depth := 0
	for i := start; i < len(s); i++ {
		switch s[i] {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

// field formats name!conversion:specification.
func (f *braceFormat) field(field string, depth int) (string, error) {
	name, spec, _ := strings.Cut(field, ":")
	name, conversion, converted := strings.Cut(name, "!")
	v, err := f.lookup(name)
	if err != nil {
		return "", err
	}
	if spec, err = f.expand(spec, depth+1); err != nil {
		return "", err
	}
	if converted {
		switch conversion {
		case "s":
			v = f.text(v)
		case "r", "a":
			v = f.repr(v)
		default:
			return "", typeError("unknown conversion %s", brief(conversion))
		}
	}
	return f.formatSpec(v, spec)
}

// lookup resolves 0, name, name.attribute or name[item].
func (f *braceFormat) lookup(path string) (any, error) {
	end := strings.IndexAny(path, ".[")
	if end < 0 {
		end = len(path)
	}
	name, path := path[:end], path[end:]
	var v any
	i, err := strconv.Atoi(name)
	switch {
	case name == "":
		i = f.auto
		f.auto++
		fallthrough
	case err == nil:
		if i < 0 || i >= len(f.args.pos) {
			return nil, typeError("format: there is no argument %d", i)
		}
		v = f.args.pos[i]
	default:
		found := false
		for _, n := range f.args.named {
			if n.name == name {
				v, found = n.value, true
			}
		}
		if !found {
			return nil, typeError("format: there is no argument %s", brief(name))
		}
	}
	for path != "" {
		if path[0] == '.' {
			end := strings.IndexAny(path[1:], ".[")
			if end < 0 {
				end = len(path) - 1
			}
			if v, err = getAttr(v, path[1:1+end]); err != nil {
				return nil, err
			}
			path = path[1+end:]
			continue
		}
		end := strings.IndexByte(path, ']')
		if path[0] != '[' || end < 0 {
			return nil, typeError("format: malformed field %s", brief(path))
		}
		var key any = path[1:end]
		if i, err := strconv.ParseInt(path[1:end], 10, 64); err == nil {
			key = i
		}
		if v, err = f.getItem(v, key); err != nil {
			return nil, err
		}
		path = path[end+1:]
	}
	if u, ok := v.(*undefined); ok {
		return nil, u.fail()
	}
	return v, nil
}

// formatSpec implements Python's format(v, spec):
// [[fill]align][sign][#][0][width][,][.precision][type].
func (in *meter) formatSpec(v any, spec string) (string, error) {
	if spec == "" {
		return in.text(v), nil
	}
	st := numberStyle{fill: ' ', precision: -1}
	rest := spec
	if r, size := utf8.DecodeRuneInString(rest); len(rest) > size && strings.IndexByte("<>^=", rest[size]) >= 0 {
		st.fill, st.align = r, rest[size]
		rest = rest[size+1:]
	} else if strings.IndexByte("<>^=", rest[0]) >= 0 {
		st.align = rest[0]
		rest = rest[1:]
	}
	accept := func(set string) byte {
		if rest != "" && strings.IndexByte(set, rest[0]) >= 0 {
			c := rest[0]
			rest = rest[1:]
			return c
		}
		return 0
	}
	if st.sign = accept("+- "); st.sign == '-' {
		st.sign = 0
	}
	st.alternate = accept("#") != 0
	if accept("0") != 0 && st.align == 0 {
		st.fill, st.align = '0', '='
	}
	none := func() (any, error) { return nil, typeError("a * in the format specification %s", brief(spec)) }
	i, err := in.readCount(rest, 0, &st.width, none)
	if err != nil {
		return "", err
	}
	rest = rest[i:]
	if c := accept(",_"); c != 0 {
		st.grouping = string(c)
	}
	if accept(".") != 0 {
		st.precision = 0
		if i, err = in.readCount(rest, 0, &st.precision, none); err != nil {
			return "", err
		}
		rest = rest[i:]
	}
	st.verb = accept("bcdeEfFgGnosxX%")
	if rest != "" {
		return "", typeError("malformed format specification %s", brief(spec))
	}
	return in.braces(st, v)
}

func (in *meter) braces(st numberStyle, v any) (string, error) {
	_, isFloat := v.(float64)
	_, isInt := integer(v)
	switch {
	case !isFloat && !isInt || st.verb == 's':
		if st.verb != 0 && st.verb != 's' {
			return "", typeError("the format %c of a %s", st.verb, typeName(v))
		}
		if st.align == 0 || st.align == '=' {
			st.align = '<'
		}
		return st.pad("", st.cut(in.text(v))), nil
	case st.verb == 'c':
		i, _ := integer(v)
		return st.pad("", string(rune(i))), nil
	case st.verb == 0 && isFloat && st.precision < 0:
		s := floatText(v.(float64))
		sign := ""
		if rest, negative := strings.CutPrefix(s, "-"); negative {
			sign, s = "-", rest
		} else if st.sign != 0 {
			sign = string(st.sign)
		}
		return st.pad(sign, group3(s, st.grouping)), nil
	case st.verb == 0 && isFloat:
		st.verb = 'g'
		sign, s, err := st.digits(v)
		if !strings.ContainsAny(s, ".en") {
			s += ".0"
		}
		return st.pad(sign, s), err
	case st.verb == 'n' && isFloat:
		st.verb = 'g'
	case st.verb == 0, st.verb == 'n':
		st.verb = 'd'
	}
	sign, s, err := st.digits(v)
	return st.pad(sign, s), err
}

package chat

import (
	"html"
	"math"
	"slices"
	"strconv"
	"strings"
)

// A filter transforms a value: {{ value | filter(args) }}.
type filter = func(in *interpreter, v any, args *arguments) (any, error)

var filters map[string]filter

func init() { // in init, because map and select look filters up
	filters = map[string]filter{
		"abs": absFilter, "capitalize": strFilter(capitalized),
		"count": lengthFilter, "length": lengthFilter, "d": defaultFilter, "default": defaultFilter,
		"e": escapeFilter, "escape": escapeFilter, "forceescape": escapeFilter,
		"float": floatFilter, "format": formatFilter, "indent": indentFilter, "int": intFilter,
		"lower": strFilter(lower), "upper": strFilter(upper), "title": strFilter(titleWords), "trim": trimFilter,
		"replace": replaceFilter, "safe": strFilter(nil), "string": strFilter(nil),
		"tojson": tojsonFilter,
		"attr":   attrFilter, "dictsort": dictsortFilter, "first": firstFilter,
		"items": itemsFilter, "join": joinFilter, "last": lastFilter, "list": listFilter,
		"map": mapFilter, "max": extremeFilter("max", 1), "min": extremeFilter("min", -1),
		"reject": selectFilter(false, false), "rejectattr": selectFilter(true, false),
		"select": selectFilter(false, true), "selectattr": selectFilter(true, true),
		"reverse": reverseFilter, "sort": sortFilter, "sum": sumFilter, "unique": uniqueFilter,
	}
}

// known returns the names of filters or tests.
func known[F any](table map[string]F) string {
	var names []string
	for name := range table {
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// strFilter returns a filter on the text of a value.
func strFilter(f func(string) string) filter {
	return func(in *interpreter, v any, args *arguments) (any, error) {
		if _, err := args.bind("filter"); err != nil {
			return nil, err
		}
		s := in.text(v)
		if f == nil {
			return s, nil
		}
		return in.changed(s, f)
	}
}

// changed returns f(s), whose length must be similar to that of s.
func (in *meter) changed(s string, f func(string) string) (any, error) {
	if err := in.read(s); err != nil {
		return nil, err
	}
	return f(s), nil
}

func absFilter(in *interpreter, v any, args *arguments) (any, error) {
	if _, err := args.bind("abs"); err != nil {
		return nil, err
	}
	if f, ok := v.(float64); ok {
		return math.Abs(f), nil
	}
	i, ok := integer(v)
	if !ok {
		return nil, typeError("abs of a %s", typeName(v))
	}
	if i < 0 {
		return intOperation("-", 0, i)
	}
	return i, nil
}

func lengthFilter(in *interpreter, v any, args *arguments) (any, error) {
	if _, err := args.bind("length"); err != nil {
		return nil, err
	}
	n, err := in.length(v)
	return n, err
}

func defaultFilter(in *interpreter, v any, args *arguments) (any, error) {
	p, err := args.bind("default", "default_value?", "boolean?")
	if err != nil {
		return nil, err
	}
	if _, ok := v.(*undefined); ok || truthOr(p[1], false) && !truth(v) {
		if p[0] == absent {
			return "", nil
		}
		return p[0], nil
	}
	return v, nil
}

func escapeFilter(in *interpreter, v any, args *arguments) (any, error) {
	if _, err := args.bind("escape"); err != nil {
		return nil, err
	}
	s := in.text(v)
	if err := in.spend(int64(len(s)), int64(len("&quot;"))); err != nil {
		return nil, err
	}
	return html.EscapeString(s), nil
}

func floatFilter(in *interpreter, v any, args *arguments) (any, error) {
	p, err := args.bind("float", "default?")
	if err != nil {
		return nil, err
	}
	if s, ok := v.(string); ok {
		if err := in.read(s); err != nil {
			return nil, err
		}
	}
	if f, ok := toFloat(v); ok {
		return f, nil
	}
	if p[0] == absent {
		return 0.0, nil
	}
	return p[0], nil
}

func toFloat(v any) (float64, bool) {
	if s, ok := v.(string); ok {
		s = strings.ToLower(strings.TrimFunc(s, isPythonSpace))
		if strings.ContainsAny(s, "xp") {
			return 0, false
		}
		f, err := strconv.ParseFloat(s, 64)
		return f, err == nil || math.IsInf(f, 0)
	}
	return number(v)
}

func intFilter(in *interpreter, v any, args *arguments) (any, error) {
	p, err := args.bind("int", "default?", "base?")
	if err != nil {
		return nil, err
	}
	base, err := intOr(p[1], 10)
	if err != nil {
		return nil, err
	}
	if s, ok := v.(string); ok {
		if err := in.read(s); err != nil {
			return nil, err
		}
		s = strings.TrimPrefix(strings.TrimFunc(s, isPythonSpace), "+")
		prefix := map[int64]string{2: "0b", 8: "0o", 16: "0x"}[base]
		if prefix != "" {
			s = strings.TrimPrefix(strings.ToLower(s), prefix)
		}
		if 2 <= base && base <= 36 {
			if i, err := strconv.ParseInt(s, int(base), 64); err == nil {
				return i, nil
			}
		}
	} else if i, ok := integer(v); ok {
		return i, nil
	}
	if f, ok := toFloat(v); ok && math.Abs(f) < 1<<63 {
		return int64(f), nil
	}
	if p[0] == absent {
		return int64(0), nil
	}
	return p[0], nil
}

func indentFilter(in *interpreter, v any, args *arguments) (any, error) {
	p, err := args.bind("indent", "width?", "first?", "blank?")
	if err != nil {
		return nil, err
	}
	indent, ok := p[0].(string)
	if !ok {
		width, err := intOr(p[0], 4)
		if err != nil {
			return nil, err
		}
		if err := in.spend(width, 1); err != nil {
			return nil, err
		}
		indent = strings.Repeat(" ", int(max(width, 0)))
	}
	s, err := strOr(v, "")
	if err != nil {
		return nil, err
	}
	parts := in.lines(s+"\n", false)
	if err := in.spend(int64(len(parts))+1, int64(len(indent))+1); err != nil {
		return nil, err
	}
	if err := in.read(s); err != nil {
		return nil, err
	}
	blank := truthOr(p[2], false)
	for i := 1; i < len(parts); i++ {
		if blank || parts[i] != "" {
			parts[i] = indent + parts[i]
		}
	}
	out := strings.Join(parts, "\n")
	if truthOr(p[1], false) {
		out = indent + out
	}
	return out, nil
}

// titleWords capitalizes every word, including parts after a hyphen.
func titleWords(s string) string {
	var b strings.Builder
	start := true
	for _, r := range s {
		switch {
		case strings.ContainsRune("-({[<", r) || isPythonSpace(r):
			start = true
			b.WriteRune(r)
		case start:
			start = false
			b.WriteString(upper(string(r)))
		default:
			b.WriteString(lower(string(r)))
		}
	}
	return b.String()
}

func trimFilter(in *interpreter, v any, args *arguments) (any, error) {
	p, err := args.bind("trim", "chars?")
	if err != nil {
		return nil, err
	}
	return in.strip(in.text(v), p[0], true, true)
}

func replaceFilter(in *interpreter, v any, args *arguments) (any, error) {
	p, err := args.bind("replace", "old", "new", "count?")
	if err != nil {
		return nil, err
	}
	return in.replace(in.text(v), in.text(p[0]), in.text(p[1]), p[2])
}

func tojsonFilter(in *interpreter, v any, args *arguments) (any, error) {
	p, err := args.bind("tojson", "ensure_ascii?", "indent?", "separators?", "sort_keys?")
	if err != nil {
		return nil, err
	}
	st := jsonStyle{meter: in.meter, ascii: truthOr(p[0], false), item: ", ", separator: ": ", sortKeys: truthOr(p[3], false)}
	if p[1] != absent && p[1] != nil {
		indent, ok := p[1].(string)
		if !ok {
			n, err := intOr(p[1], 0)
			if err != nil {
				return nil, err
			}
			if n > 1000 {
				return nil, typeError("tojson with indent %d", n)
			}
			indent = strings.Repeat(" ", int(max(n, 0)))
		}
		st.indent, st.item = &indent, ","
	}
	if p[2] != absent && p[2] != nil {
		seps, err := in.items(p[2])
		if err != nil || len(seps) != 2 {
			return nil, typeError("tojson: separators must be two strings")
		}
		st.item, st.separator = in.text(seps[0]), in.text(seps[1])
	}
	b, err := st.append(nil, v, 0)
	if err != nil {
		return nil, err
	}
	return string(b), in.spend(int64(len(b)), 1)
}

func formatFilter(in *interpreter, v any, args *arguments) (any, error) {
	if len(args.named) == 0 {
		return in.percentFormat(in.text(v), tuple(args.pos))
	}
	if len(args.pos) > 0 {
		return nil, typeError("format takes positional or named arguments, not both")
	}
	if err := in.spend(int64(len(args.named)), entryBytes); err != nil {
		return nil, err
	}
	d := newDict()
	for _, n := range args.named {
		d.setString(n.name, n.value)
	}
	return in.percentFormat(in.text(v), d)
}

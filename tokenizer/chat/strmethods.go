package chat

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

type strMethod = func(in *meter, s string, args *arguments) (any, error)

// strMethods holds the methods of Python's str.
var strMethods map[string]strMethod

func init() { // in init, because format refers to the table
	strMethods = map[string]strMethod{
		"strip":  stripMethod("strip", true, true),
		"lstrip": stripMethod("lstrip", true, false),
		"rstrip": stripMethod("rstrip", false, true),
		"upper":  mapMethod("upper", upper), "lower": mapMethod("lower", lower),
		"title": mapMethod("title", titled), "capitalize": mapMethod("capitalize", capitalized),
		"split": splitMethod("split", false), "rsplit": splitMethod("rsplit", true), "splitlines": splitLines,
		"startswith": affixMethod("startswith", strings.HasPrefix), "endswith": affixMethod("endswith", strings.HasSuffix),
		"replace": replaceMethod, "join": joinMethod, "format": formatMethod,
		"find": findMethod("find", strings.Index, false), "rfind": findMethod("rfind", strings.LastIndex, false),
		"index": findMethod("index", strings.Index, true), "rindex": findMethod("rindex", strings.LastIndex, true),
		"count":        countMethod,
		"removeprefix": cutMethod("removeprefix", strings.TrimPrefix), "removesuffix": cutMethod("removesuffix", strings.TrimSuffix),
		"partition": partitionMethod("partition", strings.Index), "rpartition": partitionMethod("rpartition", strings.LastIndex),
		"isdigit": classMethod("isdigit", isDigit),
		"isalpha": classMethod("isalpha", unicode.IsLetter), "isalnum": classMethod("isalnum", func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }),
	}
}

func isDigit(r rune) bool {
	return unicode.Is(unicode.Nd, r) || strings.ContainsRune("²³¹⁰⁴⁵⁶⁷⁸⁹₀₁₂₃₄₅₆₇₈₉", r) || 0x2460 <= r && r <= 0x2468
}

// lower converts to lower case. lower and upper implement the special cases of European
// languages; Python has a few more.
func lower(s string) string {
	s = strings.ToLower(strings.ReplaceAll(s, "İ", "i\u0307"))
	var b strings.Builder
	rest := 0
	for i, r := range s { // sigma at the end of a word
		if r != 'σ' {
			continue
		}
		before, _ := utf8.DecodeLastRuneInString(s[:i])
		after, _ := utf8.DecodeRuneInString(s[i+len("σ"):])
		if unicode.IsLetter(before) && !unicode.IsLetter(after) {
			b.WriteString(s[rest:i])
			b.WriteString("ς")
			rest = i + len("ς")
		}
	}
	if rest == 0 {
		return s
	}
	b.WriteString(s[rest:])
	return b.String()
}

func upper(s string) string { return strings.ToUpper(strings.ReplaceAll(s, "ß", "SS")) }

func stripMethod(name string, left, right bool) strMethod {
	return func(in *meter, s string, args *arguments) (any, error) {
		v, err := args.bind(name, "chars?")
		if err != nil {
			return nil, err
		}
		return in.strip(s, v[0], left, right)
	}
}

func (in *meter) strip(s string, chars any, left, right bool) (any, error) {
	if err := in.read(s); err != nil {
		return nil, err
	}
	isCut := isPythonSpace
	if chars != absent && chars != nil {
		set, err := strOr(chars, "")
		if err != nil {
			return nil, err
		}
		if err := in.spend(int64(len(set)), itemBytes); err != nil {
			return nil, err
		}
		has := map[rune]bool{}
		for _, r := range set {
			has[r] = true
		}
		isCut = func(r rune) bool { return has[r] }
	}
	if left {
		s = strings.TrimLeftFunc(s, isCut)
	}
	if right {
		s = strings.TrimRightFunc(s, isCut)
	}
	return s, nil
}

func mapMethod(name string, f func(string) string) strMethod {
	return func(in *meter, s string, args *arguments) (any, error) {
		if _, err := args.bind(name); err != nil {
			return nil, err
		}
		return in.changed(s, f)
	}
}

func capitalized(s string) string {
	_, size := utf8.DecodeRuneInString(s)
	return upper(s[:size]) + lower(s[size:])
}

func titled(s string) string {
	inWord := false
	return strings.Map(func(r rune) rune {
		was := inWord
		inWord = unicode.IsLetter(r)
		if inWord && !was {
			return unicode.ToTitle(r)
		}
		return unicode.ToLower(r)
	}, s)
}

func splitMethod(name string, fromRight bool) strMethod {
	return func(in *meter, s string, args *arguments) (any, error) {
		v, err := args.bind(name, "sep?", "maxsplit?")
		if err != nil {
			return nil, err
		}
		most, err := intOr(v[1], -1)
		if err != nil {
			return nil, err
		}
		if err := in.read(s); err != nil {
			return nil, err
		}
		var parts []string
		if v[0] == absent || v[0] == nil {
			parts = in.splitSpace(s, most, fromRight)
		} else {
			sep, err := strOr(v[0], "")
			if err != nil {
				return nil, err
			}
			if sep == "" {
				return nil, typeError("split at an empty string")
			}
			if err := in.spend(int64(strings.Count(s, sep)), partBytes); err != nil {
				return nil, err
			}
			parts = splitAt(s, sep, most, fromRight)
		}
		return strList(parts), in.err
	}
}

func strList(parts []string) []any {
	out := make([]any, len(parts))
	for i, p := range parts {
		out[i] = p
	}
	return out
}

func splitAt(s, sep string, most int64, fromRight bool) []string {
	parts := strings.Split(s, sep)
	extra := len(parts) - 1 - int(min(max(most, -1), int64(len(parts))))
	switch {
	case most < 0 || extra <= 0:
		return parts
	case fromRight:
		return append([]string{strings.Join(parts[:extra+1], sep)}, parts[extra+1:]...)
	}
	n := len(parts) - extra
	return append(parts[:n-1:n-1], strings.Join(parts[n-1:], sep))
}

func (in *meter) splitSpace(s string, most int64, fromRight bool) []string {
	var parts []string
	if fromRight {
		for s = strings.TrimRightFunc(s, isPythonSpace); s != "" && in.spend(1, partBytes) == nil; s = strings.TrimRightFunc(s, isPythonSpace) {
			i := strings.LastIndexFunc(s, isPythonSpace)
			if i < 0 || most >= 0 && int64(len(parts)) == most {
				parts = append(parts, s)
				break
			}
			_, size := utf8.DecodeRuneInString(s[i:])
			parts = append(parts, s[i+size:])
			s = s[:i]
		}
		slices.Reverse(parts)
		return parts
	}
	for s = strings.TrimLeftFunc(s, isPythonSpace); s != "" && in.spend(1, partBytes) == nil; s = strings.TrimLeftFunc(s, isPythonSpace) {
		i := strings.IndexFunc(s, isPythonSpace)
		if i < 0 || most >= 0 && int64(len(parts)) == most {
			parts = append(parts, s)
			break
		}
		parts = append(parts, s[:i])
		s = s[i:]
	}
	return parts
}

func splitLines(in *meter, s string, args *arguments) (any, error) {
	v, err := args.bind("splitlines", "keepends?")
	if err != nil {
		return nil, err
	}
	return strList(in.lines(s, truthOr(v[0], false))), in.err
}

// lines splits s at the line boundaries of Python's splitlines.
func (in *meter) lines(s string, keepEnds bool) []string {
	var out []string
	_ = in.read(s)
	for s != "" && in.spend(1, partBytes) == nil {
		i := strings.IndexFunc(s, func(r rune) bool { return strings.ContainsRune("\n\r\v\f\x1c\x1d\x1e\u0085\u2028\u2029", r) })
		if i < 0 {
			return append(out, s)
		}
		_, size := utf8.DecodeRuneInString(s[i:])
		if strings.HasPrefix(s[i:], "\r\n") {
			size = 2
		}
		if keepEnds {
			out = append(out, s[:i+size])
		} else {
			out = append(out, s[:i])
		}
		s = s[i+size:]
	}
	return out
}

// window returns the part of s between the optional bounds start and end, in characters;
// offset is the index of its first character. ok is false if start is past the end of s.
func (in *meter) window(s string, start, end any) (part string, offset int, ok bool, err error) {
	if (start == absent || start == nil) && (end == absent || end == nil) {
		return s, 0, true, nil
	}
	if err := in.spend(int64(len(s)), 8); err != nil {
		return "", 0, false, err
	}
	chars := []rune(s)
	bound := func(v any, fallback int) (int, error) {
		i, err := intOr(v, int64(fallback))
		if i < 0 {
			i = max(i+int64(len(chars)), 0)
		}
		return int(min(i, int64(len(chars))+1)), err
	}
	from, err := bound(start, 0)
	if err != nil {
		return "", 0, false, err
	}
	to, err := bound(end, len(chars))
	if err != nil {
		return "", 0, false, err
	}
	to = min(to, len(chars))
	if from > to {
		return "", from, false, nil
	}
	return string(chars[from:to]), from, true, nil
}

func affixMethod(name string, has func(s, affix string) bool) strMethod {
	return func(in *meter, s string, args *arguments) (any, error) {
		v, err := args.bind(name, "affix", "start?", "end?")
		if err != nil {
			return nil, err
		}
		part, _, ok, err := in.window(s, v[1], v[2])
		if err != nil {
			return nil, err
		}
		affixes := []any{v[0]}
		if t, isTuple := v[0].(tuple); isTuple {
			affixes = t
		}
		for _, a := range affixes {
			affix, isStr := a.(string)
			if !isStr {
				return nil, typeError("%s with a %s, expected a str or a tuple of them", name, typeName(a))
			}
			if err := in.spend(int64(len(affix))+1, 1); err != nil {
				return nil, err
			}
			if ok && has(part, affix) {
				return true, nil
			}
		}
		return false, nil
	}
}

func replaceMethod(in *meter, s string, args *arguments) (any, error) {
	v, err := args.bind("replace", "old", "new", "count?")
	if err != nil {
		return nil, err
	}
	return in.replace(s, v[0], v[1], v[2])
}

func (in *meter) replace(s string, from, to, count any) (any, error) {
	a, okA := from.(string)
	b, okB := to.(string)
	if !okA || !okB {
		return nil, typeError("replace %s by %s, expected str", typeName(from), typeName(to))
	}
	n, err := intOr(count, -1)
	if err != nil {
		return nil, err
	}
	if err := in.read(s, a); err != nil {
		return nil, err
	}
	found := int64(strings.Count(s, a))
	if n >= 0 {
		found = min(found, n)
	}
	if err := in.spend(found, int64(len(b))+1); err != nil {
		return nil, err
	}
	return strings.Replace(s, a, b, int(n)), nil
}

func joinMethod(in *meter, s string, args *arguments) (any, error) {
	v, err := args.bind("join", "iterable")
	if err != nil {
		return nil, err
	}
	list, err := in.items(v[0])
	if err != nil {
		return nil, err
	}
	if err := in.spend(int64(len(list)), int64(len(s))+itemBytes); err != nil {
		return nil, err
	}
	parts := make([]string, len(list))
	for i, item := range list {
		var ok bool
		if parts[i], ok = item.(string); !ok {
			return nil, typeError("join: item %d is a %s, expected a str", i, typeName(item))
		}
		if err := in.read(parts[i]); err != nil {
			return nil, err
		}
	}
	return strings.Join(parts, s), nil
}

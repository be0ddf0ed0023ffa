package chat

import (
	"strings"
	"unicode/utf8"
)

func findMethod(name string, find func(s, sub string) int, mustFind bool) strMethod {
	return func(in *meter, s string, args *arguments) (any, error) {
		v, err := args.bind(name, "sub", "start?", "end?")
		if err != nil {
			return nil, err
		}
		sub, err := strOr(v[0], "")
		if err != nil {
			return nil, err
		}
		part, offset, ok, err := in.window(s, v[1], v[2])
		if err != nil {
			return nil, err
		}
		if err := in.read(s, sub); err != nil {
			return nil, err
		}
		if ok {
			if i := find(part, sub); i >= 0 {
				return int64(offset + utf8.RuneCountInString(part[:i])), nil
			}
		}
		if mustFind {
			return nil, typeError("%s: %s is not in the string", name, brief(sub))
		}
		return int64(-1), nil
	}
}

func countMethod(in *meter, s string, args *arguments) (any, error) {
	v, err := args.bind("count", "sub", "start?", "end?")
	if err != nil {
		return nil, err
	}
	sub, err := strOr(v[0], "")
	if err != nil {
		return nil, err
	}
	part, _, ok, err := in.window(s, v[1], v[2])
	if !ok || err != nil {
		return int64(0), err
	}
	return int64(strings.Count(part, sub)), in.read(part, sub)
}

func cutMethod(name string, cut func(s, affix string) string) strMethod {
	return func(in *meter, s string, args *arguments) (any, error) {
		v, err := args.bind(name, "affix")
		if err != nil {
			return nil, err
		}
		affix, err := strOr(v[0], "")
		if err != nil {
			return nil, err
		}
		return cut(s, affix), in.read(affix)
	}
}

func partitionMethod(name string, find func(s, sub string) int) strMethod {
	return func(in *meter, s string, args *arguments) (any, error) {
		v, err := args.bind(name, "sep")
		if err != nil {
			return nil, err
		}
		sep, err := strOr(v[0], "")
		if err != nil {
			return nil, err
		}
		if sep == "" {
			return nil, typeError("%s at an empty string", name)
		}
		if err := in.read(s, sep); err != nil {
			return nil, err
		}
		if i := find(s, sep); i >= 0 {
			return tuple{s[:i], sep, s[i+len(sep):]}, nil
		}
		if name == "rpartition" {
			return tuple{"", "", s}, nil
		}
		return tuple{s, "", ""}, nil
	}
}

// justMethod returns a method that pads to a width, divided by the weights left
// and right.
func justMethod(name string, left, right int) strMethod {
	return func(in *meter, s string, args *arguments) (any, error) {
		v, err := args.bind(name, "width", "fillchar?")
		if err != nil {
			return nil, err
		}
		width, err := intOr(v[0], 0)
		if err != nil {
			return nil, err
		}
		fill, err := strOr(v[1], " ")
		if err != nil {
			return nil, err
		}
		if utf8.RuneCountInString(fill) != 1 {
			return nil, typeError("%s: fill %s is not one character", name, brief(fill))
		}
		if err := in.read(s, fill); err != nil {
			return nil, err
		}
		if err := in.spend(width, 2*int64(len(fill))); err != nil { // allocated and joined
			return nil, err
		}
		missing := int(width) - utf8.RuneCountInString(s)
		if missing <= 0 {
			return s, nil
		}
		before := missing * left / (left + right)
		if left == right { // rounded as in Python
			before = missing/2 + missing&int(width)&1
		}
		return strings.Repeat(fill, before) + s + strings.Repeat(fill, missing-before), nil
	}
}

func zfill(in *meter, s string, args *arguments) (any, error) {
	v, err := args.bind("zfill", "width")
	if err != nil {
		return nil, err
	}
	width, err := intOr(v[0], 0)
	if err != nil {
		return nil, err
	}
	if err := in.read(s); err != nil {
		return nil, err
	}
	if err := in.spend(width, 2); err != nil {
		return nil, err
	}
	missing := int(width) - utf8.RuneCountInString(s)
	if missing <= 0 {
		return s, nil
	}
	sign := ""
	if s != "" && (s[0] == '+' || s[0] == '-') {
		sign, s = s[:1], s[1:]
	}
	return sign + strings.Repeat("0", missing) + s, nil
}

// classMethod returns a method that reports whether a nonempty string consists
// of characters of a class.
func classMethod(name string, class func(rune) bool) strMethod {
	return func(in *meter, s string, args *arguments) (any, error) {
		if _, err := args.bind(name); err != nil {
			return nil, err
		}
		if err := in.read(s); err != nil {
			return nil, err
		}
		return s != "" && strings.IndexFunc(s, func(r rune) bool { return !class(r) }) < 0, nil
	}
}

// caseMethod returns a method that reports whether a string has characters of one
// case and none of the other.
func caseMethod(name string, is, isNot func(rune) bool) strMethod {
	return func(in *meter, s string, args *arguments) (any, error) {
		if _, err := args.bind(name); err != nil {
			return nil, err
		}
		if err := in.read(s); err != nil {
			return nil, err
		}
		return strings.ContainsFunc(s, is) && !strings.ContainsFunc(s, isNot), nil
	}
}

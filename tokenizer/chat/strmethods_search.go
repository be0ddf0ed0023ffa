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

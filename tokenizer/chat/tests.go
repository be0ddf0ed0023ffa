package chat

// A test evaluates {{ value is test(args) }}.
type test = func(in *interpreter, v any, args *arguments) (bool, error)

var tests map[string]test

func init() { // in init, because the tests filter and test look names up
	tests = map[string]test{
		"defined":   kindTest(func(v any) bool { _, ok := v.(*undefined); return !ok }),
		"undefined": kindTest(func(v any) bool { _, ok := v.(*undefined); return ok }),
		"none":      kindTest(func(v any) bool { return v == nil }),
		"boolean":   kindTest(func(v any) bool { _, ok := v.(bool); return ok }),
		"true":      kindTest(func(v any) bool { return v == any(true) }),
		"false":     kindTest(func(v any) bool { return v == any(false) }),
		"integer":   kindTest(func(v any) bool { _, ok := v.(int64); return ok }),
		"float":     kindTest(func(v any) bool { _, ok := v.(float64); return ok }),
		"number":    kindTest(func(v any) bool { _, ok := number(v); return ok }),
		"string":    kindTest(func(v any) bool { _, ok := v.(string); return ok }),
		"mapping":   kindTest(func(v any) bool { _, ok := v.(*dict); return ok }),
		"iterable":  kindTest(isIterable),
		"sequence":  kindTest(isSequence),
		"callable":  kindTest(isCallable),
		"odd":       remainderTest("odd", 1),
		"even":      remainderTest("even", 0),

		"divisibleby": func(in *interpreter, v any, args *arguments) (bool, error) {
			p, err := args.bind("divisibleby", "num")
			if err != nil {
				return false, err
			}
			m, err := in.operate("%", v, p[0])
			return in.equal(m, int64(0)), err
		},
		"sameas": func(in *interpreter, v any, args *arguments) (bool, error) {
			p, err := args.bind("sameas", "other")
			if err != nil {
				return false, err
			}
			return typeName(v) == typeName(p[0]) && in.equal(v, p[0]), nil
		},
		"in": comparisonTest("in"),
	}
	for op, names := range map[string][]string{
		"==": {"==", "eq", "equalto"}, "!=": {"!=", "ne"}, "<": {"<", "lt", "lessthan"},
		"<=": {"<=", "le"}, ">": {">", "gt", "greaterthan"}, ">=": {">=", "ge"},
	} {
		for _, name := range names {
			tests[name] = comparisonTest(op)
		}
	}
}

func kindTest(is func(any) bool) test {
	return func(in *interpreter, v any, args *arguments) (bool, error) {
		_, err := args.bind("test")
		return is(v), err
	}
}

func comparisonTest(op string) test {
	return func(in *interpreter, v any, args *arguments) (bool, error) {
		p, err := args.bind("comparison", "other")
		if err != nil {
			return false, err
		}
		return in.holds(op, v, p[0])
	}
}

func remainderTest(name string, rest int64) test {
	return func(in *interpreter, v any, args *arguments) (bool, error) {
		if _, err := args.bind(name); err != nil {
			return false, err
		}
		m, err := in.operate("%", v, int64(2))
		return in.equal(m, rest), err
	}
}

func isIterable(v any) bool {
	switch v.(type) {
	case *undefined, string, []any, tuple, *dict, *view, *iterator, progression, *loop:
		return true
	}
	return false
}

func isSequence(v any) bool {
	switch v.(type) {
	case *undefined, string, []any, tuple, *dict, progression:
		return true
	}
	return false
}

func isCallable(v any) bool {
	switch v.(type) {
	case *function, *macro, *loop, *undefined:
		return true
	}
	return false
}

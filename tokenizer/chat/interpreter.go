package chat

import (
	"fmt"
	"strings"
	"time"
)

// interpreter executes one rendering.
type interpreter struct {
	out     *strings.Builder // destination of the current text
	root    *strings.Builder // the rendered chat
	globals map[string]any
	spans   []Span // generation blocks, as ranges of root
	now     time.Time
	// maxBytes is the maximum length of root, zero for no limit.
	maxBytes int
	*meter
}

// scope holds the variables of a block. Variables of enclosing scopes can be
// read but not set.
type scope struct {
	vars   map[string]any
	parent *scope
}

func newScope(parent *scope) *scope {
	return &scope{vars: map[string]any{}, parent: parent}
}

func (sc *scope) lookup(name string) (any, bool) {
	for ; sc != nil; sc = sc.parent {
		if v, ok := sc.vars[name]; ok {
			return v, true
		}
	}
	return nil, false
}

func (in *interpreter) run(body []statement, sc *scope) error {
	for _, s := range body {
		if err := in.step(); err != nil {
			return err
		}
		if err := s.exec(in, sc); err != nil {
			return err
		}
	}
	return nil
}

func (in *interpreter) write(s string) error {
	if err := in.read(s); err != nil {
		return err
	}
	if in.maxBytes > 0 && in.out == in.root && in.root.Len()+len(s) > in.maxBytes {
		return fmt.Errorf("%w: more than %d bytes", ErrTooLong, in.maxBytes)
	}
	in.out.WriteString(s)
	return nil
}

// capture executes a body and returns its text.
func (in *interpreter) capture(body []statement, sc *scope) (string, error) {
	out := in.out
	in.out = &strings.Builder{}
	err := in.run(body, sc)
	text := in.out.String()
	in.out = out
	return text, err
}

// evalAll evaluates expressions in order.
func (in *interpreter) evalAll(exprs []expression, sc *scope) ([]any, error) {
	if err := in.spend(int64(len(exprs)), itemBytes); err != nil {
		return nil, err
	}
	values := make([]any, len(exprs))
	for i, e := range exprs {
		var err error
		if values[i], err = e.eval(in, sc); err != nil {
			return nil, err
		}
	}
	return values, nil
}

// evalArgs evaluates the arguments of a call.
func (in *interpreter) evalArgs(c callArgs, sc *scope) (*arguments, error) {
	args := &arguments{}
	var err error
	if args.pos, err = in.evalAll(c.pos, sc); err != nil {
		return nil, err
	}
	for _, n := range c.named {
		v, err := n.value.eval(in, sc)
		if err != nil {
			return nil, err
		}
		if err := args.name(n.name, v); err != nil {
			return nil, err
		}
	}
	if c.star != nil {
		v, err := c.star.eval(in, sc)
		if err != nil {
			return nil, err
		}
		more, err := in.items(v)
		if err != nil {
			return nil, err
		}
		if err := in.spend(int64(len(more)), itemBytes); err != nil {
			return nil, err
		}
		args.pos = append(args.pos, more...)
	}
	if c.doubleStar != nil {
		v, err := c.doubleStar.eval(in, sc)
		if err != nil {
			return nil, err
		}
		d, ok := v.(*dict)
		if !ok {
			return nil, typeError("** needs a dict, not a %s", typeName(v))
		}
		for i, key := range d.keys {
			if err := in.spend(int64(len(args.named)+1), itemBytes); err != nil { // all of them are searched
				return nil, err
			}
			if err := args.name(in.text(key), d.values[i]); err != nil {
				return nil, err
			}
		}
	}
	return args, nil
}

// callValue calls a function or macro.
func (in *interpreter) callValue(f any, args *arguments) (any, error) {
	switch f := f.(type) {
	case *function:
		return f.call(in, args)
	case *macro:
		return f.call(in, args)
	case *loop:
		v, err := args.bind("loop", "iterable")
		if err != nil {
			return nil, err
		}
		return f.recurse(in, v[0])
	case *undefined:
		return nil, f.fail()
	}
	return nil, typeError("a %s cannot be called", typeName(f))
}

// arguments are the evaluated arguments of a call.
type arguments struct {
	pos   []any
	named []namedValue
}

type namedValue struct {
	name  string
	value any
}

func (a *arguments) name(name string, value any) error {
	for _, n := range a.named {
		if n.name == name {
			return typeError("argument %q is given twice", name)
		}
	}
	a.named = append(a.named, namedValue{name, value})
	return nil
}

// pop removes a named argument.
func (a *arguments) pop(name string) (any, bool) {
	for i, n := range a.named {
		if n.name == name {
			a.named = append(a.named[:i:i], a.named[i+1:]...)
			return n.value, true
		}
	}
	return nil, false
}

// absent is the value of an omitted parameter.
var absent any = &function{name: "absent"}

// bind assigns the arguments to parameters; omitted ones are absent. A parameter whose
// name ends in "?" is optional.
func (a *arguments) bind(callee string, params ...string) ([]any, error) {
	values := make([]any, len(params))
	rest := arguments{named: a.named}
	for i, param := range params {
		name, optional := strings.CutSuffix(param, "?")
		named, ok := rest.pop(name)
		switch {
		case i < len(a.pos) && ok:
			return nil, typeError("%s: argument %q is given twice", callee, name)
		case i < len(a.pos):
			values[i] = a.pos[i]
		case ok:
			values[i] = named
		case optional:
			values[i] = absent
		default:
			return nil, typeError("%s: argument %q is missing", callee, name)
		}
	}
	if len(a.pos) > len(params) {
		return nil, typeError("%s takes at most %d arguments, not %d", callee, len(params), len(a.pos))
	}
	if len(rest.named) > 0 {
		return nil, typeError("%s has no argument %q", callee, rest.named[0].name)
	}
	return values, nil
}

// The following functions read parameters that may be absent.

func intOr(v any, fallback int64) (int64, error) {
	if v == absent || v == nil {
		return fallback, nil
	}
	i, ok := integer(v)
	if !ok {
		return 0, typeError("a %s where an int is expected", typeName(v))
	}
	return i, nil
}

func strOr(v any, fallback string) (string, error) {
	if v == absent || v == nil {
		return fallback, nil
	}
	s, ok := v.(string)
	if !ok {
		return "", typeError("a %s where a str is expected", typeName(v))
	}
	return s, nil
}

func truthOr(v any, fallback bool) bool {
	if v == absent {
		return fallback
	}
	return truth(v)
}

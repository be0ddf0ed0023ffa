package chat

import "strings"

type forNode struct {
	target          target
	seq             expression
	filter          expression
	body, otherwise []statement
	recursive       bool
	line            int
}

func (n *forNode) exec(in *interpreter, sc *scope) error {
	v, err := n.seq.eval(in, sc)
	if err == nil {
		err = n.iterate(in, sc, v, 0)
	}
	return in.at(n.line, err)
}

// loop is the variable of that name within a loop.
type loop struct {
	node    *forNode
	scope   *scope
	items   []any
	index   int
	depth   int
	changed any // arguments of the last changed(), as a tuple
}

func (n *forNode) iterate(in *interpreter, sc *scope, v any, depth int) error {
	list, err := in.items(v)
	if err != nil {
		return err
	}
	if n.filter != nil {
		if list, err = n.selected(in, sc, list); err != nil {
			return err
		}
	}
	l := &loop{node: n, scope: sc, items: list, depth: depth}
	for i, item := range list {
		if err := in.step(); err != nil {
			return err
		}
		if err := in.spend(1, scopeBytes); err != nil {
			return err
		}
		l.index = i
		inner := newScope(sc)
		inner.vars["loop"] = l
		if err := n.target.assign(in, inner, item); err != nil {
			return err
		}
		if err := in.run(n.body, inner); err == errBreak {
			break
		} else if err != nil && err != errContinue {
			return err
		}
	}
	if len(list) == 0 {
		return in.run(n.otherwise, newScope(sc))
	}
	return nil
}

// selected returns the items that satisfy the loop's condition.
func (n *forNode) selected(in *interpreter, sc *scope, list []any) ([]any, error) {
	var out []any
	for _, item := range list {
		if err := in.step(); err != nil {
			return nil, err
		}
		if err := in.spend(1, scopeBytes); err != nil {
			return nil, err
		}
		inner := newScope(sc)
		if err := n.target.assign(in, inner, item); err != nil {
			return nil, err
		}
		ok, err := n.filter.eval(in, inner)
		if err != nil {
			return nil, err
		}
		if truth(ok) {
			out = append(out, item)
		}
	}
	return out, nil
}

// recurse runs the loop on other items: {{ loop(item.children) }}.
func (l *loop) recurse(in *interpreter, v any) (any, error) {
	if !l.node.recursive {
		return nil, typeError("loop can be called in a recursive loop only")
	}
	if err := in.call(); err != nil {
		return nil, err
	}
	defer in.back()
	out := in.out
	in.out = &strings.Builder{}
	err := l.node.iterate(in, l.scope, v, l.depth+1)
	s := in.out.String()
	in.out = out
	return s, err
}

func (l *loop) attr(name string) (any, bool) {
	i, n := int64(l.index), int64(len(l.items))
	switch name {
	case "index":
		return i + 1, true
	case "index0":
		return i, true
	case "revindex":
		return n - i, true
	case "revindex0":
		return n - i - 1, true
	case "first":
		return i == 0, true
	case "last":
		return i == n-1, true
	case "length":
		return n, true
	case "depth":
		return int64(l.depth) + 1, true
	case "depth0":
		return int64(l.depth), true
	case "previtem":
		if i == 0 {
			return &undefined{"the item before the first"}, true
		}
		return l.items[i-1], true
	case "nextitem":
		if i == n-1 {
			return &undefined{"the item behind the last"}, true
		}
		return l.items[i+1], true
	case "cycle":
		return &function{"cycle", func(in *interpreter, args *arguments) (any, error) {
			if len(args.pos) == 0 {
				return nil, typeError("cycle needs items")
			}
			return args.pos[l.index%len(args.pos)], nil
		}}, true
	case "changed":
		return &function{"changed", func(in *interpreter, args *arguments) (any, error) {
			now := tuple(args.pos)
			if l.changed != nil && in.equal(l.changed, now) {
				return false, nil
			}
			l.changed = now
			return true, nil
		}}, true
	}
	return nil, false
}

package chat

import "errors"

// statement is an executable node.
type statement interface {
	exec(in *interpreter, sc *scope) error
}

type (
	textNode  string
	printNode struct {
		value expression
		line  int
	}
	ifNode struct {
		test            expression
		body, otherwise []statement
		line            int
	}
	setNode struct { // assigns a value, or a body with optional filters
		target  target
		value   expression
		filters expression
		body    []statement
		line    int
	}
	withNode struct {
		targets []target
		values  []expression
		body    []statement
		line    int
	}
	filterNode struct {
		filters expression
		body    []statement
		line    int
	}
	generationNode struct{ body []statement }
	callNode       struct {
		call   *callExpr
		caller macroNode
		line   int
	}
	jumpNode struct{ err error }
)

var (
	errBreak    = errors.New("break")
	errContinue = errors.New("continue")
)

func isJump(err error) bool { return err == errBreak || err == errContinue }

func (n jumpNode) exec(*interpreter, *scope) error { return n.err }

func (n textNode) exec(in *interpreter, _ *scope) error { return in.write(string(n)) }

func (n *printNode) exec(in *interpreter, sc *scope) error {
	v, err := n.value.eval(in, sc)
	if err == nil {
		err = in.write(in.text(v))
	}
	return in.at(n.line, err)
}

func (n *ifNode) exec(in *interpreter, sc *scope) error {
	v, err := n.test.eval(in, sc)
	if err != nil {
		return in.at(n.line, err)
	}
	if truth(v) {
		return in.run(n.body, sc)
	}
	return in.run(n.otherwise, sc)
}

func (n *setNode) exec(in *interpreter, sc *scope) error {
	var v any
	var err error
	if n.value != nil {
		v, err = n.value.eval(in, sc)
	} else {
		v, err = in.filtered(n.body, n.filters, sc)
	}
	if err == nil {
		err = n.target.assign(in, sc, v)
	}
	return in.at(n.line, err)
}

func (n *filterNode) exec(in *interpreter, sc *scope) error {
	v, err := in.filtered(n.body, n.filters, sc)
	if err == nil {
		err = in.write(in.text(v))
	}
	return in.at(n.line, err)
}

// filtered returns the text of a body after filters.
func (in *interpreter) filtered(body []statement, filters expression, sc *scope) (any, error) {
	s, err := in.capture(body, newScope(sc))
	if err != nil || filters == nil {
		return s, err
	}
	return applyTo(filters, s, in, sc)
}

// applyTo evaluates a chain of filters whose innermost one applies to v.
func applyTo(e expression, v any, in *interpreter, sc *scope) (any, error) {
	f, ok := e.(*filterExpr)
	if !ok {
		return nil, typeError("only filters can follow here")
	}
	inner := *f
	if f.value != nil {
		var err error
		if v, err = applyTo(f.value, v, in, sc); err != nil {
			return nil, err
		}
	}
	inner.value = constExpr{v}
	return inner.eval(in, sc)
}

func (n *withNode) exec(in *interpreter, sc *scope) error {
	values, err := in.evalAll(n.values, sc)
	if err != nil {
		return in.at(n.line, err)
	}
	inner := newScope(sc)
	for i, t := range n.targets {
		if err := t.assign(in, inner, values[i]); err != nil {
			return in.at(n.line, err)
		}
	}
	return in.run(n.body, inner)
}

// exec records the span of a generation block in the rendered chat.
func (n *generationNode) exec(in *interpreter, sc *scope) error {
	start := in.root.Len()
	s, err := in.capture(n.body, newScope(sc))
	if err != nil {
		return err
	}
	if s != "" && in.out == in.root {
		in.spans = append(in.spans, Span{start, start + len(s)})
	}
	return in.write(s)
}

// target is the target of an assignment.
type target interface {
	assign(in *interpreter, sc *scope, v any) error
}

type tupleTarget []target

func (e *nameExpr) assign(in *interpreter, sc *scope, v any) error {
	sc.vars[e.name] = v
	return nil
}

func (e *attrExpr) assign(in *interpreter, sc *scope, v any) error {
	object, err := e.object.eval(in, sc)
	if err != nil {
		return err
	}
	ns, ok := object.(*namespace)
	if !ok {
		return typeError("cannot set an attribute of a %s; only namespaces have such", typeName(object))
	}
	if e.name[0] == '_' {
		return typeError("a namespace cannot have the attribute %q", e.name)
	}
	if err := in.spend(1, entryBytes); err != nil {
		return err
	}
	ns.attrs.setString(e.name, v)
	return nil
}

func (t tupleTarget) assign(in *interpreter, sc *scope, v any) error {
	values, err := in.items(v)
	if err != nil {
		return err
	}
	if len(values) != len(t) {
		return typeError("%d values for %d names", len(values), len(t))
	}
	for i := range t {
		if err := t[i].assign(in, sc, values[i]); err != nil {
			return err
		}
	}
	return nil
}

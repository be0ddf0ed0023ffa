package chat

import "strings"

// expression is a node with a value.
type expression interface {
	eval(in *interpreter, sc *scope) (any, error)
}

type (
	constExpr struct{ value any }
	nameExpr  struct {
		name string
		line int
	}
	attrExpr struct { // object.name
		object expression
		name   string
		line   int
	}
	itemExpr struct { // object[key]
		object, key expression
		line        int
	}
	sliceExpr struct{ parts [3]expression }
	tupleExpr struct{ items []expression }
	listExpr  struct{ items []expression }
	dictExpr  struct {
		keys, values []expression
		line         int
	}
	condExpr  struct{ test, then, otherwise expression }
	logicExpr struct {
		left, right expression
		or          bool
	}
	notExpr     struct{ value expression }
	compareExpr struct {
		first expression
		ops   []string
		rest  []expression
		line  int
	}
	binaryExpr struct {
		op          string
		left, right expression
		line        int
	}
	signExpr struct {
		value expression
		minus bool
		line  int
	}
	callExpr struct {
		callee expression
		args   callArgs
		line   int
	}
	filterExpr struct {
		value expression // nil for the body of a filter block
		name  string
		call  filter
		args  callArgs
		line  int
	}
	testExpr struct {
		value expression
		name  string
		call  test
		args  callArgs
		line  int
	}
	callArgs struct {
		pos        []expression
		named      []namedArg
		star       expression
		doubleStar expression
	}
	namedArg struct {
		name  string
		value expression
	}
	// slice is the value of a sliceExpr; omitted bounds are nil.
	slice struct{ start, stop, step any }
)

func (e constExpr) eval(*interpreter, *scope) (any, error) { return e.value, nil }

func (e *nameExpr) eval(in *interpreter, sc *scope) (any, error) {
	if v, ok := sc.lookup(e.name); ok {
		return v, nil
	}
	if v, ok := in.globals[e.name]; ok {
		return v, nil
	}
	return &undefined{"'" + e.name + "'"}, nil
}

func (e *attrExpr) eval(in *interpreter, sc *scope) (any, error) {
	if err := in.step(); err != nil {
		return nil, err
	}
	object, err := e.object.eval(in, sc)
	if err != nil {
		return nil, err
	}
	v, err := getAttr(object, e.name)
	return v, in.at(e.line, err)
}

func (e *itemExpr) eval(in *interpreter, sc *scope) (any, error) {
	if err := in.step(); err != nil {
		return nil, err
	}
	object, err := e.object.eval(in, sc)
	if err != nil {
		return nil, err
	}
	key, err := e.key.eval(in, sc)
	if err != nil {
		return nil, err
	}
	v, err := in.getItem(object, key)
	return v, in.at(e.line, err)
}

func (e *sliceExpr) eval(in *interpreter, sc *scope) (any, error) {
	var v [3]any
	for i, part := range e.parts {
		if part != nil {
			var err error
			if v[i], err = part.eval(in, sc); err != nil {
				return nil, err
			}
		}
	}
	return slice{v[0], v[1], v[2]}, nil
}

func (e *tupleExpr) eval(in *interpreter, sc *scope) (any, error) {
	values, err := in.evalAll(e.items, sc)
	return tuple(values), err
}

func (e *listExpr) eval(in *interpreter, sc *scope) (any, error) {
	values, err := in.evalAll(e.items, sc)
	return values, err
}

func (e *dictExpr) eval(in *interpreter, sc *scope) (any, error) {
	d := newDict()
	for i := range e.keys {
		key, err := e.keys[i].eval(in, sc)
		if err != nil {
			return nil, err
		}
		value, err := e.values[i].eval(in, sc)
		if err != nil {
			return nil, err
		}
		if err := in.spend(1, entryBytes); err != nil {
			return nil, in.at(e.line, err)
		}
		if err := d.set(in.meter, key, value); err != nil {
			return nil, in.at(e.line, err)
		}
	}
	return d, nil
}

func (e *condExpr) eval(in *interpreter, sc *scope) (any, error) {
	if err := in.step(); err != nil {
		return nil, err
	}
	v, err := e.test.eval(in, sc)
	switch {
	case err != nil:
		return nil, err
	case truth(v):
		return e.then.eval(in, sc)
	case e.otherwise != nil:
		return e.otherwise.eval(in, sc)
	}
	return &undefined{"the inline if without else, whose condition is false,"}, nil
}

func (e *logicExpr) eval(in *interpreter, sc *scope) (any, error) {
	if err := in.step(); err != nil {
		return nil, err
	}
	v, err := e.left.eval(in, sc)
	if err != nil || truth(v) == e.or {
		return v, err
	}
	return e.right.eval(in, sc)
}

func (e *notExpr) eval(in *interpreter, sc *scope) (any, error) {
	if err := in.step(); err != nil {
		return nil, err
	}
	v, err := e.value.eval(in, sc)
	return !truth(v), err
}

func (e *compareExpr) eval(in *interpreter, sc *scope) (any, error) {
	if err := in.step(); err != nil {
		return nil, err
	}
	left, err := e.first.eval(in, sc)
	if err != nil {
		return nil, err
	}
	for i, op := range e.ops {
		right, err := e.rest[i].eval(in, sc)
		if err != nil {
			return nil, err
		}
		ok, err := in.holds(op, left, right)
		if err := in.at(e.line, err); err != nil {
			return nil, err
		}
		if !ok {
			return false, nil
		}
		left = right
	}
	return true, nil
}

// holds evaluates a comparison.
func (in *meter) holds(op string, a, b any) (bool, error) {
	switch op {
	case "==":
		return in.equal(a, b), nil
	case "!=":
		return !in.equal(a, b), nil
	case "in":
		return in.contains(b, a)
	case "not in":
		in, err := in.contains(b, a)
		return !in, err
	}
	c, err := in.compare(a, b)
	if err != nil {
		return false, err
	}
	switch op {
	case "<":
		return c < 0, nil
	case "<=":
		return c <= 0, nil
	case ">":
		return c > 0, nil
	}
	return c >= 0, nil
}

func (in *meter) contains(container, v any) (bool, error) {
	switch c := container.(type) {
	case string:
		s, ok := v.(string)
		if !ok {
			return false, typeError("a %s cannot be in a str", typeName(v))
		}
		return strings.Contains(c, s), in.read(c, s)
	case *dict:
		if _, ok := hashable(in, v); !ok {
			return false, typeError("a %s cannot be the key of a dict", typeName(v))
		}
		_, ok := c.find(in, v)
		return ok, nil
	}
	list, err := in.items(container)
	if err != nil {
		return false, err
	}
	for _, item := range list {
		if err := in.spend(1, itemBytes); err != nil {
			return false, err
		}
		if in.equal(item, v) {
			return true, nil
		}
	}
	return false, nil
}

func (e *callExpr) eval(in *interpreter, sc *scope) (any, error) {
	if err := in.step(); err != nil {
		return nil, err
	}
	callee, err := e.callee.eval(in, sc)
	if err != nil {
		return nil, err
	}
	args, err := in.evalArgs(e.args, sc)
	if err != nil {
		return nil, in.at(e.line, err)
	}
	v, err := in.callValue(callee, args)
	return v, in.at(e.line, err)
}

func (e *filterExpr) eval(in *interpreter, sc *scope) (any, error) {
	if err := in.step(); err != nil {
		return nil, err
	}
	v, err := e.value.eval(in, sc)
	if err != nil {
		return nil, err
	}
	args, err := in.evalArgs(e.args, sc)
	if err != nil {
		return nil, in.at(e.line, err)
	}
	v, err = e.call(in, v, args)
	return v, in.at(e.line, err)
}

func (e *testExpr) eval(in *interpreter, sc *scope) (any, error) {
	if err := in.step(); err != nil {
		return nil, err
	}
	v, err := e.value.eval(in, sc)
	if err != nil {
		return nil, err
	}
	args, err := in.evalArgs(e.args, sc)
	if err != nil {
		return nil, in.at(e.line, err)
	}
	ok, err := e.call(in, v, args)
	return ok, in.at(e.line, err)
}

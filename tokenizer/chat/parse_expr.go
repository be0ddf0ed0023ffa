package chat

import (
	"slices"
	"strconv"
	"strings"
)

// tuple parses expressions separated by commas; a single one without a comma is not a
// tuple. If primary is set, only names, attributes and the like are accepted, as in the
// targets of an assignment.
func (p *parser) tuple(withIf, primary bool, ends ...string) (expression, error) {
	t := p.cur()
	one := func() (expression, error) {
		switch {
		case primary:
			return p.simpleTarget()
		case withIf:
			return p.expression()
		}
		return p.or()
	}
	var items []expression
	isTuple := false
	for {
		if len(items) > 0 {
			if err := p.expect(tokenOperator, ","); err != nil {
				return nil, err
			}
		}
		c := p.cur()
		if c.kind == tokenPrintEnd || c.kind == tokenTagEnd || p.op(")") || c.kind == tokenName && slices.Contains(ends, c.text) {
			break
		}
		e, err := one()
		if err != nil {
			return nil, err
		}
		items = append(items, e)
		if !p.op(",") {
			break
		}
		isTuple = true
	}
	if !isTuple {
		if len(items) == 0 {
			return nil, syntaxError(t.line, "expected an expression, found %q", p.cur().text)
		}
		return items[0], nil
	}
	return &tupleExpr{items}, nil
}

func (p *parser) simpleTarget() (expression, error) {
	t := p.cur()
	if p.op("(") {
		return p.primary()
	}
	name, err := p.name()
	if err != nil {
		return nil, err
	}
	if !p.accept(tokenOperator, ".") {
		return &nameExpr{name, t.line}, nil
	}
	attr, err := p.name()
	return &attrExpr{&nameExpr{name, t.line}, attr, t.line}, err
}

func (p *parser) expression() (expression, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	e, err := p.or()
	if err != nil {
		return nil, err
	}
	for p.accept(tokenName, "if") {
		if err := p.link(); err != nil {
			return nil, err
		}
		c := &condExpr{then: e}
		if c.test, err = p.or(); err != nil {
			return nil, err
		}
		if p.accept(tokenName, "else") {
			if c.otherwise, err = p.expression(); err != nil {
				return nil, err
			}
		}
		e = c
	}
	return e, nil
}

func (p *parser) or() (expression, error) {
	left, err := p.and()
	for err == nil && p.accept(tokenName, "or") {
		if err := p.link(); err != nil {
			return nil, err
		}
		var right expression
		right, err = p.and()
		left = &logicExpr{left, right, true}
	}
	return left, err
}

func (p *parser) and() (expression, error) {
	left, err := p.not()
	for err == nil && p.accept(tokenName, "and") {
		if err := p.link(); err != nil {
			return nil, err
		}
		var right expression
		right, err = p.not()
		left = &logicExpr{left, right, false}
	}
	return left, err
}

func (p *parser) not() (expression, error) {
	if !p.accept(tokenName, "not") {
		return p.comparison()
	}
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	e, err := p.not()
	return &notExpr{e}, err
}

func (p *parser) comparison() (expression, error) {
	line := p.cur().line
	first, err := p.sum()
	if err != nil {
		return nil, err
	}
	c := &compareExpr{first: first, line: line}
	for {
		op := p.cur().text
		switch {
		case p.cur().kind == tokenOperator && slices.Contains([]string{"==", "!=", "<", "<=", ">", ">="}, op):
			p.next()
		case p.keyword("in"):
			p.next()
		case p.keyword("not") && p.peek().kind == tokenName && p.peek().text == "in":
			p.next()
			p.next()
			op = "not in"
		default:
			if len(c.ops) == 0 {
				return first, nil
			}
			return c, nil
		}
		right, err := p.sum()
		if err != nil {
			return nil, err
		}
		c.ops, c.rest = append(c.ops, op), append(c.rest, right)
	}
}

// binary parses operands joined by operators of equal precedence, left-associative.
func (p *parser) binary(operand func() (expression, error), ops ...string) (expression, error) {
	left, err := operand()
	for err == nil && p.cur().kind == tokenOperator && slices.Contains(ops, p.cur().text) {
		if err := p.link(); err != nil {
			return nil, err
		}
		t := p.next()
		var right expression
		right, err = operand()
		left = &binaryExpr{t.text, left, right, t.line}
	}
	return left, err
}

func (p *parser) sum() (expression, error)    { return p.binary(p.concat, "+", "-") }
func (p *parser) concat() (expression, error) { return p.binary(p.product, "~") }
func (p *parser) product() (expression, error) {
	return p.binary(p.power, "*", "/", "//", "%")
}

func (p *parser) power() (expression, error) {
	return p.binary(func() (expression, error) { return p.unary(true) }, "**")
}

func (p *parser) unary(withFilter bool) (expression, error) {
	t := p.cur()
	var e expression
	var err error
	if p.op("-") || p.op("+") {
		if err := p.enter(); err != nil {
			return nil, err
		}
		defer p.leave()
		p.next()
		e, err = p.unary(false)
		e = &signExpr{e, t.text == "-", t.line}
	} else {
		e, err = p.primary()
	}
	if err == nil {
		e, err = p.postfix(e)
	}
	if err == nil && withFilter {
		e, err = p.filters(e)
	}
	return e, err
}

func (p *parser) primary() (expression, error) {
	t := p.cur()
	switch t.kind {
	case tokenName:
		p.next()
		switch t.text {
		case "true", "True":
			return constExpr{true}, nil
		case "false", "False":
			return constExpr{false}, nil
		case "none", "None":
			return constExpr{nil}, nil
		}
		return &nameExpr{t.text, t.line}, nil
	case tokenString:
		var s strings.Builder
		for p.cur().kind == tokenString {
			s.WriteString(p.next().text)
		}
		return constExpr{s.String()}, nil
	case tokenInteger:
		p.next()
		i, err := strconv.ParseInt(t.text, 0, 64)
		if err != nil {
			return nil, syntaxError(t.line, "integer %s is too large", t.text)
		}
		return constExpr{i}, nil
	case tokenFloat:
		p.next()
		f, _ := strconv.ParseFloat(t.text, 64)
		return constExpr{f}, nil
	}
	switch {
	case p.accept(tokenOperator, "("):
		if p.accept(tokenOperator, ")") {
			return &tupleExpr{}, nil
		}
		if err := p.enter(); err != nil {
			return nil, err
		}
		defer p.leave()
		e, err := p.tuple(true, false)
		if err != nil {
			return nil, err
		}
		return e, p.expect(tokenOperator, ")")
	case p.accept(tokenOperator, "["):
		items, err := p.list("]")
		return &listExpr{items}, err
	case p.accept(tokenOperator, "{"):
		return p.dict(t.line)
	}
	return nil, syntaxError(t.line, "unexpected %q", t.text)
}

// list parses expressions up to the closing bracket; a trailing comma is
// allowed.
func (p *parser) list(closing string) ([]expression, error) {
	var items []expression
	for !p.accept(tokenOperator, closing) {
		if len(items) > 0 {
			if err := p.expect(tokenOperator, ","); err != nil {
				return nil, err
			}
			if p.accept(tokenOperator, closing) {
				break
			}
		}
		e, err := p.expression()
		if err != nil {
			return nil, err
		}
		items = append(items, e)
	}
	return items, nil
}

func (p *parser) dict(line int) (expression, error) {
	d := &dictExpr{line: line}
	for !p.accept(tokenOperator, "}") {
		if len(d.keys) > 0 {
			if err := p.expect(tokenOperator, ","); err != nil {
				return nil, err
			}
			if p.accept(tokenOperator, "}") {
				break
			}
		}
		key, err := p.expression()
		if err != nil {
			return nil, err
		}
		if err := p.expect(tokenOperator, ":"); err != nil {
			return nil, err
		}
		value, err := p.expression()
		if err != nil {
			return nil, err
		}
		d.keys, d.values = append(d.keys, key), append(d.values, value)
	}
	return d, nil
}

func (p *parser) postfix(e expression) (expression, error) {
	for {
		t := p.cur()
		if p.op(".") || p.op("[") || p.op("(") {
			if err := p.link(); err != nil {
				return nil, err
			}
		}
		switch {
		case p.accept(tokenOperator, "."):
			switch a := p.next(); a.kind {
			case tokenName:
				e = &attrExpr{e, a.text, t.line}
			case tokenInteger:
				i, err := strconv.ParseInt(a.text, 0, 64)
				if err != nil {
					return nil, syntaxError(t.line, "integer %s is too large", a.text)
				}
				e = &itemExpr{e, constExpr{i}, t.line}
			default:
				return nil, syntaxError(t.line, "expected a name or a number, found %q", a.text)
			}
		case p.accept(tokenOperator, "["):
			key, err := p.subscript()
			if err != nil {
				return nil, err
			}
			if err := p.expect(tokenOperator, "]"); err != nil {
				return nil, err
			}
			e = &itemExpr{e, key, t.line}
		case p.op("("):
			args, err := p.callArgs()
			if err != nil {
				return nil, err
			}
			e = &callExpr{e, args, t.line}
		default:
			return e, nil
		}
	}
}

// subscript parses an index or a slice.
func (p *parser) subscript() (expression, error) {
	var parts [3]expression
	var err error
	isSlice := false
	for i := range parts {
		if !p.op(":") && !p.op("]") {
			if parts[i], err = p.expression(); err != nil {
				return nil, err
			}
		}
		if i == 2 || !p.accept(tokenOperator, ":") {
			break
		}
		isSlice = true
	}
	if isSlice {
		return &sliceExpr{parts}, nil
	}
	if parts[0] == nil {
		return nil, syntaxError(p.cur().line, "expected an expression, found %q", p.cur().text)
	}
	return parts[0], nil
}

// filters parses |filters, is-tests and calls after e.
func (p *parser) filters(e expression) (expression, error) {
	for {
		t := p.cur()
		if p.op("|") || p.op("(") || p.keyword("is") {
			if err := p.link(); err != nil {
				return nil, err
			}
		}
		var err error
		switch {
		case p.accept(tokenOperator, "|"):
			e, err = p.filter(e)
		case e != nil && p.accept(tokenName, "is"):
			e, err = p.test(e, t.line)
		case e != nil && p.op("("):
			var args callArgs
			args, err = p.callArgs()
			e = &callExpr{e, args, t.line}
		default:
			return e, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// filter parses the name and the arguments of a filter. If e is nil, the filter
// applies to a body.
func (p *parser) filter(e expression) (expression, error) {
	t := p.cur()
	name, err := p.name()
	if err != nil {
		return nil, err
	}
	f := &filterExpr{value: e, name: name, line: t.line}
	if f.call = filters[name]; f.call == nil {
		return nil, syntaxError(t.line, "unknown filter %q; known are %s", name, known(filters))
	}
	if p.op("(") {
		f.args, err = p.callArgs()
	}
	return f, err
}

func (p *parser) test(e expression, line int) (expression, error) {
	negated := p.accept(tokenName, "not")
	name, err := p.name()
	if err != nil {
		return nil, err
	}
	t := &testExpr{value: e, name: name, line: line}
	if t.call = tests[name]; t.call == nil {
		return nil, syntaxError(line, "unknown test %q; known are %s", name, known(tests))
	}
	c := p.cur()
	switch {
	case p.op("("):
		t.args, err = p.callArgs()
	case c.kind == tokenName && !slices.Contains([]string{"else", "or", "and", "is", "if", "in", "not"}, c.text),
		c.kind == tokenString, c.kind == tokenInteger, c.kind == tokenFloat, p.op("["), p.op("{"):
		var arg expression
		if arg, err = p.primary(); err == nil {
			arg, err = p.postfix(arg)
		}
		t.args.pos = []expression{arg}
	}
	if err != nil {
		return nil, err
	}
	if negated {
		return &notExpr{t}, nil
	}
	return t, nil
}

package chat

import (
	"fmt"
	"slices"
)

// parse parses a template into statements.
func parse(source string) ([]statement, error) {
	if len(source) > maxSource {
		return nil, fmt.Errorf("%w: %d bytes long, expected at most %d", ErrTemplate, len(source), maxSource)
	}
	tokens, err := lex(source)
	if err != nil {
		return nil, err
	}
	p := &parser{tokens: tokens}
	body, err := p.statements()
	if err != nil {
		return nil, err
	}
	if p.cur().kind == tokenName { // an end tag, after its {%
		return nil, syntaxError(p.cur().line, "unexpected tag %q", p.cur().text)
	}
	return body, nil
}

type parser struct {
	tokens []token
	pos    int
	depth  int
	links  int // operators of the current tag or output
	loops  int // enclosing loops, for break and continue
}

// maxSource bounds the length of a template; real ones have a few thousand
// bytes.
const maxSource = 1 << 20

// maxDepth bounds the nesting of expressions and statements.
const maxDepth = 200

func (p *parser) enter() error {
	if p.depth++; p.depth > maxDepth {
		return syntaxError(p.cur().line, "nested deeper than %d", maxDepth)
	}
	return nil
}

// maxLinks bounds the operators, subscripts and filters of a tag: their evaluation nests one
// call per link.
const maxLinks = 2000

func (p *parser) link() error {
	if p.links++; p.links > maxLinks {
		return syntaxError(p.cur().line, "more than %d operators in one tag", maxLinks)
	}
	return nil
}

func (p *parser) leave() { p.depth-- }

func (p *parser) cur() token { return p.tokens[p.pos] }

func (p *parser) peek() token { return p.tokens[min(p.pos+1, len(p.tokens)-1)] }

func (p *parser) next() token {
	t := p.cur()
	if t.kind != tokenEnd {
		p.pos++
	}
	return t
}

func (p *parser) is(kind tokenKind, text string) bool {
	return p.cur().kind == kind && p.cur().text == text
}

func (p *parser) op(text string) bool      { return p.is(tokenOperator, text) }
func (p *parser) keyword(text string) bool { return p.is(tokenName, text) }

func (p *parser) accept(kind tokenKind, text string) bool {
	if !p.is(kind, text) {
		return false
	}
	p.next()
	return true
}

func (p *parser) expect(kind tokenKind, text string) error {
	if !p.accept(kind, text) {
		return syntaxError(p.cur().line, "expected %q, found %q", text, p.cur().text)
	}
	return nil
}

func (p *parser) name() (string, error) {
	if p.cur().kind != tokenName {
		return "", syntaxError(p.cur().line, "expected a name, found %q", p.cur().text)
	}
	return p.next().text, nil
}

// statements parses up to the end of the template, or up to a tag whose name is in ends,
// which becomes the current token.
func (p *parser) statements(ends ...string) ([]statement, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	var body []statement
	for {
		p.links = 0
		switch t := p.cur(); t.kind {
		case tokenEnd:
			if len(ends) > 0 {
				return nil, syntaxError(t.line, "the template ends where %q was expected", ends[len(ends)-1])
			}
			return body, nil
		case tokenData:
			p.next()
			body = append(body, textNode(t.text))
		case tokenPrintBegin:
			p.next()
			e, err := p.tuple(true, false)
			if err != nil {
				return nil, err
			}
			if err := p.expect(tokenPrintEnd, "}}"); err != nil {
				return nil, err
			}
			body = append(body, &printNode{e, t.line})
		case tokenTagBegin:
			p.next()
			if p.cur().kind == tokenName && slices.Contains(ends, p.cur().text) {
				return body, nil
			}
			s, err := p.statement()
			if err != nil {
				return nil, err
			}
			if err := p.expect(tokenTagEnd, "%}"); err != nil {
				return nil, err
			}
			body = append(body, s)
		default:
			return nil, syntaxError(t.line, "unexpected %q", t.text)
		}
	}
}

// block parses the end of the current tag, a body, and its end tag.
func (p *parser) block(end string) ([]statement, error) {
	if err := p.expect(tokenTagEnd, "%}"); err != nil {
		return nil, err
	}
	body, err := p.statements(end)
	p.next()
	return body, err
}

// scoped parses a block in which break and continue do not apply to enclosing loops.
func (p *parser) scoped(end string) ([]statement, error) {
	loops := p.loops
	p.loops = 0
	body, err := p.block(end)
	p.loops = loops
	return body, err
}

func (p *parser) statement() (statement, error) {
	t := p.cur()
	name, err := p.name()
	if err != nil {
		return nil, err
	}
	switch name {
	case "for":
		return p.forStatement(t.line)
	case "if":
		return p.ifStatement(t.line)
	case "set":
		return p.setStatement(t.line)
	case "macro":
		return p.macroStatement(t.line)
	case "call":
		return p.callStatement(t.line)
	case "with":
		return p.withStatement(t.line)
	case "filter":
		f := &filterNode{line: t.line}
		first, err := p.filter(nil)
		if err != nil {
			return nil, err
		}
		if f.filters, err = p.filters(first); err != nil {
			return nil, err
		}
		f.body, err = p.scoped("endfilter")
		return f, err
	case "generation":
		body, err := p.scoped("endgeneration")
		return &generationNode{body}, err
	case "break", "continue":
		if p.loops == 0 {
			return nil, syntaxError(t.line, "%s outside of a loop", name)
		}
		if name == "break" {
			return jumpNode{errBreak}, nil
		}
		return jumpNode{errContinue}, nil
	}
	return nil, syntaxError(t.line, "unknown or misplaced tag %q; known are break, call, continue, filter, for, generation, if, macro, raw, set and with", name)
}

func (p *parser) forStatement(line int) (statement, error) {
	n := &forNode{line: line}
	var err error
	if n.target, err = p.target("in"); err != nil {
		return nil, err
	}
	if err := p.expect(tokenName, "in"); err != nil {
		return nil, err
	}
	if n.seq, err = p.tuple(false, false, "recursive"); err != nil {
		return nil, err
	}
	if p.accept(tokenName, "if") {
		if n.filter, err = p.expression(); err != nil {
			return nil, err
		}
	}
	n.recursive = p.accept(tokenName, "recursive")
	if err := p.expect(tokenTagEnd, "%}"); err != nil {
		return nil, err
	}
	p.loops++
	n.body, err = p.statements("endfor", "else")
	p.loops--
	if err != nil {
		return nil, err
	}
	if p.next().text == "else" {
		n.otherwise, err = p.block("endfor")
	}
	return n, err
}

func (p *parser) ifStatement(line int) (statement, error) {
	n := &ifNode{line: line}
	var err error
	if n.test, err = p.tuple(false, false); err != nil {
		return nil, err
	}
	if err := p.expect(tokenTagEnd, "%}"); err != nil {
		return nil, err
	}
	if n.body, err = p.statements("elif", "else", "endif"); err != nil {
		return nil, err
	}
	switch t := p.next(); t.text {
	case "elif":
		if err := p.enter(); err != nil {
			return nil, err
		}
		defer p.leave()
		s, err := p.ifStatement(t.line)
		n.otherwise = []statement{s}
		return n, err
	case "else":
		n.otherwise, err = p.block("endif")
	}
	return n, err
}

func (p *parser) setStatement(line int) (statement, error) {
	n := &setNode{line: line}
	var err error
	if n.target, err = p.target(""); err != nil {
		return nil, err
	}
	if p.accept(tokenOperator, "=") {
		n.value, err = p.tuple(true, false)
		return n, err
	}
	if n.filters, err = p.filters(nil); err != nil {
		return nil, err
	}
	n.body, err = p.scoped("endset")
	return n, err
}

func (p *parser) macroStatement(line int) (statement, error) {
	n := &macroNode{line: line}
	var err error
	if n.name, err = p.name(); err != nil {
		return nil, err
	}
	if n.params, err = p.signature(); err != nil {
		return nil, err
	}
	start := p.pos
	n.body, err = p.scoped("endmacro")
	n.mentions(p.tokens[start:p.pos])
	return n, err
}

func (p *parser) callStatement(line int) (statement, error) {
	n := &callNode{line: line, caller: macroNode{name: "caller", line: line}}
	var err error
	if p.op("(") {
		if n.caller.params, err = p.signature(); err != nil {
			return nil, err
		}
	}
	e, err := p.expression()
	if err != nil {
		return nil, err
	}
	call, ok := e.(*callExpr)
	if !ok {
		return nil, syntaxError(line, "call needs the call of a macro")
	}
	n.call = call
	start := p.pos
	n.caller.body, err = p.scoped("endcall")
	n.caller.mentions(p.tokens[start:p.pos])
	return n, err
}

// mentions records which of its special variables the body of a macro uses.
func (n *macroNode) mentions(body []token) {
	has := func(name string) bool {
		return slices.ContainsFunc(body, func(t token) bool { return t.kind == tokenName && t.text == name })
	}
	n.varargs, n.kwargs, n.caller = has("varargs"), has("kwargs"), has("caller")
}

func (p *parser) withStatement(line int) (statement, error) {
	n := &withNode{line: line}
	for !p.is(tokenTagEnd, "%}") {
		if len(n.targets) > 0 {
			if err := p.expect(tokenOperator, ","); err != nil {
				return nil, err
			}
		}
		target, err := p.target("")
		if err != nil {
			return nil, err
		}
		if err := p.expect(tokenOperator, "="); err != nil {
			return nil, err
		}
		value, err := p.expression()
		if err != nil {
			return nil, err
		}
		n.targets, n.values = append(n.targets, target), append(n.values, value)
	}
	var err error
	n.body, err = p.block("endwith")
	return n, err
}

// signature parses (a, b=default).
func (p *parser) signature() ([]parameter, error) {
	if err := p.expect(tokenOperator, "("); err != nil {
		return nil, err
	}
	var params []parameter
	for !p.op(")") {
		if len(params) > 0 {
			if err := p.expect(tokenOperator, ","); err != nil {
				return nil, err
			}
		}
		name, err := p.name()
		if err != nil {
			return nil, err
		}
		param := parameter{name: name}
		if p.accept(tokenOperator, "=") {
			if param.fallback, err = p.expression(); err != nil {
				return nil, err
			}
		} else if len(params) > 0 && params[len(params)-1].fallback != nil {
			return nil, syntaxError(p.cur().line, "parameter %q without default behind one with default", name)
		}
		params = append(params, param)
	}
	p.next()
	return params, nil
}

// target parses the target of an assignment: a name, an attribute of a namespace, or a
// tuple of these.
func (p *parser) target(end string) (target, error) {
	t := p.cur()
	e, err := p.tuple(false, true, end)
	if err != nil {
		return nil, err
	}
	return asTarget(e, t.line)
}

func asTarget(e expression, line int) (target, error) {
	switch e := e.(type) {
	case *nameExpr:
		return e, nil
	case *attrExpr:
		if _, ok := e.object.(*nameExpr); ok {
			return e, nil
		}
	case *tupleExpr:
		var targets tupleTarget
		for _, item := range e.items {
			t, err := asTarget(item, line)
			if err != nil {
				return nil, err
			}
			targets = append(targets, t)
		}
		return targets, nil
	}
	return nil, syntaxError(line, "cannot assign to this")
}

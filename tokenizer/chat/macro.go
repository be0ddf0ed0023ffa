package chat

type (
	macroNode struct {
		name   string
		params []parameter
		body   []statement
		line   int
		// Whether the body uses these variables; a macro that does not rejects such
		// arguments.
		varargs, kwargs, caller bool
	}
	parameter struct {
		name     string
		fallback expression // nil if required
	}
	// macro is a macro with the scope of its definition.
	macro struct {
		*macroNode
		scope *scope
	}
)

func (n *macroNode) exec(_ *interpreter, sc *scope) error {
	sc.vars[n.name] = &macro{n, sc}
	return nil
}

func (n *callNode) exec(in *interpreter, sc *scope) error {
	callee, err := n.call.callee.eval(in, sc)
	if err != nil {
		return err
	}
	args, err := in.evalArgs(n.call.args, sc)
	if err != nil {
		return in.at(n.line, err)
	}
	if err := args.name("caller", &macro{&n.caller, sc}); err != nil {
		return in.at(n.line, err)
	}
	v, err := in.callValue(callee, args)
	if err == nil {
		err = in.write(in.text(v))
	}
	return in.at(n.line, err)
}

func (m *macro) call(in *interpreter, args *arguments) (any, error) {
	if err := in.call(); err != nil {
		return nil, err
	}
	defer in.back()
	sc := newScope(m.scope)
	// Each parameter name is searched among all named arguments.
	if err := in.spend(int64(len(m.params)+1), int64(len(args.named)+1)*itemBytes); err != nil {
		return nil, err
	}
	rest := &arguments{pos: args.pos, named: args.named}
	if m.caller {
		v, ok := rest.pop("caller")
		if !ok {
			v = &undefined{"caller"}
		}
		sc.vars["caller"] = v
	}
	given := make([]bool, len(m.params))
	for i, p := range m.params {
		named, ok := rest.pop(p.name)
		switch {
		case len(rest.pos) > 0 && ok:
			return nil, typeError("macro %s: argument %q is given twice", m.name, p.name)
		case len(rest.pos) > 0:
			sc.vars[p.name], given[i] = rest.pos[0], true
			rest.pos = rest.pos[1:]
		case ok:
			sc.vars[p.name], given[i] = named, true
		default:
			sc.vars[p.name] = &undefined{"parameter '" + p.name + "'"}
		}
	}
	for i, p := range m.params {
		if given[i] || p.fallback == nil {
			continue
		}
		v, err := p.fallback.eval(in, sc)
		if err != nil {
			return nil, err
		}
		sc.vars[p.name] = v
	}
	if m.varargs {
		sc.vars["varargs"] = tuple(rest.pos)
	} else if len(rest.pos) > 0 {
		return nil, typeError("macro %s takes at most %d arguments", m.name, len(m.params))
	}
	if m.kwargs {
		if err := in.spend(int64(len(rest.named)), entryBytes); err != nil {
			return nil, err
		}
		d := newDict()
		for _, n := range rest.named {
			d.setString(n.name, n.value)
		}
		sc.vars["kwargs"] = d
	} else if len(rest.named) > 0 {
		return nil, typeError("macro %s has no argument %q", m.name, rest.named[0].name)
	}
	return in.capture(m.body, sc)
}

package chat

// walk calls visit for each statement of a body and each expression in it, outermost first,
// until visit returns false. It returns false if visit did.
func walk(body []statement, visit func(node any) bool) bool {
	for _, s := range body {
		if !visit(s) || !walkStatement(s, visit) {
			return false
		}
	}
	return true
}

func walkStatement(s statement, visit func(any) bool) bool {
	switch s := s.(type) {
	case *printNode:
		return walkAll(visit, s.value)
	case *ifNode:
		return walkAll(visit, s.test) && walk(s.body, visit) && walk(s.otherwise, visit)
	case *forNode:
		return walkAll(visit, s.seq, s.filter) && walk(s.body, visit) && walk(s.otherwise, visit)
	case *withNode:
		return walkAll(visit, s.values...) && walk(s.body, visit)
	case *macroNode:
		for _, p := range s.params {
			if !walkAll(visit, p.fallback) {
				return false
			}
		}
		return walk(s.body, visit)
	case *setNode:
		return walkAll(visit, s.value, s.filters) && walk(s.body, visit)
	case *filterNode:
		return walkAll(visit, s.filters) && walk(s.body, visit)
	case *generationNode:
		return walk(s.body, visit)
	case *callNode:
		return walkAll(visit, s.call) && walk(s.caller.body, visit)
	}
	return true
}

// walkAll walks expressions, some of which may be nil.
func walkAll(visit func(any) bool, exprs ...expression) bool {
	for _, e := range exprs {
		if e != nil && (!visit(e) || !walkAll(visit, operands(e)...)) {
			return false
		}
	}
	return true
}

// operands returns the subexpressions of an expression.
func operands(e expression) []expression {
	switch e := e.(type) {
	case *attrExpr:
		return []expression{e.object}
	case *itemExpr:
		return []expression{e.object, e.key}
	case *sliceExpr:
		return e.parts[:]
	case *tupleExpr:
		return e.items
	case *listExpr:
		return e.items
	case *dictExpr:
		return append(append([]expression(nil), e.keys...), e.values...)
	case *condExpr:
		return []expression{e.test, e.then, e.otherwise}
	case *logicExpr:
		return []expression{e.left, e.right}
	case *notExpr:
		return []expression{e.value}
	case *compareExpr:
		return append([]expression{e.first}, e.rest...)
	case *binaryExpr:
		return []expression{e.left, e.right}
	case *signExpr:
		return []expression{e.value}
	case *callExpr:
		return append(e.args.all(), e.callee)
	case *filterExpr:
		return append(e.args.all(), e.value)
	case *testExpr:
		return append(e.args.all(), e.value)
	}
	return nil
}

func (a callArgs) all() []expression {
	all := append([]expression{a.star, a.doubleStar}, a.pos...)
	for _, n := range a.named {
		all = append(all, n.value)
	}
	return all
}

// hasGeneration reports whether the statements contain a generation tag.
func hasGeneration(body []statement) bool {
	return !walk(body, func(node any) bool {
		_, is := node.(*generationNode)
		return !is
	})
}

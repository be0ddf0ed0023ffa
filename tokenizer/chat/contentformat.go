package chat

// detectContentFormat detects how a template reads the content of messages, as vLLM does: a
// template accepts lists if it loops over a content or selects parts of it. Variables
// assigned from a content, and macro parameters that receive one, count as contents too.
func detectContentFormat(body []statement) contentFormat {
	c := contents{names: map[string]bool{}, macros: map[string]*macroNode{}}
	walk(body, func(node any) bool {
		if m, ok := node.(*macroNode); ok {
			c.macros[m.name] = m
		}
		return true
	})
	for known := -1; known < len(c.names); { // each pass may find variables that other variables are assigned from
		known = len(c.names)
		walk(body, func(node any) bool { c.learn(node); return true })
	}
	if walk(body, func(node any) bool { return !c.picks(node) }) {
		return contentText
	}
	if walk(body, func(node any) bool { return !c.reads(node) }) {
		return contentParts
	}
	return contentEither
}

// contents tracks the variables of a template that hold the content of a
// message.
type contents struct {
	names  map[string]bool
	macros map[string]*macroNode
}

// learn records the variables to which a node assigns a content.
func (c *contents) learn(node any) {
	assign := func(to target, value expression) {
		if name, ok := to.(*nameExpr); ok && value != nil && c.is(value) {
			c.names[name.name] = true
		}
	}
	switch node := node.(type) {
	case *setNode:
		assign(node.target, node.value)
	case *withNode:
		for i, to := range node.targets {
			assign(to, node.values[i])
		}
	case *callExpr:
		callee, ok := node.callee.(*nameExpr)
		if !ok || c.macros[callee.name] == nil {
			return
		}
		for i, p := range c.macros[callee.name].params {
			if i < len(node.args.pos) && c.is(node.args.pos[i]) {
				c.names[p.name] = true
			}
			for _, n := range node.args.named {
				if n.name == p.name && c.is(n.value) {
					c.names[p.name] = true
				}
			}
		}
	}
}

// is reports whether an expression may be the content of a message, or some of its parts.
func (c *contents) is(e expression) bool {
	switch e := e.(type) {
	case *nameExpr:
		return c.names[e.name]
	case *attrExpr:
		return e.name == "content"
	case *itemExpr:
		if _, isSlice := e.key.(*sliceExpr); isSlice {
			return c.is(e.object)
		}
		return isConst(e.key, "content")
	case *callExpr:
		get, ok := e.callee.(*attrExpr)
		return ok && get.name == "get" && len(e.args.pos) > 0 && isConst(e.args.pos[0], "content")
	case *filterExpr:
		return e.value != nil && c.is(e.value)
	case *condExpr:
		return c.is(e.then) || e.otherwise != nil && c.is(e.otherwise)
	case *logicExpr:
		return c.is(e.left) || c.is(e.right)
	}
	return false
}

// picks reports whether a node iterates over the parts of a content or selects
// some.
func (c *contents) picks(node any) bool {
	switch node := node.(type) {
	case *forNode:
		return c.is(node.seq)
	case *filterExpr:
		switch node.name {
		case "map", "selectattr", "rejectattr":
			return node.value != nil && c.is(node.value)
		}
	case *attrExpr: // content[0].text
		return c.isPart(node.object)
	case *itemExpr: // content[0]["text"]
		return c.isPart(node.object)
	}
	return false
}

// reads reports whether a node uses a content as a string, or tests whether it is one.
func (c *contents) reads(node any) bool {
	switch node := node.(type) {
	case *testExpr:
		switch node.name {
		case "string", "iterable", "sequence", "mapping":
			return c.is(node.value)
		}
	case *printNode:
		return c.is(node.value)
	case *binaryExpr:
		return c.is(node.left) || c.is(node.right)
	case *callExpr:
		method, ok := node.callee.(*attrExpr)
		return ok && c.is(method.object)
	}
	return false
}

func (c *contents) isPart(e expression) bool {
	item, ok := e.(*itemExpr)
	if !ok || !c.is(item.object) {
		return false
	}
	n, ok := item.key.(constExpr)
	if !ok {
		return false
	}
	_, ok = n.value.(int64)
	return ok
}

func isConst(e expression, value any) bool {
	c, ok := e.(constExpr)
	return ok && c.value == value
}

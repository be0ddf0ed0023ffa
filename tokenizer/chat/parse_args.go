package chat

// callArgs parses the arguments of a call, in parentheses.
func (p *parser) callArgs() (callArgs, error) {
	var args callArgs
	p.next() // (
	if err := p.enter(); err != nil {
		return args, err
	}
	defer p.leave()
	for first := true; !p.accept(tokenOperator, ")"); first = false {
		if !first {
			if err := p.expect(tokenOperator, ","); err != nil {
				return args, err
			}
			if p.accept(tokenOperator, ")") {
				break
			}
		}
		line := p.cur().line
		var err error
		switch {
		case args.star == nil && p.accept(tokenOperator, "*"):
			args.star, err = p.expression()
		case args.doubleStar == nil && p.accept(tokenOperator, "**"):
			args.doubleStar, err = p.expression()
		case p.cur().kind == tokenName && p.peek().kind == tokenOperator && p.peek().text == "=":
			name := p.next().text
			p.next()
			var value expression
			value, err = p.expression()
			args.named = append(args.named, namedArg{name, value})
		default:
			if args.star != nil || args.doubleStar != nil || len(args.named) > 0 {
				return args, syntaxError(line, "positional argument behind a named one")
			}
			var value expression
			value, err = p.expression()
			args.pos = append(args.pos, value)
		}
		if err != nil {
			return args, err
		}
	}
	return args, nil
}

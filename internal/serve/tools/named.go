package tools

// literal expects text and continues in state next.
func (p *Parser) literal(text string, next state) verdict {
	switch found, open := prefix(p.rest(), text); {
	case open:
		return wait
	case !found:
		return no
	}
	p.at += len(text)
	p.state = next
	return on
}

// named reads the name of a call that is not part of a JSON object.
func (p *Parser) named(next state) verdict {
	rest, n := p.rest(), 0
	for n < len(rest) && nameByte(rest[n]) {
		n++
	}
	if n == len(rest) && n <= maxName {
		return wait
	}
	name := string(rest[:n])
	if !p.known(name) {
		return no
	}
	p.call = jsonCall{name: name}
	p.at += n
	p.state = next
	return on
}

// arguments reads the arguments of a call whose name is known.
func (p *Parser) arguments() verdict {
	o := &p.call
	if o.json.want == wantObject {
		p.at += skip(p.rest())
		o.from = p.at
	}
	for p.at < min(len(p.buf), maxCall) {
		if !o.json.step(p.buf[p.at]) {
			return no
		}
		p.at++
		if o.json.want == ended {
			p.pass(o.name, p.buf[o.from:p.at])
			return p.done((*Parser).end)
		}
	}
	return wait
}

// tagged reads the text after <tool_call>.
func (p *Parser) tagged() verdict {
	p.at += skip(p.rest())
	if found, open := prefix(p.rest(), "{"); found || open {
		if open {
			return wait
		}
		return p.beginObject(false, (*Parser).end)
	}
	return p.literal(function, (*Parser).function)
}

// mistral reads the text after [TOOL_CALLS]: a list, or a name with arguments.
func (p *Parser) mistral() verdict {
	p.at += skip(p.rest())
	switch found, open := prefix(p.rest(), "["); {
	case open:
		return wait
	case found:
		return p.list()
	}
	return p.named((*Parser).mistralArguments)
}

func (p *Parser) mistralArguments() verdict {
	rest := p.rest()
	if found, _ := prefix(rest, "{"); found {
		p.state = (*Parser).arguments
		return on
	}
	if found, open := prefix(rest, "[CALL_ID]"); found {
		n := len("[CALL_ID]")
		for n < len(rest) && nameByte(rest[n]) {
			n++
		}
		if n == len(rest) {
			return wait
		}
		p.at += n
		return p.literal("[ARGS]", (*Parser).arguments)
	} else if open {
		return wait
	}
	return p.literal("[ARGS]", (*Parser).arguments)
}

func (p *Parser) deepSeek() verdict {
	p.at += skip(p.rest())
	return p.literal(deepSeekCall, (*Parser).deepSeekType)
}

func (p *Parser) deepSeekType() verdict {
	return p.literal("function"+deepSeekName, (*Parser).deepSeekFunction)
}

func (p *Parser) deepSeekFunction() verdict { return p.named((*Parser).deepSeekBlock) }

func (p *Parser) deepSeekBlock() verdict {
	return p.literal("\n```json\n", (*Parser).arguments)
}

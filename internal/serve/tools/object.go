package tools

import "encoding/json"

// jsonCall is a call in JSON, partly read: {"name": …, "arguments": {…}}.
type jsonCall struct {
	json  scanner
	name  string
	key   string // of the current value
	seen  map[string]bool
	from  int  // start of a member name or value
	value bool // within a value
	whole bool // requires both name and arguments
	args  []byte
	begun bool // the start was emitted
	next  state
}

// keys are the allowed keys of a call with the first byte of their values. An object with another
// key is not a call.
var keys = map[string]byte{"name": '"', "arguments": '{', "parameters": '{', "id": '"', "type": '"'}

// beginObject starts reading a call at this position and continues in state next.
func (p *Parser) beginObject(whole bool, next state) verdict {
	p.call = jsonCall{seen: map[string]bool{}, whole: whole, next: next}
	p.state = (*Parser).object
	return on
}

func (p *Parser) object() verdict {
	o := &p.call
	for p.at < min(len(p.buf), maxCall) {
		b, was, outer := p.buf[p.at], o.json.want, len(o.json.nest) == 1
		if outer && b == '"' && (was == wantName || was == wantFirst) {
			o.from = p.at
		}
		if outer && (was == wantValue) && !space(b) {
			if o.key = canonical(o.key); keys[o.key] != b || o.seen[o.key] {
				return no
			}
			o.seen[o.key], o.value, o.from = true, true, p.at
			if o.key == "arguments" && p.sure && o.name != "" {
				p.beginCall(o.name)
				o.begun = true
			}
		}
		if !o.json.step(b) {
			return no
		}
		p.at++
		switch {
		case o.json.want == ended:
			if o.name == "" || o.whole && !o.seen["arguments"] {
				return no
			}
			if !o.begun {
				p.pass(o.name, o.args)
			}
			return p.done(o.next)
		case len(o.json.nest) != 1:
		case was == inString && o.json.want == wantColon:
			if json.Unmarshal(p.buf[o.from:p.at], &o.key) != nil || keys[o.key] == 0 {
				return no
			}
		case o.value && o.json.want == wantMore:
			if o.value = false; !p.member(p.buf[o.from:p.at]) {
				return no
			}
		}
	}
	if o.begun && o.value {
		if p.stream(); len(p.buf) > 0 {
			return on
		}
	}
	return wait
}

// canonical returns the canonical name of a key with two names.
func canonical(key string) string {
	if key == "parameters" {
		return "arguments"
	}
	return key
}

// member processes a member of a call and reports whether it is valid.
func (p *Parser) member(text []byte) bool {
	o := &p.call
	switch o.key {
	case "name":
		return json.Unmarshal(text, &o.name) == nil && p.known(o.name)
	case "arguments":
		if o.begun {
			p.stream()
		} else {
			o.args = append([]byte{}, text...)
		}
	}
	return true
}

// known reports whether a call may have a name. If no mark identifies the text as a call, or if
// Options.Only is set, the name must be one of the parser's tools.
func (p *Parser) known(name string) bool {
	return ValidName(name) && (p.tools[name] != nil || !p.form.bare && !p.only)
}

// stream emits the arguments read so far.
func (p *Parser) stream() {
	if p.at > p.call.from {
		p.out = append(p.out, Delta{Index: p.calls - 1, Arguments: string(p.buf[p.call.from:p.at])})
	}
	p.drop(p.at)
	p.call.from = 0
}

// beginCall emits the start of a call.
func (p *Parser) beginCall(name string) {
	p.out = append(p.out, Delta{Index: p.calls, ID: p.ids.next(), Name: name})
	p.calls++
	p.last, p.began = true, true
}

// pass emits a complete call.
func (p *Parser) pass(name string, arguments []byte) {
	if arguments == nil {
		arguments = []byte("{}")
	}
	p.beginCall(name)
	p.out = append(p.out, Delta{Index: p.calls - 1, Arguments: string(arguments)})
}

// done ends a call.
func (p *Parser) done(next state) verdict {
	p.drop(p.at)
	p.state = next
	return on
}

// end continues after the last call.
func (p *Parser) end() verdict {
	p.inCall, p.state = false, (*Parser).skipEndMarks
	return on
}

// list reads a list of calls.
func (p *Parser) list() verdict {
	p.at += skip(p.rest())
	return p.literal("[", (*Parser).item)
}

func (p *Parser) item() verdict {
	p.at += skip(p.rest())
	if rest := p.rest(); len(rest) == 0 {
		return wait
	}
	return p.beginObject(false, (*Parser).moreItems)
}

func (p *Parser) moreItems() verdict {
	p.at += skip(p.rest())
	if found, _ := prefix(p.rest(), "]"); found {
		p.drop(p.at + 1)
		return p.end()
	}
	return p.literal(",", (*Parser).item)
}

// bareObject reads a call without a preceding mark.
func (p *Parser) bareObject() verdict {
	p.at += skip(p.rest())
	if len(p.rest()) == 0 {
		return wait
	}
	return p.beginObject(true, (*Parser).moreBare)
}

// moreBare reads further calls after the first, with or without a semicolon between them.
func (p *Parser) moreBare() verdict {
	rest := p.rest()
	i := skip(rest)
	if found, _ := prefix(rest[i:], ";"); found {
		i++
	}
	i += skip(rest[i:])
	switch found, open := prefix(rest[i:], "{"); {
	case open:
		return wait
	case !found:
		return no
	}
	p.at += i
	return p.beginObject(true, (*Parser).moreBare)
}

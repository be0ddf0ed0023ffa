package tools

import (
	"bytes"
	"encoding/json"

	"github.com/lorafuse/lorafuse/internal/pyjson"
)

// xmlCall is a call in XML tags, partly read.
type xmlCall struct {
	args  []byte               // as JSON, without the last brace
	types func(string) typeSet // of parameters
	seen  map[string]bool      // parameters
	name  string               // of the current parameter
	from  int                  // start of its value
	seek  int                  // where to search for the end tag
}

const (
	parameter    = "<parameter="
	parameterEnd = "</parameter>"
	functionEnd  = "</function>"
	maxKey       = 256
)

// function reads the text after <function=.
func (p *Parser) function() verdict {
	return p.named((*Parser).functionNamed)
}

func (p *Parser) functionNamed() verdict {
	p.xml = xmlCall{args: []byte{'{'}, seen: map[string]bool{}}
	return p.literal(">", (*Parser).parameters)
}

// parameters reads the next parameter, or the end of the call.
func (p *Parser) parameters() verdict {
	p.at += skip(p.rest())
	switch found, open := prefix(p.rest(), functionEnd); {
	case found:
		p.at += len(functionEnd)
		p.pass(p.call.name, append(p.xml.args, '}'))
		return p.done((*Parser).end)
	case open:
		return wait
	}
	return p.literal(parameter, (*Parser).key)
}

// key reads the name of a parameter.
func (p *Parser) key() verdict {
	x, rest := &p.xml, p.rest()
	n := bytes.IndexAny(rest, "<>\n")
	switch {
	case n < 0 && len(rest) <= maxKey:
		return wait
	case n <= 0 || n > maxKey || rest[n] != '>' || x.seen[string(rest[:n])]:
		return no
	}
	x.name = string(rest[:n])
	x.seen[x.name] = true
	p.at += n + 1
	x.from, x.seek = p.at, p.at
	p.state = (*Parser).value
	return on
}

// value reads up to the end tag of a parameter. Only an end tag followed by another parameter or
// the end of the call counts, so that values may contain tags.
func (p *Parser) value() verdict {
	x, text := &p.xml, p.buf[:min(len(p.buf), maxCall)]
	for {
		i := bytes.Index(text[x.seek:], []byte(parameterEnd))
		if i < 0 {
			x.seek = max(x.seek, len(text)-len(parameterEnd)+1)
			p.at = x.seek
			return wait
		}
		x.seek += i
		p.at = x.seek
		behind := text[x.seek+len(parameterEnd):]
		spaces := skip(behind)
		another, mayBe := prefix(behind[spaces:], parameter)
		last, mayEnd := prefix(behind[spaces:], functionEnd)
		switch {
		case spaces > maxSpace:
		case another || last:
			p.parameter(text[x.from:x.seek])
			p.at = x.seek + len(parameterEnd)
			p.state = (*Parser).parameters
			return on
		case mayBe || mayEnd:
			return wait
		}
		x.seek++
	}
}

// parameter adds a parameter to the arguments. A line break at either end of the value belongs to
// the tags.
func (p *Parser) parameter(text []byte) {
	x := &p.xml
	if len(x.seen) == 1 {
		x.types = p.tools[p.call.name].types()
	} else {
		x.args = append(x.args, ", "...)
	}
	x.args = append(pyjson.AppendQuoted(x.args, x.name, false), ": "...)
	text = bytes.TrimSuffix(bytes.TrimPrefix(text, []byte("\n")), []byte("\n"))
	x.args = append(x.args, encode(string(text), x.types(x.name))...)
}

// encode returns text as JSON of the first of types that it parses as, or else as a string.
func encode(text string, types typeSet) []byte {
	switch text {
	case "null", "None":
		if types&isNull != 0 {
			return []byte("null")
		}
	case "true", "True":
		if types&isBoolean != 0 {
			return []byte("true")
		}
	case "false", "False":
		if types&isBoolean != 0 {
			return []byte("false")
		}
	}
	if raw := bytes.TrimSpace([]byte(text)); json.Valid(raw) {
		switch kind := raw[0]; {
		case kind == '{' && types&isObject != 0, kind == '[' && types&isArray != 0, (kind == '-' || digit(kind)) && types&isNumber != 0:
			return raw
		}
	}
	return pyjson.AppendQuoted(nil, text, false)
}

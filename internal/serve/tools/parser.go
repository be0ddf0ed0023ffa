package tools

import (
	"crypto/rand"
	"io"
)

// Limits of held-back text.
const (
	maxCall  = 1 << 20 // bytes of a call
	maxSpace = 64      // bytes of white space that may precede a call
	maxAgain = 1 << 22 // total bytes scanned again after failed calls
)

// Options configure a parser.
type Options struct {
	Syntax Syntax
	Tools  []Tool // that may be called
	// Only makes calls of other tools text.
	Only bool
	// Forced means that the answer is constrained to the schema of [Forced], whatever the syntax.
	Forced bool
	Rand   io.Reader // source of IDs; nil: crypto/rand
}

// Delta is a part of an answer: text, the start of a call, or a part of its arguments.
type Delta struct {
	Text string // set if the delta is text

	Index int // of the call, from 0
	// ID and Name are set at the start of a call.
	ID, Name string
	// Arguments is a part of the arguments; concatenated, the parts are the model's JSON object.
	Arguments string
}

// Parser splits an answer into text and tool calls. The result depends only on the answer, not on
// how it is split into chunks. Nothing is lost except white space around calls and the marks of the
// syntax. A Parser is not safe for concurrent use.
type Parser struct {
	form  form
	tools map[string]*Tool
	sure  bool // calls cannot be malformed
	only  bool // as in Options
	ids   ids

	buf        []byte // not yet emitted
	at         int    // bytes of buf that were read
	textBefore int    // bytes of buf that are text if this is not a call
	state      state
	inCall     bool
	began      bool // something other than white space has arrived
	last       bool // the last delta was a call
	calls      int  // number of calls begun
	again      int  // bytes scanned again
	out        []Delta

	call jsonCall // the current call
	xml  xmlCall
}

// state parses at one place of the syntax.
type state func(*Parser) verdict

type verdict int

const (
	wait verdict = iota // wait for more text
	on                  // continue in Parser.state
	no                  // this is not a call
)

// New returns a parser for one answer.
func New(o Options) *Parser {
	p := &Parser{form: o.Syntax.form(), tools: map[string]*Tool{}, sure: o.Forced, only: o.Only, state: (*Parser).text}
	for i := range o.Tools {
		p.tools[o.Tools[i].Name] = &o.Tools[i]
	}
	p.ids = ids{o.Rand, p.form.ids}
	if o.Rand == nil {
		p.ids.random = rand.Reader
	}
	if o.Forced {
		p.form.openers, p.form.bare = nil, false
		p.inCall, p.state = true, (*Parser).list
	}
	return p
}

// Push processes more of the answer and returns the deltas that are certain.
func (p *Parser) Push(text string) []Delta {
	p.buf = append(p.buf, text...)
	p.run()
	return p.takeDeltas()
}

// Flush ends the answer and returns the remaining deltas. An incomplete call is text. The parser
// accepts no more text.
func (p *Parser) Flush() []Delta {
	for p.run(); p.inCall; p.run() {
		p.giveUp()
	}
	if !p.last || skip(p.buf) < len(p.buf) {
		p.show(len(p.buf))
	}
	return p.takeDeltas()
}

// Calls returns the number of calls that have begun.
func (p *Parser) Calls() int { return p.calls }

func (p *Parser) takeDeltas() []Delta {
	out := p.out
	p.out = nil
	return out
}

// run processes the buffer.
func (p *Parser) run() {
	for {
		v := p.state(p)
		if v == wait && p.inCall && len(p.buf) >= maxCall {
			v = no
		}
		switch v {
		case wait:
			return
		case no:
			p.giveUp()
		}
	}
}

// rest returns the unread bytes, limited to the maximum length of a call.
func (p *Parser) rest() []byte { return p.buf[p.at:max(p.at, min(len(p.buf), maxCall))] }

// giveUp emits as text what looked like a call, and rescans it for calls inside.
func (p *Parser) giveUp() {
	if p.again += p.at - p.textBefore; p.again > maxAgain {
		p.textBefore = max(p.textBefore, p.at)
	}
	p.show(p.textBefore)
	p.inCall, p.state = false, (*Parser).text
}

// text reads up to the start of a call.
func (p *Parser) text() verdict {
	first := skip(p.buf)
	if p.form.bare && !p.began && first < len(p.buf) && p.buf[first] == '{' {
		return p.enter(first, first, first+1, (*Parser).bareObject)
	}
	held := len(p.buf) // start of the held-back text
	for i := range p.buf {
		if c := p.buf[i]; c != '<' && c != '[' { // all marks begin with one of these
			continue
		}
		for _, m := range p.form.openers {
			found, open := prefix(p.buf[i:], m.text)
			if found {
				at := i + len(m.text)
				return p.enter(i, at, at, m.startState)
			}
			if open {
				held = min(held, i)
			}
		}
	}
	if len(p.form.openers) == 0 && !p.last {
		p.show(len(p.buf))
	} else {
		p.show(p.tight(held))
	}
	return wait
}

// enter starts a call at from. It is read from at on; if it is not a call, the bytes up to mark are
// text.
func (p *Parser) enter(from, at, mark int, begin state) verdict {
	show := p.tight(from)
	p.show(show)
	p.at, p.textBefore = at-show, mark-show
	p.inCall, p.state = true, begin
	return on
}

// tight returns n without the white space before it that belongs to a call.
func (p *Parser) tight(n int) int {
	for i := 0; i < maxSpace && n > 0 && space(p.buf[n-1]); i++ {
		n--
	}
	return n
}

// show emits the first n bytes as text.
func (p *Parser) show(n int) {
	if n > 0 {
		p.out = append(p.out, Delta{Text: string(p.buf[:n])})
		p.last = false
		p.began = p.began || skip(p.buf[:n]) < n
	}
	p.drop(n)
}

// drop discards n bytes. The bytes after them are unread.
func (p *Parser) drop(n int) {
	p.buf = p.buf[n:]
	p.at, p.textBefore = 0, 0
}

// skipEndMarks skips white space and end marks after a call.
func (p *Parser) skipEndMarks() verdict {
	i := skip(p.buf)
	for _, end := range p.form.ends {
		switch found, open := prefix(p.buf[i:], end); {
		case i > maxSpace:
		case found:
			p.drop(i + len(end))
			return on
		case open:
			return wait
		}
	}
	p.state = (*Parser).text
	return on
}

// skip returns the length of the leading white space of text.
func skip(text []byte) int {
	i := 0
	for i < len(text) && space(text[i]) {
		i++
	}
	return i
}

// prefix reports whether text begins with mark; open means that it might, with more text.
func prefix(text []byte, mark string) (found, open bool) {
	n := min(len(text), len(mark))
	same := string(text[:n]) == mark[:n]
	return same && n == len(mark), same && n < len(mark)
}

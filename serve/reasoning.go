package serve

import "strings"

// thinkMarks are the texts that begin and end the reasoning of a model.
type thinkMarks struct{ begin, end string }

// detectThinking returns the marks that the source of a chat template has, or none.
func detectThinking(source string) thinkMarks {
	for _, m := range []thinkMarks{{"<think>", "</think>"}, {"[THINK]", "[/THINK]"}} {
		if strings.Contains(source, m.end) {
			return m
		}
	}
	return thinkMarks{}
}

// thinking splits an answer into the reasoning of the model and the rest.
type thinking struct {
	marks thinkMarks
	state thinkState
	held  string // not yet returned
	began bool   // the reasoning has a character other than a line break
}

type thinkState int

const (
	mayThink   thinkState = iota // only white space so far
	thinks                       // within the reasoning
	trims                        // white space after the reasoning
	doneThinks                   // the rest
)

// newThinking returns the splitter of an answer to a prompt, which may have begun the reasoning.
func newThinking(m thinkMarks, prompt string) *thinking {
	t := &thinking{marks: m}
	switch {
	case m.end == "":
		t.state = doneThinks
	case strings.HasSuffix(strings.TrimRight(prompt, " \n"), m.begin):
		t.state = thinks
	}
	return t
}

// push processes more of the answer. It returns the parts of the reasoning and of the rest that are
// certain; with last, everything.
func (t *thinking) push(text string, last bool) (reasoning, rest string) {
	t.held += text
	for {
		switch t.state {
		case mayThink:
			begin := strings.TrimLeft(t.held, " \n")
			switch found := strings.HasPrefix(begin, t.marks.begin); {
			case found:
				t.held, t.state = begin[len(t.marks.begin):], thinks
				continue
			case !last && strings.HasPrefix(t.marks.begin, begin):
				return reasoning, rest
			}
			t.state = doneThinks
		case thinks:
			if !t.began {
				t.held = strings.TrimLeft(t.held, "\n")
				t.began = t.held != ""
			}
			before, after, found := strings.Cut(t.held, t.marks.end)
			if found {
				reasoning += strings.TrimRight(before, "\n")
				t.held, t.state = after, trims
				continue
			}
			n := len(t.held)
			if !last {
				n = endBefore(t.held, t.marks.end)
			}
			reasoning += t.held[:n]
			t.held = t.held[n:]
			return reasoning, rest
		case trims:
			if t.held = strings.TrimLeft(t.held, "\n"); t.held == "" {
				return reasoning, rest
			}
			t.state = doneThinks
		case doneThinks:
			rest, t.held = rest+t.held, ""
			return reasoning, rest
		}
	}
}

// endBefore returns the length of text without a possible beginning of mark at its end, and without
// the line breaks before that.
func endBefore(text, mark string) int {
	n := len(text)
	for i := min(len(mark)-1, n); i > 0; i-- {
		if strings.HasSuffix(text, mark[:i]) {
			n -= i
			break
		}
	}
	return len(strings.TrimRight(text[:n], "\n"))
}

package kernels

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// preprocessor implements the part of the C++ preprocessor that the kernels use: macros
// with and without parameters, also any number of them, pasting, #include from the same
// folders, #ifdef, #ifndef, and #if with numbers.
type preprocessor struct {
	folders
	macros  map[string]*macro
	defined map[string]bool // names defined without a macro
	seen    []string        // included files
	text    strings.Builder // remaining lines
	made    int             // number of tokens of all expansions
}

type macro struct {
	params []string // nil without parentheses; the last one may be ...
	body   []string
}

// mostTokens is the maximum number of tokens that the macros of a file may expand to.
const mostTokens = 1 << 21

var (
	remarks   = regexp.MustCompile(`(?s)//[^\n]*|/\*.*?\*/`)
	token     = regexp.MustCompile(`"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|[A-Za-z_]\w*|\d[\w.]*|##|\s+|.`)
	directive = regexp.MustCompile(`^\s*#\s*(\w+)\s*(.*)$`)
	define    = regexp.MustCompile(`^(\w+)(\([^)]*\))?(.*)$`)
	include   = regexp.MustCompile(`^"([^"]+)"`)
)

func tokens(text string) []string { return token.FindAllString(text, -1) }

// file processes a file unless it has been included before.
func (p *preprocessor) file(name string) error {
	if slices.Contains(p.seen, name) {
		return nil
	}
	p.seen = append(p.seen, name)
	raw, err := p.read(name)
	if err != nil {
		return err
	}
	text := strings.ReplaceAll(remarks.ReplaceAllString(string(raw), " "), "\\\n", " ")
	var off []bool // for each open condition, whether its lines are skipped
	for line := range strings.Lines(text) {
		m := directive.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if m == nil {
			if !slices.Contains(off, true) {
				p.text.WriteString(line)
			}
			continue
		}
		switch m[1] {
		case "ifdef", "ifndef":
			name := strings.TrimSpace(m[2])
			off = append(off, (p.macros[name] != nil || p.defined[name]) != (m[1] == "ifdef"))
		case "if":
			holds, err := p.holds(m[2])
			if err != nil {
				return err
			}
			off = append(off, !holds)
		case "else", "endif":
			if len(off) == 0 {
				return fmt.Errorf("#%s without a condition", m[1])
			}
			last := len(off) - 1
			if off[last] = !off[last]; m[1] == "endif" {
				off = off[:last]
			}
		default:
			if slices.Contains(off, true) {
				continue
			}
			if err := p.directive(m[1], m[2]); err != nil {
				return err
			}
		}
	}
	if len(off) > 0 {
		return errors.New("a condition has no #endif")
	}
	return nil
}

// holds evaluates the condition of an #if: numbers and macros that expand to numbers,
// each optionally negated, joined by &&.
func (p *preprocessor) holds(condition string) (bool, error) {
	for _, part := range strings.Split(condition, "&&") {
		part, deny := strings.CutPrefix(strings.TrimSpace(part), "!")
		if m := p.macros[part]; m != nil {
			part = strings.TrimSpace(strings.Join(m.body, ""))
		}
		n, err := strconv.Atoi(part)
		if err != nil {
			return false, fmt.Errorf("#if %s: expected macros of numbers joined by &&", condition)
		}
		if (n != 0) == deny {
			return false, nil
		}
	}
	return true, nil
}

// directive executes a directive other than a condition.
func (p *preprocessor) directive(name, rest string) error {
	switch name {
	case "include":
		if m := include.FindStringSubmatch(rest); m != nil && !strings.Contains(m[1], "/") {
			if err := p.file(m[1]); err != nil {
				return fmt.Errorf("%s: %w", m[1], err)
			}
		} // the compiler provides other headers
	case "define":
		m := define.FindStringSubmatch(rest)
		if m == nil {
			return fmt.Errorf("#define %s", rest)
		}
		d := &macro{body: tokens(strings.TrimSpace(m[3]))}
		if m[2] != "" {
			d.params = []string{}
			for _, x := range strings.Split(strings.Trim(m[2], "()"), ",") {
				d.params = append(d.params, strings.TrimSpace(x))
			}
		}
		p.macros[m[1]] = d
	case "undef":
		delete(p.macros, strings.TrimSpace(rest))
	case "pragma", "error":
	default:
		return fmt.Errorf("unknown directive #%s", name)
	}
	return nil
}

// expand expands the macros in a text, except the macros in open, which are being expanded.
func (p *preprocessor) expand(text, open []string) (out []string, err error) {
	for i := 0; i < len(text); i++ {
		if p.made++; p.made > mostTokens {
			return nil, errors.New("macros expand to too many tokens")
		}
		t := text[i]
		m := p.macros[t]
		if m == nil || slices.Contains(open, t) {
			out = append(out, t)
			continue
		}
		var args [][]string
		if m.params != nil {
			after := i + 1
			for after < len(text) && strings.TrimSpace(text[after]) == "" {
				after++
			}
			items, rest, err := list(text[min(after, len(text)):])
			if err != nil { // a name without arguments is no call
				out = append(out, t)
				continue
			}
			args, i = m.join(items), len(text)-len(rest)-1
			if len(args) != len(m.params) && !(len(args) == 0 && len(m.params) == 1) {
				return nil, fmt.Errorf("macro %s has %d arguments, expected %d", t, len(args), len(m.params))
			}
		}
		body, err := p.body(m, args, open)
		if err != nil {
			return nil, err
		}
		if body, err = p.expand(body, append(slices.Clip(open), t)); err != nil {
			return nil, err
		}
		out = append(out, body...)
	}
	return out, nil
}

// join makes one argument of those for "...".
func (m *macro) join(args [][]string) [][]string {
	last := len(m.params) - 1
	if last < 0 || m.params[last] != "..." {
		return args
	}
	rest := []string{}
	for i, a := range args[min(last, len(args)):] {
		if i > 0 {
			rest = append(rest, ",")
		}
		rest = append(rest, a...)
	}
	return append(slices.Clip(args[:min(last, len(args))]), rest)
}

// body returns the body of a macro with its arguments substituted. Operands of ## are
// substituted unexpanded, all others expanded.
func (p *preprocessor) body(m *macro, args [][]string, open []string) (out []string, err error) {
	var body []string // without spaces around ##
	for _, t := range m.body {
		blank := strings.TrimSpace(t) == ""
		if n := len(body); t == "##" && n > 0 && strings.TrimSpace(body[n-1]) == "" {
			body = body[:n-1]
		} else if blank && n > 0 && body[n-1] == "##" {
			continue
		}
		body = append(body, t)
	}
	pasted := func(i int) bool { return i > 0 && body[i-1] == "##" || i+1 < len(body) && body[i+1] == "##" }
	paste := false
	for i, t := range body {
		if t == "##" {
			paste = true
			continue
		}
		put := []string{t}
		if t == "__VA_ARGS__" {
			t = "..."
		}
		if a := slices.Index(m.params, t); a >= 0 && a < len(args) {
			put = slices.Clone(args[a])
			for len(put) > 0 && strings.TrimSpace(put[0]) == "" {
				put = put[1:]
			}
			for len(put) > 0 && strings.TrimSpace(put[len(put)-1]) == "" {
				put = put[:len(put)-1]
			}
			if !pasted(i) {
				if put, err = p.expand(put, open); err != nil {
					return nil, err
				}
			}
		}
		if paste && len(out) > 0 && len(put) > 0 {
			out[len(out)-1] += put[0]
			put = put[1:]
		}
		paste = false
		out = append(out, put...)
		if p.made += len(put); p.made > mostTokens {
			return nil, errors.New("macros expand to too many tokens")
		}
	}
	return out, nil
}

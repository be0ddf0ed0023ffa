package lora

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/dlclark/regexp2/v2"
)

// pattern is a regular expression of Python's re module.
//
// Patterns that Go's linear-time engine understands run there. A pattern with
// look-around, back-references or atomic groups runs in a backtracking engine with a
// time limit. \w, \d and \b match ASCII only, which is sufficient for module names.
type pattern struct {
	source string
	linear *regexp.Regexp
	backtr *regexp2.Regexp
}

// matchTimeout bounds one match of a backtracking pattern against one name.
const matchTimeout = 2 * time.Second

// compilePattern compiles source with the text before and after it, which are
// Go's. Matching is anchored at the start of the name, as re.match is.
func compilePattern(before, source, after string) (*pattern, error) {
	if strings.Count(source, "(") > 1000 || len(source) > 1<<16 {
		return nil, fmt.Errorf("pattern %.40q… is too long", source)
	}
	translated, err := fromPython(source)
	if err != nil {
		return nil, fmt.Errorf("pattern %q: %w", source, err)
	}
	p := &pattern{source: source}
	whole := `\A(?:` + before + translated + after + `)`
	// The pattern alone first: an unbalanced parenthesis must not pair up
	// with one of ours.
	if _, err := regexp.Compile(translated); err == nil {
		p.linear, err = regexp.Compile(whole)
		if err != nil {
			return nil, fmt.Errorf("pattern %q: %w", source, err)
		}
		return p, nil
	}
	if _, err := regexp2.Compile(translated, regexp2.OptionMaintainCaptureOrder()); err != nil {
		return nil, fmt.Errorf("pattern %q: %w", source, err)
	}
	p.backtr, err = regexp2.Compile(whole, regexp2.OptionMaintainCaptureOrder())
	if err != nil {
		return nil, fmt.Errorf("pattern %q: %w", source, err)
	}
	p.backtr.MatchTimeout = matchTimeout
	return p, nil
}

// fullMatch compiles the equivalent of re.fullmatch(source, name).
func fullMatch(source string) (*pattern, error) { return compilePattern("(?:", source, `)\z`) }

// suffixMatch compiles the test for a key of rank_pattern or alpha_pattern:
// re.match("(.*\.)?(KEY)$", name).
func suffixMatch(key string) (*pattern, error) { return compilePattern(`(.*\.)?(`, key, `)$`) }

// savedPattern compiles the test by which an entry of modules_to_save excludes modules
// from adaptation: re.match("(^|.*\.)ENTRY($|\..*)", name).
func savedPattern(entry string) (*pattern, error) {
	return compilePattern(`(^|.*\.)`, entry, `($|\..*)`)
}

// layerPattern compiles a pattern that finds a module's layer number after the name of
// its list: re.match(".*?\.LIST\.(\d+)\.", name).
func layerPattern(list string) (*pattern, error) {
	return compilePattern(`.*?\.`, list, `\.(\d+)\.`)
}

// match reports whether the pattern matches name.
func (p *pattern) match(name string) (bool, error) {
	if p.linear != nil {
		return p.linear.MatchString(name), nil
	}
	ok, err := p.backtr.MatchString(name)
	if err != nil {
		return false, fmt.Errorf("pattern %q on %q: %w", p.source, name, err)
	}
	return ok, nil
}

// find returns the text of group 1, and whether the pattern matches name.
func (p *pattern) find(name string) (string, bool, error) {
	if p.linear != nil {
		m := p.linear.FindStringSubmatch(name)
		if m == nil {
			return "", false, nil
		}
		return m[1], true, nil
	}
	m, err := p.backtr.FindStringMatch(name)
	if err != nil {
		return "", false, fmt.Errorf("pattern %q on %q: %w", p.source, name, err)
	}
	if m == nil {
		return "", false, nil
	}
	return m.GroupByNumber(1).String(), true, nil
}

// fromPython translates the syntax in which Python differs from both engines: (?P<n>…),
// (?P=n), \Z and {,n}. It rejects syntax that Python rejects but the engines would
// accept with another meaning.
func fromPython(source string) (string, error) {
	var b strings.Builder
	class := false // within [ ]
	for i := 0; i < len(source); i++ {
		rest := source[i:]
		switch {
		case rest[0] == '\\':
			if len(rest) == 1 {
				return "", errors.New("ends in a backslash")
			}
			i++
			switch c := rest[1]; {
			case c == 'Z' && !class:
				b.WriteString(`\z`)
			case strings.IndexByte("CEFGHIJKLMNOPQRTUVXYZceghijklmopqy", c) >= 0 || c == 'A' && class:
				return "", fmt.Errorf(`bad escape \%c`, c)
			default:
				b.WriteString(rest[:2])
			}
		case class:
			class = rest[0] != ']'
			if rest[0] == '[' { // no nested sets and no POSIX classes in Python
				b.WriteByte('\\')
			}
			b.WriteByte(rest[0])
		case rest[0] == '[':
			class = true
			b.WriteByte('[')
			if strings.HasPrefix(rest, "[^") {
				b.WriteByte('^')
				i++
			}
			if strings.HasPrefix(source[i+1:], "]") { // the first ] is a member
				b.WriteString(`\]`)
				i++
			}
		case strings.HasPrefix(rest, "(?P<"):
			b.WriteString("(?<")
			i += 3
		case strings.HasPrefix(rest, "(?P="):
			name, _, ok := strings.Cut(rest[4:], ")")
			if !ok {
				return "", errors.New("missing ) behind (?P=")
			}
			fmt.Fprintf(&b, `\k<%s>`, name)
			i += 4 + len(name)
		case strings.HasPrefix(rest, "{,"):
			b.WriteString("{0,")
			i++
		default:
			b.WriteByte(rest[0])
		}
	}
	return b.String(), nil
}

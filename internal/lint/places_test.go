package lint

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// placed are the documents whose links lead to a line of a Go file and say what
// stands there, and the fewest such links that each has.
var placed = map[string]int{"docs/tour.md": 40, "docs/glossary.md": 40}

// link is a link to a Go file; place is one as it should be, with the text that
// stands on its line: [dir/file.go:12](../dir/file.go#L12) `func Open(`.
var (
	link  = regexp.MustCompile(`\[[^\]]*\]\([^)]*\.go\b[^)]*\)`)
	place = regexp.MustCompile("\\[([\\w./-]+\\.go):\\d+\\]\\(\\.\\./([\\w./-]+\\.go)#L\\d+\\) `([^`]+)`")
)

// placesOf gives a document with the lines that its links lead to as they are
// now, and the links that lead nowhere.
func (r *repo) placesOf(name, text string) (now string, found int, findings []string) {
	complain := func(format string, args ...any) {
		findings = append(findings, name+": "+fmt.Sprintf(format, args...))
	}
	now = place.ReplaceAllStringFunc(text, func(old string) string {
		m := place.FindStringSubmatch(old)
		if m[1] != m[2] {
			complain("the link %s leads to %s", m[1], m[2])
			return old
		}
		file, line, err := r.find(m[1], m[3])
		if err != nil {
			complain("%v", err)
			return old
		}
		return fmt.Sprintf("[%s:%d](../%s#L%d) `%s`", file, line, file, line, m[3])
	})
	found = len(place.FindAllString(text, -1))
	for _, l := range link.FindAllString(place.ReplaceAllString(text, ""), -1) {
		complain("the link %s is not of the form [dir/file.go:12](../dir/file.go#L12) `what stands there`", l)
	}
	return now, found, findings
}

// find gives the one line of a file that has the text. A file that is gone is
// looked for by its name, in all folders.
func (r *repo) find(file, text string) (name string, line int, err error) {
	var places []string
	for _, f := range r.files {
		if f.path == file {
			if line, err := f.lineOf(text); err != nil {
				return "", 0, err
			} else {
				return file, line, nil
			}
		}
		if path.Base(f.path) != path.Base(file) {
			continue
		}
		if n, err := f.lineOf(text); err == nil {
			name, line, places = f.path, n, append(places, f.path)
		}
	}
	if len(places) != 1 {
		return "", 0, fmt.Errorf("%s: there is no such file; those of its name that have `%s` on one line: %v", file, text, places)
	}
	return name, line, nil
}

// lineOf is the number of the one line that has the text.
func (f *source) lineOf(text string) (int, error) {
	var at []string
	for i, line := range strings.Split(f.text, "\n") {
		if strings.Contains(line, text) {
			at = append(at, strconv.Itoa(i+1))
		}
	}
	if len(at) != 1 {
		return 0, fmt.Errorf("%s: `%s` is on %d lines [%s], expected one", f.path, text, len(at), strings.Join(at, " "))
	}
	return strconv.Atoi(at[0])
}

// The links of the tour and of the glossary lead to the lines that they speak of.
func TestPlaces(t *testing.T) {
	for name, least := range placed {
		raw, err := os.ReadFile(filepath.Join(root(t), name))
		require.NoError(t, err)
		now, found, findings := theRepo(t).placesOf(name, string(raw))
		none(t, findings)
		assert.GreaterOrEqual(t, found, least, name)
		checkDoc(t, name, now)
	}
}

// A link follows its text, within the file and into another folder, and one that
// cannot says why.
func TestPlacesFollow(t *testing.T) {
	r, err := readRepo(broken)
	require.NoError(t, err)
	const doc = "[graph/graph.go:1](../graph/graph.go#L2) `var X` then [old/ir.go:9](../old/ir.go#L9) `var _ = graph.X`."
	now, found, findings := r.placesOf("x.md", doc)
	assert.Empty(t, findings)
	assert.Equal(t, 2, found)
	assert.Equal(t, "[graph/graph.go:6](../graph/graph.go#L6) `var X` then [ir/ir.go:5](../ir/ir.go#L5) `var _ = graph.X`.", now)
	for doc, want := range map[string]string{
		"[ir/ir.go:1](../ir/ir.go#L1) `func Gone`":           "x.md: ir/ir.go: `func Gone` is on 0 lines [], expected one",
		"[ir/ir.go:1](../ir/ir.go#L1) `import`":              "x.md: ir/ir.go: `import` is on 2 lines [3 4], expected one",
		"[ir/gone.go:1](../ir/gone.go#L1) `var X`":           "x.md: ir/gone.go: there is no such file; those of its name that have `var X` on one line: []",
		"[ir/ir.go:1](../graph/graph.go#L1) `var X`":         "x.md: the link ir/ir.go leads to graph/graph.go",
		"[the graph](../graph/graph.go) and `var X` are far": "x.md: the link [the graph](../graph/graph.go) is not of the form [dir/file.go:12](../dir/file.go#L12) `what stands there`",
	} {
		same, _, findings := r.placesOf("x.md", doc)
		assert.Equal(t, []string{want}, findings, doc)
		assert.Equal(t, doc, same)
	}
}

package lint

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

// maxExample is the number of lines that a program in examples may have.
const maxExample = 40

// programs finds programs that are too long to read at a glance, or that need more than one
// package of this module.
func (r *repo) programs() (findings []string) {
	for pkg, sources := range r.packages() {
		if !strings.HasPrefix(pkg, "examples/") {
			continue
		}
		lines, imports := 0, map[string]bool{}
		for _, f := range sources {
			lines += strings.Count(f.text, "\n")
			for _, imp := range f.imports() {
				if to, ok := own(imp); ok {
					imports[to] = true
				}
			}
		}
		if lines > maxExample {
			findings = append(findings, fmt.Sprintf("%s: found %d lines, expected %d or fewer", pkg, lines, maxExample))
		}
		if len(imports) != 1 {
			findings = append(findings, fmt.Sprintf("%s: imports %d packages of this module, expected 1", pkg, len(imports)))
		}
	}
	return findings
}

// An example program is read in a minute.
func TestPrograms(t *testing.T) {
	r, err := readRepo(fstest.MapFS{
		"examples/long/main.go":   {Data: []byte("package main\n" + strings.Repeat("\n", maxExample))},
		"examples/two/main.go":    {Data: []byte("package main\nimport (\n\"" + module + "\"\n\"" + module + "/lora\"\n)\n")},
		"examples/two/x_test.go":  {Data: []byte("package main\nimport \"" + module + "/serve\"\n")},
		"examples/right/main.go":  {Data: []byte("package main\nimport \"" + module + "\"\n")},
		"cmd/other/main.go":       {Data: []byte("package main\n" + strings.Repeat("\n", maxExample))},
		"examples/right/notes.md": {Data: []byte("notes")},
	})
	require.NoError(t, err)
	require.ElementsMatch(t, []string{
		"examples/long: found 41 lines, expected 40 or fewer", "examples/long: imports 0 packages of this module, expected 1",
		"examples/two: imports 2 packages of this module, expected 1",
	}, r.programs())
	none(t, theRepo(t).programs())
}

package lint

import (
	"bytes"
	"fmt"
	"go/ast"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// maxLines is the longest that a file may be before it holds two ideas.
const maxLines = 500

func (r *repo) lengths() (findings []string) {
	for _, f := range r.files {
		if n := strings.Count(f.text, "\n"); n > maxLines && !f.generated {
			findings = append(findings, fmt.Sprintf("%s: has %d lines, at most %d", f.path, n, maxLines))
		}
	}
	return findings
}

func TestLengths(t *testing.T) { none(t, theRepo(t).lengths()) }

// banned is text that belongs to one machine or to unfinished work.
type banned struct {
	what    string
	pattern *regexp.Regexp
	tests   bool // allowed in tests, and in deploy for paths of containers
}

// The words are put together here so that this file does not hold them.
var bans = []banned{
	{what: "a mark of unfinished work", pattern: regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X|HA` + `CK)\b`)},
	{what: "a path of one machine", pattern: regexp.MustCompile(`(?m)(^|[^\w.:/@~-])/(ro` + `ot|wo` + `rk|ho` + `me/\w+|Us` + `ers/\w+)(/|\b)`)},
	{what: "a path of one machine", pattern: regexp.MustCompile(`(?m)(^|[^\w.:/@~$-])/tm` + `p(/|\b)`), tests: true},
	{what: "a package registry", pattern: regexp.MustCompile(`GOPR` + `OXY|index-` + `url|proxy\.gol` + `ang\.org|pypi\.` + `org|pythonhos` + `ted|registry\.np` + `mjs|arti` + `factory`)},
	{what: "a host of a private network", pattern: regexp.MustCompile(`://[^/\s"]*\.(internal|local|corp|lan)\b|\b(10\.\d+|192\.168|172\.(1[6-9]|2\d|3[01]))\.\d+\.\d+\b`)},
}

func (r *repo) words() (findings []string) {
	for _, name := range r.texts {
		raw, err := fs.ReadFile(r.fsys, name)
		if err != nil {
			findings = append(findings, err.Error())
		}
		for _, b := range bans {
			if b.tests && (strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "deploy/")) {
				continue
			}
			for _, m := range b.pattern.FindAllIndex(raw, -1) {
				found := strings.TrimSpace(string(raw[m[0]:m[1]]))
				findings = append(findings, fmt.Sprintf("%s:%d: %q is %s", name, 1+bytes.Count(raw[:m[1]], []byte("\n")), found, b.what))
			}
		}
	}
	return findings
}

func TestWords(t *testing.T) { none(t, theRepo(t).words()) }

// fuzzTargets lists the fuzz targets as the compiler sees them: "./folder FuzzX".
func (r *repo) fuzzTargets() (targets []string) {
	for _, f := range r.files {
		if !f.test || f.apart {
			continue
		}
		for _, d := range f.ast.Decls {
			if d, ok := d.(*ast.FuncDecl); ok && d.Recv == nil && strings.HasPrefix(d.Name.Name, "Fuzz") {
				targets = append(targets, "./"+f.pkg+" "+d.Name.Name)
			}
		}
	}
	slices.Sort(targets)
	return targets
}

// The script that fuzzes looks for targets by their text: it must find all.
func TestFuzzScript(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("needs sh")
	}
	fake := filepath.Join(t.TempDir(), "go") // builds programs that do nothing
	require.NoError(t, os.WriteFile(fake, []byte("#!/bin/sh\n[ \"$1\" != test ] || cp \"$0\" \"$6\"\n"), 0o777))
	cmd := exec.Command("sh", path.Join(root(t), "scripts/fuzz.sh"), "1s")
	cmd.Env = append(os.Environ(), "GO="+fake)
	out, err := cmd.Output()
	require.NoError(t, err)
	found := strings.Split(strings.TrimSpace(string(out)), "\n")
	slices.Sort(found)
	assert.Equal(t, theRepo(t).fuzzTargets(), found)
}

// doubledLines finds lines of Markdown that repeat the line before them, outside of code.
func (r *repo) doubledLines() (findings []string) {
	for _, name := range r.texts {
		if path.Ext(name) != ".md" {
			continue
		}
		raw, err := fs.ReadFile(r.fsys, name)
		if err != nil {
			return append(findings, err.Error())
		}
		code, before := false, ""
		for i, line := range strings.Split(string(raw), "\n") {
			if strings.HasPrefix(line, "```") {
				code = !code
			}
			if !code && line != "" && line == before {
				findings = append(findings, fmt.Sprintf("%s:%d: repeats the line before it", name, i+1))
			}
			before = line
		}
	}
	return findings
}

func TestNoDoubledLines(t *testing.T) { none(t, theRepo(t).doubledLines()) }

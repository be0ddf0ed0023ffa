package lint

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Endings of files in other languages than Go, by their comments. Names without an ending are matched whole.
var (
	slashed = []string{".cu", ".cuh", ".metal", ".c", ".h", ".cpp", ".m", ".js", ".mjs"}
	hashed  = []string{".py", ".sh", "Makefile", "Dockerfile", "run", "nightly", "steps"}
)

// Comments and docstrings, or literals, which may contain the mark of a comment.
var (
	slashTokens = regexp.MustCompile("(?s)//[^\n]*|/\\*.*?\\*/|\"(?:\\\\.|[^\"\\\\\n])*\"|'(?:\\\\.|[^'\\\\\n])*'|`[^`]*`")
	hashTokens  = regexp.MustCompile(`(?s)(?:^|[ \t;])#[^\n]*|\n#[^\n]*|""".*?"""|"(?:\\.|[^"\\\n])*"|'[^'\n]*'`)
)

var (
	firstWord = regexp.MustCompile(`^\w+`)
	ruler     = regexp.MustCompile(`^\s*[-=*]{3,}|[-=*]{3,}\s*$`)
	shebang   = regexp.MustCompile(`^\s*#!`)
)

// isCode reports whether a file is of one of these languages.
func isCode(name string) (hash, ok bool) {
	hash = slices.Contains(hashed, path.Base(name)) || slices.Contains(hashed, path.Ext(name)) && path.Ext(name) != ""
	return hash, hash || slices.Contains(slashed, path.Ext(name))
}

// codeComment is a comment of one line or more, or several on consecutive lines.
type codeComment struct {
	start, end int  // lines
	alone      bool // without code on its lines
	text       string
}

// codeComments returns the comments of a file in another language than Go.
func codeComments(name, text string) (all []codeComment) {
	tokens := slashTokens
	if hash, _ := isCode(name); hash {
		tokens = hashTokens
	}
	line, last := 1, 0
	for _, at := range tokens.FindAllStringIndex(text, -1) {
		body := strings.TrimLeft(text[at[0]:at[1]], " \t\n;")
		begin := at[1] - len(body)
		line, last = line+strings.Count(text[last:begin], "\n"), begin
		switch {
		case shebang.MatchString(body):
			continue
		case strings.HasPrefix(body, "//") || body[0] == '#':
			body = strings.TrimLeft(body, "/#")
		case strings.HasPrefix(body, "/*") || strings.HasPrefix(body, `"""`):
			body = strings.NewReplacer("/*", "", "*/", "", `"""`, "").Replace(body)
		default:
			continue
		}
		if ruler.MatchString(body) {
			body = ""
		}
		after, _, _ := strings.Cut(text[at[1]:], "\n")
		alone := strings.TrimSpace(text[strings.LastIndexByte(text[:begin], '\n')+1:begin]+after) == ""
		if n := len(all); n > 0 && alone && all[n-1].alone && all[n-1].end == line-1 {
			all[n-1].end, all[n-1].text = line+strings.Count(body, "\n"), all[n-1].text+"\n"+body
		} else {
			all = append(all, codeComment{line, line + strings.Count(body, "\n"), alone, body})
		}
	}
	return all
}

// codeSentences returns the sentences of the comments of a file in another language than Go. A
// comment that begins with a word of the line below it documents the declaration in that line.
func codeSentences(name, text string) (all []sentence) {
	lines := strings.Split(text, "\n")
	for _, c := range codeComments(name, text) {
		if unprose.MatchString(c.text) {
			continue
		}
		declaration := ""
		if c.alone && c.end < len(lines) {
			declaration = lines[c.end]
		}
		prose := slices.DeleteFunc(strings.Split(c.text, "\n"), codeLine.MatchString)
		for paragraph := range strings.SplitSeq(strings.Join(prose, "\n"), "\n\n") {
			for _, text := range sentences(paragraph) {
				s := sentence{at: fmt.Sprintf("%s:%d", name, c.start), text: text}
				word := firstWord.FindString(text)
				if word != "" && slices.Contains(strings.FieldsFunc(declaration, func(r rune) bool { return strings.ContainsRune(" \t(*&,;=<:", r) }), word) {
					s.name = word
					if strings.Contains(declaration, word+"(") {
						s.kind = "func"
					}
				}
				all, declaration = append(all, s), ""
			}
		}
	}
	return all
}

// codeFiles lists the files in other languages than Go, except generated ones and test data.
func (r *repo) codeFiles() (names []string) {
	fs.WalkDir(r.fsys, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path.Base(name) == "testdata":
			return fs.SkipDir
		case d.IsDir():
			return skip(name)
		}
		if _, ok := isCode(name); ok {
			names = append(names, name)
		}
		return nil
	})
	return names
}

// Comments and docstrings are split into sentences, literals are not, and declarations are found.
func TestCodeSentences(t *testing.T) {
	for name, text := range map[string]string{
		"a.cu": "/* One. */ int one;\n// run starts\n// a block. Then it ends.\nvoid run(int x);  // last\nconst char* s = \"// no\";\n",
		"a.py": "#!/usr/bin/env python3\nx = \"# no\"\n\"\"\"One.\"\"\"\ndef f():\n  # run starts\n  # a block. Then it ends.\n  run(1) # last\n",
	} {
		var got []string
		for _, s := range codeSentences(name, text) {
			got = append(got, strings.Join([]string{s.kind, s.name, s.text}, "|"))
		}
		require.Equal(t, []string{"||One.", "func|run|run starts a block.", "||Then it ends.", "||last"}, got, name)
	}
	all := theRepo(t).codeFiles()
	for _, name := range []string{".ci/run", "Dockerfile", "Makefile", "backend/metal/lfmetal.m", "kernels/cuda/attention.cu", "kernels/metal/tile.h", "kernels/sim/Makefile", "scripts/gpu_check.sh", "scripts/reference.py"} {
		require.Contains(t, all, name)
	}
}

package image

import (
	"bufio"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// Ignore are the patterns of a .dockerignore.
type Ignore struct{ rules []rule }

type rule struct {
	pattern *regexp.Regexp
	keep    bool // behind !
}

// ParseIgnore reads a .dockerignore: patterns of paths with *, ? and **, those
// behind ! taking back what came before. Errors: ErrSyntax.
func ParseIgnore(r io.Reader) (*Ignore, error) {
	ignore := &Ignore{}
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		text, keep := strings.CutPrefix(line, "!")
		text = strings.TrimPrefix(path.Clean(strings.TrimSpace(text)), "/")
		if strings.ContainsAny(text, `[]\`) || text == "." || text == "" {
			return nil, fmt.Errorf("line %d: %w: pattern %q", n, ErrSyntax, line)
		}
		pattern, err := regexp.Compile(expression(text)) // which is picky about UTF-8 and length
		if err != nil {
			return nil, fmt.Errorf("line %d: %w: pattern %q: %w", n, ErrSyntax, line, err)
		}
		ignore.rules = append(ignore.rules, rule{pattern, keep})
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSyntax, err)
	}
	return ignore, nil
}

// expression is a pattern as a regular expression. It matches what lies below a
// match, too.
func expression(pattern string) string {
	var b strings.Builder
	b.WriteString("^")
	for rest := pattern; rest != ""; {
		switch {
		case strings.HasPrefix(rest, "**/"):
			b.WriteString("(.*/)?")
			rest = rest[3:]
		case strings.HasPrefix(rest, "**"):
			b.WriteString(".*")
			rest = rest[2:]
		case rest[0] == '*':
			b.WriteString("[^/]*")
			rest = rest[1:]
		case rest[0] == '?':
			b.WriteString("[^/]")
			rest = rest[1:]
		default:
			n := strings.IndexAny(rest, "*?")
			if n < 0 {
				n = len(rest)
			}
			b.WriteString(regexp.QuoteMeta(rest[:n]))
			rest = rest[n:]
		}
	}
	b.WriteString("(/.*)?$")
	return b.String()
}

// Ignored tells whether a path of the folder is left out. The last pattern that
// matches it, or a folder above it, decides.
func (g *Ignore) Ignored(name string) bool {
	out := false
	for _, r := range g.rules {
		if r.pattern.MatchString(name) {
			out = !r.keep
		}
	}
	return out
}

// Context lists the files of a folder that Docker would be sent, by their paths
// with slashes, and their sizes.
func (g *Ignore) Context(folder string) (map[string]int64, error) {
	files := map[string]int64{}
	err := filepath.WalkDir(folder, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(folder, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		switch {
		case rel == ".":
			return nil
		case d.IsDir():
			if g.Ignored(rel) && !g.keepsBelow(rel) {
				return fs.SkipDir
			}
			return nil
		case g.Ignored(rel):
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		files[rel] = info.Size()
		return nil
	})
	return files, err
}

// keepsBelow tells whether a pattern behind ! may match below a folder that is
// left out: one that begins with its name does, or with **.
func (g *Ignore) keepsBelow(dir string) bool {
	for _, r := range g.rules {
		source := strings.TrimPrefix(r.pattern.String(), "^")
		if r.keep && (strings.HasPrefix(source, regexp.QuoteMeta(dir+"/")) || strings.HasPrefix(source, "(")) {
			return true
		}
	}
	return false
}

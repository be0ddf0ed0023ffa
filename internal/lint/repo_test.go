package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// module is the path that all packages of the repository begin with.
const module = "github.com/lorafuse/lorafuse"

// repo is the repository as the rules see it. Files of all build tags and
// systems are in it.
type repo struct {
	fsys  fs.FS
	fset  *token.FileSet
	files []*source // Go files, sorted by path
	texts []string  // all files that people write, sorted by path
}

// source is a Go file.
type source struct {
	path      string // from the root, with slashes
	pkg       string // its folder: the import path without the module's
	ast       *ast.File
	text      string
	test      bool // by its name
	generated bool
	apart     bool // belongs to a module of its own, such as tools
}

var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

// written are the endings of files that people write; other names are matched whole.
var written = []string{".go", ".md", ".sh", ".py", ".yaml", ".yml", ".mod", "Makefile", "Dockerfile", ".ci/run", ".ci/nightly", ".ci/steps"}

// readRepo parses all Go files below the root of fsys.
func readRepo(fsys fs.FS) (*repo, error) {
	r := &repo{fsys: fsys, fset: token.NewFileSet()}
	var apart []string // folders of other modules
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if _, err := fs.Stat(fsys, path.Join(name, "go.mod")); err == nil && name != "." {
				apart = append(apart, name+"/")
			}
			return skip(name)
		}
		if !slices.ContainsFunc(written, func(s string) bool { return strings.HasSuffix(name, s) }) {
			return nil
		}
		r.texts = append(r.texts, name)
		if path.Ext(name) != ".go" || slices.Contains(strings.Split(name, "/"), "testdata") {
			return nil
		}
		raw, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		f, err := parser.ParseFile(r.fset, name, raw, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		r.files = append(r.files, &source{
			path: name, pkg: path.Dir(name), ast: f, text: string(raw), test: strings.HasSuffix(name, "_test.go"),
			generated: generated.Match(raw), apart: slices.ContainsFunc(apart, func(dir string) bool { return strings.HasPrefix(name, dir) }),
		})
		return nil
	})
	return r, err
}

// skip leaves out what is built, downloaded or trained here.
func skip(dir string) error {
	base := path.Base(dir)
	hidden := base != "." && base != ".ci" && strings.HasPrefix(base, ".")
	if hidden || strings.HasPrefix(base, "_") || slices.Contains([]string{"bin", "output", "__pycache__"}, base) {
		return fs.SkipDir
	}
	return nil
}

// packages gives the files of each package of the module, its tests left out.
func (r *repo) packages() map[string][]*source {
	pkgs := map[string][]*source{}
	for _, f := range r.files {
		if !f.test && !f.apart {
			pkgs[f.pkg] = append(pkgs[f.pkg], f)
		}
	}
	return pkgs
}

// at is the place of a node, as file:line.
func (r *repo) at(p token.Pos) string {
	pos := r.fset.Position(p)
	return pos.Filename + ":" + strconv.Itoa(pos.Line)
}

// imports lists what f imports.
func (f *source) imports() []string {
	var paths []string
	for _, s := range f.ast.Imports {
		p, _ := strconv.Unquote(s.Path.Value)
		paths = append(paths, p)
	}
	return paths
}

// own tells whether an import is a package of this module, and which.
func own(importPath string) (pkg string, ok bool) {
	if importPath == module {
		return ".", true
	}
	return strings.CutPrefix(importPath, module+"/")
}

// standard tells whether an import is of the standard library.
func standard(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".")
}

// root is the folder of go.mod.
func root(t testing.TB) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(dir, "go.mod"))
	return dir
}

var readOnce = sync.OnceValues(func() (*repo, error) { return readRepo(os.DirFS("../..")) })

// theRepo is this repository.
func theRepo(t testing.TB) *repo {
	t.Helper()
	r, err := readOnce()
	require.NoError(t, err)
	return r
}

// none fails with all findings, one in a line.
func none(t testing.TB, findings []string) {
	t.Helper()
	slices.Sort(findings)
	for _, f := range slices.Compact(findings) {
		t.Error(f)
	}
}

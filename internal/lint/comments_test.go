package lint

import (
	"fmt"
	"go/ast"
	"go/doc"
	"path"
	"slices"
	"strings"
	"testing"
)

// synopsis is the first sentence of a package comment, without the words
// "Package x" and the like.
func synopsis(files []*source) string {
	for _, f := range files {
		if f.ast.Doc == nil {
			continue
		}
		text := new(doc.Package).Synopsis(f.ast.Doc.Text())
		words := strings.SplitN(text, " ", 3)
		if len(words) == 3 && (words[0] == "Package" || words[0] == "Command") {
			text = words[2]
		}
		return strings.TrimSuffix(text, ".")
	}
	return ""
}

// packageComments finds packages without one comment that begins as go doc
// expects it.
func (r *repo) packageComments() (findings []string) {
	for pkg, files := range r.packages() {
		var found []*source
		for _, f := range files {
			if f.ast.Doc != nil {
				found = append(found, f)
			}
		}
		if len(found) != 1 {
			findings = append(findings, fmt.Sprintf("%s: has %d package comments, expected 1", pkg, len(found)))
			continue
		}
		name := files[0].ast.Name.Name
		want := "Package " + name + " "
		if name == "main" {
			want = "Command " + path.Base(pkg) + " "
		}
		if text := strings.ReplaceAll(found[0].ast.Doc.Text(), "\n", " "); !strings.HasPrefix(text, want) {
			findings = append(findings, fmt.Sprintf("%s: the package comment begins otherwise than %q", found[0].path, want))
		}
	}
	return findings
}

func TestPackageComments(t *testing.T) { none(t, theRepo(t).packageComments()) }

// exported is an exported name and its comment.
type exported struct {
	name string
	node ast.Node
	doc  bool
}

// exports lists the exported names of f at its top level. One comment is
// enough for a group of constants or variables.
func (f *source) exports() (names []exported) {
	add := func(id *ast.Ident, docs ...*ast.CommentGroup) {
		if id.IsExported() {
			has := slices.ContainsFunc(docs, func(c *ast.CommentGroup) bool { return c != nil })
			names = append(names, exported{id.Name, id, has})
		}
	}
	for _, d := range f.ast.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil || ast.IsExported(receiver(d.Recv.List[0].Type)) {
				add(d.Name, d.Doc)
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					if d.Lparen.IsValid() {
						add(s.Name, s.Doc, s.Comment)
					} else {
						add(s.Name, d.Doc)
					}
				case *ast.ValueSpec:
					for _, id := range s.Names {
						add(id, d.Doc, s.Doc, s.Comment)
					}
				}
			}
		}
	}
	return names
}

// receiver is the name of a method's type.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// comments finds exported names without a comment.
func (r *repo) comments() (findings []string) {
	for _, files := range r.packages() {
		for _, f := range files {
			if f.generated {
				continue
			}
			for _, e := range f.exports() {
				if !e.doc {
					findings = append(findings, fmt.Sprintf("%s: %s has no comment", r.at(e.node.Pos()), e.name))
				}
			}
		}
	}
	return findings
}

func TestComments(t *testing.T) { none(t, theRepo(t).comments()) }

// withoutExample are the packages that cannot have one, with the reason.
var withoutExample = map[string]string{
	"graph/conformance": "needs a *testing.T, which an example does not have; its package comment shows the three lines",
}

// examples finds library packages without an example that runs. Commands and
// tools of development are no libraries.
func (r *repo) examples() (findings []string) {
	tests := map[string][]*ast.File{}
	for _, f := range r.files {
		if f.test {
			tests[f.pkg] = append(tests[f.pkg], f.ast)
		}
	}
	for pkg, files := range r.packages() {
		if withoutExample[pkg] != "" || strings.HasPrefix(pkg, "cmd/") || strings.HasPrefix(pkg, tools+"/") {
			continue
		}
		api := slices.ContainsFunc(files, func(f *source) bool { return len(f.exports()) > 0 })
		if !api || files[0].ast.Name.Name == "main" || strings.Contains("/"+pkg+"/", "/internal/") {
			continue
		}
		runs := func(e *doc.Example) bool { return e.Output != "" }
		if !slices.ContainsFunc(doc.Examples(tests[pkg]...), runs) {
			findings = append(findings, pkg+": has no example with an output")
		}
	}
	return findings
}

func TestExamples(t *testing.T) { none(t, theRepo(t).examples()) }

package lint

import (
	"fmt"
	"go/ast"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// calls finds the functions that call one of the functions or methods named, outside of the
// folders that are left out. A receiver that is not empty must be the one of the call.
func (r *repo) calls(receiver string, names, leftOut []string) (found []string) {
	for pkg, sources := range r.packages() {
		if within(pkg, leftOut) {
			continue
		}
		for _, f := range sources {
			for _, d := range f.ast.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if !ok {
					continue
				}
				ast.Inspect(fn, func(n ast.Node) bool {
					call, ok := n.(*ast.CallExpr)
					if !ok {
						return true
					}
					s, ok := call.Fun.(*ast.SelectorExpr)
					if !ok {
						return true
					}
					x, _ := s.X.(*ast.Ident)
					for _, name := range names {
						if s.Sel.Name == name && (receiver == "" || x != nil && x.Name == receiver) {
							found = append(found, fmt.Sprintf("%s.%s", pkg, fn.Name.Name))
						}
					}
					return true
				})
			}
		}
	}
	return found
}

// within reports whether a package is one of some, or below it.
func within(pkg string, folders []string) bool {
	for _, f := range folders {
		if strings.HasPrefix(pkg+"/", f+"/") {
			return true
		}
	}
	return false
}

// Package host alone makes runtimes, and programs are compiled in one function.
func TestHostAlone(t *testing.T) {
	r := theRepo(t)
	require.Equal(t, []string{"internal/host.Open"}, r.calls("engine", []string{"New"}, nil))
	devices := []string{"backend", "graph/conformance", tools}
	require.Equal(t, []string{"graph/exec.Load"}, r.calls("", []string{"CompileIn"}, devices))
	require.Equal(t, []string{"graph/exec.Load"}, r.calls("dev", []string{"Compile"}, devices))
}

package lint

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// registry is the one file that spells the kinds of devices. Others take the names
// from there, or ask backend.Info for what they want to know.
const registry = "backend/registry.go"

// spelling are files and folders where the same words say something else, or
// where they must be spelled, each with the reason.
var spelling = map[string]string{
	"safetensors/torchfile/": "PyTorch's devices, as pickles name them",
	"internal/lint/":         "looks for them",
	"kernels/":               "folders of sources",
	"train/config/config.go": "a tag of a struct is a literal; TestBackends holds it against the registry",
}

// asking are files that compare the kind of a device with a name, with the reason.
var asking = map[string]string{
	"dev/gpucheck/device.go": "looks for the one kind that it checks in a list of all",
}

var (
	kind  = regexp.MustCompile(`^(cpu|cuda|metal)$`)
	kinds = regexp.MustCompile(`\bcpu\b.*\bcuda\b|\bcuda\b.*\bcpu\b`)
)

// kinds finds what spells the kinds of devices, and what asks a device for its kind.
func (r *repo) kinds() (findings []string) {
	for _, f := range r.files {
		if f.apart || f.generated || f.path == registry || slices.ContainsFunc(keys(spelling), func(p string) bool { return strings.HasPrefix(f.path, p) }) {
			continue
		}
		ofBackends := strings.Contains(f.text, strconv.Quote(module+"/backend"))
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BasicLit:
				s, err := strconv.Unquote(n.Value)
				if n.Kind == token.STRING && err == nil && (kind.MatchString(s) || ofBackends && (s == "null" || kinds.MatchString(s))) {
					findings = append(findings, fmt.Sprintf("%s:%d: spells %s, which is in %s", f.path, r.fset.Position(n.Pos()).Line, n.Value, registry))
				}
			case *ast.BinaryExpr:
				if (n.Op == token.EQL || n.Op == token.NEQ) && asksKind(n) && asking[f.path] == "" {
					findings = append(findings, fmt.Sprintf("%s:%d: asks for the kind of a device: backend.Info says what it can do", f.path, r.fset.Position(n.Pos()).Line))
				}
			}
			return true
		})
	}
	return findings
}

// asksKind tells whether a comparison has the field Backend on one side, and
// something other than auto, or nothing, on the other.
func asksKind(n *ast.BinaryExpr) bool {
	for _, side := range [][2]ast.Expr{{n.X, n.Y}, {n.Y, n.X}} {
		s, ok := side[0].(*ast.SelectorExpr)
		if !ok || s.Sel.Name != "Backend" {
			continue
		}
		switch other := side[1].(type) {
		case *ast.SelectorExpr:
			return other.Sel.Name != "Auto"
		case *ast.BasicLit:
			return other.Value != `""`
		}
		return true
	}
	return false
}

func keys(m map[string]string) (k []string) {
	for x := range m {
		k = append(k, x)
	}
	return k
}

func TestKinds(t *testing.T) { none(t, theRepo(t).kinds()) }

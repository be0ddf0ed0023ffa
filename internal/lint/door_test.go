package lint

import (
	"fmt"
	"go/ast"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// door is the package that opens the weights of models and adapters in all file formats,
// with one set of errors.
const door = "internal/weights"

// otherOpeners lists the packages that open tensor files themselves, with the reason.
var otherOpeners = map[string]string{
	"internal/data":          "rows of token ids",
	"internal/data/cache":    "cache entries, including .pt files of other trainers",
	"cmd/lorafuse/cli":       "recorded logits, and files behind a URL",
	"dev/bench/load":         "measures the reader itself",
	"internal/gguf":          "maps files of its own format",
	"internal/linear":        "a model of its own in a file of its own",
	"lora":                   "a single layer in a file of its own",
	"internal/train/trainer": "the optimizer's state of a checkpoint",
}

// openers are what opens files, by the package that has it.
var openers = map[string]bool{module + "/safetensors": true, module + "/safetensors/torchfile": true, module + "/safetensors/remote": true}

// otherDoors finds calls that open files of tensors without package weights.
func (r *repo) otherDoors(allowed map[string]string) (findings []string) {
	used := map[string]bool{}
	for pkg, sources := range r.packages() {
		if pkg == door || pkg == "safetensors" || strings.HasPrefix(pkg, "safetensors/") {
			continue
		}
		for _, f := range sources {
			names := map[string]string{} // of imported openers in this file
			for _, spec := range f.ast.Imports {
				path, err := strconv.Unquote(spec.Path.Value)
				if err != nil || !openers[path] {
					continue
				}
				names[path[strings.LastIndexByte(path, '/')+1:]] = path
				if spec.Name != nil {
					names[spec.Name.Name] = path
				}
			}
			ast.Inspect(f.ast, func(n ast.Node) bool {
				call, ok := n.(*ast.SelectorExpr)
				if !ok || !strings.HasPrefix(call.Sel.Name, "Open") {
					return true
				}
				if x, ok := call.X.(*ast.Ident); ok && names[x.Name] != "" {
					if used[pkg] = true; allowed[pkg] == "" {
						findings = append(findings, fmt.Sprintf("%s:%d: %s.%s opens a file of tensors, for which there is package %s", f.path, r.fset.Position(n.Pos()).Line, x.Name, call.Sel.Name, door))
					}
				}
				return true
			})
		}
	}
	for _, pkg := range slices.Sorted(maps.Keys(allowed)) {
		if !used[pkg] {
			findings = append(findings, pkg+": opens no file of tensors, as the rule says it may (internal/lint/door_test.go)")
		}
	}
	return findings
}

func TestOneDoor(t *testing.T) { none(t, theRepo(t).otherDoors(otherOpeners)) }

package lint

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// methodNames lists the files that name an adapter kind, with the reason. A kind's file holds all
// that is particular to it: settings, tensors, initial values, formulas and merge.
var methodNames = map[string]map[string]string{
	"DoRA": {
		"lora/method_dora.go":                  "is the kind",
		"lora/method.go":                       "registers it",
		"lora/config.go":                       "has a field for each key of PEFT's LoraConfig, such as use_dora",
		"train/config/adapter.go":              "has the keys of the YAML file, which are PEFT's",
		"train/config/migrate/axolotl.go":      "names the key of another trainer",
		"train/config/migrate/llamafactory.go": "names the key of another trainer",
		"train/config/migrate/mlx.go":          "names the key of another trainer",
		"train/config/migrate/simpletuner.go":  "names the key of another trainer",
		"cmd/lorafuse/cli/inspect_adapter.go":  "prints use_dora in the JSON of lorafuse inspect",
		"internal/lora/dialects/key.go":        "refuses dora_scale, the form of kohya and LyCORIS, by name",
	},
}

// TestMethodNames: an adapter kind is one file. No other file names it in an identifier or a
// string, except to register it and where a public format has its name.
func TestMethodNames(t *testing.T) {
	r := theRepo(t)
	for kind, allowed := range methodNames {
		lower := strings.ToLower(kind) // not in a word, such as dora in pseudorandom
		name := regexp.MustCompile(`(^|[^a-z])` + lower + "|" + strings.ToUpper(lower[:1]) + lower[1:] + "|" + kind + "|" + strings.ToUpper(kind))
		var found []string
		for _, f := range r.files {
			if f.test || f.apart {
				continue
			}
			named := false
			ast.Inspect(f.ast, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.Ident:
					named = named || name.MatchString(n.Name)
				case *ast.BasicLit:
					named = named || n.Kind == token.STRING && name.MatchString(n.Value)
				}
				return true
			})
			if named {
				found = append(found, f.path)
			}
		}
		expected := keys(allowed)
		slices.Sort(expected)
		require.Equal(t, expected, found, "files that name %s", kind)
	}
}

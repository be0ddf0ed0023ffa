package lint

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// taskFiles are the files that name a training task, apart from tests: the declaration of its
// keys and its implementation. A section of the configuration, and the lists of tasks, name
// it once more.
var taskFiles = []struct {
	names []string // identifiers; the last is the name in configurations, too
	files []string
}{
	{[]string{"Language", "language"}, []string{"train/config/task_language.go", "internal/train/task/text/language.go"}},
	{[]string{"Embed", "Embedding", "embedding"}, []string{"train/config/task_embedding.go", "internal/train/task/text/embedding.go"}},
	{[]string{"Classify", "Classification", "classification"}, []string{"train/config/task_classification.go", "internal/train/task/text/classification.go"}},
	{[]string{"Prefer", "Preference", "preference"}, []string{"train/config/task_preference.go", "internal/train/task/text/preference.go"}},
	{[]string{"Diffuse", "Diffusion", "diffusion"}, []string{"train/config/task_diffusion.go", "internal/train/task/flowmatching/*.go"}},
}

// registrations are the files that list the tasks.
var registrations = []string{"train/config/config.go", "train/config/task.go", "internal/train/task/task.go"}

// trains reports whether a file is part of training. Converters of other trainers' files are not: they write keys of
// any task.
func trains(file string) bool {
	return !strings.HasPrefix(file, "train/config/migrate/") && (strings.HasPrefix(file, "train/") || strings.HasPrefix(file, "internal/train/") || strings.HasPrefix(file, "cmd/lorafuse/cli/train"))
}

// tasks finds files that name a training task but are not its own, and files of tasks that
// do not exist.
func (r *repo) tasks() (findings []string) {
	for _, task := range taskFiles {
		key, found := task.names[len(task.names)-1], map[string]bool{}
		for _, f := range r.files {
			if f.test || !trains(f.path) || slices.Contains(registrations, f.path) {
				continue
			}
			at := slices.IndexFunc(task.files, func(p string) bool { ok, _ := path.Match(p, f.path); return ok })
			ast.Inspect(f.ast, func(n ast.Node) bool {
				if !names(n, task.names, key) {
					return true
				}
				if at < 0 {
					findings = append(findings, fmt.Sprintf("%s:%d: names the task %s, whose files are %s", f.path, r.fset.Position(n.Pos()).Line, key, strings.Join(task.files, " and ")))
				} else {
					found[task.files[at]] = true
				}
				return true
			})
		}
		for _, p := range task.files {
			if !found[p] {
				findings = append(findings, fmt.Sprintf("%s: does not name the task %s (internal/lint/tasks_test.go)", p, key))
			}
		}
	}
	return findings
}

// names reports whether a node is an identifier of a task, its name, or one of its keys.
func names(n ast.Node, identifiers []string, key string) bool {
	switch n := n.(type) {
	case *ast.Ident:
		return slices.Contains(identifiers, n.Name)
	case *ast.BasicLit:
		s, err := strconv.Unquote(n.Value)
		return n.Kind == token.STRING && err == nil && (s == key || strings.HasPrefix(s, key+"."))
	}
	return false
}

func TestTasks(t *testing.T) { none(t, theRepo(t).tasks()) }

// TestTrainingKnowsNoTask: package train imports neither diffusion nor sentence-transformers,
// not even through other packages.
func TestTrainingKnowsNoTask(t *testing.T) {
	r := theRepo(t)
	packages, seen := r.packages(), map[string]bool{}
	var visit func(pkg string)
	visit = func(pkg string) {
		if seen[pkg] {
			return
		}
		seen[pkg] = true
		for _, f := range packages[pkg] {
			for _, imp := range f.imports() {
				if to, ok := own(imp); ok {
					visit(to)
				}
			}
		}
	}
	visit("internal/train")
	require.True(t, seen["internal/engine"])
	for pkg := range seen {
		if strings.HasPrefix(pkg, "internal/diffusion") || pkg == "internal/sentence" {
			t.Errorf("internal/train depends on %s", pkg)
		}
	}
}

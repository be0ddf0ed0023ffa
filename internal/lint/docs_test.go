package lint

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/dev/bench/page"
	"github.com/lorafuse/lorafuse/internal/catalog"
	"github.com/lorafuse/lorafuse/train/config"
)

var update = flag.Bool("update", false, "write the generated parts of docs/ anew")

// checkDoc compares a document with what it should be, or writes it.
func checkDoc(t *testing.T, name, want string) {
	t.Helper()
	file := filepath.Join(root(t), name)
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(want), 0o666))
		return
	}
	got, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, want, string(got), "%s is out of date: go test ./internal/lint -update", name)
}

func TestConfigReference(t *testing.T) { checkDoc(t, "docs/config.md", config.Reference()) }

func TestModelsReference(t *testing.T) { checkDoc(t, "docs/models.md", catalog.Markdown()) }

// The benchmarks page is generated from the result files.
func TestBenchmarks(t *testing.T) {
	results, err := page.Read(filepath.Join(root(t), "docs", "benchmarks"))
	require.NoError(t, err)
	checkDoc(t, "docs/benchmarks.md", page.Markdown(results))
}

// The table of the architecture page is the one that the tests go by.
func TestArchitectureTable(t *testing.T) {
	const name, begin, end = "docs/architecture.md", "<!-- layers -->\n", "<!-- /layers -->\n"
	raw, err := os.ReadFile(filepath.Join(root(t), name))
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(raw), begin)
	require.True(t, ok, begin)
	_, after, ok := strings.Cut(rest, end)
	require.True(t, ok, end)
	checkDoc(t, name, before+begin+theRepo(t).layerTable(layers)+end+after)
}

// Every configuration that a document shows is one.
func TestConfigurationsInDocs(t *testing.T) {
	block := regexp.MustCompile("(?s)```yaml\n(.*?)```")
	found := 0
	for _, name := range theRepo(t).texts {
		if filepath.Ext(name) != ".md" || strings.Contains(name, "testdata/") {
			continue
		}
		raw, err := os.ReadFile(filepath.Join(root(t), name))
		require.NoError(t, err)
		for _, m := range block.FindAllSubmatch(raw, -1) {
			_, err := config.Parse(name, m[1])
			require.NoError(t, err)
			found++
		}
	}
	require.NotZero(t, found)
}

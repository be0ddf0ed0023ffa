package cli

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// reports are those of one run, one after another.
func reports(t *testing.T, text string) (all []report) {
	t.Helper()
	for d := json.NewDecoder(strings.NewReader(text)); d.More(); {
		var r report
		require.NoError(t, d.Decode(&r))
		all = append(all, r)
	}
	return all
}

// TestBenchTables takes one sample of everything in the table of steps and then in that of files, or in all tables at
// once with LORAFUSE_LONG.
func TestBenchTables(t *testing.T) {
	path, err := exec.LookPath("lorafuse")
	require.NoError(t, err)
	kept := filepath.Join(t.TempDir(), "kept.json")
	asked, suites, tables := " --tables step", []string{"step"}, []string{"## Training steps"}
	if os.Getenv("LORAFUSE_LONG") != "" {
		asked, suites = "", []string{"step", "decode", "kernels", "layer", "load"}
		tables = append(tables, "## Decoding", "## Products and attention", "## Adapters", "## Files", "| header, FromBytes | 1,000 tensors |")
	}
	args := strings.Fields("bench --quick" + asked + " --threads 1")
	got := started(exec.Command(path, append(args, "--dir", t.TempDir(), "--save", kept, "--json")...))
	require.Equal(t, ExitOK, got.status, got.stderr)
	all := reports(t, got.stdout)
	var titles []string
	for _, r := range all {
		titles = append(titles, r.Title)
		require.NotEmpty(t, r.Rows, r.Title)
		for _, row := range r.Rows {
			assert.Positive(t, row.Median, "%s: %s", row.Group, row.Name)
			assert.Len(t, row.Seconds, 1)
		}
	}
	assert.Equal(t, suites, titles)
	raw, err := os.ReadFile(kept)
	require.NoError(t, err)
	assert.Equal(t, got.stdout, string(raw), "what is kept is what is printed")
	assert.Contains(t, string(raw), `"command": "lorafuse bench --quick`+asked+` --threads 1",`)

	page := succeed(t, "bench", "--markdown", "--from", kept)
	for _, line := range append(tables, "| step, f32 | tiny, 2 × 16 tokens, r=16 | 1 |", "(kept.json).\n") {
		assert.Contains(t, page, line)
	}
	assert.Equal(t, strings.ReplaceAll(page, " (kept.json)", ""), strings.ReplaceAll(succeed(t, "bench", "--markdown", "--from", filepath.Dir(kept), kept), " (kept.json)", ""), "the same twice adds nothing")
	text := succeed(t, "bench", "--from", kept)
	assert.Contains(t, text, "step: ")
	assert.Contains(t, text, "TOKENS/S")
	assert.Equal(t, string(raw), succeed(t, "bench", "--json", "--from", kept), "what was read is written as it was")

	if os.Getenv("LORAFUSE_LONG") == "" {
		return // TestBenchLoad measures files
	}
	got = started(exec.Command(path, "bench", "--quick", "--tables", "files", "--markdown", "--dir", t.TempDir()))
	require.Equal(t, ExitOK, got.status, got.stderr)
	assert.Equal(t, 4, strings.Count(got.stdout, "No figures.\n"))
	assert.Contains(t, got.stdout, "| header, FromBytes | 1,000 tensors |")
	assert.Contains(t, got.stdout, ": `lorafuse bench --quick --tables files`.\n")
}

// Suites keep results that the page takes.
func TestBenchSuitesAreResults(t *testing.T) {
	kept := filepath.Join(t.TempDir(), "kept.json")
	got := suite(t, "kernels", "--shrink", "64", "--runs", "1", "--threads", "1", "--only", "^LoRA x.*: f32", "--save", kept, "--json")
	require.Equal(t, ExitOK, got.status, got.stderr)
	page := succeed(t, "bench", "--markdown", "--from", kept)
	assert.Contains(t, page, "| x·Aᵀ, f32 | m=16 k=32 n=8 | 1 |")
	assert.Contains(t, page, ": `lorafuse bench kernels --only '^LoRA x.*: f32' --runs 1 --shrink 64 --threads 1` (kept.json).\n")
	require.NoError(t, os.WriteFile(kept, []byte(got.stdout), 0o666))
	assert.Equal(t, page, succeed(t, "bench", "--markdown", "--from", kept), "--json as well")
}

func TestBenchTablesRefuse(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.json")
	require.NoError(t, os.WriteFile(bad, []byte("{\n\"title\": 1}"), 0o666))
	refused := map[string][]string{
		`unknown command "stp", did you mean "step"?`:                                 {"stp"},
		`bench: --tables: found table "stp", expected some of step, decode`:           {"--tables", "stp"},
		"bench: --from: " + bad + ": no results of a benchmark: line 2: title: found": {"--from", bad},
		"bench: --from: " + filepath.Join(dir, "gone") + ": no such file":             {"--markdown", "--from", filepath.Join(dir, "gone"), bad},
		"the folder has no *.json file":                                               {"--from", t.TempDir()},
		"--from prints what was measured, --quick is for measuring":                   {"--from", bad, "--quick"},
		`bench: --python: exec: "no-such-python"`:                                     {"--python", "no-such-python"},
		"bench: --peers: ":                     {"--peers", dir},
		"found -1 threads, expected 1 or more": {"--threads", "-1"},
		`backend "tpu"`:                        {"--backend", "tpu"},
		"[json markdown]":                      {"--json", "--markdown"},
	}
	if os.Getenv("LORAFUSE_LONG") != "" { // found out when something has been measured
		refused["--save: "] = []string{"--quick", "--tables", "products", "--save", "/no/such/folder/x"}
	}
	for says, args := range refused {
		got := suite(t, args...)
		assert.NotEqual(t, ExitOK, got.status, says)
		assert.Contains(t, got.stderr, says)
	}
	assert.Contains(t, succeed(t, "bench"), "Usage:", "no flag, no measuring")
}

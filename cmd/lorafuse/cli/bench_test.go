package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// report is what benchmarks print with --json.
type report struct {
	Title       string `json:"title"`
	Environment struct {
		CPU  string `json:"cpu"`
		Go   string `json:"go"`
		Time string `json:"time"`
	} `json:"environment"`
	Rows []struct {
		Group   string    `json:"group"`
		Program string    `json:"program"`
		Name    string    `json:"name"`
		Input   string    `json:"input"`
		Bytes   int64     `json:"bytes"`
		Runs    int       `json:"runs"`
		Median  float64   `json:"median_s"`
		P10     float64   `json:"p10_s"`
		P90     float64   `json:"p90_s"`
		Rate    float64   `json:"gb_per_s"`
		GFlops  float64   `json:"gflop_per_s"`
		OfPeak  float64   `json:"of_peak_flops"`
		Speed   float64   `json:"token_per_s"`
		PeakRSS int64     `json:"peak_rss_bytes"`
		Failure string    `json:"failure"`
		Seconds []float64 `json:"seconds"`
	} `json:"rows"`
	Marks []struct {
		Met bool `json:"met"`
	} `json:"marks"`
}

// benchmark runs a small one. It starts itself again for each sample, so it has
// to be the program that TestMain puts into the path, not this process.
func benchmark(t *testing.T, args ...string) result {
	path, err := exec.LookPath("lorafuse")
	require.NoError(t, err)
	return started(exec.Command(path, append([]string{"bench", "load", "--size", "1MB", "--dir", t.TempDir()}, args...)...))
}

// started is what a process came to.
func started(c *exec.Cmd) result {
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	c.Run()
	return result{c.ProcessState.ExitCode(), out.String(), errs.String()}
}

func TestBenchLoad(t *testing.T) {
	got := benchmark(t, "--runs", "2", "--only", "^(Header|A new file): .*(1,000|adapter)", "--json")
	require.Equal(t, ExitOK, got.status, got.stderr)
	r := decode[report](t, got.stdout)
	assert.Equal(t, "load", r.Title)
	assert.NotEmpty(t, r.Environment.Go)
	assert.NotEmpty(t, r.Environment.Time)
	require.NotEmpty(t, r.Rows)
	for _, row := range r.Rows {
		assert.Len(t, row.Seconds, 2, row.Name)
		assert.Equal(t, 2, row.Runs)
		assert.Positive(t, row.Bytes)
		assert.LessOrEqual(t, row.P10, row.Median)
		assert.LessOrEqual(t, row.Median, row.P90)
		assert.InEpsilon(t, float64(row.Bytes)/row.Median/1e9, row.Rate, 1e-9)
		assert.Empty(t, row.Failure)
	}
	assert.Contains(t, got.stderr, "measuring")

	got = benchmark(t, "--runs", "1", "--only", "Header", "--markdown")
	require.Equal(t, ExitOK, got.status, got.stderr)
	assert.Contains(t, got.stdout, "### Header\n\n| program | what | on |")
	got = benchmark(t, "--runs", "1", "--only", "Header")
	require.Equal(t, ExitOK, got.status, got.stderr)
	assert.Regexp(t, `lorafuse +FromBytes +50,000 tensors +\d`, got.stdout)
}

// TestBenchPeers: a peer that cannot be started fails its rows, and the command
// in the end.
func TestBenchPeers(t *testing.T) {
	l := newLab(t)
	l.file("peers.json", `{"rust": ["/no/such/program"]}`)
	got := benchmark(t, "--runs", "1", "--only", "Header: .*1,000", "--peers", l.path("."))
	assert.Equal(t, ExitFailure, got.status)
	assert.Contains(t, got.stdout, "FromBytes")
	assert.Regexp(t, `lorafuse: bench: Header: rust: .*no such file`, got.stderr)
}

// suite runs one of the suites that take turns, small.
func suite(t *testing.T, args ...string) result {
	t.Helper()
	return command(t, "", append([]string{"bench"}, args...)...)
}

func TestBenchSuites(t *testing.T) {
	for name, only := range map[string]string{"kernels": "^LoRA x", "layer": "alone|r=8,"} {
		kept := filepath.Join(t.TempDir(), "kept.json")
		got := suite(t, name, "--shrink", "64", "--runs", "2", "--threads", "1", "--only", only, "--json", "--save", kept)
		require.Equal(t, ExitOK, got.status, got.stderr)
		r := decode[report](t, got.stdout)
		raw, err := os.ReadFile(kept)
		require.NoError(t, err)
		assert.Equal(t, r.Rows[0].Seconds, decode[report](t, string(raw)).Rows[0].Seconds)
		assert.Len(t, decode[report](t, string(raw)).Rows, len(r.Rows), "what was saved last")
		assert.Equal(t, name, r.Title)
		require.NotEmpty(t, r.Rows)
		for _, row := range r.Rows {
			assert.Equal(t, 2, row.Runs, name)
			assert.Positive(t, row.GFlops, name)
			assert.Positive(t, row.OfPeak, name)
		}
		assert.Contains(t, got.stderr, "measuring")
		if name == "layer" && os.Getenv("LORAFUSE_LONG") == "" {
			continue // what follows is the same code for both
		}
		got = suite(t, name, "--shrink", "64", "--runs", "1", "--only", only, "--markdown")
		require.Equal(t, ExitOK, got.status, got.stderr)
		assert.Contains(t, got.stdout, "| GFLOP/s | of peak |")
		got = suite(t, name, "--shrink", "64", "--runs", "1", "--only", only)
		require.Equal(t, ExitOK, got.status, got.stderr)
		assert.Contains(t, got.stdout, "OF PEAK")

		for says, args := range map[string][]string{
			`bench ` + name + `: --only: error parsing regexp`:    {"--only", "("},
			`no row matches "zebra"`:                              {"--only", "zebra"},
			`bench ` + name + `: --threads: found -1, expected 0`: {"--threads", "-1"},
			`found 0 runs, expected 1 or more`:                    {"--runs", "0"},
			`found a divisor of sizes of -2, expected 1 or more`:  {"--shrink", "-2"},
			`backend "tpu"`:   {"--backend", "tpu"},
			`[json markdown]`: {"--json", "--markdown"},
		} {
			got := suite(t, append([]string{name}, args...)...)
			assert.NotEqual(t, ExitOK, got.status, says)
			assert.Contains(t, got.stderr, says)
			assert.Empty(t, got.stdout)
		}
	}
	got := suite(t, "layer", "--shrink", "64", "--runs", "1", "--only", "alone", "--save", "/no/such/folder/x")
	assert.NotEqual(t, ExitOK, got.status)
	assert.Contains(t, got.stderr, "--save: ")
	got = suite(t, "kernels", "--python", "no-such-python")
	assert.Contains(t, got.stderr, `bench kernels: --python: exec: "no-such-python"`)
	got = suite(t, "layers")
	assert.Contains(t, got.stderr, `did you mean "layer"`)
}

func TestBenchStep(t *testing.T) {
	path, err := exec.LookPath("lorafuse")
	require.NoError(t, err)
	small := []string{"bench", "step", "--size", "tiny", "--steps", "2", "--runs", "1", "--threads", "1"}
	run := func(args ...string) result {
		return started(exec.Command(path, append(small[:len(small):len(small)], args...)...))
	}
	got := run("--json")
	require.Equal(t, ExitOK, got.status, got.stderr)
	r := decode[report](t, got.stdout)
	assert.Equal(t, "step", r.Title)
	require.Len(t, r.Rows, 4)
	assert.Positive(t, r.Rows[0].Speed)
	assert.Positive(t, r.Rows[0].PeakRSS)
	got = run("--only", "bf16")
	require.Equal(t, ExitOK, got.status, got.stderr)
	assert.Contains(t, got.stdout, "TOKENS/S")
	for says, args := range map[string][]string{
		`found size "tyni", expected one of tiny, small, wide, large, qwen-0.5b, qwen-7b, llama-8b, did you mean "tiny"?`: {"--size", "tyni"},
		"found steps of 0, expected 1 or more": {"--steps", "0"},
		"found a rank of -1":                   {"--rank", "-1"},
	} {
		got := started(exec.Command(path, overridden(small, args[0], args[1])...))
		assert.NotEqual(t, ExitOK, got.status)
		assert.Contains(t, got.stderr, says)
	}
}

// overridden gives a command line another value of a flag that takes one.
func overridden(args []string, flag, value string) []string {
	args = slices.Clone(args)
	if i := slices.Index(args, flag); i >= 0 && flag != "--size" && flag != "--contexts" {
		args[i+1] = value
		return args
	}
	return append(args, flag, value)
}

func TestBenchDecode(t *testing.T) {
	small := []string{"decode", "--size", "tiny", "--contexts", "4,8", "--tokens", "2", "--prompt", "8", "--runs", "1", "--threads", "1"}
	got := suite(t, append(small, "--json")...)
	require.Equal(t, ExitOK, got.status, got.stderr)
	r := decode[report](t, got.stdout)
	assert.Equal(t, "decode", r.Title)
	require.Len(t, r.Rows, 12)
	assert.Positive(t, r.Rows[0].Speed)
	assert.Positive(t, r.Rows[0].Rate)
	got = suite(t, append(small, "--only", "prompt", "--markdown")...)
	require.Equal(t, ExitOK, got.status, got.stderr)
	assert.Contains(t, got.stdout, "tokens/s")
	for says, args := range map[string][]string{
		`found size "tny", expected one of tiny`:                        {"--size", "tny"},
		"found a context of 8 behind one of 64":                         {"--contexts", "64,8"},
		"found tokens of a sample of 0":                                 {"--tokens", "0"},
		`bench decode: --llama-python: exec: "no-such-python"`:          {"--llama-python", "no-such-python"},
		`--contexts: found "many", expected whole numbers, with commas`: {"--contexts", "many"},
	} {
		got := suite(t, overridden(small, args[0], args[1])...)
		assert.NotEqual(t, ExitOK, got.status, says)
		assert.Contains(t, got.stderr, says)
	}
}

func TestBenchPlan(t *testing.T) {
	var costs []struct {
		Program, Device string
		Launches        int
		Read            int `json:"read_bytes"`
		Written         int `json:"written_bytes"`
	}
	require.NoError(t, json.Unmarshal([]byte(succeed(t, "bench", "plan", "--size", "tiny", "--tokens", "64", "--json")), &costs))
	require.Len(t, costs, 3*12)
	assert.Equal(t, "training step, 64 tokens", costs[18].Program)
	for _, c := range costs {
		assert.Positive(t, c.Launches, c)
		assert.Positive(t, c.Read, c)
		assert.Positive(t, c.Written, c)
	}
	table := succeed(t, "bench", "plan", "--size", "tiny")
	assert.Regexp(t, `(?m)^training step, 8,192 tokens of 8 jobs +cuda .* H100 .* H200 [0-9.]+ ms *$`, table)
}

package page

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/dev/bench"
	"github.com/lorafuse/lorafuse/dev/bench/checkpoint"
)

// day is a result of a machine on a day of a month.
func day(n int, machine string, rows ...*bench.Row) Result {
	return Result{machine + ".json", &bench.Report{
		Title: "step", Command: "lorafuse bench step", Rows: rows,
		Environment: bench.Environment{Time: time.Date(2026, 11, n, 0, 0, 0, 0, time.UTC), CPU: "abacus", Cores: 2, Threads: 2, Device: machine + ", 2 threads"},
	}}
}

// steps is a row of a training step of 100 tokens.
func steps(program, name string, seconds float64, memory int64) *bench.Row {
	return &bench.Row{
		Group: "Training step", Program: program, Name: name, Input: "small: 512×8, MLP 1408, vocabulary 8192, 1 × 100 tokens, r=16",
		Tokens: 100, Flops: 1e9, Peak: bench.Peak{Flops: 4e9}, PeakRSS: memory, Seconds: []float64{seconds},
	}
}

// lineOf finds the cells of the line that begins with something.
func lineOf(t *testing.T, text, begins string) []string {
	t.Helper()
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "| "+begins) {
			cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			return cells
		}
	}
	require.Fail(t, "no such line", begins)
	return nil
}

// A cell has the newest figure, the fastest of the newest run with others, and the
// sources of both.
func TestNewest(t *testing.T) {
	text := Markdown([]Result{
		day(3, "a", steps(ours, "f32", 0.5, 1e6)),
		day(1, "a", steps(ours, "f32", 9, 1e6), steps(torch, "f32", 90, 4e6)),
		day(2, "a", steps(ours, "f32", 0.4, 1e6), steps(torch, "f32", 1, 4e6), steps(ours, "f32, int8 weights", 2, 2e6)),
		day(2, "b", steps(ours, "bf16", 0.1, 1e6), steps(torch, "bf16", 0.3, 2e6), steps("torch.compile + PEFT", "bf16", 0.2, 0)),
		day(3, "b", steps(ours, "f32, int8 weights", 1, 0), &bench.Row{Group: "Training step", Program: ours, Name: "bf16", Input: "small, fell over", Failure: "oh"}),
		day(1, "b", steps(ours, "f32, int8 weights", 3, 0)),
	})
	assert.Equal(t, []string{"what", "on", "threads", "abacus with a, 2 cores", "abacus with b, 2 cores"}, lineOf(t, text, "what"))
	assert.Equal(t, []string{"step, f32", "small, 1 × 100 tokens, r=16", "2", "200 (50 %), 1 MB [1]; 2.50× torch + PEFT, 25 % of its memory [2]", ""}, lineOf(t, text, "step, f32 |"))
	assert.Equal(t, "1000 (250 %), 1 MB; 2.00× torch.compile + PEFT [3]", lineOf(t, text, "step, bf16")[4])
	assert.Equal(t, []string{"50.0 (12 %), 2 MB [2]", "100 (25 %) [4]; 3.00× before [5]"}, lineOf(t, text, "step, f32, int8 weights")[3:])
	assert.NotContains(t, text, "fell over")
	assert.Contains(t, text, "\n1. 2026-11-03, abacus with a, 2 cores: `lorafuse bench step` (a.json).\n2. 2026-11-02, abacus with a")
	assert.Equal(t, 4, strings.Count(text, "No figures.\n"), "tables that nothing was measured of")
}

// Times that nobody kept: what a mark of the run found stands in the cell, for the
// rows that the line is held against, and no others.
func TestMarksAlone(t *testing.T) {
	text := `{"title": "layer", "environment": {"time": "2026-11-24T00:00:00Z", "cpu": "abacus", "cores": 2, "threads": 2, "device": "a, 2 threads"}, "rows": [
		{"group": "Forward and backward, bf16", "program": "lorafuse", "name": "LoRA r=8", "input": "m=2048 k=2048 n=2048"},
		{"group": "Forward and backward, bf16", "program": "lorafuse", "name": "LoRA r=16", "input": "m=2048 k=2048 n=2048"}], "marks": [
		{"name": "x", "row": "Forward and backward, bf16: lorafuse: LoRA r=8, m=2048 k=2048 n=2048", "beside": "lorafuse: unfused", "asked": 1, "ratio": 0.5, "met": true},
		{"name": "x", "row": "Forward and backward, bf16: lorafuse: LoRA r=8, m=2048 k=2048 n=2048", "beside": "lorafuse: frozen layer alone", "asked": 1, "ratio": 1.234, "met": true}]}`
	reports, err := bench.ReadResults(strings.NewReader(text))
	require.NoError(t, err)
	got := Markdown([]Result{{"", reports[0]}})
	assert.Equal(t, []string{"layer, bf16, LoRA r=8", oneLayer, "2", "1.23× the time of the frozen layer [1]"}, lineOf(t, got, "layer, bf16"))
	assert.NotContains(t, got, "LoRA r=16")
}

func TestUnits(t *testing.T) {
	row := func(group, program, name, input string, seconds float64) *bench.Row {
		return &bench.Row{Group: group, Program: program, Name: name, Input: input, Bytes: 2e9, Flops: 3e9, Peak: bench.Peak{Flops: 8e9, Bytes: 8e9}, Seconds: []float64{seconds}}
	}
	text := Markdown([]Result{day(1, "a",
		row("One token", "memory", "reading the weights alone", "large: 2048×16, MLP 8192, vocabulary 32000, behind 64 tokens", 0.5),
		row("x·Wᵀ", ours, "bf16", "m=8 k=2048 n=2048", 1), row("x·Wᵀ", "torch", "bf16", "m=8 k=2048 n=2048", 0.5), row("x·Wᵀ", "numpy", "bf16", "m=8 k=2048 n=2048", 0.25),
		row("x·Wᵀ", ours, "bf16", "m=16 k=2048 n=2048", 1), row("x·Wᵀ", ours, "f32", "m=512 k=2048 n=2048", 1), row("x·Wᵀ", ours, "f32", "m=64 k=2048 n=2048", 1),
		row("A new file", ours, "WriteFile", "base", 0.0125), row("A new file", "rust", "serialize_to_file", "base", 0.1),
		row("From the start of the process to its first step", ours, "f32", "small", 0.0625),
	)})
	assert.Equal(t, []string{"reading the weights alone", "large, behind 64 tokens", "2", "4.00 GB/s (50 %) [1]"}, lineOf(t, text, "reading"))
	assert.Equal(t, "3.00 (38 %); 0.25× OpenBLAS [1]", lineOf(t, text, "x·Wᵀ, bf16")[3])
	assert.Equal(t, []string{"a new file, WriteFile", "base, 2000 MB", "2", "12.5 ms; 8.00× Rust [1]"}, lineOf(t, text, "a new file"))
	assert.Equal(t, "0.0625 s [1]", lineOf(t, text, "start to first")[3])
	assert.NotContains(t, text, "m=16", "no line of the table")
	assert.Less(t, strings.Index(text, "m=8 "), strings.Index(text, "m=64 "), "numbers in their order")
	assert.Less(t, strings.Index(text, "m=64 "), strings.Index(text, "m=512 "))
}

func TestThree(t *testing.T) {
	for x, want := range map[float64]string{99.99999: "100", 99.94: "99.9", 9.9999: "10.0", 9.994: "9.99", 0.9999: "1.00", 0.999: "0.999", 0.0123456: "0.0123", 12345: "12345"} {
		assert.Equal(t, want, three(x))
	}
}

func TestMachine(t *testing.T) {
	for want, e := range map[string]bench.Environment{
		"abacus, 2 cores":           {CPU: "abacus", Cores: 2},
		"abacus with amx, 4 cores":  {CPU: "abacus", Cores: 4, Device: "amx, 2 threads"},
		"NVIDIA H200":               {CPU: "abacus", Cores: 4, Device: "NVIDIA H200, sm_90a, driver 580"},
		"abacus with avx2, 2 cores": {CPU: "abacus", Cores: 2, Device: "avx2, 1 threads"},
	} {
		assert.Equal(t, want, machine(&e))
	}
}

// The page does not depend on the order in which results are given.
func TestOrder(t *testing.T) {
	results := []Result{
		day(1, "a", steps(ours, "f32", 1, 0), steps(torch, "f32", 3, 0)), day(2, "a", steps(ours, "bf16", 1, 0)),
		day(1, "b", steps(ours, "f32", 2, 0)), day(3, "c", steps(ours, "f32", 2, 0)), day(2, "b", steps(ours, "f32", 3, 0)),
		{"other.json", day(1, "a", steps(ours, "f32", 5, 0)).Report},
	}
	want := Markdown(results)
	assert.Contains(t, want, "0.667× before")
	rapid.Check(t, func(t *rapid.T) {
		require.Equal(t, want, Markdown(rapid.Permutation(results).Draw(t, "order")))
	})
}

func TestRead(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "[odd]")
	require.NoError(t, os.Mkdir(dir, 0o777))
	_, err := Read(dir)
	assert.ErrorIs(t, err, bench.ErrResults)
	assert.ErrorContains(t, err, "the folder has no *.json file")
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o666))
		return path
	}
	var one strings.Builder
	require.NoError(t, bench.WriteResults(&one, []*bench.Report{day(1, "a", steps(ours, "f32", 1, 0)).Report}))
	write("a.json", one.String()+one.String())
	write("b.json", one.String())
	write("c.txt", "nothing")
	results, err := Read(dir)
	require.NoError(t, err)
	var names []string
	for _, r := range results {
		names = append(names, r.File)
	}
	assert.Equal(t, []string{"a.json", "a.json", "b.json"}, names)
	bad := write("d.json", "{}")
	_, err = Read(dir)
	assert.ErrorIs(t, err, bench.ErrResults)
	assert.ErrorContains(t, err, bad+": no results of a benchmark: ")
	_, err = Read(filepath.Join(dir, "gone"))
	assert.ErrorIs(t, err, os.ErrNotExist)
	assert.Equal(t, filepath.Join(dir, "gone")+": no such file or directory", err.Error())
}

// What a suite is asked to measure is what the tables show, with what stands beside it.
func TestOnly(t *testing.T) {
	assert.Nil(t, Only("step", []string{"decode", "files"}, true, false))
	only := Only("kernels", []string{"products", "adapters"}, true, false)
	for id, want := range map[string]bool{
		"x·Wᵀ: lorafuse: bf16, m=8 k=2048 n=2048": true, "x·Wᵀ: torch: bf16, m=8 k=2048 n=2048": true, "x·Wᵀ: numpy: f32 × bf16 weights, m=8 k=2048 n=2048": true,
		"x·Wᵀ: lorafuse: bf16, m=16 k=2048 n=2048": false, "x·Wᵀ: lorafuse: f32 × nf4 weights, m=8 k=2048 n=2048": false,
		"LoRA dA = dhᵀ·x: torch: f32, m=8 k=1024 n=2048": true, "AdamW: lorafuse: f32, 64 MiB": false, "Attention: torch: backward, bf16, 4 × 256 tokens, 8 heads of 64": true,
	} {
		assert.Equal(t, want, only.MatchString(id), id)
	}
	assert.True(t, Only("kernels", []string{"products"}, true, true).MatchString("x·Wᵀ: lorafuse: bf16, m=1 k=32 n=32"))
	only = Only("kernels", []string{"products"}, false, false)
	assert.False(t, only.MatchString("x·Wᵀ: torch: bf16, m=8 k=2048 n=2048"))
	assert.True(t, only.MatchString("x·Wᵀ: torch: f32 × bf16 weights, m=8 k=2048 n=2048"))
	only = Only("step", Tables(), false, false)
	assert.True(t, only.MatchString("Training step: lorafuse: bf16, small, r=16"))
	assert.True(t, only.MatchString("Training step: torch + PEFT: f32, small, r=16"))
	assert.False(t, only.MatchString("Training step: torch + PEFT: bf16, small, r=16"))
	assert.Nil(t, Only("layer", []string{"products"}, false, false))
}

func TestCheck(t *testing.T) {
	assert.Equal(t, []string{"step", "decode", "products", "adapters", "files"}, Tables())
	assert.NoError(t, Check(Tables()))
	assert.EqualError(t, Check([]string{"step", "fils"}), `found table "fils", expected some of step, decode, products, adapters, files, did you mean "files"?`)
}

// The models that the page explains are those that are measured.
func TestHead(t *testing.T) {
	for _, name := range []string{"small", "wide", "large"} {
		s, err := checkpoint.ByName(name)
		require.NoError(t, err)
		assert.Contains(t, head, "- "+s.String()+"\n")
	}
	var suites []string
	for i := range tables {
		for _, g := range tables[i].groups {
			suites = append(suites, g.suite)
		}
	}
	slices.Sort(suites)
	assert.Equal(t, []string{"decode", "kernels", "layer", "load", "step"}, slices.Compact(suites))
}

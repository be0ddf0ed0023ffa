package gpucheck

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lorafuse/lorafuse/dev/bench"
)

// What the programs of a pack do in tests: each is a script.
const (
	lists   = `echo '{"devices": [{"backend": "cuda", "name": "GPU", "memory_bytes": 80000000000, "detail": "driver 13.0"}]}'`
	measure = `case $1 in devices) ` + lists + ` ;; values) ` + launches + ` ;; *) echo '{"title": "'$1'", "rows": [{"group": "g", "program": "p", "name": "n", "input": "i", "runs": 1, "median_s": 0.5, "peak": {"flop_per_s": 4e14}}], "marks": [{"name": "` + bench.TargetProduct + `", "row": "r", "asked": 0.85, "ratio": 0.9, "least": true, "met": true}]}' ;; esac`
	// launches is a test that says which kernels it has launched.
	launches = passes + "; echo kernels: attention_bf16_128 attention_dkv_bf16_64 attention_dq_bf16_64 gemm_bf16_nt_256 gemm_mma_128 lce_logits_mma"
	passes   = "echo '--- PASS: TestA (0.00s)'; echo '    --- PASS: TestB/one (0.00s)'; echo '--- PASS: TestB (0.00s)'; echo '--- SKIP: TestC (0.00s)'"
)

// pack makes a pack of scripts, with a driver.
func pack(t *testing.T, scripts map[string]string) Options {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("needs sh")
	}
	dir := t.TempDir()
	bin, tree := filepath.Join(dir, "bin"), filepath.Join(dir, "tree")
	all := map[string]string{"gpubench": measure, "conformance": "echo same", "libcuda_twin.so": "", "wrappers.fatbin": "", "a_b.test": passes, "model.test": passes + `; test "$LORAFUSE_TEST_BACKEND" = cuda && test "$3" = "-test.run=^(TestA|TestB)$"`}
	for name, text := range scripts {
		all[name] = text
	}
	for name, text := range all {
		require.NoError(t, os.MkdirAll(bin, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755))
	}
	require.NoError(t, os.WriteFile(filepath.Join(bin, PackFile), []byte(`{"commit": "abc", "built": "go", "tests": [{"name": "a/b"}, {"name": "model", "golden": true, "run": "TestA|TestB"}]}`), 0o644))
	for _, name := range []string{"a/b/testdata/x", "model/y", "backend/cuda/z"} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(tree, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(tree, name), []byte(name), 0o644))
	}
	o := Options{From: filepath.Join(dir, "pack"), Out: filepath.Join(dir, "out")}
	require.NoError(t, Build(o.From, bin, tree, []string{"a/b/testdata/x", "model/y", "backend/cuda/z", "gone"}, false))
	driver := filepath.Join(dir, "libcuda.so.1")
	require.NoError(t, os.WriteFile(driver, nil, 0o644))
	t.Setenv(EnvLibrary, driver)
	return o
}

func statuses(r *Report) map[string]Status {
	all := map[string]Status{}
	for _, s := range r.Steps {
		all[s.Name] = s.Status
	}
	return all
}

func TestAllIsWell(t *testing.T) {
	o := pack(t, nil)
	r, err := Run(t.Context(), o)
	require.NoError(t, err)
	for name, s := range statuses(r) {
		if strings.Contains(name, "check ") || name == "bench torch" || name == "counters" { // there may be a compute-sanitizer here, and no torch
			continue
		}
		assert.Equal(t, Passed, s, name)
	}
	assert.Equal(t, "GPU, 80.0 GB, driver 13.0", r.Device)
	assert.Equal(t, &Tests{Passed: 2, Skipped: 1}, r.result("tests a/b").Tests)
	assert.Equal(t, 0.9, r.result("bench products").Bench.Marks[0].Ratio)
	raw, err := os.ReadFile(filepath.Join(o.Out, MarkdownFile))
	require.NoError(t, err)
	text := string(raw)
	for _, want := range []string{
		"- device: GPU, 80.0 GB, driver 13.0", "| " + bench.TargetProduct + " | ≥ 0.85 | 0.900 | met | r |", "| " + bench.TargetUpload + " | ≤ 1.18 | – | not measured |  |",
		" | tests a/b | passed |", "2 tests passed, 0 failed, 1 skipped", "Measured peaks: 400 TFLOP/s",
	} {
		assert.Contains(t, text, want)
	}
	left, err := filepath.Glob(filepath.Join(os.TempDir(), "lorafuse-gpucheck-*"))
	require.NoError(t, err)
	assert.Empty(t, left, "it tidies up")
}

// A step that fails, and one that hangs with all that it has started, hide no
// other.
func TestFailures(t *testing.T) {
	o := pack(t, map[string]string{
		"a_b.test":    "echo '--- FAIL: TestX (0.00s)'; echo what happened >&2; exit 1",
		"conformance": "sleep 600 & echo hangs; sleep 600",
	})
	began := time.Now()
	limits(t, 4*time.Second) // enough for the others on a busy machine
	report, err := Run(t.Context(), o)
	require.ErrorIs(t, err, ErrSteps)
	assert.Less(t, time.Since(began), 2*time.Minute)
	s := statuses(report)
	assert.Equal(t, Failed, s["wrappers"])
	assert.Equal(t, "it was ended after 4s", report.result("wrappers").Reason)
	assert.Contains(t, report.result("wrappers").Tail, "hangs")
	assert.Equal(t, Failed, s["tests a/b"])
	assert.Equal(t, &Tests{Failed: 1, Names: []string{"TestX"}}, report.result("tests a/b").Tests)
	assert.Contains(t, report.result("tests a/b").Tail, "what happened")
	assert.Equal(t, Passed, s["goldens model"])
	assert.Equal(t, Passed, s["bench decode"])
	raw, err := os.ReadFile(filepath.Join(o.Out, LogFile))
	require.NoError(t, err)
	assert.Contains(t, string(raw), "what happened")
}

// Without a driver, without a device and with what fails to say, everything is
// skipped for a reason.
func TestNoDevice(t *testing.T) {
	o := pack(t, map[string]string{"gpubench": `echo '{"devices": [], "unavailable": [{"backend": "cuda", "reason": "too old"}]}'`})
	r, err := Run(t.Context(), o)
	require.ErrorIs(t, err, ErrNothing)
	for _, s := range r.Steps {
		assert.Equal(t, Skipped, s.Status, s.Name)
		assert.NotEmpty(t, s.Reason)
	}
	assert.Equal(t, "no device: too old", r.result("wrappers").Reason)
	t.Setenv(EnvLibrary, filepath.Join(t.TempDir(), "absent"))
	r, err = Run(t.Context(), o)
	require.ErrorIs(t, err, ErrNothing)
	assert.Contains(t, r.Steps[0].Reason, "absent")
	assert.Equal(t, len(r.Steps), r.Count(Skipped))
}

// What is taken away leaves a whole report, and a later run goes on from there.
func TestGoesOn(t *testing.T) {
	o := pack(t, map[string]string{"a_b.test": passes + "; sleep 60"})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { // the machine goes while the tests run
		for {
			if r, err := ReadReport(filepath.Join(o.Out, JSONFile)); err == nil && r.result("tests a/b").Status == Interrupted {
				cancel()
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	_, err := Run(ctx, o)
	require.ErrorIs(t, err, context.Canceled)
	r, err := ReadReport(filepath.Join(o.Out, JSONFile))
	require.NoError(t, err)
	assert.Equal(t, Passed, r.result("bench upload").Status)
	assert.Equal(t, Interrupted, r.result("tests a/b").Status)
	assert.Equal(t, NotRun, r.result("goldens model").Status)
	began := r.result("bench upload").Date

	more := o
	more.Out, more.Continue, more.Only = t.TempDir(), filepath.Join(o.Out, JSONFile), []string{"goldens model"}
	r, err = Run(t.Context(), more)
	require.NoError(t, err)
	assert.Equal(t, Passed, r.result("goldens model").Status)
	assert.Equal(t, NotRun, r.result("memcheck wrappers").Status)
	assert.Equal(t, NotRun, r.result("tests a/b").Status, "it had not ended")
	assert.Equal(t, began, r.result("bench upload").Date, "it is not run again")

	limits(t, time.Second)
	more.Continue, more.Only = filepath.Join(more.Out, JSONFile), nil
	r, err = Run(t.Context(), more)
	require.ErrorIs(t, err, ErrSteps, "this time it outlasts its own time")
	assert.Equal(t, Failed, r.result("tests a/b").Status)
	assert.NotEqual(t, NotRun, r.result("memcheck wrappers").Status)
	assert.Equal(t, began, r.result("bench upload").Date)

	more.Only = []string{"bench stop"}
	_, err = Run(t.Context(), more)
	require.ErrorContains(t, err, `found step "bench stop", expected one of device, wrappers`)
	empty := o
	bare := filepath.Join(filepath.Dir(o.From), "bin")
	empty.From, empty.Tree = t.TempDir(), t.TempDir()
	require.NoError(t, Build(empty.From, bare, bare, nil, false))
	_, err = Run(t.Context(), empty)
	require.ErrorContains(t, err, "the pack has no files of the repository")
	require.NoError(t, os.WriteFile(more.Continue, []byte(`{"commit": "other"}`), 0o644))
	more.Only = nil
	_, err = Run(t.Context(), more)
	require.ErrorContains(t, err, "found a report of commit other")
}

// When the time for all is up, what has not been begun says so.
func TestLimit(t *testing.T) {
	o := pack(t, map[string]string{"conformance": "sleep 60"})
	o.Limit = 5 * time.Second
	r, err := Run(t.Context(), o)
	require.ErrorIs(t, err, ErrUnfinished, "nothing has failed")
	assert.Equal(t, Interrupted, r.result("wrappers").Status)
	assert.Equal(t, NotRun, r.result("goldens model").Status)
	assert.Equal(t, "the time for all steps was up", r.result("goldens model").Reason)
}

// limits has steps end sooner.
func limits(t *testing.T, most time.Duration) {
	t.Helper()
	mostTime = most
	t.Cleanup(func() { mostTime = 0 })
}

// The programs of a pack are what they were, with their modes, and bytes that two
// of them share are there once.
func TestArchive(t *testing.T) {
	dir, out := t.TempDir(), t.TempDir()
	noise := make([]byte, 3<<20)
	state := uint64(1)
	for i := range noise {
		state = state*6364136223846793005 + 1442695040888963407
		noise[i] = byte(state >> 56)
	}
	files := map[string][]byte{"bin/program": append([]byte("\x7fELF\xe8abcd"), noise[:1<<16]...), "bin/a": append([]byte("one"), noise...), "bin/b": append([]byte("another one"), noise...), "tree/empty": nil, "tree/zeros": make([]byte, 1<<20)}
	where := map[string]string{}
	for name, data := range files {
		at := filepath.Join(dir, filepath.Base(name))
		require.NoError(t, os.WriteFile(at, data, 0o755))
		where[name] = at
	}
	var b strings.Builder
	require.NoError(t, WriteArchive(&b, where))
	assert.Less(t, b.Len(), len(noise)+len(noise)/8)
	require.NoError(t, ReadArchive(strings.NewReader(b.String()), out))
	for name, data := range files {
		raw, err := os.ReadFile(filepath.Join(out, name))
		require.NoError(t, err)
		assert.Equal(t, string(data), string(raw), name)
		info, err := os.Stat(filepath.Join(out, name))
		require.NoError(t, err)
		assert.EqualValues(t, 0o755, info.Mode().Perm())
	}
	require.ErrorIs(t, ReadArchive(strings.NewReader(b.String()[:b.Len()/2]), out), ErrArchive)
	require.ErrorIs(t, ReadArchive(strings.NewReader("no archive"), out), ErrArchive)
}

// A program is what it was, whatever its bytes are, and programs that differ in
// where their functions lie have all the rest in common.
func TestSplit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		likely := rapid.SampledFrom([]byte{0xe8, 0xe9, 0x48, 0x4c, 0x8d, 0x8b, 0x05, 0x0d, 0x83, 0x3d, 0x0f, 0x10, 0})
		raw := rapid.SliceOf(rapid.OneOf(likely, rapid.Byte())).Draw(t, "program")
		code, addresses := split(raw)
		back, ok := joined(code, addresses)
		require.True(t, ok)
		require.Equal(t, string(raw), string(back))
		_, ok = joined(code, append(addresses, 0))
		require.False(t, ok, "too many")
	})
	// A call at 0 leads to 5 + 16, an address at 6 to 13 + 9.
	one := []byte{0xe8, 16, 0, 0, 0, 0x90, 0x48, 0x8d, 0x05, 9, 0, 0, 0}
	code, addresses := split(one)
	require.Equal(t, []byte{0xe8, 0, 0, 0, 0, 0x90, 0x48, 0x8d, 0x05, 0, 0, 0, 0}, code)
	require.Equal(t, []byte{0, 0, 0, 21, 0, 0, 0, 22}, addresses)
	_, ok := joined(code, addresses[:4])
	require.False(t, ok, "too few")
}

func FuzzReadArchive(f *testing.F) {
	dir := f.TempDir()
	require.NoError(f, os.WriteFile(filepath.Join(dir, "x"), []byte("some text"), 0o644))
	var b strings.Builder
	require.NoError(f, WriteArchive(&b, map[string]string{"x": filepath.Join(dir, "x")}))
	f.Add([]byte(b.String()))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if len(raw) < 1<<16 {
			_ = ReadArchive(strings.NewReader(string(raw)), t.TempDir())
		}
	})
}

// Benchmarks are read as this program prints them.
func TestReadsOwnReports(t *testing.T) {
	r := &bench.Report{Title: "t", Rows: []*bench.Row{{Group: "g", Program: "p", Name: "n", Input: "i", Flops: 1e12, Peak: bench.Peak{Flops: 2e12, Bytes: 1e12}, Seconds: []float64{1, 2, 3}}}}
	r.Marks = []bench.Mark{{Name: bench.TargetStep, Row: r.Rows[0].ID(), FlopPeak: bench.LeastStep}}
	raw, err := json.Marshal(r)
	require.NoError(t, err)
	b, err := readBenchmark(raw)
	require.NoError(t, err)
	assert.Equal(t, 0.25, b.Rows[0].OfFlops)
	assert.Equal(t, 2.0, b.Rows[0].Median)
	assert.Equal(t, 2e12, b.Rows[0].Peak.Flops)
	report := &Report{Steps: []Result{{Name: "x", Bench: b}}}
	assert.Contains(t, report.asked(), Asked{Name: bench.TargetStep, Asked: "≥ 0.7", Found: "0.250", On: r.Rows[0].ID(), Word: "MISSED"})
	_, err = readBenchmark([]byte(`{}`))
	require.Error(t, err)
}

// The script is one that sh takes, and explains itself.
func TestScript(t *testing.T) {
	out, err := exec.Command("sh", "../../scripts/gpu_check.sh").Output()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	assert.Equal(t, 2, exit.ExitCode())
	assert.Contains(t, string(out), "--pack DIR")
	assert.Contains(t, string(out), "3 no device was found")
}

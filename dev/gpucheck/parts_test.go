package gpucheck

import (
	"context"
	"debug/elf"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/dev/bench"
)

// Every part ends within its time even if each of its steps takes all of its own,
// and benchmarks come before what takes long.
func TestParts(t *testing.T) {
	r := &runner{pack: &Pack{Tests: []Program{{Name: "backend/cuda"}, {Name: "model", Golden: true}, {Name: "train", Golden: true}}}}
	took, at := map[int]time.Duration{}, map[string]int{}
	for i, s := range r.steps() {
		at[s.name] = i
		if took[s.part] += s.limit; s.name != first {
			assert.Positive(t, s.part, s.name)
			assert.Positive(t, s.limit, s.name)
		}
	}
	for part := 1; part < len(took); part++ {
		assert.LessOrEqual(t, took[part]+took[0], MostPart, "part %d", part)
		assert.Positive(t, took[part], "part %d", part)
	}
	for i, name := range []string{
		first, "wrappers", "values bf16", "peaks", "bench torch", "bench products", "bench step", "bench decode", "bench served", "bench flux", "counters", "memcheck bf16", "bench thresholds",
	} {
		assert.Equal(t, i, at[name], name)
	}
	assert.LessOrEqual(t, took[1]+took[0], MostCall, "the first call")
	assert.LessOrEqual(t, took[2]+took[0], 3*time.Minute, "the second")
	for name, i := range at {
		if strings.HasPrefix(name, "bench ") {
			assert.Less(t, i, at["tests backend/cuda"], name)
			assert.Less(t, i, at["goldens model"], name)
			assert.Less(t, i, at["racecheck bf16"], name)
		}
	}
	assert.Equal(t, "racecheck f32", r.steps()[len(at)-1].name)
}

// A part runs its own steps alone.
func TestOnePart(t *testing.T) {
	o := pack(t, nil)
	o.Part = 2
	r, err := Run(t.Context(), o)
	require.NoError(t, err)
	ran := 0
	for _, s := range r.Steps[1:] {
		if s.Part == 2 {
			ran++
			assert.NotEqual(t, NotRun, s.Status, s.Name)
		} else {
			assert.Equal(t, NotRun, s.Status, s.Name)
		}
	}
	assert.Positive(t, ran)
	assert.Contains(t, r.Markdown(), "| 2 | ")
	o.Part = 99
	_, err = Run(t.Context(), o)
	require.ErrorContains(t, err, "found part 99, expected one of 1 to ")
}

// While a step runs, the report has what it has come to, and one that is ended
// keeps it.
func TestSavesUnderWay(t *testing.T) {
	often = 20 * time.Millisecond
	t.Cleanup(func() { often = 3 * time.Second })
	o := pack(t, map[string]string{"gpubench": `case $1 in devices) ` + lists + ` ;; *)
		while [ $# -gt 1 ]; do [ "$1" = -save ] && f=$2; shift; done
		echo '{"rows": [{"group": "g", "median_s": 0.5}]}' >"$f.new"; mv "$f.new" "$f"; sleep 60 ;; esac`})
	o.Only = []string{"bench decode"}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { // whoever looks sees the row, and takes the machine away
		for ctx.Err() == nil {
			if r, err := ReadReport(filepath.Join(o.Out, JSONFile)); err == nil && r.result("bench decode").Bench != nil {
				cancel()
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	r, err := Run(ctx, o)
	require.ErrorIs(t, err, context.Canceled)
	x := r.result("bench decode")
	assert.Equal(t, Interrupted, x.Status)
	require.NotNil(t, x.Bench)
	assert.Equal(t, 0.5, x.Bench.Rows[0].Median)
}

// Values on the tensor cores that have launched none of their kernels have shown
// nothing.
func TestKernelsAreMissed(t *testing.T) {
	o := pack(t, map[string]string{"gpubench": `case $1 in devices) ` + lists + ` ;; *) ` + passes + "; echo kernels: gemm_mma_128 ;; esac"})
	o.Only = []string{"values bf16", "values f32"}
	r, err := Run(t.Context(), o)
	require.ErrorIs(t, err, ErrSteps)
	assert.Equal(t, "it has launched no kernel attention_bf16_…", r.result("values bf16").Reason)
	assert.Equal(t, Passed, r.result("values f32").Status)
}

// Of several drivers the first that this machine can load is taken, unless only a
// later one finds a device.
func TestFindsDriver(t *testing.T) {
	if runtime.GOOS != "linux" || machines[runtime.GOARCH] == 0 {
		t.Skip("drivers are for Linux on amd64 and arm64")
	}
	before := driverPlaces
	t.Cleanup(func() { driverPlaces = before })
	driverPlaces = nil
	dir := t.TempDir()
	library := func(name string, class elf.Class, machine elf.Machine) string {
		header := make([]byte, 64)
		copy(header, elf.ELFMAG)
		header[4], header[5], header[6] = byte(class), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)
		header[16], header[18], header[20] = byte(elf.ET_DYN), byte(machine), byte(elf.EV_CURRENT)
		path := filepath.Join(dir, name, "libcuda.so.1")
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, header, 0o644))
		return path
	}
	narrow := library("narrow", elf.ELFCLASS32, elf.EM_386)
	right := library("right", elf.ELFCLASS64, machines[runtime.GOARCH])
	compat := library("compat", elf.ELFCLASS64, machines[runtime.GOARCH])
	o := pack(t, map[string]string{"gpubench": `case $LORAFUSE_LIBCUDA in */compat/*) ` + lists + ` ;; *) echo '{}' ;; esac`})
	t.Setenv(EnvLibrary, "")
	ldconfig := func(paths ...string) {
		text := "#!/bin/sh\n"
		for _, p := range paths {
			text += "echo '\tlibcuda.so.1 (libc6) => " + p + "'\n"
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, "ldconfig"), []byte(text), 0o755))
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))

	ldconfig(right, narrow, compat)
	found, err := findDrivers()
	require.NoError(t, err)
	assert.Equal(t, []string{right, compat}, found)
	r := &runner{work: t.TempDir()}
	require.NoError(t, os.Symlink(filepath.Join(filepath.Dir(o.From), "bin"), filepath.Join(r.work, binFolder)))
	require.NoError(t, r.chooseDriver(t.Context()))
	assert.Equal(t, compat, r.driver, "the other one lists no device")
	ldconfig(narrow)
	require.ErrorContains(t, r.chooseDriver(t.Context()), "no CUDA driver: ldconfig knows no libcuda.so.1 for this machine")
}

// A pack and the checkout that goes with it are measured together, each file with its header and padding.
func TestCheckoutCounts(t *testing.T) {
	o := pack(t, nil)
	bin := filepath.Join(filepath.Dir(o.From), "bin")
	root := t.TempDir()
	f, err := os.Create(filepath.Join(root, "large"))
	require.NoError(t, err)
	require.NoError(t, f.Truncate(MostBytes))
	require.NoError(t, f.Close())
	require.NoError(t, Build(t.TempDir(), bin, root, []string{"large"}, true), "test programs may be larger")
	require.NoError(t, os.WriteFile(filepath.Join(bin, PackFile), []byte(`{"commit": "abc"}`), 0o644))
	require.ErrorContains(t, Build(t.TempDir(), bin, root, []string{"large"}, true), "and its checkout 62915072 in an archive of tar, expected at most 62914560 together")
	assert.Equal(t, []int64{512, 1024, 1024, 1536}, []int64{tarred(0), tarred(1), tarred(512), tarred(513)})
}

// The twin of the wrappers is a device that the kernels of the pack are for.
func TestTwin(t *testing.T) {
	for arch, want := range map[string][]string{"90a": {"LFSIM_CC=90"}, "100": {"LFSIM_CC=100"}, "all": nil, "": nil} {
		r := &runner{pack: &Pack{Arch: arch}}
		assert.Equal(t, want, r.wrappers().env, arch)
		assert.Equal(t, want, r.sanitizers()[0].env, arch)
	}
}

// What the pack has no kernels for, and a driver that is too old for them, is said before
// anything else.
func TestFits(t *testing.T) {
	const of = "NVIDIA H200, compute capability 9.0, 132 multiprocessors, driver 13.0"
	for arch, ok := range map[string]bool{"90a": true, "90": true, "all": true, "": true, "89": false, "100": false} {
		assert.Equal(t, ok, (&Pack{Arch: arch}).fits(of) == "", arch)
	}
	assert.Contains(t, (&Pack{Arch: "90a"}).fits("NVIDIA A100, compute capability 8.0, driver 13.0"), "kernels for 90a only: make one with --arch 80, or --arch all")
	assert.Contains(t, (&Pack{Arch: "all"}).fits("NVIDIA A100, compute capability 8.0, driver 12.8"), "the driver is of CUDA 12.8, expected 13.0")

	o := pack(t, map[string]string{"gpubench": `echo '{"devices": [{"backend": "cuda", "name": "GPU", "detail": "driver 12.4"}]}'`})
	r, err := Run(t.Context(), o)
	require.ErrorIs(t, err, ErrNothing)
	assert.Contains(t, r.result("values bf16").Reason, "the driver is of CUDA 12.4")
}

// Of each operation the case is kept that came nearest to its limit.
func TestMargins(t *testing.T) {
	found := margins([]byte(`=== RUN   TestRounded/value/Gemm/lora
    scene.go:107: margin TestRounded/value/Gemm/lora: error 0.003 of 0.015
    scene.go:107: margin TestRounded/value/Gemm/bias: error 0.006 of 0.015
    scene.go:107: margin TestRounded/value/Attention/x: error 0.049 of 0.05
    scene.go:107: margin TestRounded/value/Softmax/x: error 0 of 1e-06
    scene.go:107: margin nothing: error 1 of 2
`))
	assert.Equal(t, []Margin{
		{"Attention", "TestRounded/value/Attention/x", 0.049, 0.05}, {"Gemm", "TestRounded/value/Gemm/bias", 0.006, 0.015}, {"Softmax", "TestRounded/value/Softmax/x", 0, 1e-6},
	}, found)
}

// Counters and rules of an H100, as ncu printed them between the program's output: records of rules are longer, and a
// counter that two sections print has its share of the peak.
func TestCounters(t *testing.T) {
	raw, err := os.ReadFile("testdata/ncu.txt")
	require.NoError(t, err)
	all, err := counters(raw)
	require.NoError(t, err)
	require.Len(t, all, 2)
	assert.Equal(t, "gemm_mma_128", all[0].Kernel)
	for name, value := range map[string]string{
		"Duration": "5,757,056 ns", busiestPipe: "ALU 48.4 %", tensorPipe: "", "DRAM Throughput": "12.00 %", "L2 Hit Rate": "81.99 %",
		"Achieved Occupancy": "24.79 %", topStall: "fixed latency execution dependency, 34.6 %", "Memory Throughput": "52.22 %",
	} {
		assert.Equal(t, value, all[0].Values[name], name)
	}
	assert.Equal(t, "29.6 %", all[1].Values[tensorPipe])
	assert.Contains(t, countersTable(all), "| attention_dkv_bf16_128 | 1,452,032 ns | 29.6 % | Tensor 29.6 % | 6.07 % | 90.13 % | 11.91 % | fixed latency execution dependency, 33.4 % |")

	const columns = `"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"` + "\n"
	all, err = counters([]byte(columns + `"0","k","Tensor (FP)","%","61.5"
"0","k","Tensor (DP)","%","0"
"0","k","Stall Wait","cycle","1.5"
"0","k","Stall Long Scoreboard","cycle","4"
"0","k","Warp Cycles Per Issued Instruction","cycle","8"
`))
	require.NoError(t, err)
	assert.Equal(t, "61.5 %", all[0].Values[tensorPipe])
	assert.Equal(t, "Long Scoreboard, 50.0 %", all[0].Values[topStall])
	for _, bad := range []string{"", `"ID","Kernel Name"` + "\n", columns} {
		_, err = counters([]byte(bad))
		require.Error(t, err)
	}
}

// The clock is what nvidia-smi has said, from the least to the most.
func TestClock(t *testing.T) {
	var c *Clock
	for _, said := range []string{"1755, 640.50, 55\n", "no devices\n", "1980, 120.00, 61\n345, 70, 30\n"} {
		c = c.with(said)
	}
	assert.Equal(t, &Clock{LeastMHz: 1755, MostMHz: 1980, Watts: 640.5, Celsius: 61}, c)
}

// Ours and PyTorch's stand beside each other where they are of one group and input, and
// PEFT's fastest step is what ours is held against.
func TestBesideTorch(t *testing.T) {
	r := &Report{Steps: []Result{
		{Name: "bench torch", Bench: &Benchmark{Rows: []Row{
			{Group: "Training step", Program: "torch + PEFT", Name: "f32 adapters", Input: "8b", Median: 2},
			{Group: "Training step", Program: "torch + PEFT", Name: "bf16 adapters", Input: "8b", Median: 1.25},
			{Group: "Training step", Program: "torch + PEFT", Name: "bf16 adapters", Input: "1b", Median: 0.1},
			{Group: "Training step", Program: "torch + PEFT", Name: "no checkpointing", Input: "8b", Failure: bench.ErrMemory.Error()},
			{Group: "Attention", Program: "torch", Name: "forward, bf16", Input: "x", Median: 1},
			{Group: "Attention", Program: "torch", Name: "backward, bf16", Input: "x", Median: 2},
		}}},
		{Name: "bench products", Bench: &Benchmark{Rows: []Row{
			{Group: "Attention", Program: "lorafuse", Name: "forward, bf16", Input: "x", Median: 2}, {Group: "Attention", Program: "lorafuse", Name: "backward, bf16", Input: "x", Median: 5},
		}}},
		{Name: "bench step", Bench: &Benchmark{Rows: []Row{{Group: "Training step", Program: "lorafuse", Name: "bf16", Input: "8b", Median: 1}}}},
	}}
	assert.Contains(t, r.besideTorch(), "| Training step, torch + PEFT, bf16 adapters | 8b | 1000 | 1250 |  |  | 0.80 |")
	assert.NotContains(t, r.besideTorch(), "1b")
	assert.Contains(t, r.besideTorch(), "| Attention, torch, forward, bf16 | x | 2000 | 1000 |  |  | 2.00 |")
	assert.Contains(t, r.besideTorch(), "| Attention, torch, backward without forward, bf16 | x | 5000 | 2000 |  |  | 2.50 |")
	assert.Equal(t, 2, strings.Count(r.besideTorch(), "Attention"), "forward is compared with forward alone")
	assert.Contains(t, r.Markdown(), "| torch + PEFT, no checkpointing | 8b | does not fit into memory | | |")
	assert.Contains(t, r.asked(), Asked{Name: bench.TargetPEFT, Asked: "≤ 1", Found: "0.800", On: "Training step: bf16, 8b", Word: "met"})
}

// Targets that compare rows of several suites have a result for each shape, and a row that failed has none.
func TestAcross(t *testing.T) {
	product := func(program, input string, median float64) Row {
		return Row{Group: "x·Wᵀ", Program: program, Name: "bf16", Input: input, Median: median}
	}
	attention := func(program, name string, median float64) Row {
		return Row{Group: "Attention", Program: program, Name: name, Input: "4 × 2048 tokens, 32 heads of 128", Median: median}
	}
	token := func(name string, median float64) Row {
		return Row{Group: "One token", Program: "lorafuse", Name: name, Input: "8b", Median: median}
	}
	served := func(name string, share float64, failure string) Row {
		return Row{Group: "One step", Program: "lorafuse", Name: name, Input: "8b", OfBytes: share, Failure: failure}
	}
	r := &Report{Steps: []Result{{Bench: &Benchmark{Rows: []Row{
		product("torch", "m=8192 k=2 n=3", 3), product("torch", "m=8192 k=4 n=5", 1), product("torch", "m=1 k=2 n=3", 1),
		attention("torch", "forward, bf16", 2), attention("torch", "backward, bf16", 3),
	}}}, {Bench: &Benchmark{Rows: []Row{
		product("lorafuse", "m=8192 k=2 n=3", 4), product("lorafuse", "m=8192 k=4 n=5", 4), product("lorafuse", "m=1 k=2 n=3", 4),
		attention("lorafuse", "forward, bf16", 5), attention("lorafuse", "backward, bf16", 6), token("bf16", 10), token("bf16, adapter r=16", 12),
		served("1 texts, 1 adapters r=16", 0.9, ""), served("32 texts, 16 adapters r=16", 0.8, ""), served("64 texts, 16 adapters r=16", 0, "out of memory"),
		{Group: "Training step", Program: "lorafuse", Name: "bf16", Input: "8b", Median: 1, Speed: 12345.6},
	}}}}}
	found := map[string][]string{}
	for _, a := range r.asked() {
		found[a.Name] = append(found[a.Name], a.Found+" "+a.Word)
	}
	const none = "– not measured"
	assert.Equal(t, map[string][]string{
		bench.TargetProduct: {none}, bench.TargetGemm: {"0.750 met", "0.250 MISSED"}, bench.TargetForward: {"0.400 MISSED"}, bench.TargetBackward: {"0.500 met"},
		bench.TargetLayer: {none}, bench.TargetUpload: {none}, bench.TargetStep: {none}, bench.TargetSpeed: {"12346 met"}, bench.TargetPEFT: {none},
		bench.TargetDecode: {none}, bench.TargetAdapter: {"1.200 MISSED"}, bench.TargetOne: {"0.900 met"}, bench.TargetServed: {none},
	}, found)
	assert.Contains(t, r.asked(), Asked{Name: bench.TargetSpeed, Asked: "≥ 10000", Found: "12346", On: "Training step: bf16, 8b", Word: "met"})
}

// Suites are told the peaks that were measured before, by this run or by the one that it
// continues.
func TestPeaksAreKept(t *testing.T) {
	o := pack(t, nil)
	require.NoError(t, os.MkdirAll(o.Out, 0o755))
	r := &runner{Options: o}
	assert.Empty(t, r.peaks())
	name := filepath.Join(o.Out, peaksFile)
	require.NoError(t, os.WriteFile(name, []byte("{}"), 0o644))
	assert.Equal(t, []string{"-peaks", name}, r.peaks())
	r.Out, r.Continue = t.TempDir(), filepath.Join(o.Out, JSONFile)
	assert.Equal(t, []string{"-peaks", name}, r.peaks())
}

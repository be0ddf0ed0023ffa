package gpucheck

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// kind selects how the output of a step is parsed.
type kind uint8

const (
	program    kind = iota // only its exit status counts
	tests                  // of go test -v
	benchmark              // JSON of gpubench
	devices                // JSON of gpubench devices
	sanitizing             // as tests, under compute-sanitizer
	counting               // tables of ncu
)

// step is one thing to do: a program with its arguments, or why not.
type step struct {
	name, what string
	kind       kind
	args       []string
	env        []string
	folder     string
	limit      time.Duration
	skip       string // why it is not done
	// mentions lists text that the output must contain: the kernels that the step tests.
	mentions []string
	// saves is the file in which the program saves its report while running; it may be empty.
	saves string
	// begin, if not nil, is called before the step and returns a reason to skip it, or "".
	begin func() string
	opens bool // starts a new part
	part  int  // counted from 1; the device is of every part
}

// first is the step that looks for the device; without it nothing else runs.
const first = "device"

// steps returns all steps in order. The first part covers what a GPU is needed for most: values, peak rates, PyTorch's
// rates, and the workloads of users. The second part checks memory and other shapes; long steps come last.
func (r *runner) steps() []step {
	all := []step{
		{name: first, what: "the driver is found and lists a device that kernels are compiled for", kind: devices,
			args: []string{r.bin(benchProgram), "devices"}, limit: 15 * time.Second},
		r.wrappers(),
		r.values("values bf16", "values of all operations, products and attention on the tensor cores, and how near to the limit their errors are", time.Minute, large, append(tensorCores, "gemm_bf16_")...),
	}
	all = append(all, r.figures()...)
	all = append(all, r.counting())
	second := []step{r.sanitized("memcheck", "bf16", 100*time.Second, r.values("", "", 0, rounded, tensorCores...))}
	second = append(second, r.suite("bench thresholds", "variants of kernels on both sides of each threshold of backend/gpu/thresholds.go", 50*time.Second,
		[]string{"kernels", "-thresholds", "-runs", "3"}, []string{"kernels", "-thresholds", "-runs", "1", "-shrink", "64"})...)
	second[0].opens = true
	third := append([]step{r.values("values f32", "values of all operations in float32", 90*time.Second, "^TestConformance$/^value$")}, r.rates()...)
	third[0].opens = true
	all = append(append(all, second...), third...)
	for _, p := range r.pack.Tests {
		all = append(all, r.tests(p))
	}
	return parted(append(all, r.sanitizers()...))
}

// benchProgram lists the device and measures it.
const benchProgram = "gpubench"

func (r *runner) bin(name string) string { return filepath.Join(r.work, binFolder, name) }

// wrappers returns the step that compares PTX wrappers on the device with the simulator. The driver of small runs has no
// PTX, so they compare the simulator with a copy of itself. The simulated device has the compute capability of the
// pack's kernels, since it loads no others.
func (r *runner) wrappers() step {
	s := step{name: "wrappers", what: "every wrapper of kernels/cuda/device.cuh as PTX against its twin in the simulator", limit: 15 * time.Second}
	twin, driver := r.bin("libcuda_twin.so"), r.driver
	if r.Small {
		driver = filepath.Join(r.temp, "libcuda_other.so")
		s.begin = func() string {
			library, err := os.ReadFile(twin)
			if err == nil {
				err = os.WriteFile(driver, library, 0o700)
			}
			if err != nil {
				return err.Error()
			}
			return ""
		}
	}
	s.args = []string{r.bin("conformance"), twin, driver, r.bin("wrappers.fatbin")}
	if n := strings.TrimSuffix(r.pack.Arch, "a"); n != "" && n != "all" {
		s.env = []string{"LFSIM_CC=" + n}
	}
	return s
}

// The tests of values with operands rounded to bfloat16, and those together with the cases of many rows. The tests
// themselves name the kernels that they must reach.
const (
	rounded = "^TestRounded$/^value$"
	large   = "^Test(Rounded|Large)$/^value$"
)

var tensorCores = []string{"gemm_mma_", "attention_bf16_", "attention_dq_bf16_", "attention_dkv_bf16_", "lce_logits_mma"}

// longCases has tests run their longer cases too, which take long on the
// simulated driver alone.
const longCases = "LORAFUSE_LONG=1"

// values returns a step of the conformance suite.
func (r *runner) values(name, what string, limit time.Duration, run string, kernels ...string) step {
	s := step{name: name, what: what, kind: tests, limit: limit, mentions: kernels,
		args: []string{r.bin(benchProgram), "values", "-test.v", "-test.run=" + run}}
	if r.Small {
		s.args, s.mentions = append(s.args[:3:3], "-test.run="+run+"/^Softmax$"), nil
	}
	return s
}

// tests returns the step of a package's test program.
func (r *runner) tests(p Program) step {
	s := step{name: "tests " + p.Name, what: "the tests of package " + p.Name, kind: tests, folder: filepath.Join(r.tree, filepath.FromSlash(p.Name)),
		limit: halfPart, env: []string{longCases}}
	s.args = []string{r.bin(p.binary()), "-test.v", "-test.timeout=3m30s"} // prints hanging goroutines before the step is killed
	if p.Golden {
		s.name, s.what = "goldens "+p.Name, "what package "+p.Name+" holds the CPU to, on the device: PyTorch's logits, gradients, runs"
		s.env = append(s.env, "LORAFUSE_TEST_BACKEND=cuda")
	}
	if p.Run != "" {
		s.args = append(s.args, "-test.run=^("+p.Run+")$")
	}
	if r.Small && p.Golden {
		s.skip = "scripts/cuda_goldens.sh runs them on the simulated driver"
	}
	if r.Small {
		s.args, s.env = append(s.args, "-test.run="+smallTests), nil
	}
	return s
}

// smallTests matches tests that show that a test program works.
const smallTests = "^(TestGraphs|TestProfile|TestMissing.*|TestNo.*|Example.*)$"

// sanitizers returns steps that run kernels under compute-sanitizer: the wrappers, and the values of all operations.
// The longest come last.
func (r *runner) sanitizers() []step {
	wrappers := r.wrappers()
	f32, bf16 := r.values("", "", 0, "^TestConformance$/^value$"), r.values("", "", 0, rounded, tensorCores...)
	return []step{
		r.sanitized("memcheck", "wrappers", time.Minute, wrappers),
		r.sanitized("memcheck", "f32", halfPart, f32),
		r.sanitized("synccheck", "wrappers", time.Minute, wrappers),
		r.sanitized("synccheck", "bf16", halfPart, bf16),
		r.sanitized("racecheck", "wrappers", time.Minute, wrappers),
		r.sanitized("racecheck", "bf16", 6*time.Minute, bf16),
		r.sanitized("racecheck", "f32", 6*time.Minute, f32),
	}
}

// sanitized wraps a step in a tool of compute-sanitizer.
func (r *runner) sanitized(tool, of string, limit time.Duration, s step) step {
	s.name, s.what, s.kind, s.limit = tool+" "+of, "compute-sanitizer "+tool+" on the kernels of all operations, "+of, sanitizing, limit
	if of == "wrappers" {
		s.what = "compute-sanitizer " + tool + " on the wrappers"
	}
	s.args = append([]string{r.sanitizer, "--tool", tool, "--error-exitcode", "86", "--print-limit", "20"}, s.args...)
	if r.sanitizer == "" {
		s.skip = "no compute-sanitizer on the PATH or below /usr/local/cuda"
	}
	if r.Small {
		s.skip = "the simulated driver is not for compute-sanitizer; it has checks of its own"
	}
	return s
}

// suite returns a step of gpubench with its arguments, or with small ones for small sizes. Without small arguments,
// small runs omit it.
func (r *runner) suite(name, what string, limit time.Duration, args, small []string) (all []step) {
	if r.Small {
		args, limit = small, 2*time.Minute
	}
	if args == nil {
		return nil
	}
	saves := filepath.Join(r.temp, name+".json")
	if name == peaksStep {
		saves = filepath.Join(r.Out, peaksFile)
	}
	args = append([]string{r.bin(benchProgram)}, append(args, "-save", saves)...)
	return []step{{name: name, what: what, kind: benchmark, limit: limit, args: args, saves: saves}}
}

// peaksStep measures the peaks that other steps are compared with and stores them in peaksFile next to the report.
const (
	peaksStep = "peaks"
	peaksFile = "peaks.json"
)

// peaks returns the arguments that pass a suite the peaks measured by this run or by the run that it continues.
func (r *runner) peaks() []string {
	for _, folder := range []string{r.Out, filepath.Dir(r.Continue)} {
		if name := filepath.Join(folder, peaksFile); fileExists(name) {
			return []string{"-peaks", name}
		}
	}
	return nil
}

// figures returns the most important benchmarks, torch's first.
func (r *runner) figures() []step {
	large := func(only string) []string { return []string{"large", "-runs", "3", "-dir", r.temp, "-only", only} }
	small := func(only string) []string {
		return []string{"large", "-runs", "1", "-dir", r.temp, "-only", only, "-size", "tiny", "-rows", "1", "-length", "16", "-contexts", "8", "-tokens", "6",
			"-texts", "1,2", "-adapters", "2", "-rank", "4", "-heads", "1", "-side", "16"}
	}
	// A text of 1,024 tokens for each sequence takes long to read: a sample is the median of 31 steps, and there is one.
	served := append(large("that are served:"), "-contexts", "1024", "-runs", "1")
	peft := r.suite("bench torch", "products and attention of models by PyTorch, and training steps of 8 billion weights by PEFT, in one process", 90*time.Second,
		[]string{"torch", "-runs", "3", "-dir", r.temp, "-python", pythonPlace}, []string{"torch", "-python", pythonPlace})
	for i := range peft {
		args := peft[i].args
		peft[i].begin = func() (why string) {
			args[slices.Index(args, pythonPlace)], why = findPython()
			return why
		}
	}
	return slices.Concat(
		r.suite(peaksStep, "products of both precisions, reading memory, copies: what all figures are held against", 15*time.Second, []string{"peaks"}, []string{"peaks"}),
		peft,
		r.suite("bench products", "products and attention of the shapes of models", 45*time.Second, []string{"kernels", "-models", "-runs", "5"},
			[]string{"kernels", "-models", "-runs", "1", "-shrink", "512", "-only", "^x·Wᵀ.*m=16|forward"}),
		r.suite("bench step", "training steps of 8 billion weights, 8,192 tokens", 40*time.Second, large("^Training step:"), small("^Training step:")),
		r.suite("bench decode", "tokens of one text, 8 billion weights", 30*time.Second, large("^One token:"), small("^One token:")),
		r.suite("bench served", "steps of 1, 32 and 64 texts with 16 adapters behind 1,024 tokens, 8 billion weights", time.Minute, served, small("that are served:")),
		r.suite("bench flux", "training steps of a block of FLUX", 25*time.Second, large("FLUX"), small("FLUX")),
	)
}

// counting returns a step in which ncu reads the hardware counters of the kernels that take most of users' time.
func (r *runner) counting() step {
	s := step{name: "counters", what: "counters of the hardware, of six kinds of kernels", kind: counting, limit: time.Minute}
	for _, section := range []string{"SpeedOfLight", "ComputeWorkloadAnalysis", "MemoryWorkloadAnalysis", "Occupancy", "LaunchStats", "WarpStateStats"} {
		s.args = append(s.args, "--section", section)
	}
	s.args = slices.Concat([]string{r.profiler, "--csv", "--page", "details", "--print-details", "all", "--clock-control", "none"}, s.args, []string{
		"--kernel-name", "regex:gemm_|gemv_|attention_|lora_down|rows_gemm", "--launch-count", "24",
		r.bin(benchProgram), "kernels", "-models", "-once",
		"-only", "^x·Wᵀ.*m=(1|8192) k=4096 n=14336$|^dy·W.*k=14336|^LoRA.*m=8192 k=4096 n=16$|^Attention.*4 × 2048",
	})
	switch {
	case r.Small:
		s.skip = "the simulated driver has no counters"
	case r.profiler == "":
		s.skip = "no ncu on the PATH, below /usr/local/cuda or /opt/nvidia"
	}
	return s
}

// pythonPlace is a placeholder for a Python that is searched for when needed.
const pythonPlace = "PYTHON"

// rates returns benchmarks of less common workloads.
func (r *runner) rates() []step {
	kernels := func(only string) []string { return []string{"kernels", "-only", only} }
	return slices.Concat(
		r.suite("bench layer", "layers with adapters beside frozen ones, in bf16", 2*time.Minute, []string{"layer", "-only", ", bf16:"},
			[]string{"layer", "-shrink", "64", "-runs", "1", "-only", `backward, bf16: .*(alone|r=16), m=128 `}),
		r.suite("bench upload", "weights to the device", 90*time.Second, []string{"upload", "-size", "large", "-dir", r.temp}, []string{"upload", "-size", "tiny", "-runs", "1", "-dir", r.temp}),
		r.suite("bench target", "the product that targets are of", time.Minute, kernels("^x·Wᵀ: lorafuse: bf16, m=4096 k=4096 n=4096"),
			[]string{"kernels", "-shrink", "64", "-runs", "1", "-only", `^x·Wᵀ: lorafuse: bf16, m=(1|64) k=64 n=64$`}),
		r.suite("bench shapes", "products of small models in bf16: other tiles", 50*time.Second, []string{"kernels", "-runs", "3", "-only", "^(x|dy|LoRA).*: lorafuse: bf16,"}, nil),
		r.suite("bench products f32", "products in float32, of weights of all kinds", 3*time.Minute, kernels("^(x|dy|LoRA).*: lorafuse: f32"), nil),
	)
}

// MostCall is how long a machine is had for at a time, and MostPart the most that the
// limits of the steps of a part add up to: the rest is for unpacking.
const (
	MostCall = 8 * time.Minute
	MostPart = MostCall - 20*time.Second
)

// halfPart is the maximum duration of a step such that a part can hold two.
const halfPart = 220 * time.Second

// parted numbers steps by the part that they belong to: steps that follow each
// other, as many as there is time for.
func parted(all []step) []step {
	part, left := 1, MostPart-all[0].limit
	for i := range all {
		if all[i].name == first {
			continue
		}
		if all[i].opens || all[i].limit > left {
			part, left = part+1, MostPart-all[0].limit
		}
		all[i].part = part
		left -= all[i].limit
	}
	return all
}

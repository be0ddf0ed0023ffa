package gpucheck

import (
	"path/filepath"
	"slices"
	"time"

	"github.com/lorafuse/lorafuse/backend"
)

// kind is how the output of a step is read.
type kind uint8

const (
	program    kind = iota // its exit status says it all
	tests                  // of go test -v
	benchmark              // JSON of lorafuse bench
	devices                // JSON of lorafuse devices
	sanitizing             // as tests, under compute-sanitizer
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
	// mentions are what its output must have: the kernels that it is there for.
	mentions []string
	// saves is the file where the program keeps its report while it goes on, empty
	// for none.
	saves string
	// begin, if any, is called when the step's turn has come, and says why it is
	// not done after all.
	begin func() string
	part  int // counted from 1; the device is of every part
}

// first is the step that looks for the device; without it nothing else runs.
const first = "device"

// steps lists them in their order: what all else rests on comes first, then
// values and figures of what users run, in bf16, and what takes long last.
func (r *runner) steps() []step {
	all := []step{
		{name: first, what: "the driver is found and lists a device that kernels are compiled for", kind: devices,
			args: []string{r.bin("lorafuse"), "devices", "--json"}, limit: 30 * time.Second},
		{name: "wrappers", what: "every wrapper of kernels/cuda/device.cuh as PTX against its twin in the simulator",
			args: r.wrappers(), limit: time.Minute, skip: r.twins()},
		r.values("values bf16", "values of all operations, products and attention on the tensor cores", 90*time.Second, rounded, tensorCores...),
	}
	all = append(all, r.rates()...)
	all = append(all,
		r.values("values f32", "values of all operations in float32", 90*time.Second, "^TestConformance$/^value$"),
		r.sanitized("memcheck", "bf16", halfPart, r.values("", "", 0, rounded, tensorCores...)))
	all = append(all, r.models()...)
	for _, p := range r.pack.Tests {
		all = append(all, r.tests(p))
	}
	return parted(append(all, r.sanitizers()...))
}

func (r *runner) bin(name string) string { return filepath.Join(r.work, binFolder, name) }

func (r *runner) wrappers() []string {
	return []string{r.bin("conformance"), r.bin("libcuda_twin.so"), r.driver, r.bin("wrappers.fatbin")}
}

// The tests of values with operands rounded to bfloat16, and the kernels that
// they must have reached: the test says which.
const rounded = "^TestRounded$/^value$"

var tensorCores = []string{"gemm_mma_", "attention_bf16_", "attention_dq_bf16_", "attention_dkv_bf16_", "lce_logits_mma"}

// longCases has tests run their longer cases too, which take long on the
// simulated driver alone.
const longCases = "LORAFUSE_LONG=1"

// values is a step of tests of backend/cuda.
func (r *runner) values(name, what string, limit time.Duration, run string, kernels ...string) step {
	s := step{name: name, what: what, kind: tests, folder: filepath.Join(r.tree, "backend/cuda"), limit: limit, mentions: kernels,
		args: []string{r.bin("backend_cuda.test"), "-test.v", "-test.run=" + run}, env: []string{longCases}}
	if r.Small {
		s.args, s.mentions = append(s.args[:2:2], "-test.run="+run+"/^Softmax$"), nil
	}
	return s
}

// tests is the step of a package's test program.
func (r *runner) tests(p Program) step {
	s := step{name: "tests " + p.Name, what: "the tests of package " + p.Name, kind: tests, folder: filepath.Join(r.tree, filepath.FromSlash(p.Name)),
		limit: halfPart, env: []string{longCases}}
	s.args = []string{r.bin(p.binary()), "-test.v", "-test.timeout=3m45s"} // it says what hangs before it is ended
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

// smallTests are those that show that a test program runs.
const smallTests = "^(TestGraphs|TestProfile|TestMissing.*|TestNo.*|Example.*)$"

// sanitizers run kernels under compute-sanitizer: the wrappers, and the values of
// all operations. What takes longest is last.
func (r *runner) sanitizers() []step {
	wrappers := step{what: "wrappers", args: r.wrappers()}
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

// sanitized is a step under a tool of compute-sanitizer.
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

// suite is a step of lorafuse bench on the device, with the arguments that it has
// in small sizes; where there are none it is not taken then.
func (r *runner) suite(name, what string, limit time.Duration, args, small []string) (all []step) {
	if r.Small {
		args, limit = small, time.Minute
	}
	if args == nil {
		return nil
	}
	saves := filepath.Join(r.temp, name+".json")
	args = append([]string{r.bin("lorafuse"), "bench"}, append(args, "--backend", backend.CUDA, "--json", "--save", saves)...)
	return []step{{name: name, what: what, kind: benchmark, limit: limit, args: args, saves: saves}}
}

// rates measure operations one by one, those of bf16 first.
func (r *runner) rates() []step {
	kernels := func(only string) []string { return []string{"kernels", "--only", only} }
	small := func(words ...string) []string { return append(words, "--shrink", "64", "--runs", "1", "--only") }
	return slices.Concat(
		r.suite("bench products bf16", "products on the tensor cores", 90*time.Second, kernels("^(x|dy|LoRA).*: lorafuse: bf16,"),
			append(small("kernels"), `^x·Wᵀ: lorafuse: bf16, m=(1|64) k=64 n=64$`)),
		r.suite("bench attention", "attention, forward and backward", time.Minute, kernels("^Attention"), nil),
		r.suite("bench layer bf16", "layers with adapters beside frozen ones, in bf16", 2*time.Minute, []string{"layer", "--runs", "5", "--only", ", bf16:"},
			append(small("layer"), `backward, bf16: .*(alone|r=16), m=128 `)),
		r.suite("bench memory", "what is bound by the memory", time.Minute, kernels("^Bound by the memory"),
			append(small("kernels"), "softmax")),
	)
}

// pythonPlace stands for a Python that is looked for when it is needed.
const pythonPlace = "PYTHON"

// models measure training and generating with whole models, and what users
// reach for less.
func (r *runner) models() []step {
	dir := []string{"--dir", r.temp}
	add := func(words ...string) []string { return append(words, dir...) }
	peft := r.suite("bench step peft", "training steps beside torch + PEFT on the same GPU, as it is and compiled", 5*time.Minute,
		add("step", "--size", "small,qwen-0.5b", "--runs", "1", "--only", "bf16", "--python", pythonPlace), nil)
	for i := range peft {
		args := peft[i].args
		peft[i].begin = func() (why string) {
			args[slices.Index(args, pythonPlace)], why = findPython()
			return why
		}
	}
	return slices.Concat(
		r.suite("bench step", "training steps of a model as large as Qwen2.5-0.5B", 2*time.Minute, add("step", "--size", "qwen-0.5b", "--runs", "2", "--only", "bf16"),
			add("step", "--size", "tiny", "--runs", "1", "--steps", "1", "--only", "bf16")),
		r.suite("bench decode", "generating with 1.1 billion weights", 2*time.Minute, add("decode", "--size", "large"),
			add("decode", "--size", "tiny", "--runs", "1", "--contexts", "8", "--tokens", "2", "--prompt", "8", "--only", "One token: .*(merged, f32|alone)")),
		r.suite("bench upload", "weights to the device", 90*time.Second, add("upload", "--size", "large"), add("upload", "--size", "tiny", "--runs", "1")),
		peft,
		r.suite("bench step 7b", "training steps of a model as large as Qwen2.5-7B", halfPart, add("step", "--size", "qwen-7b", "--runs", "1", "--steps", "5", "--only", "bf16"), nil),
		r.suite("bench decode 7b", "generating with a model as large as Qwen2.5-7B", halfPart,
			add("decode", "--size", "qwen-7b", "--runs", "3", "--contexts", "64,1024", "--only", "One token.*(f32|alone)"), nil),
		r.suite("bench products f32", "products in float32, of weights of all kinds", 3*time.Minute, []string{"kernels", "--only", "^(x|dy|LoRA).*: lorafuse: f32"}, nil),
		r.suite("bench layer f32", "layers with adapters beside frozen ones, in float32", 2*time.Minute, []string{"layer", "--runs", "5", "--only", "bf16 weights:"}, nil),
	)
}

// MostPart is the most time that the steps of a part take together: with what it
// takes to unpack, less than the nine minutes that a machine may be had for at a
// time.
const MostPart = 8*time.Minute + 20*time.Second

// halfPart is the most that a step may take for a part to have two such.
const halfPart = 235 * time.Second

// parted numbers steps by the part that they belong to: steps that follow each
// other, as many as there is time for.
func parted(all []step) []step {
	part, left := 1, MostPart-all[0].limit
	for i := range all {
		if all[i].name == first {
			continue
		}
		if all[i].limit > left {
			part, left = part+1, MostPart-all[0].limit
		}
		all[i].part = part
		left -= all[i].limit
	}
	return all
}

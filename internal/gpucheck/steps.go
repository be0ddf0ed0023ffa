package gpucheck

import (
	"path/filepath"
	"slices"
	"time"
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
	// prepare, if any, is called when the step's turn has come, and says why it is
	// not done after all.
	prepare func() string
}

// first is the step that looks for the device; without it nothing else runs.
const first = "device"

// steps lists them in their order: what all else rests on comes first.
func (r *runner) steps() []step {
	bin := func(name string) string { return filepath.Join(r.work, binFolder, name) }
	all := []step{{name: first, what: "the driver is found and lists a device that kernels are compiled for", kind: devices,
		args: []string{bin("lorafuse"), "devices", "--json"}, limit: time.Minute}}
	wrappers := []string{bin("conformance"), bin("libcuda_twin.so"), r.driver, bin("wrappers.fatbin")}
	all = append(all, step{name: "wrappers", what: "every wrapper of kernels/cuda/device.cuh as PTX against its twin in the simulator",
		args: wrappers, limit: 3 * time.Minute, skip: r.twins()})
	for _, p := range r.pack.Tests {
		folder := filepath.Join(r.tree, filepath.FromSlash(p.Name))
		s := step{name: "tests " + p.Name, what: "the tests of package " + p.Name, kind: tests, folder: folder, limit: 9 * time.Minute}
		s.args = []string{bin(p.binary()), "-test.v", "-test.timeout=8m45s"} // it says what hangs before it is ended
		if p.Golden {
			s.name, s.what = "goldens "+p.Name, "what package "+p.Name+" holds the CPU to, on the device: PyTorch's logits, gradients, runs"
			s.env = []string{"LORAFUSE_TEST_BACKEND=cuda"}
		}
		if p.Run != "" {
			s.args = append(s.args, "-test.run=^("+p.Run+")$")
		}
		if r.Small && p.Golden {
			s.skip = "scripts/cuda_goldens.sh runs them on the simulated driver"
		}
		if r.Small {
			s.args = append(s.args, "-test.run="+smallTests)
		}
		all = append(all, s)
	}
	all = append(all, r.sanitizers(wrappers, bin)...)
	return append(all, r.benchmarks(bin("lorafuse"))...)
}

// smallTests are those that show that a test program runs.
const smallTests = "^(TestGraphs|TestProfile|TestMissing.*|TestNo.*|Example.*)$"

// sanitizers run kernels under compute-sanitizer: the wrappers, and the values of
// all operations.
func (r *runner) sanitizers(wrappers []string, bin func(string) string) (all []step) {
	why := ""
	if r.sanitizer == "" {
		why = "no compute-sanitizer on the PATH or below /usr/local/cuda"
	}
	if r.Small {
		why = "the simulated driver is not for compute-sanitizer; it has checks of its own"
	}
	for _, tool := range []string{"memcheck", "racecheck", "synccheck"} {
		under := []string{r.sanitizer, "--tool", tool, "--error-exitcode", "86", "--print-limit", "20"}
		all = append(all,
			step{name: tool + " wrappers", what: "compute-sanitizer " + tool + " on the wrappers", kind: sanitizing,
				args: append(under[:len(under):len(under)], wrappers...), limit: 4 * time.Minute, skip: why},
			step{name: tool + " kernels", what: "compute-sanitizer " + tool + " on the kernels of all operations", kind: sanitizing,
				args:   append(under[:len(under):len(under)], bin("backend_cuda.test"), "-test.v", "-test.run=^(TestConformance$/^value$|TestRounded$/^value$)", "-test.timeout=8m45s"),
				folder: filepath.Join(r.tree, "backend", "cuda"), limit: 9 * time.Minute, skip: why})
	}
	return all
}

// pythonPlace stands for a Python that is looked for when it is needed.
const pythonPlace = "PYTHON"

// benchmarks are the suites of lorafuse bench on the device.
func (r *runner) benchmarks(lorafuse string) (all []step) {
	suite := func(name, what string, limit time.Duration, args []string, small ...string) {
		if r.Small {
			args, limit = small, time.Minute
			if small == nil {
				return
			}
		}
		all = append(all, step{name: name, what: what, kind: benchmark, limit: limit, args: append([]string{lorafuse, "bench"}, append(args, "--backend", "cuda", "--json")...)})
	}
	dir := []string{"--dir", r.temp}
	add := func(words ...string) []string { return append(words, dir...) }
	suite("bench kernels", "products and what is bound by the memory", 6*time.Minute, []string{"kernels"},
		"kernels", "--shrink", "64", "--runs", "1", "--only", `^x·Wᵀ: lorafuse: bf16, m=(1|64) k=64 n=64$|softmax`)
	suite("bench layer", "layers with adapters beside frozen ones", 6*time.Minute, []string{"layer", "--runs", "5"},
		"layer", "--shrink", "64", "--runs", "1", "--only", `backward, bf16: .*(alone|r=16), m=128 `)
	suite("bench upload", "weights to the device", 4*time.Minute, add("upload", "--size", "large"), add("upload", "--size", "tiny", "--runs", "1")...)
	suite("bench step", "training steps of a model as large as Qwen2.5-0.5B", 6*time.Minute, add("step", "--size", "small,qwen-0.5b", "--runs", "2"), add("step", "--size", "tiny", "--runs", "1", "--steps", "1", "--only", "bf16")...)
	if !r.Small {
		suite("bench step peft", "training steps beside torch + PEFT on the same GPU, as it is and compiled", 9*time.Minute,
			add("step", "--size", "small,qwen-0.5b", "--runs", "1", "--only", "bf16", "--python", pythonPlace))
		args := all[len(all)-1].args
		all[len(all)-1].prepare = func() (why string) {
			args[slices.Index(args, pythonPlace)], why = findPython()
			return why
		}
	}
	suite("bench decode", "generating with 1.1 billion weights", 6*time.Minute, add("decode", "--size", "small,large"),
		add("decode", "--size", "tiny", "--runs", "1", "--contexts", "8", "--tokens", "2", "--prompt", "8", "--only", "One token: .*(merged, f32|alone)")...)
	suite("bench step 7b", "training steps of a model as large as Qwen2.5-7B", 9*time.Minute, add("step", "--size", "qwen-7b", "--runs", "1", "--steps", "5", "--only", "bf16"))
	suite("bench decode 7b", "generating with a model as large as Qwen2.5-7B", 9*time.Minute, add("decode", "--size", "qwen-7b", "--runs", "3", "--contexts", "64,1024", "--only", "One token.*(f32|alone)"))
	return all
}

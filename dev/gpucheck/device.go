package gpucheck

import (
	"context"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// EnvLibrary names the driver's library, for the programs of the pack and here.
const EnvLibrary = "LORAFUSE_LIBCUDA"

// driverPlaces lists folders with drivers that are unknown to the dynamic linker.
var driverPlaces = []string{
	"/usr/local/nvidia/lib64/libcuda.so.1", "/usr/local/nvidia/lib/libcuda.so.1", "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
	"/usr/lib/aarch64-linux-gnu/libcuda.so.1", "/usr/lib64/libcuda.so.1", "/usr/lib64/nvidia/libcuda.so.1",
	"/usr/lib/wsl/lib/libcuda.so.1", "/run/opengl-driver/lib/libcuda.so.1",
}

// findDrivers returns the paths of libraries that may be the driver, the likeliest first, in the order of the linker's
// cache. Libraries for other architectures, such as 32-bit ones, are omitted. If there is none, the error gives the
// reason.
func findDrivers() ([]string, error) {
	if name := os.Getenv(EnvLibrary); name != "" {
		if _, err := os.Stat(name); err != nil {
			return nil, fmt.Errorf("%s: %w", EnvLibrary, err)
		}
		name, err := filepath.Abs(name)
		return []string{name}, err
	}
	var places []string
	if out, err := exec.Command("ldconfig", "-p").Output(); err == nil {
		for line := range strings.Lines(string(out)) {
			if name, path, ok := strings.Cut(line, " => "); ok && strings.HasPrefix(strings.TrimSpace(name), "libcuda.so.1 ") {
				places = append(places, strings.TrimSpace(path))
			}
		}
	}
	var found []string
	seen := map[string]bool{}
	for _, name := range append(places, driverPlaces...) {
		real, err := filepath.EvalSymlinks(name)
		if err != nil || seen[real] || !loadable(real) {
			continue
		}
		seen[real] = true
		found = append(found, name)
	}
	if len(found) == 0 {
		return nil, errors.New("no CUDA driver: ldconfig knows no libcuda.so.1 for this machine, and it is in none of the usual places; " + EnvLibrary + " may name it")
	}
	return found, nil
}

// machines are the numbers that libraries have for the machines they run on.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// loadable reports whether a program of this architecture can load a library.
func loadable(name string) bool {
	f, err := elf.Open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	return f.Class == elf.ELFCLASS64 && f.Machine == machines[runtime.GOARCH]
}

// chooseDriver selects the first driver that lists a device, or else the first driver: a driver may be too old or too
// new for the device. If there is none, the error gives the reason.
func (r *runner) chooseDriver(ctx context.Context) error {
	found, err := findDrivers()
	if err != nil {
		r.driver = "libcuda.so.1" // for programs that search for the driver themselves
		return err
	}
	r.driver = found[0]
	if len(found) == 1 {
		return nil
	}
	for _, name := range found {
		limited, cancel := context.WithTimeout(ctx, 20*time.Second)
		c := exec.CommandContext(limited, r.bin(benchProgram), "devices")
		c.Env = append(os.Environ(), EnvLibrary+"="+name)
		c.WaitDelay = time.Second
		raw, err := c.Output()
		cancel()
		if device, _, bad := describe(raw); err == nil && bad == nil && device != "" {
			r.driver = name
			return nil
		}
	}
	return nil
}

// findPython returns a Python with torch and PEFT that can train on the GPU, or else a reason.
func findPython() (python, why string) {
	for _, name := range []string{"python3", "python"} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		out, err := exec.Command(path, "-c", "import torch, peft, transformers, safetensors; print(torch.cuda.is_available())").CombinedOutput()
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		if said := lines[len(lines)-1]; err != nil {
			why = name + ": " + said
		} else if said != "True" {
			why = name + ": its torch sees no GPU"
		} else {
			return path, ""
		}
	}
	if why == "" {
		why = "no Python"
	}
	return "", why
}

// findTool returns the path of a CUDA tool, from PATH or the first match of the patterns; it is empty if the tool is
// missing.
func findTool(name string, patterns ...string) string {
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	for _, pattern := range append(patterns, "/usr/local/cuda*/bin/"+name) {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			return found[len(found)-1]
		}
	}
	return ""
}

func findSanitizer() string {
	return findTool("compute-sanitizer", "/usr/local/cuda*/compute-sanitizer/compute-sanitizer", "/opt/nvidia/*/compute-sanitizer")
}

func findProfiler() string { return findTool("ncu", "/opt/nvidia/nsight-compute/*/ncu") }

var (
	capability = regexp.MustCompile(`compute capability (\d+)\.(\d+)`)
	cudaOf     = regexp.MustCompile(`driver (\d+)\.(\d+)`)
)

// oldestDriver is the CUDA version for which the kernels' machine code was built.
const oldestDriver = 13

// fits returns the reason that the pack's kernels cannot run on a device, or "" if they can.
func (p *Pack) fits(device string) string {
	if m := cudaOf.FindStringSubmatch(device); m != nil {
		if major, err := strconv.Atoi(m[1]); err == nil && major < oldestDriver {
			return fmt.Sprintf("%s: the driver is of CUDA %s.%s, expected %d.0 (580) or newer", device, m[1], m[2], oldestDriver)
		}
	}
	m := capability.FindStringSubmatch(device)
	if m == nil || p.Arch == "" || p.Arch == "all" || strings.TrimRight(p.Arch, "a") == m[1]+m[2] {
		return ""
	}
	return fmt.Sprintf("%s: the pack has kernels for %s only: make one with --arch %s%s, or --arch all", device, p.Arch, m[1], m[2])
}

// describe parses the output of gpubench devices, which lists those of the CUDA backend. It returns the description of
// the first one, or the reason that there is none.
func describe(raw []byte) (device, missing string, err error) {
	var list struct {
		Devices []struct {
			Name, Detail string
			Memory       int64 `json:"memory_bytes"`
		}
		Unavailable []struct{ Reason string }
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return "", "", fmt.Errorf("the list of devices: %w", err)
	}
	switch {
	case len(list.Devices) > 0:
		d := list.Devices[0]
		return fmt.Sprintf("%s, %.1f GB, %s", d.Name, float64(d.Memory)/1e9, d.Detail), "", nil
	case len(list.Unavailable) > 0:
		return "", list.Unavailable[0].Reason, nil
	}
	return "", "the program has no CUDA backend", nil
}

// gpuFields are the fields queried from nvidia-smi.
const gpuFields = "name,driver_version,vbios_version,memory.total,power.limit,clocks.max.sm,clocks.max.mem,ecc.mode.current,mig.mode.current,pcie.link.gen.current,pcie.link.width.current,temperature.gpu"

// askGPU returns a line per GPU, or none if nvidia-smi is missing.
func askGPU() (lines []string) {
	out, err := exec.Command("nvidia-smi", "--query-gpu="+gpuFields, "--format=csv").Output()
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(out)) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return lines
}

// host describes the machine apart from the GPU.
func host() string {
	model := runtime.GOARCH
	if raw, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(raw)) {
			if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return fmt.Sprintf("%s, %d cores, Linux %s", model, runtime.NumCPU(), strings.TrimSpace(string(kernel)))
}

package sim

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Without a GPU the twins can only be compared with themselves: it tries the
// program that scripts/gpu_check.sh runs where there is one. In another order
// of threads the other side must still give the same.
func TestConformanceProgram(t *testing.T) {
	if os.Getenv("LORAFUSE_LONG") == "" {
		t.Skip("LORAFUSE_LONG=1 compares the device language with itself")
	}
	dir := filepath.Join(build(t, "conformance"), "conformance")
	raw, err := os.ReadFile("conformance/wrappers.cu")
	require.NoError(t, err)
	image := "LFSIM\n"
	for _, m := range regexp.MustCompile(`LF_KERNEL\((\w+)\)`).FindAllStringSubmatch(string(raw), -1) {
		image += m[1] + "\n"
	}
	tmp := t.TempDir()
	names, twin := filepath.Join(tmp, "names"), filepath.Join(tmp, "libcuda_other.so")
	require.NoError(t, os.WriteFile(names, []byte(image), 0o600))
	library, err := os.ReadFile(filepath.Join(dir, "libcuda_twin.so"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(twin, library, 0o700))
	out, err := run(t, []string{"LFSIM_ORDER=reverse"}, filepath.Join(dir, "conformance"), filepath.Join(dir, "libcuda_twin.so"), twin, names)
	require.NoError(t, err, "%s", out)
	require.NotContains(t, string(out), "DIFFERS")
	require.GreaterOrEqual(t, strings.Count(string(out), " same"), 15)
}

// Every name that device.cuh makes for itself is in a kernel of the comparison.
func TestConformanceIsComplete(t *testing.T) {
	header, err := os.ReadFile("../cuda/device.cuh")
	require.NoError(t, err)
	wrappers, err := os.ReadFile("conformance/wrappers.cu")
	require.NoError(t, err)
	below := map[string]string{ // what stands on another wrapper only
		"lf_shared_address": "in all that touches shared memory", "lf_cp_async_commit": "in conform_cp_async", "lf_mma_bf16_16816": "by lf_type", "lf_mma_f16_16816": "by lf_type",
	}
	for _, m := range regexp.MustCompile(`LF_DEVICE \w+ (lf_\w+)\(`).FindAllStringSubmatch(string(header), -1) {
		if !strings.Contains(string(wrappers), m[1]) && below[m[1]] == "" {
			t.Errorf("%s is compared by no kernel of conformance/wrappers.cu", m[1])
		}
	}
}

// Our copies of the driver's structures are those of cuda.h, where there is one.
func TestStructuresAreThoseOfCuda(t *testing.T) {
	homes, _ := filepath.Glob("../../output/cuda/*/nvidia/cu*/include")
	if home := os.Getenv("CUDA_HOME"); home != "" {
		homes = append(homes, filepath.Join(home, "include"))
	}
	if len(homes) == 0 {
		t.Skip("SKIPPED: no cuda.h: scripts/cuda_toolchain.sh installs it")
	}
	compiler, err := exec.LookPath("g++")
	if err != nil {
		t.Skip("SKIPPED: needs g++")
	}
	for _, home := range homes {
		out, err := run(t, nil, compiler, "-std=c++17", "-fsyntax-only", "-isystem", home, "test/abi.cpp")
		require.NoError(t, err, "%s", out)
	}
}

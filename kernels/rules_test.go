package kernels_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	comments = regexp.MustCompile(`(?s)//[^\n]*|/\*.*?\*/`)
	spaces   = regexp.MustCompile(`  +`)
	kernel   = regexp.MustCompile(`__global__\s+void\s+(__launch_bounds__\s*\((?:[^()]|\([^()]*\))*\)\s+)?(\w+)`)
)

// rules finds what a file of kernels/cuda or kernels/shared must not have, or lacks.
func rules(name, source string) (findings []string) {
	add := func(what string) { findings = append(findings, name+": "+what) }
	if !strings.HasPrefix(source, "// ") {
		add("does not open with what it computes")
	}
	if n := strings.Count(source, "\n"); n > 500 {
		add("has more than 500 lines")
	}
	code := strings.ReplaceAll(comments.ReplaceAllString(source, ""), "\\\n", " ") // macros may go over lines
	if !strings.HasSuffix(name, ".cuh") {
		for word, instead := range map[string]string{
			`\basm\b`:        "inline assembly: only device.cuh has it",
			`\b__shared__`:   "__shared__: LF_SHARED or LF_DYN_SHARED, which the simulator guards",
			`\batomic\w*`:    "an atomic: sums have a fixed order",
			`__CUDACC__`:     "two versions: the same source runs in both worlds",
			`__activemask`:   "__activemask: it says who happens to be there",
			`#include <cu`:   "a header of CUDA: device.cuh has what there is",
			`\bclock(64)?\(`: "the clock: results would depend on time",
		} {
			if regexp.MustCompile(word).MatchString(code) {
				add(instead)
			}
		}
	}
	for _, m := range kernel.FindAllStringSubmatch(code, -1) {
		if m[1] == "" {
			add(m[2] + " has no __launch_bounds__, by which the compiler knows how many registers it may take")
		}
		if !strings.Contains(code, "##") && !strings.Contains(code, "LF_KERNEL("+m[2]+")") {
			add(m[2] + " has no LF_KERNEL behind it")
		}
	}
	return findings
}

func TestKernelSources(t *testing.T) {
	files, err := filepath.Glob("cuda/*.cu*")
	require.NoError(t, err)
	shared, err := filepath.Glob("shared/*.cu")
	require.NoError(t, err)
	require.NotEmpty(t, shared)
	for _, name := range append(files, shared...) {
		raw, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, f := range rules(name, string(raw)) {
			t.Error(f)
		}
	}
}

// Rules that find nothing are worth nothing.
func TestRulesFind(t *testing.T) {
	require.ElementsMatch(t, []string{
		"x.cu: does not open with what it computes",
		"x.cu: inline assembly: only device.cuh has it",
		"x.cu: __shared__: LF_SHARED or LF_DYN_SHARED, which the simulator guards",
		"x.cu: an atomic: sums have a fixed order",
		"x.cu: f has no __launch_bounds__, by which the compiler knows how many registers it may take",
		"x.cu: f has no LF_KERNEL behind it",
	}, rules("x.cu", `#include "device.cuh" // asm
extern "C" __global__ void f(float* x) { __shared__ float t[2]; atomicAdd(x, 1.f); asm("nop;"); }
extern "C" __global__ void __launch_bounds__(32) g(float* x) {}
LF_KERNEL(g);`))
}

package kernels_test

import (
	"os"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/kernels"
)

func source(text string) fstest.MapFS {
	return fstest.MapFS{"cuda/k.cu": {Data: []byte(text)}, "shared/h.cuh": {Data: []byte("#pragma once\n#define LF_N 64 // threads\n#define LF_PAIR(i) const float *a##i, int b ## i\n")}}
}

// TestSignatures: macros are expanded, in parameters and around whole kernels.
func TestSignatures(t *testing.T) {
	got, err := kernels.Signatures(source(`#include "h.cuh"
#include <cuda.h>
/* extern "C" __global__ void none(int n) {} */
#define LF_K(name, T, f) \
  extern "C" __global__ void __launch_bounds__(4 * LF_N, 2) name##_x(lf_##name::raw* out, T n, LF_PAIR(0), LF_PAIR(1)) { f; }
LF_K(add, unsigned, g(1, 2))
LF_K( sub , long long, )
extern "C" __global__ void plain(float scale, long long* __restrict__ trap) {}
#ifdef LF_RACE
extern "C" __global__ void race(double d) {}
#endif
`))
	require.NoError(t, err)
	pair := []kernels.Param{{"pointer", "a0"}, {"int", "b0"}, {"pointer", "a1"}, {"int", "b1"}}
	require.Equal(t, map[string]kernels.Signature{
		"add_x": {"k", "add_x", 256, slices.Concat([]kernels.Param{{"pointer", "out"}, {"int", "n"}}, pair)},
		"sub_x": {"k", "sub_x", 256, slices.Concat([]kernels.Param{{"pointer", "out"}, {"long long", "n"}}, pair)},
		"plain": {"k", "plain", 0, []kernels.Param{{"float", "scale"}, {"pointer", "trap"}}},
	}, got)
}

// TestSignaturesRefuse what a launch cannot hand over, and what cannot be read.
func TestSignaturesRefuse(t *testing.T) {
	for text, want := range map[string]string{
		"__global__ int f(int n) {}":                `k.cu: kernel 0: found "int", expected void`,
		"__global__ void f(double d) {}":            `f: parameter d is of type "double", expected a pointer, int, long long or float`,
		"__global__ void f(int) {}":                 `f: parameter "int" has no name`,
		"__global__ void f(int n":                   "f: expected a list in parentheses",
		"#ifdef X\n":                                "a condition has no #endif",
		"#endif\n":                                  "#endif without a condition",
		"#if X\n#endif\n":                           "expected macros of numbers",
		"#include \"gone.cuh\"\n":                   "gone.cuh: open shared/gone.cuh: file does not exist",
		"#define F(a, b) a\nF(1)\n":                 "macro F has 1 arguments, expected 2",
		"__global__ void f(); __global__ void f();": "kernel f is in file k too",
	} {
		_, err := kernels.Signatures(source(text))
		require.ErrorContains(t, err, want, "%s", text)
	}
	text := "#define A0(x) x x\n"
	for i := 1; i < 30; i++ {
		text += "#define A" + string(rune('0'+i)) + "(x) A" + string(rune('0'+i-1)) + "(x x)\n"
	}
	_, err := kernels.Signatures(source("#define B b b b b b b b b b b b b b b b b\n#define C B B B B B B B B B B B B B B B B\n#define D C C C C C C C C C C C C C C C C\n#define E D D D D D D D D D D D D D D D D\n#define F E E E E E E E E E E E E E E E E\n#define G F F F F F F F F F F F F F F F F\nG\n" + text))
	require.ErrorContains(t, err, "macros expand to too many tokens")
}

// TestSignaturesOfCUDA: every kernel of the folder is found.
func TestSignaturesOfCUDA(t *testing.T) {
	got, err := kernels.Signatures(os.DirFS("."))
	require.NoError(t, err)
	require.Equal(t, kernels.Signature{"dropout", "dropout_f32", 256, []kernels.Param{
		{"pointer", "out"}, {"pointer", "x"}, {"pointer", "key"}, {"long long", "n"}, {"int", "stream"}, {"int", "threshold"}, {"float", "scale"},
	}}, got["dropout_f32"])
	require.Len(t, got["adamw8_f32"].Params, 14+6)
	require.Len(t, got["gemm_mma_128"].Params, 56)
	for _, s := range got {
		require.NotEmpty(t, s.Params, s.Name)
	}
}

func FuzzSignatures(f *testing.F) {
	f.Add("#define A(x) x##x\nextern \"C\" __global__ void __launch_bounds__(1) A(f)(int* n) {}")
	f.Add("#ifndef X\n#else\n#endif\n#undef A\n#include \"h.cuh\"\nLF_PAIR(1)")
	f.Fuzz(func(t *testing.T, text string) { _, _ = kernels.Signatures(source(text)) })
}

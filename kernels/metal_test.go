package kernels_test

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lorafuse/lorafuse/kernels"
)

// shader is a folder with a kernel in the form that all have.
var shader = fstest.MapFS{
	"metal/device.h": {Data: []byte("#pragma once\n#define LF_ARGS uint bound, wide, first_x, first_y, first_z, groups_x, groups_y, groups_z\n#define LF_KERNEL(n) [[max_total_threads_per_threadgroup(n)]] kernel void\n#define LF_THREAD uint t [[thread_index_in_threadgroup]]\n")},
	"metal/add.metal": {Data: []byte(`// Adds.
#include "device.h"
struct add_args { LF_ARGS; long n; int x, y; float eps; };
#if LF_SIMD && !LF_BFLOAT
kernel void none() {}
#else
#define LF_ADD(T) LF_KERNEL(2 * 128) add_##T(device T* out [[buffer(0)]], device const T* x [[buffer(1)]], constant add_args& a [[buffer(2)]], LF_THREAD) { out[t] += x[t]; }
LF_ADD(float)
#endif
`)},
}

func TestMetalSignatures(t *testing.T) {
	all, err := kernels.MetalSignatures(shader)
	require.NoError(t, err)
	require.Equal(t, map[string]kernels.Signature{"add_float": {File: "add", Name: "add_float", Threads: 256, Params: []kernels.Param{
		{Type: "pointer", Name: "out"}, {Type: "pointer", Name: "x"},
		{Type: "long long", Name: "n"}, {Type: "int", Name: "x"}, {Type: "int", Name: "y"}, {Type: "float", Name: "eps"}}}}, all)
}

// Kernels of another form are refused.
func TestMetalSignaturesRefused(t *testing.T) {
	const header = "uint bound, wide, first_x, first_y, first_z, groups_x, groups_y, groups_z; "
	const args = "struct a_args { " + header + "};\n"
	for text, want := range map[string]string{
		args + "kernel void k(device float* x [[buffer(1)]], constant a_args& a [[buffer(1)]]) {}":                      "expected buffer 0",
		args + "kernel void k(device float* x [[buffer(0)]]) {}":                                                        "no struct of numbers",
		args + "kernel void k(device float* x, constant a_args& a [[buffer(0)]]) {}":                                    "has no attribute",
		args + "kernel void k(constant b_args& a [[buffer(0)]]) {}":                                                     "b_args is no struct",
		args + "kernel void k(constant float* x [[buffer(0)]], constant a_args& a [[buffer(1)]]) {}":                    "expected a pointer to device memory",
		"struct a_args { uint bound, wide; };\nkernel void k(constant a_args& a [[buffer(0)]]) {}":                      "LF_ARGS",
		"struct a_args { " + header + "half h; };\nkernel void k(constant a_args& a [[buffer(0)]]) {}":                  "type half",
		args + "kernel void k(constant a_args& a [[buffer(0)]]) {}\nkernel void k(constant a_args& a [[buffer(0)]]) {}": "is in file x too",
		"#if 1 +\n#endif": "#if 1 +",
	} {
		_, err := kernels.MetalSignatures(fstest.MapFS{"metal/x.metal": {Data: []byte(text)}})
		assert.ErrorContains(t, err, want, text)
	}
}

// A text of all that a file includes keeps the numbers of lines.
func TestMetalSource(t *testing.T) {
	text, err := kernels.MetalSource(fstest.MapFS{
		"metal/a.h":     {Data: []byte("#pragma once\nint a;")},
		"shared/b.h":    {Data: []byte("#include \"a.h\"\nint b;\n")},
		"metal/x.metal": {Data: []byte("// X.\n#include \"a.h\"\n#include \"b.h\"\nint x;\n")},
	}, "x")
	require.NoError(t, err)
	require.Equal(t, "#line 1 \"x.metal\"\n// X.\n#line 1 \"a.h\"\n\nint a;\n#line 3 \"x.metal\"\n#line 1 \"b.h\"\n#line 2 \"b.h\"\nint b;\n#line 4 \"x.metal\"\nint x;\n", text)
	_, err = kernels.MetalSource(shader, "sub")
	require.ErrorContains(t, err, "kernels of sub for Metal")
}

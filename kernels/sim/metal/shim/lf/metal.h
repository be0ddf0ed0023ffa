// All of Metal's language that kernels use: what the rewriter includes where a source
// includes a header of Metal's.
#pragma once

// Functions that reach a barrier or collective are inlined, as Metal does with all
// functions: the address of a call then identifies its position in a kernel.
#define msl_inlined __attribute__((always_inline))

#include "types.h"
#include "traits.h"
#include "math.h"
#include "integer.h"
#include "simd.h"
#include "matrix.h"
#include "kernel.h"

// The keywords, last. An address space is a part of the type and nothing else: memory is flat.
#define device __attribute__((opencl_global))
#define constant const __attribute__((opencl_constant))
#define threadgroup __attribute__((opencl_local))
#define thread

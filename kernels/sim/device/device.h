// The device language on the host: what cuda/device.cuh includes when a kernel
// is compiled as plain C++. Names and semantics are the same as in CUDA;
// undefined behaviour of CUDA is an error here.
#pragma once

#if !defined(__x86_64__) && !defined(__aarch64__)
#error "the simulator knows how to switch fibers on x86-64 and aarch64 only"
#endif

// The standard library first: the keywords below are macros.
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <algorithm>
#include <type_traits>
#include <utility>

#include "vector.h"
#include "half.h"
#include "kernel.h"
#include "arithmetic.h"
#include "warp.h"
#include "tensor.h"
#include "keywords.h"

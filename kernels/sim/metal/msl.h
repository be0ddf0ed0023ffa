/* Metal shaders on the host: compile a text to a library of kernels, and run grids of
 * them on the fibers of ../engine. The parts of the fake Metal's runtime. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "shim/lf/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lf_msl lf_msl;

/* lf_msl_compile compiles a source. macros are "NAME=VALUE"; __LF_NO_SIMD=1 and
 * __LF_NO_BFLOAT=1 take from the language what devices without simdgroups and without
 * bfloat refuse, __FAST_MATH__=1 lets the compiler reorder sums. It returns null on errors, and *error is a text with the shader's own
 * file and line numbers, to be freed. */
lf_msl* lf_msl_compile(const char* source, size_t bytes, const char* const* macros, int count, char** error);
void lf_msl_free(lf_msl*);

int lf_msl_count(const lf_msl*);
const char* lf_msl_name(const lf_msl*, int kernel);

typedef struct {
  uint32_t buffers;      /* bit i: the kernel has a [[buffer(i)]] */
  uint32_t threadgroups; /* bit i: a [[threadgroup(i)]] */
  uint32_t threads;      /* [[max_total_threads_per_threadgroup]], 0 if it says none */
  size_t shared;         /* bytes of the threadgroup arrays that it declares */
  uint32_t align[31];    /* of the elements that [[buffer(i)]] points or refers to */
  uint32_t bytes[31];    /* size of the referenced value, 0 for pointers */
} lf_msl_info;
lf_msl_info lf_msl_about(const lf_msl*, int kernel);

#define LF_MSL_NEAR (1 << 16) /* bytes up to which an error names the buffer next to an illegal address */

/* lf_msl_dispatch runs a whole grid of args->grid threadgroups, and returns 0. On
 * failure it returns what went wrong, and *error names kernel, threadgroup and thread.
 * It adds to *work the threads, and for each of them its barriers and simdgroup functions.
 * Calls may come from several threads. */
enum { LF_MSL_DONE, LF_MSL_ILLEGAL_ADDRESS, LF_MSL_MISALIGNED, LF_MSL_ILLEGAL_INSTRUCTION, LF_MSL_FAILED };
int lf_msl_dispatch(const lf_msl*, int kernel, const lf_msl_args* args, uint64_t* work, char** error);

#ifdef __cplusplus
}
#endif

/* The interface between a compiled shader and the library that runs it. Included by
 * both, so it takes nothing from the system's headers. */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

/* lf_msl_args holds the arguments of a grid: addresses and lengths of the buffers, bytes
 * of the threadgroup memory that the dispatch gives, threadgroups, threads in each. */
typedef struct {
  void* buffer[31];
  __UINT64_TYPE__ length[31];
  __UINT64_TYPE__ threadgroup[8];
  __UINT32_TYPE__ grid[3], threads[3];
} lf_msl_args;

enum lf_msl_kind { LF_MSL_BUFFER, LF_MSL_REFERENCE, LF_MSL_THREADGROUP };

/* lf_msl_param is a parameter with a binding: size and alignment of the bound value. */
typedef struct {
  enum lf_msl_kind kind;
  __UINT32_TYPE__ index;
  __UINT64_TYPE__ size, align;
  const char* name;
} lf_msl_param;

typedef struct {
  const char* name;
  void (*call)(const lf_msl_args*);
  const lf_msl_param* params;
  __UINT32_TYPE__ nparams, threads;
} lf_msl_kernel;

/* lf_msl_shared is a threadgroup array of a kernel; its address is the array's key. */
typedef struct {
  const char *kernel, *name;
  __UINT64_TYPE__ size, align;
} lf_msl_shared;

/* lf_msl_table is what a library exports under this name. */
typedef struct {
  const lf_msl_kernel* kernels;
  __UINT64_TYPE__ nkernels;
  const lf_msl_shared *shared, *shared_end;
} lf_msl_library;

/* lf_msl_place is where a thread finds itself, three axes each. */
typedef struct {
  __UINT32_TYPE__ thread[4], group[4], threads[4], groups[4];
} lf_msl_place;

/* A barrier or collective is known by the address of its call: the compiler must neither
 * merge two calls, nor copy one, nor make it depend on more conditions. */
#define LF_MSL_CALL __attribute__((convergent, noduplicate, nomerge, visibility("default")))

LF_MSL_CALL void lf_msl_barrier(void);
LF_MSL_CALL void lf_msl_simdgroup_barrier(void);

/* lf_msl_collective lets work be done by the last lane of a simdgroup to come, with the
 * arguments of all: args[l] for the lanes in mask. op tells one operation from another. */
LF_MSL_CALL void lf_msl_collective(int op, void* arg, void (*work)(void** args, __UINT32_TYPE__ mask));

/* lf_msl_multiply is d = a*b + c of matrices of 8 by 8, of which each lane has two
 * elements: those of row lane/4, columns 2*(lane%4) and the next. from is where a and b
 * were loaded, which all lanes must agree on. */
typedef struct {
  float a[2], b[2], d[2]; /* d is c when it begins */
  __UINT64_TYPE__ from_a, from_b;
} lf_msl_product;
LF_MSL_CALL void lf_msl_multiply(lf_msl_product*);

__attribute__((visibility("default"))) void lf_msl_where(lf_msl_place*);
__attribute__((visibility("default"))) __UINT32_TYPE__ lf_msl_lane(void);
__attribute__((visibility("default"))) void* lf_msl_static(const lf_msl_shared* key, const char* file, int line);
__attribute__((visibility("default"))) void* lf_msl_dynamic(const lf_msl_args*, __UINT32_TYPE__ index);
__attribute__((noreturn, visibility("default"))) void lf_msl_fail(const char* what, __UINT32_TYPE__ lane, __UINT32_TYPE__ other);

#ifdef __cplusplus
}
#endif

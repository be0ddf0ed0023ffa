// Kernels with one mistake each, of the kinds that are made.
#include "../../cuda/device.cuh"

extern "C" __global__ void __launch_bounds__(64) bug_missing_syncthreads(const float* x, float* y) {
  LF_SHARED(float, t, [64]);
  t[threadIdx.x] = x[threadIdx.x];
  y[threadIdx.x] = t[63 - threadIdx.x];  // the other warp may not have written yet
}
LF_KERNEL(bug_missing_syncthreads);

// Two stages, but it waits as if there were three.
extern "C" __global__ void __launch_bounds__(32) bug_wait_count(const float* x, float* y, int n) {
  LF_SHARED(float, t, [2][32]);
  lf_cp_async4(&t[0][threadIdx.x], x + threadIdx.x);
  lf_cp_async_commit();
  for (int i = 0; i < n; i++) {
    if (i + 1 < n) lf_cp_async4(&t[(i + 1) % 2][threadIdx.x], x + (i + 1) * 32 + threadIdx.x);
    lf_cp_async_commit();
    lf_cp_async_wait<2>();
    __syncwarp();
    y[i * 32 + threadIdx.x] = t[i % 2][threadIdx.x];
    __syncwarp();
  }
  lf_cp_async_wait<0>();
}
LF_KERNEL(bug_wait_count);

extern "C" __global__ void __launch_bounds__(32) bug_missing_commit(const float* x, float* y) {
  LF_SHARED(float, t, [32]);
  lf_cp_async4(&t[threadIdx.x], x + threadIdx.x);
  lf_cp_async_wait<0>();
  __syncwarp();
  y[threadIdx.x] = t[threadIdx.x];
}
LF_KERNEL(bug_missing_commit);

// Rows 0 to rows inclusive.
extern "C" __global__ void __launch_bounds__(64) bug_one_row_more(float* x, int rows, int columns) {
  int r = blockIdx.x;
  if (r <= rows) x[r * columns + threadIdx.x] = 1.f;
}
LF_KERNEL(bug_one_row_more);

extern "C" __global__ void __launch_bounds__(64) bug_lane_not_in_mask(int* out) { out[threadIdx.x] = __shfl_sync(0x0000ffffu, (int)threadIdx.x, 0); }
LF_KERNEL(bug_lane_not_in_mask);

extern "C" __global__ void __launch_bounds__(32) bug_reads_lane_outside(int* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(0x0000ffffu, (int)threadIdx.x, 20);
}
LF_KERNEL(bug_reads_lane_outside);

extern "C" __global__ void __launch_bounds__(32) bug_different_primitives(int* out) {
  int v = threadIdx.x;
  if (v < 16) {
    v = __shfl_xor_sync(0xffffffffu, v, 1);
  } else {
    v = (int)__ballot_sync(0xffffffffu, v);
  }
  out[threadIdx.x] = v;
}
LF_KERNEL(bug_different_primitives);

extern "C" __global__ void __launch_bounds__(64) bug_divergent_barrier(int* out) {
  if (threadIdx.x < 40) {
    __syncthreads();
    out[threadIdx.x] = 1;
  } else {
    __syncthreads();
    out[threadIdx.x] = 2;
  }
}
LF_KERNEL(bug_divergent_barrier);

extern "C" __global__ void __launch_bounds__(64) bug_barrier_never_met(int* out) {
  if (threadIdx.x < 16) __syncwarp();
  if (threadIdx.x >= 16) __syncthreads();
  out[threadIdx.x] = 1;
}
LF_KERNEL(bug_barrier_never_met);

extern "C" __global__ void __launch_bounds__(32) bug_mma_of_half_a_warp(float* out) {
  uint32_t a[4] = {}, b[2] = {};
  float d[4] = {};
  if (threadIdx.x < 16) return;
  lf_mma_bf16_16816(d, a, b);
  out[threadIdx.x] = d[0];
}
LF_KERNEL(bug_mma_of_half_a_warp);

extern "C" __global__ void __launch_bounds__(32) bug_shared_overflow(float* out, int n) {
  LF_DYN_SHARED(float, t);
  for (int i = threadIdx.x; i <= n; i += 32) t[i] = 1.f;
  __syncwarp();
  out[threadIdx.x] = t[threadIdx.x];
}
LF_KERNEL(bug_shared_overflow);

extern "C" __global__ void __launch_bounds__(32) bug_static_overflow(float* out, int i) {
  LF_SHARED(float, t, [32]);
  float* p = t;
  p[(int)threadIdx.x + i] = 1.f;
  __syncwarp();
  out[threadIdx.x] = t[threadIdx.x];
}
LF_KERNEL(bug_static_overflow);

extern "C" __global__ void __launch_bounds__(32) bug_uninitialised_shared(float* out) {
  LF_SHARED(float, t, [33]);
  t[threadIdx.x] = 1.f;
  __syncwarp();
  out[threadIdx.x] = t[threadIdx.x + 1];
}
LF_KERNEL(bug_uninitialised_shared);

extern "C" __global__ void __launch_bounds__(32) bug_misaligned_ldmatrix(uint32_t* out) {
  LF_SHARED(lf_bf16, t, [32 * 12]);
  for (int i = threadIdx.x; i < 32 * 12; i += 32) t[i] = __float2bfloat16(1.f);
  __syncwarp();
  uint32_t r[4];
  lf_ldmatrix_x4(r, t + threadIdx.x * 12);  // rows of 24 bytes
  out[threadIdx.x] = r[0];
}
LF_KERNEL(bug_misaligned_ldmatrix);

extern "C" __global__ void __launch_bounds__(32) bug_misaligned_vector(const float* x, float4* y, int from) { y[threadIdx.x] = *reinterpret_cast<const float4*>(x + from + 4 * threadIdx.x); }
LF_KERNEL(bug_misaligned_vector);

extern "C" __global__ void __launch_bounds__(32) bug_ldmatrix_of_global(const lf_bf16* x, uint32_t* out) {
  uint32_t r[2];
  lf_ldmatrix_x2(r, x + threadIdx.x % 16 * 8);
  out[threadIdx.x] = r[0];
}
LF_KERNEL(bug_ldmatrix_of_global);

extern "C" __global__ void __launch_bounds__(32) bug_register_array(float* out, int n) {
  float acc[4];
  for (int i = 0; i < n; i++) acc[i] = (float)i;
  out[threadIdx.x] = acc[threadIdx.x % 4];
}
LF_KERNEL(bug_register_array);

extern "C" __global__ void __launch_bounds__(32) bug_shift(unsigned* out, int n) { out[threadIdx.x] = 1u << (threadIdx.x + n); }
LF_KERNEL(bug_shift);

extern "C" __global__ void __launch_bounds__(32) bug_division(int* out, int by) { out[threadIdx.x] = (int)threadIdx.x / by; }
LF_KERNEL(bug_division);

static __device__ float deep(const float* x, int n) {
  volatile float frame[1024];
  frame[0] = x[0];
  return n ? deep(x, n - 1) + frame[0] : frame[0];
}
extern "C" __global__ void __launch_bounds__(32) bug_stack(float* x, int n) { x[threadIdx.x] = deep(x, n); }
LF_KERNEL(bug_stack);

extern "C" __global__ void __launch_bounds__(32) bug_null(float* x, long long i) { x[i] = 1.f; }
LF_KERNEL(bug_null);

// Writes through a pointer that lies in memory, as kernels over many tensors do.
extern "C" __global__ void __launch_bounds__(32) bug_stored_pointer(float* const* table) { table[0][threadIdx.x] = 1.f; }
LF_KERNEL(bug_stored_pointer);

extern "C" __global__ void __launch_bounds__(32) bug_unwaited_copy(const float* x, float* y) {
  LF_SHARED(float, t, [64]);
  lf_cp_async4(&t[threadIdx.x], x + threadIdx.x);
  lf_cp_async_commit();
  lf_cp_async_wait<0>();
  __syncwarp();
  y[threadIdx.x] = t[threadIdx.x];
  lf_cp_async4(&t[32 + threadIdx.x], x + threadIdx.x);  // fetched ahead but never used
  lf_cp_async_commit();
}
LF_KERNEL(bug_unwaited_copy);

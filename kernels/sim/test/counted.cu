// Kernels of one warp or two whose counts are plain from their source.
#include "count.h"

LF_COUNT_CASE(coalesced, "read 4/1 written 4/1 shared 0+0 mma 0 barriers 0") { out[threadIdx.x] = in[threadIdx.x]; }
LF_COUNT_CASE(two_warps, "read 8/2 written 8/2 shared 0+0 mma 0 barriers 0", 64) { out[threadIdx.x] = in[threadIdx.x]; }
LF_COUNT_CASE(broadcast, "read 1/1 written 4/1 shared 0+0 mma 0 barriers 0") { out[threadIdx.x] = in[7]; }
LF_COUNT_CASE(shifted, "read 5/1 written 4/1 shared 0+0 mma 0 barriers 0") { out[threadIdx.x] = in[threadIdx.x + 1]; }
LF_COUNT_CASE(strided, "read 32/1 written 4/1 shared 0+0 mma 0 barriers 0") { out[threadIdx.x] = in[8 * threadIdx.x]; }
LF_COUNT_CASE(vectors, "read 16/1 written 16/1 shared 0+0 mma 0 barriers 0") {
  float4 v = ((const float4*)in)[threadIdx.x];
  ((float4*)out)[threadIdx.x] = make_float4(v.y, v.x, v.w, v.z);
}
LF_COUNT_CASE(again, "read 12/3 written 4/1 shared 0+0 mma 0 barriers 0") {
  float sum = 0.0f;
  for (int i = 0; i < 3; i++) sum += in[threadIdx.x + 32 * i];
  out[threadIdx.x] = sum;
}
// Lanes leave the loop at different times; a third of the last accesses is missing.
LF_COUNT_CASE(ragged, "read 9/3 written 4/1 shared 0+0 mma 0 barriers 0") {
  float sum = 0.0f;
  for (unsigned i = 0; i < 1 + threadIdx.x / 8 && i < 3; i++) sum += in[threadIdx.x + 32 * i];
  out[threadIdx.x] = sum;
}
LF_COUNT_CASE(half_a_warp, "read 2/1 written 2/1 shared 0+0 mma 0 barriers 0") {
  if (threadIdx.x < 16) out[threadIdx.x] = in[threadIdx.x];
}

LF_COUNT_CASE(barriers, "read 0/0 written 8/2 shared 4+0 mma 0 barriers 2", 64) {
  LF_SHARED(float, x, [64]);
  x[threadIdx.x] = 1.0f;
  __syncthreads();
  float v = x[63 - threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = v;
}
LF_COUNT_CASE(conflicts, "read 0/0 written 4/1 shared 2+31 mma 0 barriers 0") {
  LF_SHARED(float, x, [32][32]);
  x[threadIdx.x][3] = 1.0f;
  __syncwarp();
  out[threadIdx.x] = x[3][3];
}
LF_COUNT_CASE(padded, "read 0/0 written 4/1 shared 2+0 mma 0 barriers 0") {
  LF_SHARED(float, x, [32][33]);
  x[threadIdx.x][3] = 1.0f;
  __syncwarp();
  out[threadIdx.x] = x[3][threadIdx.x & 1];
}
// 16 bytes of a lane take a wavefront for each quarter of the warp; at a stride of 128 they all meet.
LF_COUNT_CASE(wide, "read 0/0 written 4/1 shared 8+28 mma 0 barriers 0") {
  LF_SHARED(float4, x, [32][8]);
  x[threadIdx.x][0] = make_float4(1.0f, 2.0f, 3.0f, 4.0f);
  __syncwarp();
  float4 v = x[0][threadIdx.x & 7];
  out[threadIdx.x] = v.x + v.y;
}
// Rows of 64 bytes: every other row lies in the same banks. Rows of 80 do not.
LF_COUNT_CASE(matrices, "read 0/0 written 4/1 shared 8+12 mma 2 barriers 0") {
  LF_SHARED(uint4, x, [32 * 4]);
  LF_SHARED(uint4, y, [32 * 5]);
  uint32_t a[4], b[4];
  lf_ldmatrix_x4(a, x + threadIdx.x * 4);
  lf_ldmatrix_x4(b, y + threadIdx.x * 5);
  float d[4] = {};
  uint32_t c[2] = {a[0], b[0]};
  lf_mma_bf16_16816(d, a, c);
  lf_mma_bf16_16816(d, b, c);
  out[threadIdx.x] = d[0] + d[1] + d[2] + d[3];
}
LF_COUNT_CASE(copies, "read 8/1 written 4/1 shared 8+0 mma 0 barriers 0") {
  LF_SHARED(float4, x, [32]);
  lf_cp_async16(x + threadIdx.x, in + 4 * threadIdx.x, threadIdx.x < 16);
  lf_cp_async_commit();
  lf_cp_async_wait<0>();
  __syncwarp();
  float4 v = x[threadIdx.x & 15];
  out[threadIdx.x] = v.x;
}

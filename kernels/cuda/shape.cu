// Elements in another order: out[i·t] = x[i·s] over a shape [*, d1, d2, d3] with
// strides t and s. Reshape, transpose, broadcast, slice and concat are all this;
// elements are words of 1, 2, 4, 8 or 16 bytes, as wide as the host finds that
// neighbours stay neighbours.
//
// Grid: a block of 256 threads for 1024 words; of the transposition, one block
//   for a tile of 32 by 32 elements of one matrix of the batch.
// Traffic: operand and output once; bound by memory. The transposition turns
//   tiles around in shared memory, so that both sides are read in their order.
// Reference: for i { out[place_t(i)] = x[place_s(i)] }
#include "element.cuh"

#define LF_COPY(name, T)                                                                             \
  extern "C" __global__ void __launch_bounds__(LF_THREADS)                                           \
      name(T* out, const T* x, long long n, int d1, int d2, int d3, LF_STRIDES(t), LF_STRIDES(s)) {  \
    LF_EACH(i, n) {                                                                                  \
      lf_place p = lf_split(i, d1, d2, d3);                                                          \
      out[LF_AT(p, t)] = x[LF_AT(p, s)];                                                             \
    }                                                                                                \
  }                                                                                                  \
  LF_KERNEL(name);
LF_COPY(copy_b1, unsigned char)
LF_COPY(copy_b2, unsigned short)
LF_COPY(copy_b4, unsigned)
LF_COPY(copy_b8, unsigned long long)
LF_COPY(copy_b16, uint4)

// out[b, j, i] = x[b, i, j] for matrices of rows by cols. The tile has one
// extra column, so that columns are in different banks.
#define LF_TILE 32
#define LF_TRANSPOSE(name, T)                                                                                   \
  extern "C" __global__ void __launch_bounds__(LF_THREADS) name(T* out, const T* x, int rows, int cols, int batch) { \
    LF_SHARED(T, tile, [LF_TILE][LF_TILE + 1]);                                                                 \
    int across = (cols + LF_TILE - 1) / LF_TILE;                                                                \
    int i0 = blockIdx.x / across * LF_TILE, j0 = blockIdx.x % across * LF_TILE;                                 \
    int tx = threadIdx.x % LF_TILE, ty = threadIdx.x / LF_TILE;                                                 \
    for (long long b = blockIdx.y; b < batch; b += gridDim.y) {                                                 \
      const T* from = x + b * rows * cols;                                                                      \
      T* to = out + b * rows * cols;                                                                            \
      for (int r = ty; r < LF_TILE; r += LF_THREADS / LF_TILE)                                                  \
        if (i0 + r < rows && j0 + tx < cols) tile[r][tx] = from[(long long)(i0 + r) * cols + j0 + tx];          \
      __syncthreads();                                                                                          \
      for (int r = ty; r < LF_TILE; r += LF_THREADS / LF_TILE)                                                  \
        if (j0 + r < cols && i0 + tx < rows) to[(long long)(j0 + r) * rows + i0 + tx] = tile[tx][r];            \
      __syncthreads();                                                                                          \
    }                                                                                                           \
  }                                                                                                             \
  LF_KERNEL(name);
LF_TRANSPOSE(transpose_b1, unsigned char)
LF_TRANSPOSE(transpose_b2, unsigned short)
LF_TRANSPOSE(transpose_b4, unsigned)
LF_TRANSPOSE(transpose_b8, unsigned long long)

#ifdef LF_RACE
#include "../sim/test/race.h"
LF_RACE_CASE(transpose) {
  auto x = lf_race_noise<unsigned>(2 * 35 * 40), out = x;
  lf_race_launch(transpose_b4, {4, 1}, {256}, 0, out.data(), x.data(), 35, 40, 2);
}
#endif

// The gradient of LoRADown for its input, added to another gradient of that input:
//
//   dx = addend + dropout(dh A)
//
// The mask is drawn again; neither dh·A nor dropout(dh·A) lies in memory.
//
// Layout: row major. dx and addend [rows, width], dh [rows, rank], A = down [rank, width]; the
//   addend may be absent, or share the memory of dx. Element i of dx is kept if word i of
//   the random stream is at least threshold (package internal/philox: bit for bit), and
//   multiplied by scale = 1/(1-p). lora_input_grad_stored takes dx and addend as f32 or bf16,
//   by bits 0 and 1 of stored; bit 2 rounds dropout(dh A) to bf16 before the addition.
// Grid: 256 threads for 64 rows of 128 columns, neighbouring blocks in the same rows; a
//   thread has four columns, one block of random words where width is a multiple of four,
//   of eight rows. Sums in float32, in the order of the rank.
// Traffic: 12 bytes an element, or 6; dh and A come from cache. 16 multiplications of an element
//   and a sixteenth of the 20 of Philox take less time than that, up to a rank of about 64.
// Registers: 80 on sm_80 and sm_90a.
// Reference: for i, l { s = 0; for r { s += dh[i, r] A[r, l] };
//            dx[i, l] = addend[i, l] + (Philox(key, stream, i·width + l) >= threshold ? s·scale : 0) }
#include "mixed.h"
#include "philox.h"

#define LF_ROWS 8 // of a thread

struct lf_down_grad {
  LF_GLOBAL const uint* key;
  uint stream, threshold;
  float scale;

  // dropout of V elements from i on, a multiple of V.
  template <int V>
  LF_DEVICE void drop(LF_PRIVATE lf_pack<V>& x, long i) const {
    uint4 w = lf_philox(key, stream, i >> 2);
    uint words[4] = {w.x, w.y, w.z, w.w};
    if (V == 1) words[0] = (i & 2) != 0 ? (i & 1) != 0 ? w.w : w.z : (i & 1) != 0 ? w.y : w.x;
#pragma unroll
    for (int k = 0; k < V; k++) x.v[k] = words[k] >= threshold ? x.v[k] * scale : 0.0f;
  }
};

// V columns from col on of the rows of this warp.
template <int V, class S>
LF_DEVICE void lf_input_grad(lf_down_grad drop, LF_GLOBAL void* dx, LF_GLOBAL const void* addend, bool adds, LF_GLOBAL const float* dh,
                             LF_GLOBAL const float* down, long row, long rows, int col, int width, int rank, S types) {
  lf_pack<V> sum[LF_ROWS], f;
#pragma unroll
  for (int i = 0; i < LF_ROWS; i++)
#pragma unroll
    for (int k = 0; k < V; k++) sum[i].v[k] = 0.0f;
  for (int r = 0; r < rank; r++) {
    f.load(down + (long)r * width + col);
#pragma unroll
    for (int i = 0; i < LF_ROWS; i++) {
      float d = dh[(row + i < rows ? row + i : row) * rank + r];
#pragma unroll
      for (int k = 0; k < V; k++) sum[i].v[k] = lf_fma(d, f.v[k], sum[i].v[k]);
    }
  }
#pragma unroll
  for (int i = 0; i < LF_ROWS; i++) {
    if (row + i >= rows) break;
    long at = (row + i) * width + col;
    drop.drop(sum[i], at);
    if (adds) {
      lf_load(types, 1, addend, at, f);
#pragma unroll
      for (int k = 0; k < V; k++) sum[i].v[k] = f.v[k] + lf_rounded(types, 2, sum[i].v[k]);
    }
    lf_store(types, 0, dx, at, sum[i]);
  }
}

#define LF_INPUT_GRAD(types)                                                                                             \
  long row = ((long)(t.group.x / across) * 8 + t.warp) * LF_ROWS;                                                        \
  int col = ((int)(t.group.x % across) * 32 + (int)t.lane) * 4;                                                          \
  if (row >= rows) return;                                                                                               \
  lf_down_grad drop = {key, stream, threshold, scale};                                                                   \
  if ((width & 3) == 0 && LF_ALIGNED(dx) && LF_ALIGNED(down) && (!LF_HAS(addend) || LF_ALIGNED(addend))) {               \
    if (col < width) lf_input_grad<4>(drop, dx, addend, LF_HAS(addend), dh, down, row, rows, col, width, rank, types);   \
    return;                                                                                                              \
  }                                                                                                                      \
  for (int c = col; c < col + 4 && c < width; c++)                                                                       \
    lf_input_grad<1>(drop, dx, addend, LF_HAS(addend), dh, down, row, rows, c, width, rank, types);

LF_ENTRY(256, lora_input_grad_f32, ((float, dx), (const float, addend), (const float, dh), (const float, down), (const uint, key)),
         ((long, rows), (int, width), (int, rank), (int, across), (uint, stream), (uint, threshold), (float, scale))) {
  lf_all_f32 types;
  LF_INPUT_GRAD(types)
}
LF_ENTRY(256, lora_input_grad_stored, ((uchar, dx), (const uchar, addend), (const float, dh), (const float, down), (const uint, key)),
         ((long, rows), (int, width), (int, rank), (int, across), (uint, stream), (uint, threshold), (float, scale), (int, stored))) {
  lf_mixed types = {stored};
  LF_INPUT_GRAD(types)
}

#ifdef LF_RACE
LF_RACE_CASE(lora_input_grad) {
  auto dx = lf_race_noise<float>(70 * 132), dh = lf_race_noise<float>(70 * 5), a = lf_race_noise<float>(5 * 132);
  auto key = lf_race_noise<unsigned>(3);
  lf_race_launch(lora_input_grad_f32, {4}, {256}, 0, dx.data(), dx.data(), dh.data(), a.data(), key.data(), 70, 132, 5, 2, 3u, 1u << 30, 1.5f);
  lf_race_launch(lora_input_grad_stored, {4}, {256}, 0, (uchar*)dx.data(), (uchar*)dx.data(), dh.data(), a.data(), key.data(), 70, 132, 5, 2, 3u, 1u << 30, 1.5f, 7);
}
#endif

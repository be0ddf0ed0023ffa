// Steps over many tensors in one launch, which read the addresses of the tensors from a table:
// AdamW (adamw.h), AdamW with moments of 8 bits (adamw8.h), the sum of the squares of all
// elements (squares.h), and copies.
//
// Layout: a table has an lf_tensor of 8 words for each tensor, with up to 6 addresses: p, m, v and g (AdamW);
//   p, m, v, g, ms and vs (AdamW8); x (squares); to and from (copy, of 4-byte elements).
//   The host writes it into its own memory. tensor_table copies it to the device, and writes for each block
//   the number of its tensor into map. partial [blocks] (f64, or pairs of floats).
// Grid: tensor_table a block of 256 threads for each tensor; steps 256 threads for 1024 elements of a tensor,
//   AdamW8 for 2048, copy for 4096, squares for 16384; sum_table_f32 one block of 256 threads.
// Traffic: 28 bytes an element, AdamW8 16, squares 4, copy 8; 64 bytes a tensor and 4 bytes a block for the table;
//   bound by memory.
// Order: sum_table_f32 adds the partial sums of each tensor in double, or pairs of floats, by a warp, then the
//   sums of all tensors, rounded to float32, one after the other.
// Registers: 40 (adamw), 53 (adamw8) and 45 at most, none spilled.
// Reference: for each tensor { the lines of the headers }
#define LF_BLOCKS 4 // CUDA: else ptxas spills for eight
#include "adamw.h"
#include "adamw8.h"
#include "squares.h"

#define LF_WORDS 8

LF_ENTRY(256, tensor_table, ((long, table), (int, map), (const long, words)), ((int, tensors), (int, total))) {
  const int k = t.group.x, first = (int)words[k * LF_WORDS + 1];
  const int end = k + 1 < tensors ? (int)words[(k + 1) * LF_WORDS + 1] : total;
  if (t.index < LF_WORDS) table[k * LF_WORDS + t.index] = words[k * LF_WORDS + t.index];
  for (int i = first + t.index; i < end; i += 256) map[i] = k;
}

// A tensor in a table.
struct lf_tensor {
  long n;    // elements
  int first; // number of its first block
  int wide;  // 1: it has a multiple of 4 elements, and all addresses are aligned to 16 bytes
  LF_GLOBAL float *a, *b, *c, *d, *e, *f;
};

// The tensor of a block, and the number of the block in it.
#define LF_TENSOR                                             \
  LF_GLOBAL const lf_tensor* x = table + map[t.group.x];      \
  const long n = x->n, block = (long)t.group.x - x->first;    \
  const bool wide = x->wide != 0;

LF_ENTRY(256, adamw_table_f32, ((const float, rates), (const float, scale), (const lf_tensor, table), (const int, map)),
         ((float, beta1c), (float, beta2), (float, beta2c), (float, eps))) {
  lf_adamw a;
  a.start(rates, scale, beta1c, beta2, beta2c, eps);
  if (!a.on) return;
  LF_TENSOR
  LF_GLOBAL float *p = x->a, *m = x->b, *v = x->c, *g = x->d;
  if (wide)
    a.run<4>(t, p, m, v, p, m, v, g, block * LF_ADAMW, n);
  else
    a.run<1>(t, p, m, v, p, m, v, g, block * LF_ADAMW, n);
}

LF_ENTRY_SHARED(256, adamw8_table_f32, ((float, books, LF_BOOKS)),
                ((const float, rates), (const float, scale), (const float, maps), (const lf_tensor, table), (const int, map)),
                ((float, beta1), (float, beta1c), (float, beta2), (float, beta2c), (float, eps))) {
  lf_adamw8 a;
  a.start(rates, scale, beta1, beta1c, beta2, beta2c, eps);
  if (!a.on) return;
  LF_GLOBAL const lf_tensor* x = table + map[t.group.x];
  lf_load_books(t, books, maps);
  LF_GLOBAL float *p = x->a, *g = x->d, *ms = x->e, *vs = x->f;
  LF_GLOBAL uchar *m = (LF_GLOBAL uchar*)x->b, *v = (LF_GLOBAL uchar*)x->c;
  const long block = ((long)t.group.x - x->first) * (LF_ADAMW8 / LF_MOMENTS) + t.warp;
  a.run(t, books, p, m, v, ms, vs, p, m, v, ms, vs, g, block, lf_moments_left(block, x->n));
}

LF_ENTRY_SHARED(256, squares_table_f32, ((lf_total_raw, part, 8)), ((lf_total_raw, partial), (const lf_tensor, table), (const int, map)), ((int, total))) {
  if ((int)t.group.x >= total) return;
  LF_TENSOR
  lf_total sum = lf_block_sum(t, wide ? lf_squares<4>(t, x->a, n, block) : lf_squares<1>(t, x->a, n, block), part);
  if (t.index == 0) partial[t.group.x] = lf_total_put(sum);
}

#define LF_COPY 4096

LF_ENTRY(256, copy_table_b4, ((const lf_tensor, table), (const int, map)), ((int, total))) {
  if ((int)t.group.x >= total) return;
  LF_TENSOR
  LF_GLOBAL float *to = x->a, *from = x->b;
  const long base = block * LF_COPY, end = n < base + LF_COPY ? n : base + LF_COPY;
  if (wide) {
    lf_pack<4> v;
    for (long i = base + t.index * 4; i < end; i += 1024) v.load(from + i), v.store(to + i);
  } else {
    for (long i = base + t.index; i < end; i += 256) to[i] = from[i];
  }
}

#define LF_TENSORS 1024

LF_ENTRY_SHARED(256, sum_table_f32, ((float, sums, LF_TENSORS)), ((float, out), (const lf_total_raw, partial), (const long, words)),
                ((int, tensors), (int, total))) {
  for (int k0 = 0; k0 < tensors; k0 += 8) {
    const int k = k0 + t.warp;
    lf_total sum = lf_total_of(0.0f);
    if (k < tensors) {
      const int first = (int)words[k * LF_WORDS + 1], end = k + 1 < tensors ? (int)words[(k + 1) * LF_WORDS + 1] : total;
      for (int i = first + t.lane; i < end; i += 32) sum = lf_total_add(sum, lf_total_get(partial[i]));
    }
    sum = lf_warp_sum(t, sum);
    if (k < tensors && t.lane == 0) sums[k] = lf_total_float(sum);
  }
  lf_barrier();
  if (t.index) return;
  float sum = sums[0];
#pragma unroll 8
  for (int k = 1; k < tensors; k++) sum += sums[k];
  *out = sum;
}

#ifdef LF_RACE
LF_RACE_CASE(tensors) {
  auto p = lf_race_noise<float>(2100), q = lf_race_noise<float>(700), g = p, maps = lf_race_noise<float>(512), rates = lf_race_noise<float>(4);
  auto pm = p, pv = p, qm = q, qv = q, ms = lf_race_noise<float>(9), vs = ms;
  for (float& f : pv) f *= f;
  for (float& f : qv) f *= f;
  std::vector<unsigned char> m(2100), v(2100);
  std::vector<long> words(16);
  auto* table = (lf_tensor*)words.data();
  const long wide = 1L << 32;
  std::vector<int> map(4);
  std::vector<double> partial(2);
  long steps[] = {2100, wide, (long)p.data(), (long)pm.data(), (long)pv.data(), (long)g.data(), 0, 0,
                  700,  3 | wide, (long)q.data(), (long)qm.data(), (long)qv.data(), (long)g.data(), 0, 0};
  lf_race_launch(tensor_table, {2}, {256}, 0, words.data(), map.data(), steps, 2, 4);
  lf_race_launch(adamw_table_f32, {4}, {256}, 0, rates.data(), rates.data() + 3, table, map.data(), 0.1f, 0.999f, 0.001f, 1e-8f);
  long moments[] = {2100, 0, (long)p.data(), (long)m.data(), (long)v.data(), (long)g.data(), (long)ms.data(), (long)vs.data()};
  lf_race_launch(tensor_table, {1}, {256}, 0, words.data(), map.data(), moments, 1, 2);
  lf_race_launch(adamw8_table_f32, {2}, {256}, 0, rates.data(), rates.data() + 3, maps.data(), table, map.data(), 0.9f, 0.1f, 0.999f, 0.001f,
                 1e-8f);
  long copies[] = {2100, wide, (long)p.data(), (long)g.data(), 0, 0, 0, 0};
  lf_race_launch(tensor_table, {1}, {256}, 0, words.data(), map.data(), copies, 1, 1);
  lf_race_launch(copy_table_b4, {1}, {256}, 0, table, map.data(), 1);
  long squares[] = {2100, wide, (long)p.data(), 0, 0, 0, 0, 0, 700, 1, (long)q.data(), 0, 0, 0, 0, 0};
  lf_race_launch(tensor_table, {2}, {256}, 0, words.data(), map.data(), squares, 2, 2);
  lf_race_launch(squares_table_f32, {2}, {256}, 0, partial.data(), table, map.data(), 2);
  lf_race_launch(sum_table_f32, {1}, {256}, 0, p.data(), partial.data(), words.data(), 2, 2);
}
#endif

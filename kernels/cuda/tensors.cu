// Steps over many tensors in one launch, which read the addresses of the tensors from a table:
// AdamW (adamw.h), AdamW with moments of 8 bits (adamw8.h), the sum of the squares of all
// elements (squares.h), and copies.
//
// Layout: a table has 8 words for each tensor: the number n of its elements, the number of its first block,
//   and up to 6 addresses: p, m, v and g (AdamW); p, m, v, g, ms and vs (AdamW8); x (squares); to and from (copy, of 4-byte elements).
//   The host writes it into its own memory. tensor_table copies it to the device, and writes for each block
//   the number of its tensor into map. partial [blocks] (f64).
// Grid: tensor_table a block of 256 threads for each tensor; steps 256 threads for 1024 elements of a tensor,
//   AdamW8 for 2048, copy for 4096, squares for 16384; sum_table_f32 one block of 256 threads.
// Traffic: 28 bytes an element, AdamW8 16, squares 4, copy 8; 64 bytes a tensor and 4 bytes a block for the table;
//   bound by memory.
// Order: sum_table_f32 adds the partial sums of each tensor in double by a warp, then the sums of all tensors,
//   rounded to float32, one after the other.
// Registers: 40 (adamw), 62 (adamw8) and 38 at most, none spilled.
// Reference: for each tensor { the lines of the headers }
#define LF_BLOCKS 4 // else ptxas spills for eight
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

// The tensor of a block.
struct lf_tensor {
  const long* words;
  long n, block; // elements, and the number of the block in the tensor
  LF_DEVICE lf_tensor(lf_thread t, const long* table, const int* map) {
    words = table + map[t.group.x] * LF_WORDS;
    n = words[0], block = (long)t.group.x - words[1];
  }
  LF_DEVICE float* floats(int i) const { return (float*)words[2 + i]; }
  LF_DEVICE uchar* bytes(int i) const { return (uchar*)words[2 + i]; }
};

LF_ENTRY(256, adamw_table_f32, ((const float, rates), (const float, scale), (const long, table), (const int, map)),
         ((float, beta1c), (float, beta2), (float, beta2c), (float, eps))) {
  lf_adamw a;
  a.start(rates, scale, beta1c, beta2, beta2c, eps);
  if (!a.on) return;
  lf_tensor x(t, table, map);
  float *p = x.floats(0), *m = x.floats(1), *v = x.floats(2);
  const float* g = x.floats(3);
  if (((x.n & 3) | (((long)p | (long)m | (long)v | (long)g) & 15)) == 0)
    a.run<4>(t, p, m, v, p, m, v, g, x.block * LF_ADAMW, x.n);
  else
    a.run<1>(t, p, m, v, p, m, v, g, x.block * LF_ADAMW, x.n);
}

LF_ENTRY_SHARED(256, adamw8_table_f32, ((float, books, LF_BOOKS)),
                ((const float, rates), (const float, scale), (const float, maps), (const long, table), (const int, map)),
                ((float, beta1), (float, beta1c), (float, beta2), (float, beta2c), (float, eps))) {
  lf_adamw8 a;
  a.start(rates, scale, beta1, beta1c, beta2, beta2c, eps);
  if (!a.on) return;
  lf_tensor x(t, table, map);
  lf_load_books(t, books, maps);
  float *p = x.floats(0), *ms = x.floats(4), *vs = x.floats(5);
  uchar *m = x.bytes(1), *v = x.bytes(2);
  const long block = x.block * (LF_ADAMW8 / LF_MOMENTS) + t.warp;
  a.run(t, books, p, m, v, ms, vs, p, m, v, ms, vs, x.floats(3), block, lf_moments_left(block, x.n));
}

LF_ENTRY_SHARED(256, squares_table_f32, ((lf_total_raw, part, 8)), ((lf_total_raw, partial), (const long, table), (const int, map)), ((int, total))) {
  if ((int)t.group.x >= total) return;
  lf_tensor x(t, table, map);
  const float* from = x.floats(0);
  const bool fours = ((x.n & 3) | ((long)from & 15)) == 0;
  lf_total sum = fours ? lf_squares<4>(t, from, x.n, x.block) : lf_squares<1>(t, from, x.n, x.block);
  sum = lf_block_sum(t, sum, part);
  if (t.index == 0) partial[t.group.x] = sum;
}

#define LF_COPY 4096

LF_ENTRY(256, copy_table_b4, ((const long, table), (const int, map)), ((int, total))) {
  if ((int)t.group.x >= total) return;
  lf_tensor x(t, table, map);
  float *to = x.floats(0), *from = x.floats(1);
  const long base = x.block * LF_COPY, end = x.n < base + LF_COPY ? x.n : base + LF_COPY;
  if (((x.n & 3) | (((long)to | (long)from) & 15)) == 0) {
    lf_pack<4> v;
    for (long i = base + t.index * 4; i < end; i += 1024) v.load(from + i), v.store(to + i);
  } else {
    for (long i = base + t.index; i < end; i += 256) to[i] = from[i];
  }
}

#define LF_TENSORS 1024

LF_ENTRY_SHARED(256, sum_table_f32, ((float, sums, LF_TENSORS)), ((float, out), (const lf_total_raw, partial), (const long, words)),
                ((int, tensors), (int, total))) {
  for (int k = t.warp; k < tensors; k += 8) {
    const int first = (int)words[k * LF_WORDS + 1], end = k + 1 < tensors ? (int)words[(k + 1) * LF_WORDS + 1] : total;
    lf_total sum = lf_total_of(0.0f);
    for (int i = first + t.lane; i < end; i += 32) sum = lf_total_add(sum, partial[i]);
#pragma unroll
    for (int o = 16; o; o >>= 1) sum += lf_shuffle_xor(t, sum, o);
    if (t.lane == 0) sums[k] = lf_total_float(sum);
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
  std::vector<long> table(16);
  std::vector<int> map(4);
  std::vector<double> partial(2);
  long steps[] = {2100, 0, (long)p.data(), (long)pm.data(), (long)pv.data(), (long)g.data(), 0, 0,
                  700,  3, (long)q.data(), (long)qm.data(), (long)qv.data(), (long)g.data(), 0, 0};
  lf_race_launch(tensor_table, {2}, {256}, 0, table.data(), map.data(), steps, 2, 4);
  lf_race_launch(adamw_table_f32, {4}, {256}, 0, rates.data(), rates.data() + 3, table.data(), map.data(), 0.1f, 0.999f, 0.001f, 1e-8f);
  long moments[] = {2100, 0, (long)p.data(), (long)m.data(), (long)v.data(), (long)g.data(), (long)ms.data(), (long)vs.data()};
  lf_race_launch(tensor_table, {1}, {256}, 0, table.data(), map.data(), moments, 1, 2);
  lf_race_launch(adamw8_table_f32, {2}, {256}, 0, rates.data(), rates.data() + 3, maps.data(), table.data(), map.data(), 0.9f, 0.1f, 0.999f, 0.001f,
                 1e-8f);
  long copies[] = {2100, 0, (long)p.data(), (long)g.data(), 0, 0, 0, 0};
  lf_race_launch(tensor_table, {1}, {256}, 0, table.data(), map.data(), copies, 1, 1);
  lf_race_launch(copy_table_b4, {1}, {256}, 0, table.data(), map.data(), 1);
  long squares[] = {2100, 0, (long)p.data(), 0, 0, 0, 0, 0, 700, 1, (long)q.data(), 0, 0, 0, 0, 0};
  lf_race_launch(tensor_table, {2}, {256}, 0, table.data(), map.data(), squares, 2, 2);
  lf_race_launch(squares_table_f32, {2}, {256}, 0, partial.data(), table.data(), map.data(), 2);
  lf_race_launch(sum_table_f32, {1}, {256}, 0, p.data(), partial.data(), table.data(), 2, 2);
}
#endif

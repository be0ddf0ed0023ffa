// A tile of a sum of products, 64 by 64, from operands of any type: what
// gemm_mma.metal, lora_down.metal and linear_ce_mma.metal have in common.
//
// Threads: 128, four simdgroups of 32 by 32 of the tile each. With LF_SIMD they
//   multiply matrices of 8 by 8; without, a thread has 4 by 8 of the tile.
// Threadgroup memory: 32 of the k axis of the tiles of A and of B, as cells of bfloat
//   (lf_cells_bf16; of float, rounded to bfloat16, where there is no type bfloat) or of
//   float (lf_cells_f32): 10 or 18 KiB. A tile lies as its operand does in memory: 64
//   rows of 32 where k is contiguous, 32 rows of 64 where it is not; rows are padded by
//   16 bytes. Results leave by the same memory, half a tile at a time, since nobody
//   knows which lane holds what of a matrix.
// Pipeline: the next 32 of the k axis are read into registers before the products of
//   those that lie in threadgroup memory.
// Order of sums: along k, product after product; the factors alpha multiply the
//   sums so far, alpha_p/alpha_{p+1} where a product ends and the last at the end,
//   so that operands are rounded once only.
#pragma once

#include "mixed.h"
#include "products.h"

#define LF_TILE 64
#define LF_TILE_K 32
#define LF_TILE_THREADS 128
#define LF_TILE_ROOM 68 // floats from one row of results in threadgroup memory to the next

// Cells of threadgroup memory. along and across are the distances between rows of a
// tile for rows along the k axis and across it.
struct lf_cells_f32 {
  typedef float cell;
#if LF_SIMD
  typedef simdgroup_float8x8 matrix;
#endif
  enum { along = 36, across = 68, words = 2 * LF_TILE * along / 4 }; // words of 16 bytes, for both tiles
  static float get(float x) { return x; }
  static void put(threadgroup float* to, float4 x, float4 y) {
    *(threadgroup float4*)to = x;
    *(threadgroup float4*)(to + 4) = y;
  }
  // Eight bfloat16.
  static void copy(threadgroup float* to, uint4 v) {
    float2 a = lf_unpack_bf16(v.x), b = lf_unpack_bf16(v.y), c = lf_unpack_bf16(v.z), d = lf_unpack_bf16(v.w);
    put(to, float4(a.x, a.y, b.x, b.y), float4(c.x, c.y, d.x, d.y));
  }
};

#if LF_BFLOAT
struct lf_cells_bf16 {
  typedef bfloat cell;
#if LF_SIMD
  typedef simdgroup_bfloat8x8 matrix;
#endif
  enum { along = 40, across = 72, words = 2 * LF_TILE * along / 8 };
  static float get(bfloat x) { return (float)x; }
  static void put(threadgroup bfloat* to, float4 x, float4 y) {
    copy(to, uint4(lf_pack_bf16(x.x, x.y), lf_pack_bf16(x.z, x.w), lf_pack_bf16(y.x, y.y), lf_pack_bf16(y.z, y.w)));
  }
  static void copy(threadgroup bfloat* to, uint4 v) { *(threadgroup uint4*)to = v; }
};
#else
struct lf_cells_bf16 {
  typedef float cell;
#if LF_SIMD
  typedef simdgroup_float8x8 matrix;
#endif
  enum { along = 36, across = 68, words = 2 * LF_TILE * along / 4 };
  static float get(float x) { return x; }
  static void put(threadgroup float* to, float4 x, float4 y) {
    copy(to, uint4(lf_pack_bf16(x.x, x.y), lf_pack_bf16(x.z, x.w), lf_pack_bf16(y.x, y.y), lf_pack_bf16(y.z, y.w)));
  }
  static void copy(threadgroup float* to, uint4 v) { lf_cells_f32::copy(to, v); }
};
#endif

// One operand of a product, as threads see it.
struct lf_operand {
  device const uchar* p;
  uint flags;
  int first, rows; // the tile's first row of op(M), and how many rows op(M) has
  int k;
  device const float* scale; // of the rows or blocks in memory, if scaled
  bool scaled;
};

// The two chunks of eight elements of a tile that a thread copies. DROP: the operand is
// f32 or bf16, and dropout is applied to it; bf16 goes by LF_WIDE then.
template <class C, bool DROP>
struct lf_stager {
  uint4 lo[2], hi[2]; // unconverted, or floats with LF_ANY

  // The first element of chunk q of a thread in the operand, and the row in memory that it
  // is in; left is the number of elements left in the row.
  static int place(uint thread_index, lf_operand o, int k0, int q, thread long& at, thread int& left) {
    int e = (int)thread_index + q * LF_TILE_THREADS, r;
    if (LF_ALONG_K(o.flags)) {
      int c = k0 + e % 4 * 8;
      r = o.first + e / 4;
      at = (long)r * o.k + c;
      left = r < o.rows ? o.k - c : 0;
    } else {
      int c = o.first + e % 8 * 8;
      r = k0 + e / 8;
      at = (long)r * o.rows + c;
      left = r < o.k ? o.rows - c : 0;
    }
    return r;
  }

  void fetch(uint thread_index, lf_operand o, int k0) {
    int way = LF_WAY(o.flags), kind = LF_KIND(o.flags);
    for (int q = 0; q < 2; q++) {
      long at;
      int left;
      int row = place(thread_index, o, k0, q, at, left);
      lo[q] = uint4(0), hi[q] = uint4(0);
      if (left <= 0) continue;
      if (way == LF_ANY) {
        any(o, kind, q, row, at, left);
      } else if (kind == LF_KIND_F32) {
        device const uint4* p = (device const uint4*)(o.p + 4 * at);
        lo[q] = p[0];
        if (left > 4) hi[q] = p[1];
      } else if (kind == LF_KIND_F16 || kind == LF_KIND_BF16) {
        lo[q] = *(device const uint4*)(o.p + 2 * at);
      } else if (kind == LF_KIND_Q8) {
        device const uchar* block = o.p + (at >> 6) * 68;
        device const uint* codes = (device const uint*)(block + (at & 63));
        lo[q] = uint4(codes[0], codes[1], *(device const uint*)(block + 64), 0);
      } else if (kind == LF_KIND_F8) {
        uint2 codes = *(device const uint2*)(o.p + at);
        lo[q] = uint4(codes.x, codes.y, as_type<uint>(scale_of(o, row, left)), 0);
      } else {
        device const uchar* block = o.p + (at >> 6) * 36;
        device const uint* codes = (device const uint*)(block + (at & 31));
        int shift = (int)(at >> 5 & 1) * 4;
        lo[q] = uint4(codes[0] >> shift, codes[1] >> shift, *(device const uint*)(block + 32), 0);
      }
    }
  }

  // Writes what fetch has read.
  void store(uint thread_index, lf_operand o, int k0, threadgroup typename C::cell* tile, lf_drop drop) const {
    int way = LF_WAY(o.flags), kind = LF_KIND(o.flags);
    for (int q = 0; q < 2; q++) {
      int e = (int)thread_index + q * LF_TILE_THREADS;
      threadgroup typename C::cell* to = tile + (LF_ALONG_K(o.flags) ? e / 4 * C::along + e % 4 * 8 : e / 8 * C::across + e % 8 * 8);
      if (way == LF_COPY) {
        C::copy(to, lo[q]);
        continue;
      }
      float4 x = as_type<float4>(lo[q]), y = as_type<float4>(hi[q]);
      if (way == LF_WIDE && kind == LF_KIND_F16) {
        float2 a = lf_halves(lo[q].x), b = lf_halves(lo[q].y), c = lf_halves(lo[q].z), d = lf_halves(lo[q].w);
        x = float4(a.x, a.y, b.x, b.y), y = float4(c.x, c.y, d.x, d.y);
      } else if (way == LF_WIDE && kind == LF_KIND_Q8) {
        float scale = as_type<float>(lo[q].z);
        x = lf_codes8(lo[q].x, scale), y = lf_codes8(lo[q].y, scale);
      } else if (way == LF_WIDE && kind == LF_KIND_F8) {
        float scale = as_type<float>(lo[q].z);
        x = lf_codes_f8(lo[q].x) * scale, y = lf_codes_f8(lo[q].y) * scale;
      } else if (way == LF_WIDE && kind != LF_KIND_F32 && kind != LF_KIND_BF16) {
        float scale = as_type<float>(lo[q].z);
        x = lf_codes4(lo[q].x, scale, lf_book(kind)), y = lf_codes4(lo[q].y, scale, lf_book(kind));
      } else if (DROP) {
        long at;
        int left;
        place(thread_index, o, k0, q, at, left);
        if (way == LF_WIDE && kind == LF_KIND_BF16) {
          float2 a = lf_unpack_bf16(lo[q].x), b = lf_unpack_bf16(lo[q].y), c = lf_unpack_bf16(lo[q].z), d = lf_unpack_bf16(lo[q].w);
          x = float4(a.x, a.y, b.x, b.y), y = float4(c.x, c.y, d.x, d.y);
        }
        if (left > 0) x = lf_dropped(drop, at, x), y = lf_dropped(drop, at + 4, y);
      }
      C::put(to, x, y);
    }
  }

  // The scale of a chunk in a row in memory, with left elements from it on.
  static float scale_of(lf_operand o, int row, int left) {
    int columns = LF_ALONG_K(o.flags) ? o.k : o.rows;
    return o.scaled ? o.scale[lf_scale_at(o.flags, row, columns - left, columns)] : 1.0f;
  }

  void any(lf_operand o, int kind, int q, int row, long at, int left) {
    float v[8], scale = scale_of(o, row, left);
    for (int j = 0; j < 8; j++) v[j] = j < left ? lf_element(kind, o.p, at + j) * scale : 0.0f;
    lo[q] = as_type<uint4>(float4(v[0], v[1], v[2], v[3]));
    hi[q] = as_type<uint4>(float4(v[4], v[5], v[6], v[7]));
  }
};

// A place in the row of stages that the k axes of all products make.
struct lf_cursor {
  lf_product p;
  int index, k0;

  void seek(thread const lf_products& all, int stage) {
    index = 0;
    p = lf_pick(all, 0);
    for (;;) {
      int n = (p.k + LF_TILE_K - 1) / LF_TILE_K;
      if (stage < n) break;
      stage -= n;
      p = lf_pick(all, ++index);
    }
    k0 = stage * LF_TILE_K;
  }
  bool last_of_product() const { return k0 + LF_TILE_K >= p.k; }
  void advance(thread const lf_products& all) {
    k0 += LF_TILE_K;
    if (k0 < p.k) return;
    p = lf_pick(all, ++index);
    k0 = 0;
  }
};

// The sums of a tile, in registers.
#if LF_SIMD
struct lf_sums {
  simdgroup_float8x8 m[4][4];

  static int first_row(lf_thread t) { return (int)t.warp / 2 * 32; }
  static int first_col(lf_thread t) { return (int)t.warp % 2 * 32; }

  void clear() {
    for (int i = 0; i < 4; i++)
      for (int j = 0; j < 4; j++) m[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  }

  // Adds the products of the given part of the k axis, as whole matrices padded with zeros.
  template <class C, bool A_ALONG_K, bool B_ALONG_K>
  void add(lf_thread t, threadgroup const typename C::cell* sa, threadgroup const typename C::cell* sb, int depth) {
    int row = first_row(t), col = first_col(t);
    for (int l = 0; l < depth; l += 8) {
      typename C::matrix a, b[4];
      for (int j = 0; j < 4; j++) {
        if (B_ALONG_K) simdgroup_load(b[j], sb + (col + 8 * j) * C::along + l, C::along, ulong2(0, 0), true);
        else simdgroup_load(b[j], sb + l * C::across + col + 8 * j, C::across);
      }
      for (int i = 0; i < 4; i++) {
        if (A_ALONG_K) simdgroup_load(a, sa + (row + 8 * i) * C::along + l, C::along);
        else simdgroup_load(a, sa + l * C::across + row + 8 * i, C::across, ulong2(0, 0), true);
        for (int j = 0; j < 4; j++) simdgroup_multiply_accumulate(m[i][j], a, b[j], m[i][j]);
      }
    }
  }

  // Half of the rows of the tile, between registers and threadgroup memory.
  void put(lf_thread t, int half_of, threadgroup float* room) const {
    if (first_row(t) != 32 * half_of) return;
    for (int i = 0; i < 4; i++)
      for (int j = 0; j < 4; j++) simdgroup_store(m[i][j], room + 8 * i * LF_TILE_ROOM + first_col(t) + 8 * j, LF_TILE_ROOM);
  }
  void take(lf_thread t, int half_of, threadgroup const float* room) {
    if (first_row(t) != 32 * half_of) return;
    for (int i = 0; i < 4; i++)
      for (int j = 0; j < 4; j++) simdgroup_load(m[i][j], room + 8 * i * LF_TILE_ROOM + first_col(t) + 8 * j, LF_TILE_ROOM);
  }
};
#else
struct lf_sums {
  float s[4][8]; // rows 16 apart, columns 8 apart

  static int first_row(lf_thread t) { return (int)t.index / 8; }
  static int first_col(lf_thread t) { return (int)t.index % 8; }

  void clear() {
    for (int i = 0; i < 4; i++)
      for (int j = 0; j < 8; j++) s[i][j] = 0.0f;
  }

  template <class C, bool A_ALONG_K, bool B_ALONG_K>
  void add(lf_thread t, threadgroup const typename C::cell* sa, threadgroup const typename C::cell* sb, int depth) {
    int row = first_row(t), col = first_col(t);
    for (int l = 0; l < depth; l++) {
      float x[4], y[8];
      for (int i = 0; i < 4; i++) x[i] = C::get(A_ALONG_K ? sa[(row + 16 * i) * C::along + l] : sa[l * C::across + row + 16 * i]);
      for (int j = 0; j < 8; j++) y[j] = C::get(B_ALONG_K ? sb[(col + 8 * j) * C::along + l] : sb[l * C::across + col + 8 * j]);
      for (int i = 0; i < 4; i++)
        for (int j = 0; j < 8; j++) s[i][j] = fma(x[i], y[j], s[i][j]);
    }
  }

  void put(lf_thread t, int half_of, threadgroup float* room) const {
    for (int i = 0; i < 2; i++)
      for (int j = 0; j < 8; j++) room[(first_row(t) + 16 * i) * LF_TILE_ROOM + first_col(t) + 8 * j] = s[2 * half_of + i][j];
  }
  void take(lf_thread t, int half_of, threadgroup const float* room) {
    for (int i = 0; i < 2; i++)
      for (int j = 0; j < 8; j++) s[2 * half_of + i][j] = room[(first_row(t) + 16 * i) * LF_TILE_ROOM + first_col(t) + 8 * j];
  }
};
#endif

// 64 by 64 of the output; shared are C::words words of threadgroup memory.
template <class C, bool DROP_A, bool DROP_B>
struct lf_tile {
  typedef threadgroup typename C::cell* cells;
  lf_sums sums;
  float factor; // factor of the sums

  static lf_operand operand_a(lf_product p, int first, int rows) {
    lf_operand o = {p.a, p.flags, first, rows, p.k, nullptr, false};
    return o;
  }
  static lf_operand operand_b(thread const lf_products& all, lf_product p, int first, int rows) {
    lf_operand o = {p.b, p.flags >> 8, first, rows, p.k, lf_scales_of(all, p.flags), LF_SCALED(p.flags) != 0};
    return o;
  }

  // Adds stages first to last, not included, of the products to the sums.
  void run(lf_thread t, threadgroup uint4* shared, thread const lf_products& all, int first, int last, int m0,
           int n0, int m, int n, lf_drop drop) {
    lf_stager<C, DROP_A> a;
    run(a, t, shared, all, first, last, m0, n0, m, n, drop);
  }

  // The same, with the tiles of A copied by a.
  template <class STAGER>
  void run(thread STAGER& a, lf_thread t, threadgroup uint4* shared, thread const lf_products& all, int first, int last, int m0,
           int n0, int m, int n, lf_drop drop) {
    sums.clear();
    factor = 1.0f;
    if (first >= last) return;
    threadgroup typename C::cell *sa = (cells)shared, *sb = (cells)(shared + C::words / 2);
    lf_cursor in, at;
    lf_stager<C, DROP_B> b;
    in.seek(all, first);
    a.fetch(t.index, operand_a(in.p, m0, m), in.k0);
    b.fetch(t.index, operand_b(all, in.p, n0, n), in.k0);
    for (int s = first; s < last; s++) {
      lf_barrier(); // the stage before has been read
      a.store(t.index, operand_a(in.p, m0, m), in.k0, sa, drop);
      b.store(t.index, operand_b(all, in.p, n0, n), in.k0, sb, drop);
      lf_barrier();
      at = in;
      if (s + 1 < last) {
        in.advance(all);
        a.fetch(t.index, operand_a(in.p, m0, m), in.k0);
        b.fetch(t.index, operand_b(all, in.p, n0, n), in.k0);
      }
      multiply(t, sa, sb, at.p.flags, min(LF_TILE_K, at.p.k - at.k0));
      if (s + 1 < last && at.last_of_product() && in.p.alpha != at.p.alpha) scale(t, (threadgroup float*)shared, at.p.alpha / in.p.alpha);
    }
    factor = at.p.alpha;
  }

  // Writes the sums, with bias and addend if any, from element from of the output on. types
  // are those of output and addend.
  void write(lf_thread t, threadgroup uint4* shared, lf_mixed types, device void* to, bool has_bias, device const float* bias,
             bool has_addend, device const void* addend, long from, int m0, int n0, int m, int n) const {
    threadgroup float* room = (threadgroup float*)shared;
    for (int h = 0; h < 2; h++) {
      lf_barrier(); // threadgroup memory has been read
      sums.put(t, h, room);
      lf_barrier();
      for (int e = (int)t.index; e < 32 * LF_TILE; e += LF_TILE_THREADS) {
        int i = m0 + 32 * h + e / LF_TILE, j = n0 + e % LF_TILE;
        if (i >= m || j >= n) continue;
        long at = from + (long)i * n + j;
        float v = room[e / LF_TILE * LF_TILE_ROOM + e % LF_TILE] * factor;
        if (has_bias) v += bias[j];
        if (has_addend) v += lf_load(types, 1, addend, at);
        lf_store(types, 0, to, at, v);
      }
    }
  }

  void scale(lf_thread t, threadgroup float* room, float by) {
    for (int h = 0; h < 2; h++) {
      lf_barrier();
      sums.put(t, h, room);
      lf_barrier();
      for (int e = (int)t.index; e < 32 * LF_TILE; e += LF_TILE_THREADS) room[e / LF_TILE * LF_TILE_ROOM + e % LF_TILE] *= by;
      lf_barrier();
      sums.take(t, h, room);
    }
  }

  // Adds the products of a stage.
  void multiply(lf_thread t, threadgroup const typename C::cell* sa, threadgroup const typename C::cell* sb, uint flags, int depth) {
    bool a = LF_ALONG_K(flags), b = LF_ALONG_K(flags >> 8);
    if (a && b) sums.template add<C, true, true>(t, sa, sb, depth);
    else if (a) sums.template add<C, true, false>(t, sa, sb, depth);
    else if (b) sums.template add<C, false, true>(t, sa, sb, depth);
    else sums.template add<C, false, false>(t, sa, sb, depth);
  }
};

// The position of tile t of tm by tn. Tiles are ordered in groups of eight rows,
// down and then across, so that tiles that run concurrently share rows of A and
// columns of B.
inline void lf_tile_order(int t, int tm, int tn, thread int& i, thread int& j) {
  int group = t / (8 * tn), rows = min(tm - group * 8, 8), at = t - group * 8 * tn;
  i = group * 8 + at % rows;
  j = at / rows;
}

// Stages of all products.
inline int lf_stages_of(thread const lf_products& all, int count) {
  int n = 0;
  for (int i = 0; i < 8; i++)
    if (i < count) n += (all.p[i].k + LF_TILE_K - 1) / LF_TILE_K;
  return n;
}

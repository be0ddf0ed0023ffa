// A tile of a sum of products by the tensor cores, from operands of any type:
// what gemm_mma.cu and lora_down.cu have in common.
//
// Shared memory: LF_STAGES stages of 32 of the k axis, each the tile of A and that
//   of B as bfloat16. A tile lies as its operand does in memory: R rows of 64 bytes
//   where k is contiguous, 32 rows of 2R bytes where it is not; ldmatrix, with or
//   without .trans, makes the same fragments of both. The 16-byte chunks of a row
//   are permuted by the row number, so that the eight rows of an ldmatrix, and the
//   eight chunks that a quarter of a warp writes, lie in different banks.
// Pipeline: the stage that is computed was asked for two stages before. bfloat16
//   operands that lie as cp.async wants them are copied; others are read into
//   registers before the products of a stage and written, as bfloat16, after them.
// Order of sums: along k, product after product; the factors alpha multiply the
//   sums so far, alpha_p/alpha_{p+1} where a product ends and the last at the end,
//   so that operands are rounded once only.
#pragma once

#include "mixed.h"
#include "products.cuh"

#define LF_STAGES 3
#define LF_TILE_K 32

// The position of chunk c of row r in a tile with rows of R elements of op(M).
template <int R, bool ALONG_K>
LF_DEVICE int lf_chunk_at(int r, int c) {
  return ALONG_K ? r * 64 + ((c ^ (r >> 1 & 3)) << 4) : r * (2 * R) + ((c ^ (r & 7)) << 4);
}

LF_DEVICE uint4 lf_pack8(float4 u, float4 v) {
  return make_uint4(lf_pack_bf16(u.x, u.y), lf_pack_bf16(u.z, u.w), lf_pack_bf16(v.x, v.y), lf_pack_bf16(v.z, v.w));
}

LF_DEVICE float4 lf_floats4(const unsigned* w) {
  return make_float4(__uint_as_float(w[0]), __uint_as_float(w[1]), __uint_as_float(w[2]), __uint_as_float(w[3]));
}

// Operands of what stored says of a sum.
#define LF_OUT 0
#define LF_ADDEND 1

// The address of number i of an operand.
LF_DEVICE void* lf_number_at(lf_mixed types, int operand, const void* p, long long i) {
  return (char*)p + (types.bf16(operand) ? 2 * i : 4 * i);
}

// Numbers i and i+1 of an operand, aligned to both of them.
LF_DEVICE float2 lf_load_pair(lf_mixed types, int operand, const void* p, long long i) {
  return types.bf16(operand) ? lf_unpack_bf16(*(const unsigned*)((const lf_bf16*)p + i)) : *(const float2*)((const float*)p + i);
}
LF_DEVICE void lf_store_pair(lf_mixed types, int operand, void* p, long long i, float u, float v) {
  if (types.bf16(operand)) *(unsigned*)((lf_bf16*)p + i) = lf_pack_bf16(u, v);
  else *(float2*)((float*)p + i) = make_float2(u, v);
}

// One operand of a product, as threads see it.
struct lf_operand {
  const unsigned char* p;
  unsigned flags;
  int first, rows; // the tile's first row of op(M), and how many rows op(M) has
  int k;
  const float* scale; // of the rows or blocks in memory, or null
};

// The chunks of a tile that this thread copies to shared memory: R/8·32/THREADS.
// WORDS 8 keeps f32 chunks unconverted until the products of the stage are done;
// 4 waits for them, which needs fewer registers. DROP: the operand is f32 or bf16,
// and dropout is applied to it; bf16 goes by LF_WIDE then.
template <int R, int THREADS, int WORDS, bool DROP>
struct lf_stager {
  static constexpr int count = R * 4 / THREADS;
  unsigned w[count][WORDS];

  // The first element of chunk q of this thread in the operand, and the row in memory that
  // it is in; left is the number of elements left in the row. Chunks of a thread are whole
  // rows apart.
  static LF_DEVICE int place(const lf_operand& o, int k0, int q, long long* at, int* left) {
    int e = threadIdx.x, r;
    if (LF_ALONG_K(o.flags)) {
      int c = k0 + (e & 3) * 8;
      r = o.first + (e >> 2) + q * (THREADS / 4);
      *at = (long long)r * o.k + c, *left = r < o.rows ? o.k - c : 0;
    } else {
      int c = o.first + e % (R / 8) * 8;
      r = k0 + e / (R / 8) + q * (THREADS / (R / 8));
      *at = (long long)r * o.rows + c, *left = r < o.k ? o.rows - c : 0;
    }
    return r;
  }

  // The position of chunk 0 of this thread in the tile. Chunk q follows
  // 16·THREADS·q bytes later, since their rows differ by a multiple of 8 and are
  // permuted in the same way.
  static_assert(THREADS / 4 % 8 == 0 && THREADS / (R / 8) % 8 == 0, "rows of a thread's chunks");
  static LF_DEVICE unsigned char* slot(const lf_operand& o, unsigned char* tile) {
    int e = threadIdx.x;
    return tile + (LF_ALONG_K(o.flags) ? lf_chunk_at<R, true>(e >> 2, e & 3) : lf_chunk_at<R, false>(e / (R / 8), e % (R / 8)));
  }

  LF_DEVICE void fetch(const lf_operand& o, int k0, unsigned char* tile, const float* books, const lf_drop& drop) {
    int way = LF_WAY(o.flags), kind = LF_KIND(o.flags);
    unsigned char* to = slot(o, tile);
#pragma unroll
    for (int q = 0; q < count; q++) {
      int left;
      long long at;
      int row = place(o, k0, q, &at, &left);
      bool some = left > 0;
      if (way == LF_COPY) {
        lf_cp_async16(to + 16 * THREADS * q, o.p + (some ? 2 * at : 0), some);
        continue;
      }
#pragma unroll
      for (int i = 0; i < WORDS; i++) w[q][i] = 0;
      if (!some) continue;
      if (way == LF_ANY) any(o, kind, q, row, at, left, books, drop);
      else if (kind == LF_KIND_F32) wide(o.p + 4 * at, q, left > 4);
      else if (kind == LF_KIND_F16 || (DROP && kind == LF_KIND_BF16)) words(q, 0, *(const uint4*)(o.p + 2 * at));
      else if (kind == LF_KIND_Q8) {
        const unsigned char* block = o.p + (at >> 6) * 68;
        const unsigned* codes = (const unsigned*)(block + (at & 63));
        w[q][0] = codes[0], w[q][1] = codes[1], w[q][2] = *(const unsigned*)(block + 64);
      } else if (kind == LF_KIND_F8) {
        uint2 codes = *(const uint2*)(o.p + at);
        w[q][0] = codes.x, w[q][1] = codes.y, w[q][2] = __float_as_uint(scale_of(o, row, left));
      } else {
        const unsigned char* block = o.p + (at >> 6) * 36;
        const unsigned* codes = (const unsigned*)(block + (at & 31));
        int shift = (int)(at >> 5 & 1) * 4;
        w[q][0] = codes[0] >> shift, w[q][1] = codes[1] >> shift, w[q][2] = *(const unsigned*)(block + 32);
      }
    }
  }

  // Writes what fetch has read, unless it was copied.
  LF_DEVICE void store(const lf_operand& o, int k0, unsigned char* tile, const float* books, const lf_drop& drop) {
    int way = LF_WAY(o.flags), kind = LF_KIND(o.flags);
    if (way == LF_COPY) return;
    unsigned char* to = slot(o, tile);
#pragma unroll
    for (int q = 0; q < count; q++) {
      int left;
      long long at;
      place(o, k0, q, &at, &left);
      uint4 v = make_uint4(w[q][0], w[q][1], w[q][2], w[q][3]);
      if (way == LF_WIDE) {
        if (kind == LF_KIND_F32) {
          if (WORDS == 8) {
            float4 x = lf_floats4(w[q]), y = lf_floats4(w[q] + WORDS - 4);
            if (DROP && left > 0) x = lf_dropped(drop, at, x), y = lf_dropped(drop, at + 4, y);
            v = lf_pack8(x, y);
          }
        } else if (DROP && kind == LF_KIND_BF16) {
          float2 a = lf_unpack_bf16(v.x), b = lf_unpack_bf16(v.y), c = lf_unpack_bf16(v.z), d = lf_unpack_bf16(v.w);
          float4 x = make_float4(a.x, a.y, b.x, b.y), y = make_float4(c.x, c.y, d.x, d.y);
          if (left > 0) x = lf_dropped(drop, at, x), y = lf_dropped(drop, at + 4, y);
          v = lf_pack8(x, y);
        } else if (kind == LF_KIND_F16) {
          float2 a = lf_unpack_f16(v.x), b = lf_unpack_f16(v.y), c = lf_unpack_f16(v.z), d = lf_unpack_f16(v.w);
          v = make_uint4(lf_pack_bf16(a.x, a.y), lf_pack_bf16(b.x, b.y), lf_pack_bf16(c.x, c.y), lf_pack_bf16(d.x, d.y));
        } else if (kind == LF_KIND_Q8) {
          float scale = __uint_as_float(v.z);
          v = lf_pack8(lf_codes8(v.x, scale), lf_codes8(v.y, scale));
        } else if (kind == LF_KIND_F8) {
          float scale = __uint_as_float(v.z);
          v = lf_pack8(lf_codes_f8(v.x, scale), lf_codes_f8(v.y, scale));
        } else {
          float scale = __uint_as_float(v.z);
          v = lf_pack8(lf_codes4(v.x, scale, lf_book(kind, books)), lf_codes4(v.y, scale, lf_book(kind, books)));
        }
      }
      *(uint4*)(to + 16 * THREADS * q) = v;
    }
  }

 private:
  // The scale of a chunk in a row in memory, with left elements from it on.
  static LF_DEVICE float scale_of(const lf_operand& o, int row, int left) {
    int columns = LF_ALONG_K(o.flags) ? o.k : o.rows;
    return o.scale ? o.scale[lf_scale_at(o.flags, row, columns - left, columns)] : 1.0f;
  }

  LF_DEVICE void words(int q, int from, uint4 v) { w[q][from] = v.x, w[q][from + 1] = v.y, w[q][from + 2] = v.z, w[q][from + 3] = v.w; }

  LF_DEVICE void wide(const unsigned char* p, int q, bool both) {
    uint4 x = *(const uint4*)p, y = make_uint4(0, 0, 0, 0);
    if (both) y = *(const uint4*)(p + 16);
    if (WORDS == 8) {
      words(q, 0, x);
      words(q, WORDS - 4, y);
      return;
    }
    words(q, 0, make_uint4(lf_pack_bf16(__uint_as_float(x.x), __uint_as_float(x.y)), lf_pack_bf16(__uint_as_float(x.z), __uint_as_float(x.w)),
                           lf_pack_bf16(__uint_as_float(y.x), __uint_as_float(y.y)), lf_pack_bf16(__uint_as_float(y.z), __uint_as_float(y.w))));
  }

  // Not unrolled: an operand that goes this way is slow whatever its code.
  LF_DEVICE void any(const lf_operand& o, int kind, int q, int row, long long at, int left, const float* books, const lf_drop& drop) {
    uint4 v = make_uint4(0, 0, 0, 0);
    float scale = scale_of(o, row, left);
#pragma unroll 1
    for (int j = 0; j < 8; j += 2) {
      float x = j < left ? lf_element(kind, o.p, at + j, books) * scale : 0.0f;
      float y = j + 1 < left ? lf_element(kind, o.p, at + j + 1, books) * scale : 0.0f;
      if (DROP) {
        float4 kept = lf_dropped(drop, at + j, make_float4(x, y, 0.0f, 0.0f));
        x = kept.x, y = kept.y;
      }
      v = make_uint4(v.y, v.z, v.w, lf_pack_bf16(x, y));
    }
    words(q, 0, v);
  }
};

// A place in the row of stages that the k axes of all products make.
struct lf_cursor {
  lf_product p;
  int index, k0;

  LF_DEVICE void seek(const lf_products& all, int stage) {
    index = 0, p = lf_pick(all, 0);
    for (int n; stage >= (n = (p.k + LF_TILE_K - 1) / LF_TILE_K); stage -= n) p = lf_pick(all, ++index);
    k0 = stage * LF_TILE_K;
  }
  LF_DEVICE bool last_of_product() const { return k0 + LF_TILE_K >= p.k; }
  LF_DEVICE void advance(const lf_products& all) {
    k0 += LF_TILE_K;
    if (k0 >= p.k) p = lf_pick(all, ++index), k0 = 0;
  }
};

// BM by BN of the output by warps of WM by WN each; WORDS_B as lf_stager's.
template <int BM, int BN, int WM, int WN, int WORDS_B, bool DROP_A, bool DROP_B>
struct lf_tile {
  static constexpr int threads = BM / WM * (BN / WN) * 32;
  static constexpr int stage_bytes = (BM + BN) * LF_TILE_K * 2;
  static constexpr int fragments_m = WM / 16, fragments_n = WN / 8;

  float sum[fragments_m][fragments_n][4];

  static LF_DEVICE lf_operand operand_a(const lf_product& p, int first, int rows) {
    lf_operand o = {p.a, p.flags, first, rows, p.k, nullptr};
    return o;
  }
  static LF_DEVICE lf_operand operand_b(const lf_products& all, const lf_product& p, int first, int rows) {
    lf_operand o = {p.b, p.flags >> 8, first, rows, p.k, lf_scales_of(all, p.flags)};
    return o;
  }

  static LF_DEVICE int warp_m() { return (int)threadIdx.x / 32 / (BN / WN) * WM; }
  static LF_DEVICE int warp_n() { return (int)threadIdx.x / 32 % (BN / WN) * WN; }

  // Adds stages first to last, not included, of the products to the sums.
  LF_DEVICE void run(unsigned char* shared, const float* books, const lf_products& all, int first, int last, int m0, int n0, int m, int n,
                     const lf_drop& drop) {
    lf_stager<BM, threads, 8, DROP_A> a;
    run(a, shared, books, all, first, last, m0, n0, m, n, drop);
  }

  // The same, with the tiles of A copied by a.
  template <class STAGER>
  LF_DEVICE void run(STAGER& a, unsigned char* shared, const float* books, const lf_products& all, int first, int last, int m0, int n0, int m,
                     int n, const lf_drop& drop) {
#pragma unroll
    for (int i = 0; i < fragments_m; i++)
#pragma unroll
      for (int j = 0; j < fragments_n; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) sum[i][j][e] = 0.0f;
    if (first >= last) return;
    lf_cursor in, at;
    in.seek(all, first);
    at = in;
    lf_stager<BN, threads, WORDS_B, DROP_B> b;
    int slot = 1; // of stage t
    for (int t = first - (LF_STAGES - 1); t < last; t++) { // what comes before first only fills
      if (t >= first) {
        lf_cp_async_wait<LF_STAGES - 2>();
        __syncthreads(); // stage t has arrived, and stage t-1 has been read
      }
      bool more = t + LF_STAGES - 1 < last;
      unsigned char* filled = shared + (slot == 0 ? LF_STAGES - 1 : slot - 1) * stage_bytes;
      const unsigned char* tile = shared + slot * stage_bytes;
      lf_operand x = operand_a(in.p, m0, m), y = operand_b(all, in.p, n0, n);
      if (more) a.fetch(x, in.k0, filled, books, drop), b.fetch(y, in.k0, filled + BM * 64, books, drop);
      if (t >= first) {
        multiply<0>(tile, tile + BM * 64, at.p.flags);
        if (at.p.k - at.k0 > 16) multiply<1>(tile, tile + BM * 64, at.p.flags); // an adapter's k is often half a stage
      }
      if (more) {
        a.store(x, in.k0, filled, books, drop), b.store(y, in.k0, filled + BM * 64, books, drop);
        if (t + LF_STAGES < last) in.advance(all);
      }
      lf_cp_async_commit();
      slot = slot == LF_STAGES - 1 ? 0 : slot + 1;
      if (t < first) continue;
      float factor = at.p.alpha;
      if (t + 1 == last) {
        scale(factor);
        break;
      }
      bool over = at.last_of_product();
      at.advance(all);
      if (over && at.p.alpha != factor) scale(factor / at.p.alpha);
    }
  }

  // Writes the sums, with bias and addend if any.
  LF_DEVICE void write(void* to, const float* bias, const void* addend, lf_mixed types, int m0, int n0, int m, int n) const {
    int lane = threadIdx.x % 32;
    bool pairs = (n & 1) == 0 && (((size_t)to & (types.bf16(LF_OUT) ? 3 : 7)) | ((size_t)addend & (types.bf16(LF_ADDEND) ? 3 : 7))) == 0;
#pragma unroll
    for (int r = 0; r < fragments_m * 2; r++)
#pragma unroll
      for (int c = 0; c < fragments_n; c++) {
        int i = m0 + warp_m() + 8 * r + lane / 4, j = n0 + warp_n() + 8 * c + 2 * (lane % 4);
        if (i >= m || j >= n) continue;
        long long at = (long long)i * n + j;
        float u = sum[r / 2][c][r % 2 * 2], v = sum[r / 2][c][r % 2 * 2 + 1];
        bool two = j + 1 < n;
        if (bias) u += bias[j], v += two ? bias[j + 1] : 0.0f;
        if (pairs) {
          float2 x = addend ? lf_load_pair(types, LF_ADDEND, addend, at) : make_float2(0.0f, 0.0f);
          lf_store_pair(types, LF_OUT, to, at, u + x.x, v + x.y);
          continue;
        }
        lf_store(types, LF_OUT, to, at, addend ? u + lf_load(types, LF_ADDEND, addend, at) : u);
        if (two) lf_store(types, LF_OUT, to, at + 1, addend ? v + lf_load(types, LF_ADDEND, addend, at + 1) : v);
      }
  }

 private:
  LF_DEVICE void scale(float factor) {
    if (factor == 1.0f) return;
#pragma unroll
    for (int i = 0; i < fragments_m; i++)
#pragma unroll
      for (int j = 0; j < fragments_n; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) sum[i][j][e] *= factor;
  }

  // Adds the products of half S of a stage.
  template <int S>
  LF_DEVICE void multiply(const unsigned char* sa, const unsigned char* sb, unsigned flags) {
    bool a = LF_ALONG_K(flags), b = LF_ALONG_K(flags >> 8);
    if (a && b) multiply<S, true, true>(sa, sb);
    else if (a) multiply<S, true, false>(sa, sb);
    else if (b) multiply<S, false, true>(sa, sb);
    else multiply<S, false, false>(sa, sb);
  }

  template <int S, bool A_ALONG_K, bool B_ALONG_K>
  LF_DEVICE void multiply(const unsigned char* sa, const unsigned char* sb) {
    int lane = threadIdx.x % 32, r = lane % 8, h = lane / 8 % 2, v = lane / 16;
    unsigned b[fragments_n][2];
#pragma unroll
    for (int j = 0; j < fragments_n; j += 2) {
      unsigned w[4];
      int n = warp_n() + 8 * j;
      if (B_ALONG_K) lf_ldmatrix_x4(w, sb + lf_chunk_at<BN, true>(n + 8 * v + r, 2 * S + h));
      else lf_ldmatrix_x4_trans(w, sb + lf_chunk_at<BN, false>(16 * S + 8 * h + r, n / 8 + v));
      b[j][0] = w[0], b[j][1] = w[1], b[j + 1][0] = w[2], b[j + 1][1] = w[3];
    }
#pragma unroll
    for (int i = 0; i < fragments_m; i++) {
      unsigned a[4];
      int m = warp_m() + 16 * i;
      if (A_ALONG_K) lf_ldmatrix_x4(a, sa + lf_chunk_at<BM, true>(m + 8 * h + r, 2 * S + v));
      else lf_ldmatrix_x4_trans(a, sa + lf_chunk_at<BM, false>(16 * S + 8 * v + r, m / 8 + h));
#pragma unroll
      for (int j = 0; j < fragments_n; j++) lf_mma_bf16_16816(sum[i][j], a, b[j]);
    }
  }
};

// The position of tile t of tm by tn. Tiles are ordered in groups of eight rows,
// down and then across, so that tiles that run concurrently share rows of A and
// columns of B.
LF_DEVICE void lf_tile_order(int t, int tm, int tn, int* i, int* j) {
  int group = t / (8 * tn), rows = min(tm - group * 8, 8), at = t - group * 8 * tn;
  *i = group * 8 + at % rows, *j = at / rows;
}

// Stages of all products.
LF_DEVICE int lf_stages_of(const lf_products& all, int count) {
  int n = 0;
#pragma unroll
  for (int i = 0; i < 8; i++)
    if (i < count) n += (all.p[i].k + LF_TILE_K - 1) / LF_TILE_K;
  return n;
}

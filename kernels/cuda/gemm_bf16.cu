// A sum of up to eight matrix products of many rows on the tensor cores, as in
// gemm_mma.cu, but of operands that are bfloat16 in memory:
//
//   out = addend + bias + sum over p of alpha_p · A_p · op(B_p)
//
// gemm_pack makes bfloat16 of operands of other types first, once for all tiles. Only the
// short f32 operands of adapters are rounded by each tile itself: the first products, low
// of them, whose k axes together have at most 64 elements, make one stage. It has the
// factor of the product that follows, since A_p is multiplied by the ratio of both before
// it is rounded.
//
// Layout: row major. A_p is [m, k_p]; B_p is [n, k_p] (nt) or [k_p, n] (nn), the same
//   for all p; rows are multiples of 8 elements and start on 16 bytes, of bfloat16 or, of
//   the low products, f32. bias [n] and
//   addend [m, n] may be null, and the addend may be out. If rows is not null, only
//   the rows before *rows − first exist. Bits of stored: out is bf16, addend is; f32
//   otherwise.
// Grid: tiles of the output in groups of 4 rows, down and then across.
//   gemm_bf16_*_256: 256 threads, tiles of 128 by 256, 144 KiB of shared memory;
//   gemm_bf16_*_128: 128 threads, tiles of 128 by 128, 96 KiB: two blocks share a
//   multiprocessor that has 192 KiB.
// Pipeline: three stages of 64 of the k axis by cp.async. A warp computes 64 by 64 and
//   holds the fragments of two steps of 16, one read while the other is multiplied.
// Traffic: A is read n/256 times and B m/128 times, from L2 but for the first time; the
//   output once. A stage of 128 by 256 by 64 reads 48 KiB from L2 and 176 KiB of shared
//   memory, which is what binds: about 1,400 cycles of 128 bytes, as many as an H100
//   needs for its 1,024 mma.sync.
// Registers: up to 255, none spilled.
// Reference: for i, j { s = 0; for p { for l { s += alpha_p A_p[i, l] B_p[l, j] } }
//                       out[i, j] = addend[i, j] + bias[j] + s }
#include "act.h"
#include "mma_tile.cuh"
#include "swizzle.cuh"

#define LF_BULK_K 64
#define LF_BULK_STAGES 3
#define LF_BULK_GROUP 4 // rows of tiles
#define LF_BULK_LEFT 72 // floats: the eight rows that a warp writes at a time lie in different banks

// The chunks of a tile of ROWS rows of WIDTH bytes that this thread copies in each stage.
template <int ROWS, int WIDTH, int THREADS>
struct lf_bulk_copier {
  static constexpr int across = WIDTH / 16, apart = THREADS / across, count = ROWS / apart;
  const lf_bf16* from; // the thread's first chunk of the next stage
  static LF_DEVICE int row() { return threadIdx.x / across; }
  static LF_DEVICE int column() { return threadIdx.x % across * 8; }

  // rows and columns are how many are left of the operand, and step is the length of its rows.
  LF_DEVICE void copy(unsigned char* tile, const unsigned char* operand, int rows, int columns, int step) const {
    unsigned char* to = tile + lf_swizzled<WIDTH>(row(), threadIdx.x % across);
    bool some = column() < columns;
#pragma unroll
    for (int q = 0; q < count; q++) {
      bool valid = some && row() + q * apart < rows;
      lf_cp_async16(to + 16 * THREADS * q, valid ? (const void*)(from + (long long)(q * apart) * step) : operand, valid);
    }
  }
};

template <int BN, bool B_ALONG_K>
struct lf_bulk {
  static constexpr int BM = 128, threads = BN, stage_bytes = (BM + BN) * LF_BULK_K * 2, bytes = LF_BULK_STAGES * stage_bytes;
  typedef lf_bulk_copier<BM, LF_BULK_K * 2, threads> copier_a;
  typedef lf_bulk_copier<B_ALONG_K ? BN : LF_BULK_K, B_ALONG_K ? LF_BULK_K * 2 : BN * 2, threads> copier_b;

  unsigned char* shared;
  int m, n, m0, n0;
  // The stage that is copied next: of product index, from k0 on.
  lf_product in;
  int index, k0, filled;
  copier_a a;
  copier_b b;
  float sum[4][8][4];
  unsigned fa[2][4][4], fb[2][8][2];

  LF_DEVICE void seek(const lf_products& all, int p) {
    in = lf_pick(all, p), index = p, k0 = 0;
    a.from = (const lf_bf16*)in.a + (long long)(m0 + a.row()) * in.k + a.column();
    b.from = (const lf_bf16*)in.b + (B_ALONG_K ? (long long)(n0 + b.row()) * in.k + b.column() : (long long)b.row() * n + n0 + b.column());
  }

  // Copies the next stage, if there is one.
  LF_DEVICE void copy(const lf_products& all, int count) {
    if (index < count) {
      unsigned char* tile = shared + filled * stage_bytes;
      int left = in.k - k0;
      a.copy(tile, in.a, m - m0, left, in.k);
      if (B_ALONG_K) b.copy(tile + BM * LF_BULK_K * 2, in.b, n - n0, left, in.k);
      else b.copy(tile + BM * LF_BULK_K * 2, in.b, left, n - n0, n);
      k0 += LF_BULK_K, a.from += LF_BULK_K, b.from += B_ALONG_K ? LF_BULK_K : (long long)LF_BULK_K * n;
      if (k0 >= in.k && ++index < count) seek(all, index);
    }
    lf_cp_async_commit();
    filled = filled == LF_BULK_STAGES - 1 ? 0 : filled + 1;
  }

  static LF_DEVICE int warp_m() { return (int)threadIdx.x / 32 / (BN / 64) * 64; }
  static LF_DEVICE int warp_n() { return (int)threadIdx.x / 32 % (BN / 64) * 64; }

  // Reads the fragments of a step of a stage.
  LF_DEVICE void read(unsigned (&x)[4][4], unsigned (&y)[8][2], int slot, int step) {
    const unsigned char *sa = shared + slot * stage_bytes, *sb = sa + BM * LF_BULK_K * 2;
    int lane = threadIdx.x % 32, r = lane % 8, h = lane / 8 % 2, v = lane / 16;
#pragma unroll
    for (int i = 0; i < 4; i++) lf_ldmatrix_x4(x[i], sa + lf_swizzled<LF_BULK_K * 2>(warp_m() + 16 * i + 8 * h + r, 2 * step + v));
#pragma unroll
    for (int j = 0; j < 8; j += 2) {
      unsigned w[4];
      if (B_ALONG_K) lf_ldmatrix_x4(w, sb + lf_swizzled<LF_BULK_K * 2>(warp_n() + 8 * j + 8 * v + r, 2 * step + h));
      else lf_ldmatrix_x4_trans(w, sb + lf_swizzled<BN * 2>(16 * step + 8 * h + r, warp_n() / 8 + j + v));
      y[j][0] = w[0], y[j][1] = w[1], y[j + 1][0] = w[2], y[j + 1][1] = w[3];
    }
  }

  LF_DEVICE void scale(float factor) {
    if (factor == 1.0f) return;
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
      for (int j = 0; j < 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) sum[i][j][e] *= factor;
  }

  // Eight elements of an f32 operand, times a factor, as bfloat16; zeros if it has none there.
  static LF_DEVICE uint4 rounded(const unsigned char* operand, long long at, bool valid, float factor) {
    if (!valid) return make_uint4(0, 0, 0, 0);
    float4 u = *(const float4*)(operand + 4 * at), v = *(const float4*)(operand + 4 * at + 16);
    u.x *= factor, u.y *= factor, u.z *= factor, u.w *= factor, v.x *= factor, v.y *= factor, v.z *= factor, v.w *= factor;
    return lf_pack8(u, v);
  }

  // Fills a tile of operand rows that run along k, from chunk first of its rows on, with the
  // rows of an f32 operand from row r0 on.
  template <int ROWS>
  static LF_DEVICE void round_rows(unsigned char* tile, const unsigned char* operand, int r0, int rows, int k, int first, float factor) {
    int chunks = k / 8;
#pragma unroll 2
    for (int e = threadIdx.x; e < ROWS * chunks; e += threads) {
      int r = e / chunks, c = e % chunks;
      *(uint4*)(tile + lf_swizzled<LF_BULK_K * 2>(r, first + c)) = rounded(operand, (long long)(r0 + r) * k + 8 * c, r0 + r < rows, factor);
    }
  }

  // Fills the first stage with the low products. No sum is in registers yet.
  LF_DEVICE void round_low(const lf_products& all, int low) {
    unsigned char *sa = shared, *sb = shared + BM * LF_BULK_K * 2;
    float factor = lf_pick(all, low).alpha;
    int first = 0;
#pragma unroll 1
    for (int i = 0; i <= low; i++) {
      lf_product p = lf_pick(all, i);
      bool rest = i == low; // which is zeros
      if (rest) p.k = LF_BULK_K - 8 * first;
      if (p.k == 0) break;
      round_rows<BM>(sa, p.a, m0, rest ? 0 : m, p.k, first, p.alpha / factor);
      if (B_ALONG_K) {
        round_rows<BN>(sb, p.b, n0, rest ? 0 : n, p.k, first, 1.0f);
      } else {
#pragma unroll 2
        for (int e = threadIdx.x; e < p.k * (BN / 8); e += threads) {
          int r = e / (BN / 8), c = e % (BN / 8), j = n0 + 8 * c;
          *(uint4*)(sb + lf_swizzled<BN * 2>(8 * first + r, c)) = rounded(p.b, (long long)r * n + j, !rest && j < n, 1.0f);
        }
      }
      first += p.k / 8;
    }
  }

  LF_DEVICE void run(const lf_products& all, int low, int count) {
    seek(all, low);
    filled = 0;
    if (low) {
      lf_cp_async_commit();
      filled = 1;
    }
#pragma unroll 1
    while (filled < LF_BULK_STAGES - 1) copy(all, count);
    if (low) round_low(all, low); // while the next stage is copied
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
      for (int j = 0; j < 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) sum[i][j][e] = 0.0f;
    lf_cp_async_wait<LF_BULK_STAGES - 2>();
    __syncthreads();
    int slot = 0;
    read(fa[0], fb[0], 0, 0);
#pragma unroll 1
    for (int p = low ? low - 1 : 0; p < count; p++) {
      lf_product at = lf_pick(all, p);
      if (p < low) at.k = LF_BULK_K, at.alpha = lf_pick(all, low).alpha; // all low products
#pragma unroll 1
      for (int left = at.k; left > 0; left -= LF_BULK_K) {
#pragma unroll
        for (int s = 0; s < 4; s++) {
          if (s == 3) { // the next stage has arrived, and all have read this one
            lf_cp_async_wait<LF_BULK_STAGES - 2>();
            __syncthreads();
            slot = slot == LF_BULK_STAGES - 1 ? 0 : slot + 1;
          }
          if (s < 3 || left > LF_BULK_K || p + 1 < count) read(fa[(s + 1) % 2], fb[(s + 1) % 2], slot, (s + 1) % 4);
          if (s == 0) copy(all, count);
#pragma unroll
          for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 8; j++) {
              int c = i % 2 ? 7 - j : j; // the last fragment is used again
              lf_mma_bf16_16816(sum[i][c], fa[s % 2][i], fb[s % 2][c]);
            }
        }
      }
      float next = p + 1 < count ? lf_pick(all, p + 1).alpha : 1.0f;
      if (next != at.alpha) scale(at.alpha / next);
    }
    lf_cp_async_wait_all();
  }

  LF_DEVICE void write(void* out, const float* bias, const void* addend, lf_mixed types) const {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < 8; r++) {
      int i = m0 + warp_m() + 8 * r + lane / 4;
      if (i >= m) continue;
      long long row = (long long)i * n;
#pragma unroll
      for (int c = 0; c < 8; c++) {
        int j = n0 + warp_n() + 8 * c + 2 * (lane % 4);
        if (j >= n) continue;
        float u = sum[r / 2][c][r % 2 * 2], v = sum[r / 2][c][r % 2 * 2 + 1];
        if (bias) u += bias[j], v += bias[j + 1];
        if (addend) {
          float2 x = lf_load_pair(types, LF_ADDEND, addend, row + j);
          u += x.x, v += x.y;
        }
        lf_store_pair(types, LF_OUT, out, row + j, u, v);
      }
    }
  }

  // Leaves the warp's sums in shared memory, in rows of LF_BULK_LEFT.
  LF_DEVICE const float* leave() const {
    __syncthreads(); // all have read the last stage
    int lane = threadIdx.x % 32;
    float* own = (float*)shared + threadIdx.x / 32 * 64 * LF_BULK_LEFT;
#pragma unroll
    for (int r = 0; r < 8; r++)
#pragma unroll
      for (int c = 0; c < 8; c++)
        *(float2*)(own + (8 * r + lane / 4) * LF_BULK_LEFT + 8 * c + 2 * (lane % 4)) = make_float2(sum[r / 2][c][r % 2 * 2], sum[r / 2][c][r % 2 * 2 + 1]);
    __syncwarp();
    return own;
  }

  // Calls f(at, x) for every four sums x of the warp, the elements of the output from at on.
  template <class F>
  LF_DEVICE void each(const F& f) const {
    const float* own = leave();
#pragma unroll 1
    for (int e = threadIdx.x % 32; e < 64 * 16; e += 32) {
      int r = e / 16, c = e % 16 * 4, i = m0 + warp_m() + r, j = n0 + warp_n() + c;
      if (i >= m || j >= n) continue;
      lf_pack<4> x;
      x.load(own + r * LF_BULK_LEFT + c);
      f((long long)i * n + j, x);
    }
  }
};

// The tile of this block.
template <int BN, bool B_ALONG_K>
LF_DEVICE void lf_bulk_open(lf_bulk<BN, B_ALONG_K>& tile, unsigned char* shared, int m, int n, int tiles_m, int tiles_n) {
  int group = blockIdx.x / (LF_BULK_GROUP * tiles_n), down = min(tiles_m - group * LF_BULK_GROUP, LF_BULK_GROUP),
      at = blockIdx.x - group * LF_BULK_GROUP * tiles_n;
  tile.shared = shared, tile.m = m, tile.n = n;
  tile.m0 = (group * LF_BULK_GROUP + at % down) * 128, tile.n0 = at / down * BN;
}

#define LF_GEMM_BF16(name, BN, B_ALONG_K, resident)                                                                                     \
  extern "C" __global__ void __launch_bounds__(BN, resident)                                                                           \
      gemm_bf16_##name##_##BN(void* out, const float* bias, const void* addend, int m, int n, int tiles_m, int tiles_n, int stored,    \
                              const int* rows, int first, int low, int count, LF_PRODUCTS) {                                           \
    LF_DYN_SHARED(unsigned char, shared);                                                                                              \
    lf_products all = LF_PRODUCTS_OF;                                                                                                  \
    lf_bulk<BN, B_ALONG_K> tile;                                                                                                       \
    lf_bulk_open(tile, shared, rows ? min(m, *rows - first) : m, n, tiles_m, tiles_n);                                                 \
    if (tile.m0 >= tile.m) return;                                                                                                     \
    tile.run(all, low, count);                                                                                                         \
    tile.write(out, bias, addend, {stored});                                                                                           \
  }                                                                                                                                    \
  LF_KERNEL(gemm_bf16_##name##_##BN)
LF_GEMM_BF16(nt, 128, true, 2);
LF_GEMM_BF16(nn, 128, false, 2);
LF_GEMM_BF16(nt, 256, true, 1);
LF_GEMM_BF16(nn, 256, false, 1);

// The second of the two products that a gated linear unit multiplies, and the unit: y = act(gate)·up, as in glu.cu. The
// product is rounded as it is stored before it is multiplied, so y has the bytes that separate kernels compute.
//
// Layout: x is the product, the gate if gates is set, otherwise up, and other is the
//   other of the two; all are [m, n]. out, which gets x, may be null. other and out may be
//   the memory of y, if their types are equal. Bits of stored: out, y and other are bf16.
// Traffic: as the product, and 4 bytes an element for other and y in bf16, which glu.cu reads and writes too: it reads
//   x again.
#define LF_GEMM_GLU(BN, resident)                                                                                                       \
  extern "C" __global__ void __launch_bounds__(BN, resident)                                                                           \
      gemm_bf16_glu_##BN(void* out, void* y, const void* other, int m, int n, int tiles_m, int tiles_n, int stored, int act, int gates, \
                         int low, int count, LF_PRODUCTS) {                                                                            \
    LF_DYN_SHARED(unsigned char, shared);                                                                                              \
    lf_products all = LF_PRODUCTS_OF;                                                                                                  \
    lf_bulk<BN, true> tile;                                                                                                            \
    lf_bulk_open(tile, shared, m, n, tiles_m, tiles_n);                                                                                \
    tile.run(all, low, count);                                                                                                         \
    lf_mixed types = {stored};                                                                                                         \
    tile.each([&](long long at, lf_pack<4>& x) { lf_bulk_glu(out, y, other, types, act, gates, at, x); });                             \
  }                                                                                                                                    \
  LF_KERNEL(gemm_bf16_glu_##BN)
LF_DEVICE void lf_bulk_glu(void* out, void* y, const void* other, lf_mixed types, int act, int gates, long long at, lf_pack<4>& x) {
  lf_pack<4> o;
  lf_load(types, 2, other, at, o);
#pragma unroll
  for (int k = 0; k < 4; k++) x.v[k] = lf_rounded(types, 0, x.v[k]);
  if (out) lf_store(types, 0, out, at, x);
#pragma unroll
  for (int k = 0; k < 4; k++) {
    float gate = gates ? x.v[k] : o.v[k], up = gates ? o.v[k] : x.v[k];
    x.v[k] = up * lf_act(act, gate);
  }
  lf_store(types, 1, y, at, x);
}
LF_GEMM_GLU(128, 2);
LF_GEMM_GLU(256, 1);

// The gradients of a gated linear unit whose own gradient is a product: dgate = dy·up·act'(gate) and dup = dy·act(gate).
//
// Layout: all are [m, n]; dgate and dup may be the memory of gate and up, if their types are
//   equal. Bits of stored: dgate, dup, gate and up are bf16, and dy is rounded to bf16.
// Traffic: as the product, and 8 bytes an element in bf16. dy is never in memory.
#define LF_GEMM_GLU_GRAD(BN, resident)                                                                                                  \
  extern "C" __global__ void __launch_bounds__(BN, resident)                                                                           \
      gemm_bf16_glu_grad_##BN(void* dgate, void* dup, const void* gate, const void* up, int m, int n, int tiles_m, int tiles_n,        \
                              int stored, int act, int low, int count, LF_PRODUCTS) {                                                  \
    LF_DYN_SHARED(unsigned char, shared);                                                                                              \
    lf_products all = LF_PRODUCTS_OF;                                                                                                  \
    lf_bulk<BN, false> tile;                                                                                                           \
    lf_bulk_open(tile, shared, m, n, tiles_m, tiles_n);                                                                                \
    tile.run(all, low, count);                                                                                                         \
    lf_mixed types = {stored};                                                                                                         \
    tile.each([&](long long at, lf_pack<4>& x) { lf_bulk_glu_grad(dgate, dup, gate, up, types, act, at, x); });                        \
  }                                                                                                                                    \
  LF_KERNEL(gemm_bf16_glu_grad_##BN)
LF_DEVICE void lf_bulk_glu_grad(void* dgate, void* dup, const void* gate, const void* up, lf_mixed types, int act, long long at, lf_pack<4>& dy) {
  lf_pack<4> g, u;
  lf_load(types, 2, gate, at, g), lf_load(types, 3, up, at, u);
#pragma unroll
  for (int k = 0; k < 4; k++) {
    lf_act_value a = lf_act_both(act, g.v[k]);
    float d = lf_rounded(types, 4, dy.v[k]);
    g.v[k] = d * u.v[k] * a.slope;
    u.v[k] = d * a.value;
  }
  lf_store(types, 0, dgate, at, g), lf_store(types, 1, dup, at, u);
}
LF_GEMM_GLU_GRAD(128, 2);
LF_GEMM_GLU_GRAD(256, 1);

// out = bf16(x) of one to four operands of any type, in memory of multiples of 8 elements. Operands in 8-bit floats
// may have scales of rows of row elements, a multiple of 8: out = bf16(scale · x).
//
// Grid: x a thread for 8 elements of the longest operand, y the operands. A thread reads
//   32 bytes of f32, 16 of f16 and 8 or 4 codes, and writes 16.
// Traffic: each operand once; bound by memory.
// Reference: for i { out[i] = bf16(x[i]) }
#define LF_PACKED(i) lf_bf16 *out##i, const unsigned char *x##i, long long size##i, int flags##i, const float *scale##i, int row##i
extern "C" __global__ void __launch_bounds__(256) gemm_pack(LF_PACKED(0), LF_PACKED(1), LF_PACKED(2), LF_PACKED(3)) {
  LF_SHARED(float, books, [LF_BOOKS]);
  lf_open_books(books);
  __syncthreads();
  lf_bf16* out = out0;
  const unsigned char* x = x0;
  const float* scales = scale0;
  long long size = size0, i = (blockIdx.x * 256LL + threadIdx.x) * 8;
  int flags = flags0, row = row0;
  if (blockIdx.y == 1) out = out1, x = x1, size = size1, flags = flags1, scales = scale1, row = row1;
  if (blockIdx.y == 2) out = out2, x = x2, size = size2, flags = flags2, scales = scale2, row = row2;
  if (blockIdx.y == 3) out = out3, x = x3, size = size3, flags = flags3, scales = scale3, row = row3;
  if (i >= size) return;
  int way = LF_WAY(flags), kind = LF_KIND(flags);
  uint4 v;
  if (way == LF_COPY) {
    v = *(const uint4*)(x + 2 * i);
  } else if (way == LF_WIDE && kind == LF_KIND_F32) {
    v = lf_pack8(*(const float4*)(x + 4 * i), *(const float4*)(x + 4 * i + 16));
  } else if (way == LF_WIDE && kind == LF_KIND_F16) {
    uint4 w = *(const uint4*)(x + 2 * i);
    float2 a = lf_unpack_f16(w.x), b = lf_unpack_f16(w.y), c = lf_unpack_f16(w.z), d = lf_unpack_f16(w.w);
    v = make_uint4(lf_pack_bf16(a.x, a.y), lf_pack_bf16(b.x, b.y), lf_pack_bf16(c.x, c.y), lf_pack_bf16(d.x, d.y));
  } else if (way == LF_WIDE && kind == LF_KIND_Q8) {
    const unsigned char* block = x + (i >> 6) * 68;
    const unsigned* codes = (const unsigned*)(block + (i & 63));
    float scale = *(const float*)(block + 64);
    v = lf_pack8(lf_codes8(codes[0], scale), lf_codes8(codes[1], scale));
  } else if (kind == LF_KIND_F8) {
    float scale = 1.0f;
    if (scales) {
      int at = (int)(i >> 32 ? i / row : (unsigned)i / (unsigned)row);
      scale = scales[lf_scale_at(flags, at, (int)(i - (long long)at * row), row)];
    }
    unsigned w[2];
#pragma unroll
    for (int j = 0; j < 2; j++) w[j] = way == LF_WIDE ? *(const unsigned*)(x + i + 4 * j) : lf_word32(x + i + 4 * j);
    v = lf_pack8(lf_codes_f8(w[0], scale), lf_codes_f8(w[1], scale));
  } else if (way == LF_WIDE) {
    const unsigned char* block = x + (i >> 6) * 36;
    const unsigned* codes = (const unsigned*)(block + (i & 31));
    float scale = *(const float*)(block + 32);
    int shift = (int)(i >> 5 & 1) * 4;
    v = lf_pack8(lf_codes4(codes[0] >> shift, scale, lf_book(kind, books)), lf_codes4(codes[1] >> shift, scale, lf_book(kind, books)));
  } else {
    float e[8];
#pragma unroll
    for (int j = 0; j < 8; j++) e[j] = lf_element(kind, x, i + j, books);
    v = make_uint4(lf_pack_bf16(e[0], e[1]), lf_pack_bf16(e[2], e[3]), lf_pack_bf16(e[4], e[5]), lf_pack_bf16(e[6], e[7]));
  }
  *(uint4*)(out + i) = v;
}
LF_KERNEL(gemm_pack);

#ifdef LF_RACE
#include "../sim/test/race.h"
#define LF_NO_PRODUCT nullptr, nullptr, 0, 0u, 0.0f
#define LF_NO_PRODUCTS LF_NO_PRODUCT, LF_NO_PRODUCT, LF_NO_PRODUCT, LF_NO_PRODUCT, LF_NO_PRODUCT, LF_NO_PRODUCT
#define LF_BYTES(v) (const unsigned char*)v.data()

LF_RACE_CASE(gemm_pack) {
  auto x = lf_race_noise<float>(2100);
  auto y = lf_race_noise<unsigned char>(36 * 8);
  std::vector<lf_bf16> px(2096), py(512), pz(280);
  lf_race_launch(gemm_pack, {2, 3}, {256}, 0, px.data(), LF_BYTES(x), 2096LL, LF_WIDE, nullptr, 0, py.data(), LF_BYTES(y), 512LL,
                 LF_WIDE | LF_KIND_NF4 << 2, nullptr, 0, pz.data(), LF_BYTES(y), 280LL, LF_KIND_F8 << 2, x.data(), 56, nullptr, nullptr, 0LL, 0,
                 nullptr, 0);
}

// Two tiles of two products, then with a low one, and two of one.
LF_RACE_CASE(gemm_bf16) {
  const int m = 136, n = 72, k = 264, r = 8;
  auto x = lf_race_noise<lf_bf16>(m * k), h = lf_race_noise<lf_bf16>(m * r), b = lf_race_noise<lf_bf16>(n * r), w = lf_race_noise<lf_bf16>(n * k);
  auto low = lf_race_noise<float>(m * r);
  std::vector<float> out(m * n);
  lf_race_launch(gemm_bf16_nt_128, {2}, {128}, lf_bulk<128, true>::bytes, out.data(), nullptr, nullptr, m, n, 2, 1, 0, nullptr, 0, 0, 2, 0LL, 0LL,
                 LF_BYTES(x), LF_BYTES(w), k, 0u, 1.0f, LF_BYTES(h), LF_BYTES(b), r, 0u, 0.5f, LF_NO_PRODUCTS);
  lf_race_launch(gemm_bf16_nt_128, {2}, {128}, lf_bulk<128, true>::bytes, out.data(), nullptr, nullptr, m, n, 2, 1, 0, nullptr, 0, 1, 2, 0LL, 0LL,
                 LF_BYTES(low), LF_BYTES(low), r, 0u, 0.5f, LF_BYTES(x), LF_BYTES(w), k, 0u, 1.0f, LF_NO_PRODUCTS);
  lf_race_launch(gemm_bf16_nt_256, {2}, {256}, lf_bulk<256, true>::bytes, out.data(), nullptr, nullptr, m, n, 2, 1, 0, nullptr, 0, 0, 1, 0LL, 0LL,
                 LF_BYTES(x), LF_BYTES(w), k, 0u, 1.0f, LF_NO_PRODUCT, LF_NO_PRODUCTS);
  lf_race_launch(gemm_bf16_nn_128, {2}, {128}, lf_bulk<128, false>::bytes, out.data(), nullptr, out.data(), m, n, 2, 1, 0, nullptr, 0, 0, 1, 0LL, 0LL,
                 LF_BYTES(x), LF_BYTES(w), k, 0u, 1.0f, LF_NO_PRODUCT, LF_NO_PRODUCTS);
  lf_race_launch(gemm_bf16_nn_256, {2}, {256}, lf_bulk<256, false>::bytes, out.data(), nullptr, out.data(), m, n, 2, 1, 0, nullptr, 0, 0, 1, 0LL, 0LL,
                 LF_BYTES(x), LF_BYTES(w), k, 0u, 1.0f, LF_NO_PRODUCT, LF_NO_PRODUCTS);
}
LF_RACE_CASE(gemm_bf16_glu) {
  const int m = 136, n = 72, k = 264;
  auto x = lf_race_noise<lf_bf16>(m * k), w = lf_race_noise<lf_bf16>(n * k), gate = lf_race_noise<lf_bf16>(m * n), up = gate;
  lf_race_launch(gemm_bf16_glu_128, {2}, {128}, lf_bulk<128, true>::bytes, up.data(), gate.data(), gate.data(), m, n, 2, 1, 7, 0, 0, 0, 1, 0LL, 0LL,
                 LF_BYTES(x), LF_BYTES(w), k, 0u, 1.0f, LF_NO_PRODUCT, LF_NO_PRODUCTS);
  lf_race_launch(gemm_bf16_glu_256, {2}, {256}, lf_bulk<256, true>::bytes, up.data(), gate.data(), gate.data(), m, n, 2, 1, 7, 0, 0, 0, 1, 0LL, 0LL,
                 LF_BYTES(x), LF_BYTES(w), k, 0u, 1.0f, LF_NO_PRODUCT, LF_NO_PRODUCTS);
  lf_race_launch(gemm_bf16_glu_grad_128, {2}, {128}, lf_bulk<128, false>::bytes, gate.data(), up.data(), gate.data(), up.data(), m, n, 2, 1, 15, 1, 0, 1,
                 0LL, 0LL, LF_BYTES(x), LF_BYTES(w), k, 0u, 1.0f, LF_NO_PRODUCT, LF_NO_PRODUCTS);
  lf_race_launch(gemm_bf16_glu_grad_256, {2}, {256}, lf_bulk<256, false>::bytes, gate.data(), up.data(), gate.data(), up.data(), m, n, 2, 1, 15, 1, 0, 1,
                 0LL, 0LL, LF_BYTES(x), LF_BYTES(w), k, 0u, 1.0f, LF_NO_PRODUCT, LF_NO_PRODUCTS);
}
#endif

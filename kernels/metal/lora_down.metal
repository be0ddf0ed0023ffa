// The rank-sized half of a LoRA linear, h = dropout(x) Aᵀ, and its gradient,
// dA = dhᵀ dropout(x), with the mask drawn again in each: dropped inputs and masks
// never lie in memory.
//
// Layout: row major. x [n, width] f32 or bf16, A [rank, width] and dh [n, rank] f32, f16
//   or bf16. Element i of x is kept if word i of the random stream is at least threshold
//   (package internal/philox: bit for bit), and multiplied by scale = 1/(1-p).
//   Up to three products of one x, such as those of q, k and v, have operands of the same
//   sizes and a stream of random words each; the pointers of the others are not read.
// Grid: x as gemm_mma, tiles for each part of the long axis; y products. Partial sums
//   [products, parts, m, n] are for lora_down_sum. *_mma: 128 threads, 64 by 64, operands rounded
//   to bfloat16; *_f32_R: 256 threads, 64 rows of x (or columns, of dA) by R of rank.
// Traffic: x once for each 64 of the rank, and ten rounds of Philox for 16 bytes of
//   it. Parts of a short and wide output keep enough reads under way.
// Reference: for i, r { h[i, r] = sum over l of drop(x)[i, l] A[r, l] }
//            for r, l { dA[r, l] = sum over i of dh[i, r] drop(x)[i, l] }
#include "parts.h"
#include "tile.h"

struct lora_down_args {
  LF_ARGS;
  int m, n, k;
  uint flags, flags1, flags2;
  int tiles_m, tiles_n, parts;
  uint stream, stream1, stream2, threshold;
  float scale;
};

#define LF_DOWN_PARAMS                                                                                                  \
  device float* out [[buffer(0)]], device float* out1 [[buffer(1)]], device float* out2 [[buffer(2)]],                  \
      device float* partial [[buffer(3)]], device const uchar* a [[buffer(4)]], device const uchar* a1 [[buffer(5)]],    \
      device const uchar* a2 [[buffer(6)]], device const uchar* b [[buffer(7)]], device const uchar* b1 [[buffer(8)]],   \
      device const uchar* b2 [[buffer(9)]], device const uint* key [[buffer(10)]], constant lora_down_args& args [[buffer(11)]], LF_THREAD

// That of the product that a group of threads computes.
#define LF_OWN(of, name) (t.group.y == 0 ? of name : t.group.y == 1 ? of name##1 : of name##2)

// The operands of one product.
struct lf_down {
  device float *out, *partial;
  device const uchar *a, *b;
  uint flags;
  bool wide_a, wide_b; // aligned to 16 bytes
  lf_drop drop;
};

#define LF_DOWN_OPERANDS                                                                                                             \
  {LF_OWN(, out), partial + (long)t.group.y * args.parts * args.m * args.n, LF_OWN(, a), LF_OWN(, b), LF_OWN(args., flags),          \
   LF_WIDE_ALL(args, 16u << t.group.y), LF_WIDE_ALL(args, 128u << t.group.y), {key, LF_OWN(args., stream), args.threshold, args.scale}}

template <bool GRAD>
inline void lf_down_mma(lf_thread t, threadgroup uint4* shared, lf_down p, constant lora_down_args& args) {
  int m = args.m, n = args.n, k = args.k, parts = args.parts;
  int tiles = args.tiles_m * args.tiles_n, part = (int)t.group.x / tiles, ti, tj;
  lf_tile_order((int)t.group.x % tiles, args.tiles_m, args.tiles_n, ti, tj);
  lf_products all = lf_one_product(p.a, p.b, k, p.flags);
  lf_tile<lf_cells_bf16, !GRAD, GRAD> tile;
  tile.run(t, shared, all, lf_part(k, LF_TILE_K, part, parts), lf_part(k, LF_TILE_K, part + 1, parts), ti * 64, tj * 64, m, n, p.drop);
  lf_mixed f32 = {0};
  tile.write(t, shared, f32, parts == 1 ? p.out : p.partial, false, p.out, false, p.out, (long)part * m * n, ti * 64, tj * 64, m, n);
}

#define LF_DOWN_MMA(name, GRAD)                      \
  LF_KERNEL(128) name(LF_DOWN_PARAMS) {              \
    LF_BEGIN_OF(args);                               \
    threadgroup uint4 shared[lf_cells_bf16::words];  \
    lf_down p = LF_DOWN_OPERANDS;                    \
    lf_down_mma<GRAD>(t, shared, p, args);           \
  }
LF_DOWN_MMA(lora_down_mma, false)
LF_DOWN_MMA(lora_down_grad_mma, true)

#define LF_K 32 // elements of the k axis in threadgroup memory

// Four elements of a row of the operand, with dropout if DROP; zeros behind its end.
template <bool DROP>
inline float4 lf_four(device const uchar* p, int kind, bool wide, long at, int left, lf_drop drop) {
  if (left <= 0) return float4(0.0f);
  float4 v = float4(0.0f);
  if (kind == LF_KIND_F32 && left >= 4 && wide && (at & 3) == 0) {
    v = *(device const float4*)(p + 4 * at);
  } else {
    v.x = lf_element(kind, p, at);
    if (left > 1) v.y = lf_element(kind, p, at + 1);
    if (left > 2) v.z = lf_element(kind, p, at + 2);
    if (left > 3) v.w = lf_element(kind, p, at + 3);
  }
  return DROP ? lf_dropped(drop, at, v) : v;
}

// Fills tile[l][i] with rows first+i of op(M) at k0+l, R of them. wide: p is
// aligned to 16 bytes.
template <int R, bool ALONG_K, bool DROP>
inline void lf_fill(lf_thread t, threadgroup float (*tile)[R + 4], device const uchar* p, int kind, bool wide, int first, int rows, int k0,
                    int k, lf_drop drop) {
  for (int e = (int)t.index; e < R * LF_K / 4; e += 256) {
    if (ALONG_K) {
      int i = e / (LF_K / 4), l = e % (LF_K / 4) * 4;
      float4 v = lf_four<DROP>(p, kind, wide, (long)(first + i) * k + k0 + l, first + i < rows ? k - k0 - l : 0, drop);
      tile[l][i] = v.x, tile[l + 1][i] = v.y, tile[l + 2][i] = v.z, tile[l + 3][i] = v.w;
    } else {
      int l = e / (R / 4), i = e % (R / 4) * 4;
      float4 v = lf_four<DROP>(p, kind, wide, (long)(k0 + l) * rows + first + i, k0 + l < k ? rows - first - i : 0, drop);
      tile[l][i] = v.x, tile[l][i + 1] = v.y, tile[l][i + 2] = v.z, tile[l][i + 3] = v.w;
    }
  }
}

// out = op(A) op(B), both [k, …] if GRAD, with dropout of B, else both along k, with
// dropout of A. A thread has BM/16 by BN/16 of the tile.
template <int BM, int BN, bool GRAD>
inline void lf_down_f32(lf_thread t, threadgroup float (*sa)[BM + 4], threadgroup float (*sb)[BN + 4], lf_down p,
                        constant lora_down_args& args) {
  const int tm = BM / 16, tn = BN / 16;
  int tiles = args.tiles_m * args.tiles_n, part = (int)t.group.x / tiles, ti, tj;
  lf_tile_order((int)t.group.x % tiles, args.tiles_m, args.tiles_n, ti, tj);
  int m0 = ti * BM, n0 = tj * BN, ty = (int)t.index / 16, tx = (int)t.index % 16;
  int end = lf_part(args.k, LF_K, part + 1, args.parts);
  float sum[tm][tn] = {};
  for (int s = lf_part(args.k, LF_K, part, args.parts); s < end; s++) {
    lf_barrier(); // the tiles before have been read
    lf_fill<BM, !GRAD, !GRAD>(t, sa, p.a, LF_KIND(p.flags), p.wide_a, m0, args.m, s * LF_K, args.k, p.drop);
    lf_fill<BN, !GRAD, GRAD>(t, sb, p.b, LF_KIND(p.flags >> 8), p.wide_b, n0, args.n, s * LF_K, args.k, p.drop);
    lf_barrier();
    for (int l = 0; l < LF_K; l++) {
      float x[tm], y[tn];
      for (int i = 0; i < tm; i++) x[i] = sa[l][ty + 16 * i];
      for (int j = 0; j < tn; j++) y[j] = sb[l][tx + 16 * j];
      for (int i = 0; i < tm; i++)
        for (int j = 0; j < tn; j++) sum[i][j] = fma(x[i], y[j], sum[i][j]);
    }
  }
  device float* to = args.parts == 1 ? p.out : p.partial + (long)part * args.m * args.n;
  for (int i = 0; i < tm; i++)
    for (int j = 0; j < tn; j++) {
      int row = m0 + ty + 16 * i, col = n0 + tx + 16 * j;
      if (row < args.m && col < args.n) to[(long)row * args.n + col] = sum[i][j];
    }
}

#define LF_DOWN_F32(name, BM, BN, GRAD)                \
  LF_KERNEL(256) name(LF_DOWN_PARAMS) {                \
    LF_BEGIN_OF(args);                                 \
    threadgroup float sa[LF_K][BM + 4];                \
    threadgroup float sb[LF_K][BN + 4];                \
    lf_down p = LF_DOWN_OPERANDS;                      \
    lf_down_f32<BM, BN, GRAD>(t, sa, sb, p, args);     \
  }
LF_DOWN_F32(lora_down_f32_16, 64, 16, false)
LF_DOWN_F32(lora_down_f32_64, 64, 64, false)
LF_DOWN_F32(lora_down_grad_f32_16, 16, 64, true)
LF_DOWN_F32(lora_down_grad_f32_64, 64, 64, true)

struct lora_down_sum_args {
  LF_ARGS;
  long size;
  int parts;
};

// Adds up the parts of the kernels above: out = addend + the sum over s of partial[product, s, i], in the order of s. The
// addend may be absent.
LF_KERNEL(256) lora_down_sum(device float* out [[buffer(0)]], device float* out1 [[buffer(1)]], device float* out2 [[buffer(2)]],
                             device const float* partial [[buffer(3)]], device const float* addend [[buffer(4)]],
                             device const float* addend1 [[buffer(5)]], device const float* addend2 [[buffer(6)]],
                             constant lora_down_sum_args& args [[buffer(7)]], LF_THREAD) {
  LF_BEGIN_OF(args);
  long i = (long)t.group.x * 256 + t.index;
  if (i >= args.size) return;
  device const float* p = partial + (long)t.group.y * args.parts * args.size + i;
  device const float* more = LF_OWN(, addend);
  float sum = 0.0f;
  for (int s = 0; s < args.parts; s++) sum += p[s * args.size];
  if (LF_BOUND(args, 4 + t.group.y)) sum += more[i];
  LF_OWN(, out)[i] = sum;
}

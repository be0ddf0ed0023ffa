// Elementwise operations: out[i] = f(x[i], y[i]).
//
// Layout: values are contiguous; an operand that is repeated has strides of 0
//   over the output's shape [*, d1, d2, d3], whose axes the host has joined
//   where it could. Without repetition d1 = d2 = d3 = 1 and the stride is 1.
// Grid: a block of 256 threads for 1024 elements.
// Traffic: each operand and the output once; bound by memory.
// Reference: for i { out[i] = f(x[place(i)], y[place(i)]) }
// An operand that is not repeated may share the memory of the output.
// Kernels that end in _stored take operands of f32 or bf16, by the bits of stored, the
// output first; four elements at a time where none is repeated and all are aligned.
#include "mixed.h"

LF_ENTRY(LF_THREADS, fill_b4, ((uint, out)), ((uint, value), (long, n))) {
  LF_EACH(i, n) out[i] = value;
}
LF_ENTRY(LF_THREADS, fill_b1, ((uchar, out)), ((int, value), (long, n))) {
  LF_EACH(i, n) out[i] = (uchar)value;
}

// The index along an axis of count elements, each of which spans inner.
LF_ENTRY(LF_THREADS, iota_i32, ((int, out)), ((long, n), (long, inner), (long, count))) {
  if (n >> 32 == 0) { // then all of them are numbers of 32 bits
    LF_EACH(i, n) out[i] = (int)((uint)i / (uint)inner % (uint)count);
  } else {
    LF_EACH(i, n) out[i] = (int)(i / inner % count);
  }
}

#define LF_UNARY(name, f)                                                                            \
  struct lf_unary_##name {                                                                           \
    static LF_DEVICE float of(float v) { return f; }                                                 \
  };                                                                                                 \
  LF_ENTRY(LF_THREADS, unary_##name##_f32, ((float, out), (const float, x)), ((long, n))) {          \
    LF_EACH(i, n) out[i] = lf_unary_##name::of(x[i]);                                                \
  }
LF_UNARY(neg, -v)
LF_UNARY(exp, lf_exp(v))
LF_UNARY(log, lf_log(v))
LF_UNARY(sqrt, lf_sqrt(v))
LF_UNARY(rsqrt, 1.0f / lf_sqrt(v))
LF_UNARY(reciprocal, 1.0f / v)
LF_UNARY(tanh, lf_tanh(v))
LF_UNARY(sigmoid, 1.0f / (1.0f + lf_exp(-v)))
LF_UNARY(erf, lf_erf(v))
LF_UNARY(sin, lf_sin(v))
LF_UNARY(cos, lf_cos(v))
LF_UNARY(abs, lf_abs(v))
LF_UNARY(isfinite, (lf_bits(v) & 0x7f800000u) != 0x7f800000u ? 1.0f : 0.0f)

template <class F, int V>
LF_DEVICE void lf_unary_mixed(lf_thread t, LF_GLOBAL void* out, LF_GLOBAL const void* x, long n, lf_mixed types) {
  LF_GROUPS(V, i, n) {
    lf_pack<V> v;
    lf_load(types, 1, x, i, v);
#pragma unroll
    for (int k = 0; k < V; k++) v.v[k] = F::of(v.v[k]);
    lf_store(types, 0, out, i, v);
  }
}
#define LF_UNARY_STORED(name)                                                                                 \
  LF_ENTRY(LF_THREADS, unary_##name##_stored, ((uchar, out), (const uchar, x)), ((long, n), (int, stored))) {   \
    lf_mixed types = {stored};                                                                                \
    if ((n & 3) == 0 && LF_ALIGNED(out) && LF_ALIGNED(x))                                                     \
      lf_unary_mixed<lf_unary_##name, 4>(t, out, x, n, types);                                                \
    else                                                                                                      \
      lf_unary_mixed<lf_unary_##name, 1>(t, out, x, n, types);                                                \
  }
LF_UNARY_STORED(neg)
LF_UNARY_STORED(exp)
LF_UNARY_STORED(log)
LF_UNARY_STORED(sqrt)
LF_UNARY_STORED(rsqrt)
LF_UNARY_STORED(reciprocal)
LF_UNARY_STORED(tanh)
LF_UNARY_STORED(sigmoid)
LF_UNARY_STORED(erf)
LF_UNARY_STORED(abs)

// NaN wins, and of two zeros that of the right sign.
LF_DEVICE float lf_max(float a, float b) {
  if (a != a) return a;
  if (b != b) return b;
  if (a == b) return lf_from_bits(lf_bits(a) & lf_bits(b));
  return a > b ? a : b;
}
LF_DEVICE float lf_min(float a, float b) {
  if (a != a) return a;
  if (b != b) return b;
  if (a == b) return lf_from_bits(lf_bits(a) | lf_bits(b));
  return a < b ? a : b;
}
LF_DEVICE int lf_max(int a, int b) { return a > b ? a : b; }
LF_DEVICE int lf_min(int a, int b) { return a < b ? a : b; }
LF_DEVICE uint lf_max(uint a, uint b) { return a > b ? a : b; }
LF_DEVICE uint lf_min(uint a, uint b) { return a < b ? a : b; }

// Integers wrap around as unsigned numbers do.
LF_DEVICE int lf_add(int a, int b) { return (int)((uint)a + (uint)b); }
LF_DEVICE int lf_sub(int a, int b) { return (int)((uint)a - (uint)b); }
LF_DEVICE int lf_mul(int a, int b) { return (int)((uint)a * (uint)b); }
template <class T>
LF_DEVICE T lf_add(T a, T b) { return a + b; }
template <class T>
LF_DEVICE T lf_sub(T a, T b) { return a - b; }
template <class T>
LF_DEVICE T lf_mul(T a, T b) { return a * b; }

#define LF_PAIR(name, O, T, f)                                                                       \
  LF_ENTRY(LF_THREADS, name, ((O, out), (const T, x), (const T, y)),                                 \
           ((long, n), (int, d1), (int, d2), (int, d3), LF_STRIDES(x), LF_STRIDES(y))) {             \
    LF_EACH(i, n) {                                                                                  \
      lf_place p = lf_split(i, d1, d2, d3);                                                          \
      T a = x[LF_AT(p, x)], b = y[LF_AT(p, y)];                                                      \
      out[i] = f;                                                                                    \
    }                                                                                                \
  }
#define LF_BINARY(suffix, T)                           \
  LF_PAIR(binary_add_##suffix, T, T, lf_add(a, b))     \
  LF_PAIR(binary_sub_##suffix, T, T, lf_sub(a, b))     \
  LF_PAIR(binary_mul_##suffix, T, T, lf_mul(a, b))     \
  LF_PAIR(binary_max_##suffix, T, T, lf_max(a, b))     \
  LF_PAIR(binary_min_##suffix, T, T, lf_min(a, b))     \
  LF_PAIR(compare_less_##suffix, uchar, T, a < b)          \
  LF_PAIR(compare_lessequal_##suffix, uchar, T, a <= b)    \
  LF_PAIR(compare_equal_##suffix, uchar, T, a == b)        \
  LF_PAIR(compare_notequal_##suffix, uchar, T, a != b)     \
  LF_PAIR(compare_greaterequal_##suffix, uchar, T, a >= b) \
  LF_PAIR(compare_greater_##suffix, uchar, T, a > b)
LF_BINARY(f32, float)
LF_BINARY(i32, int)
LF_BINARY(u32, uint)
LF_PAIR(binary_div_f32, float, float, a / b)

#define LF_PAIR_STORED(name, f)                                                                      \
  LF_ENTRY(LF_THREADS, name, ((uchar, out), (const uchar, x), (const uchar, y)),                        \
           ((long, n), (int, d1), (int, d2), (int, d3), LF_STRIDES(x), LF_STRIDES(y), (int, stored))) { \
    lf_mixed types = {stored};                                                                       \
    if ((d1 | d2 | d3) == 1 && x0 == 1 && y0 == 1 && (n & 3) == 0 && LF_ALIGNED(out) && LF_ALIGNED(x) && LF_ALIGNED(y)) { \
      LF_GROUPS(4, i, n) {                                                                           \
        lf_pack<4> v, w;                                                                             \
        lf_load(types, 1, x, i, v), lf_load(types, 2, y, i, w);                                      \
        for (int k = 0; k < 4; k++) {                                                                \
          float a = v.v[k], b = w.v[k];                                                              \
          v.v[k] = f;                                                                                \
        }                                                                                            \
        lf_store(types, 0, out, i, v);                                                               \
      }                                                                                              \
      return;                                                                                        \
    }                                                                                                \
    LF_EACH(i, n) {                                                                                  \
      lf_place p = lf_split(i, d1, d2, d3);                                                          \
      lf_pack<1> v, w;                                                                               \
      lf_load(types, 1, x, LF_AT(p, x), v), lf_load(types, 2, y, LF_AT(p, y), w);                    \
      float a = v.v[0], b = w.v[0];                                                                  \
      v.v[0] = f;                                                                                    \
      lf_store(types, 0, out, i, v);                                                                 \
    }                                                                                                \
  }
LF_PAIR_STORED(binary_add_stored, a + b)
LF_PAIR_STORED(binary_sub_stored, a - b)
LF_PAIR_STORED(binary_mul_stored, a * b)
LF_PAIR_STORED(binary_div_stored, a / b)
LF_PAIR_STORED(binary_max_stored, lf_max(a, b))
LF_PAIR_STORED(binary_min_stored, lf_min(a, b))

// out = c ? x : y, on the bits of elements.
#define LF_WHERE(name, T)                                                                            \
  LF_ENTRY(LF_THREADS, name, ((T, out), (const uchar, c), (const T, x), (const T, y)),               \
           ((long, n), (int, d1), (int, d2), (int, d3), LF_STRIDES(c), LF_STRIDES(x), LF_STRIDES(y))) { \
    LF_EACH(i, n) {                                                                                  \
      lf_place p = lf_split(i, d1, d2, d3);                                                          \
      out[i] = c[LF_AT(p, c)] ? x[LF_AT(p, x)] : y[LF_AT(p, y)];                                     \
    }                                                                                                \
  }
LF_WHERE(where_b4, uint)
LF_WHERE(where_b1, uchar)

// Casts between f32 and the other element types: rounded once, to nearest, ties
// to even, with the bits of package tensor; from quantised blocks, code times
// scale.
//
// Layout: contiguous; quantised types in blocks of 64 elements.
// Grid: a threadgroup of 256 threads for 1024 elements.
// Traffic: the operand and the output once; bound by memory.
// Reference: for i { out[i] = T(x[i]) }
#include "element.h"

struct cast_args {
  LF_ARGS;
  long n;
};
#define LF_CAST(name)                                                                                        \
  LF_KERNEL(LF_THREADS) cast_##name##_f32(device float* out [[buffer(0)]],                                   \
                                          device const lf_as_##name::raw* x [[buffer(1)]],                   \
                                          constant cast_args& a [[buffer(2)]], LF_THREAD) {                  \
    LF_BEGIN;                                                                                                \
    LF_EACH(i, a.n) out[i] = lf_as_##name::get(x[i]);                                                        \
  }                                                                                                          \
  LF_KERNEL(LF_THREADS) cast_f32_##name(device lf_as_##name::raw* out [[buffer(0)]],                         \
                                        device const float* x [[buffer(1)]],                                 \
                                        constant cast_args& a [[buffer(2)]], LF_THREAD) {                    \
    LF_BEGIN;                                                                                                \
    LF_EACH(i, a.n) out[i] = lf_as_##name::put(x[i]);                                                        \
  }
LF_CAST(bool)
LF_CAST(u8)
LF_CAST(i8)
LF_CAST(u16)
LF_CAST(i16)
LF_CAST(u32)
LF_CAST(i32)
LF_CAST(u64)
LF_CAST(i64)
LF_CAST(bf16)
LF_CAST(f16)
LF_CAST(f64)
LF_CAST(f8_e5m2)
LF_CAST(f8_e4m3)

#define LF_CAST_BLOCKS(name, element)                                                                        \
  LF_KERNEL(LF_THREADS) cast_##name##_f32(device float* out [[buffer(0)]], device const uchar* x [[buffer(1)]], \
                                          constant cast_args& a [[buffer(2)]], LF_THREAD) {                  \
    LF_BEGIN;                                                                                                \
    LF_EACH(i, a.n) out[i] = element;                                                                        \
  }
LF_CAST_BLOCKS(q8, lf_q8(x, i))
LF_CAST_BLOCKS(nf4, lf_q4(x, i, lf_nf4_book))
LF_CAST_BLOCKS(fp4, lf_q4(x, i, lf_fp4_book))

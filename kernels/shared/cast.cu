// Casts between f32 and the other element types: rounded once, to nearest, ties
// to even, with the bits of package tensor; from quantised blocks, code times
// scale. dequantize multiplies matrices [rows, cols] by a scale for each
// block_rows by block_cols.
//
// Layout: contiguous; quantised types in blocks of 64 elements.
// Grid: a block of 256 threads for 1024 elements; of dequantize, x rows of all
//   matrices, y 1024 columns.
// Traffic: the operand and the output once; bound by memory.
// Reference: for i { out[i] = T(x[i]) }
//            for i, j { out[i, j] = x[i, j] · scale[i / block_rows, j / block_cols] }
#include "element.h"

#define LF_CAST(name)                                                                                            \
  LF_ENTRY(LF_THREADS, cast_##name##_f32, ((float, out), (const lf_as_##name::raw, x)), ((long, n))) {           \
    LF_EACH(i, n) out[i] = lf_as_##name::get(x[i]);                                                              \
  }                                                                                                              \
  LF_ENTRY(LF_THREADS, cast_f32_##name, ((lf_as_##name::raw, out), (const float, x)), ((long, n))) {             \
    LF_EACH(i, n) out[i] = lf_as_##name::put(x[i]);                                                              \
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

LF_ENTRY(LF_THREADS, cast_q8_f32, ((float, out), (const uchar, x)), ((long, n))) {
  LF_EACH(i, n) out[i] = lf_q8(x, i);
}

// The threads of a warp look up different codes, for which shared memory is faster than
// constant memory.
#define LF_CAST4(name)                                                                                           \
  LF_ENTRY_SHARED(LF_THREADS, cast_##name##_f32, ((float, book, 16)), ((float, out), (const uchar, x)), ((long, n))) { \
    if (t.index < 16) book[t.index] = lf_##name##_book[t.index];                                                 \
    lf_barrier();                                                                                                \
    LF_EACH(i, n) out[i] = lf_q4(x, i, book);                                                                    \
  }
LF_CAST4(nf4)
LF_CAST4(fp4)

LF_ENTRY(LF_THREADS, dequantize_f8_e4m3_f32, ((float, out), (const uchar, x), (const float, scale)),
         ((int, rows), (int, cols), (int, block_rows), (int, block_cols))) {
  int row = (int)t.group.x, end = min(cols, (int)(t.group.y + 1) * LF_BLOCK);
  int down = (rows + block_rows - 1) / block_rows, across = (cols + block_cols - 1) / block_cols;
  LF_GLOBAL const float* own = scale + (long)(row / rows * down + row % rows / block_rows) * across;
  for (int j = (int)(t.group.y * LF_BLOCK + t.index); j < end; j += LF_THREADS)
    out[(long)row * cols + j] = lf_as_f8_e4m3::get(x[(long)row * cols + j]) * own[j / block_cols];
}

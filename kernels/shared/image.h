// Images [samples, height, width, c] as a convolution reads them: as a matrix with a row for
// each pixel of the result and kh·kw·c columns, which lies nowhere in memory.
#pragma once

#include "mixed.h"

// The pixels that a row is made of: the number of the image rows before those of its sample,
// and the first row and column, which may lie outside.
struct lf_window {
  long first;
  int y, x;
};

// x is operand 1 of types.
struct lf_image {
  LF_GLOBAL const void* x;
  lf_mixed types;
  int height, width, c, out_height, out_width, kernel_width, stride, top, left;
  bool fours; // four channels can be read at once

  // The window of row r of the matrix.
  LF_DEVICE lf_window at(int r) const {
    int column = r % out_width, row = r / out_width;
    lf_window w = {(long)(row / out_height) * height, row % out_height * stride - top, column * stride - left};
    return w;
  }

  // The place in x of column k of a row, or -1 outside of the image.
  LF_DEVICE long find(LF_PRIVATE const lf_window& w, int k) const {
    int tap = k / c, y = w.y + tap / kernel_width, z = w.x + tap % kernel_width;
    if (y < 0 || y >= height || z < 0 || z >= width) return -1;
    return ((w.first + y) * width + z) * c + (k - tap * c);
  }

  // Column k of a row; zero outside of the image.
  LF_DEVICE float one(LF_PRIVATE const lf_window& w, int k) const {
    long i = find(w, k);
    return i < 0 ? 0.0f : lf_load(types, 1, x, i);
  }

  // Columns k to k+3 of a row, zeros from column end on.
  LF_DEVICE float4 four(LF_PRIVATE const lf_window& w, int k, int end) const {
    if (k >= end) return make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (!fours)
      return make_float4(one(w, k), k + 1 < end ? one(w, k + 1) : 0.0f, k + 2 < end ? one(w, k + 2) : 0.0f, k + 3 < end ? one(w, k + 3) : 0.0f);
    long i = find(w, k);
    if (i < 0) return make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    lf_pack<4> v;
    lf_load(types, 1, x, i, v);
    return make_float4(v.v[0], v.v[1], v.v[2], v.v[3]);
  }
};

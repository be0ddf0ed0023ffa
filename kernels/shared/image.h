// Images [samples, height, width, c] as a convolution reads them: as a matrix with a row for
// each pixel of the result and kh·kw·c columns, which lies nowhere in memory.
#pragma once

#include "device.h"

// The pixels that a row is made of: the number of the image rows before those of its sample,
// and the first row and column, which may lie outside.
struct lf_window {
  long first;
  int y, x;
};

struct lf_image {
  LF_GLOBAL const float* x;
  int height, width, c, out_height, out_width, kernel_width, stride, top, left;
  bool fours; // four channels can be read at once

  // The window of row r of the matrix.
  LF_DEVICE lf_window at(int r) const {
    int column = r % out_width, row = r / out_width;
    lf_window w = {(long)(row / out_height) * height, row % out_height * stride - top, column * stride - left};
    return w;
  }

  // Column k of a row; zero outside of the image.
  LF_DEVICE float one(LF_PRIVATE const lf_window& w, int k) const {
    int tap = k / c, y = w.y + tap / kernel_width, z = w.x + tap % kernel_width;
    if (y < 0 || y >= height || z < 0 || z >= width) return 0.0f;
    return x[((w.first + y) * width + z) * c + (k - tap * c)];
  }

  // Columns k to k+3 of a row, zeros from column end on.
  LF_DEVICE float4 four(LF_PRIVATE const lf_window& w, int k, int end) const {
    if (k >= end) return make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (!fours)
      return make_float4(one(w, k), k + 1 < end ? one(w, k + 1) : 0.0f, k + 2 < end ? one(w, k + 2) : 0.0f, k + 3 < end ? one(w, k + 3) : 0.0f);
    int tap = k / c, y = w.y + tap / kernel_width, z = w.x + tap % kernel_width;
    if (y < 0 || y >= height || z < 0 || z >= width) return make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    return *(LF_GLOBAL const float4*)(x + ((w.first + y) * width + z) * c + (k - tap * c));
  }
};

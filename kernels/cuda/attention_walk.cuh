// Queries in the kernels of attention's gradient: their data, and iteration over
// the queries that may see a block of keys.
#pragma once

#include "device.cuh"

// The data of one query for the kernels below.
struct lf_stats {
  float lse, delta;
  int begin, end;
  LF_DEVICE void load(const float4* stats, long long row, int heads, int head, int n) {
    set(row < n ? stats[row * heads + head] : make_float4(0.0f, 0.0f, 0.0f, 0.0f));
  }
  LF_DEVICE void set(float4 x) {
    lse = x.x;
    delta = x.y;
    begin = __float_as_int(x.z);
    end = __float_as_int(x.w);
  }
  LF_DEVICE bool sees(int key) const { return key >= begin && key < end; }
};

// Copies the data of a tile of queries to shared memory; queries past the last one see no key.
template <int BQ>
LF_DEVICE void lf_tile_stats(float4* tile, const float4* stats, int first, int heads, int head, int n) {
  int i = threadIdx.x;
  bool valid = first + i < n;
  if (i < BQ) lf_cp_async16(tile + i, valid ? stats + (long long)(first + i) * heads + head : stats, valid);
}

// Goes over the tiles of queries that may see keys of [begin, end), for the
// heads [head, last) one after the other. All warps of a block go alike.
struct lf_walk {
  const int2* spans;
  int tiles, begin, end, last;
  int head, base, tile = 0;
  unsigned found;

  LF_DEVICE void start(const int2* s, int count, int k0, int k1, int h0, int h1) {
    spans = s;
    tiles = count;
    begin = k0;
    end = k1;
    head = h0;
    last = h1;
    base = 0;
    found = look();
  }
  LF_DEVICE unsigned look() const {
    int t = base + (threadIdx.x & 31);
    int2 s = t < tiles ? spans[t] : make_int2(0, 0);
    return __ballot_sync(0xffffffffu, s.x < end && s.y > begin);
  }
  // Sets head and tile to the next ones; false if there are no more.
  LF_DEVICE bool next() {
    while (!found) {
      base += 32;
      if (base >= tiles) {
        base = 0;
        if (++head >= last) return false;
      }
      found = look();
    }
    tile = base + __ffs((int)found) - 1;
    found &= found - 1;
    return true;
  }
};

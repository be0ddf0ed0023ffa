// Queries in the kernels of attention's gradient: their data, and iteration over
// the queries that may see a tile of keys.
#pragma once
#include "device.h"

// The data of one query for the gradient kernels; memory holds its numbers as bits,
// since two of them are not floats.
struct lf_stats {
  float lse, delta;
  int begin, end;
  inline void load(device const uint4* stats, long row, int heads, int head, int n) {
    uint4 x = uint4(0u);
    if (row < n) x = stats[row * heads + head];
    lse = as_type<float>(x.x);
    delta = as_type<float>(x.y);
    begin = (int)x.z;
    end = (int)x.w;
  }
  inline bool sees(int key) const { return key >= begin && key < end; }
};

// Goes over the tiles of queries that may see keys of [begin, end), for the
// heads [head, last) one after the other. All threads of a threadgroup go alike.
struct lf_walk {
  device const int2* spans;
  int tiles, begin, end, last;
  int head, base, tile;
  uint found;

  inline void start(lf_thread t, device const int2* s, int count, int k0, int k1, int h0, int h1) {
    spans = s;
    tiles = count;
    begin = k0;
    end = k1;
    head = h0;
    last = h1;
    base = 0;
    tile = 0;
    found = look(t);
  }
  inline uint look(lf_thread t) const {
    int i = base + (int)t.lane;
    int2 s = i < tiles ? spans[i] : int2(0, 0);
    return lf_ballot(t, s.x < end && s.y > begin);
  }
  // Sets head and tile to the next ones; false if there are no more.
  inline bool next(lf_thread t) {
    while (found == 0) {
      base += 32;
      if (base >= tiles) {
        base = 0;
        if (++head >= last) return false;
      }
      found = look(t);
    }
    tile = base + (int)ctz(found);
    found &= found - 1;
    return true;
  }
};

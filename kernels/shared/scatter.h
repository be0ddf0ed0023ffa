// Which rows are written over a table, and where.
#pragma once

#include "element.h"
#include "report.h"

// Row i of n goes to row index[i] of a table of the given number of rows or, if rows are
// consecutive, to row index[0] + i.
struct lf_target {
  int at;
  bool write;
};

// The target of the row of this block, t.group.x, for all its threads. A row with a
// negative index is not written, and of several rows with one index the last is. An index
// that the table has no row for is reported, the first of them, and not written; if rows
// are consecutive, so is a negative one, and none is written.
LF_DEVICE lf_target lf_scatter(lf_thread t, LF_GROUP int* hit, LF_GLOBAL const int* index, int n, int rows, int consecutive,
                               LF_GLOBAL long* trap, int launch) {
  const int i = (int)t.group.x, me = (int)t.index, from = index[consecutive ? 0 : i];
  const bool fits = from >= 0 && from <= rows - (consecutive ? n : 1);
  int other = 0; // whether another row is written there, or reported
  if (consecutive) {
    other = !fits && i > 0;
  } else if (fits) {
    for (int j = i + 1 + me; j < n; j += LF_THREADS) other |= index[j] == from;
  } else {
    other = from < 0;
    for (int j = me; j < i; j += LF_THREADS) other |= index[j] >= rows;
  }
  hit[me] = other;
  for (int m = LF_THREADS / 2; m; m >>= 1) {
    lf_barrier();
    if (me < m) hit[me] |= hit[me + m];
  }
  lf_barrier();
  if (!hit[0] && !fits && t.group.y == 0 && me == 0) lf_report(trap, launch, i, from);
  lf_target target = {consecutive ? from + i : from, !hit[0] && fits};
  return target;
}

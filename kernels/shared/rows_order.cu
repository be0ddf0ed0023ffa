// The order of rows by the matrix that multiplies each: a counting sort.
//
//   order = first place of each of matrices groups, of the rows without a matrix (index < 0), and their
//           end; then the numbers of the rows, group after group, ascending in each
//
// Layout: index [n] i32; order [matrices + 2 + n] i32.
// Grid: a block of 256 threads for each group, the last for rows without a matrix; a thread has n/256
//   consecutive rows. The first block also looks for an index that no matrix has; such rows are in
//   no group.
// Traffic: the index twice for each group, from cache after the first time; the order once. 8,192 rows
//   of eight matrices are 32 KB, a few microseconds.
// Reference: at = 0
//            for e in 0 … matrices−1, −1 { order[e] = at
//              for i { if index[i] == e (or < 0, in the last) { order[matrices + 2 + at] = i; at++ } } }
//            order[matrices + 1] = at
#include "element.h"
#include "report.h"

LF_DEVICE int lf_group_of(int e, int matrices) { return e < 0 ? matrices : e < matrices ? e : matrices + 1; }

LF_ENTRY_SHARED(LF_THREADS, rows_order, ((int, less, LF_THREADS), (int, same, LF_THREADS), (int, bad, LF_THREADS)), ((int, order), (const int, index), (long, trap)),
                ((int, n), (int, matrices), (int, launch))) {
  int own = (int)t.group.x, size = (n + LF_THREADS - 1) / LF_THREADS, from = (int)t.index * size, end = min(from + size, n);
  int before = 0, mine = 0, wrong = n;
  for (int i = from; i < end; i++) {
    int e = lf_group_of(index[i], matrices);
    before += e < own, mine += e == own;
    if (e > matrices) wrong = min(wrong, i);
  }
  less[t.index] = before, same[t.index] = mine, bad[t.index] = wrong;
  for (uint m = 1; m < LF_THREADS; m <<= 1) { // sums of this thread and all before it
    lf_barrier();
    int a = t.index >= m ? less[t.index - m] : 0, b = t.index >= m ? same[t.index - m] : 0, c = t.index >= m ? bad[t.index - m] : n;
    lf_barrier();
    less[t.index] += a, same[t.index] += b, bad[t.index] = min(bad[t.index], c);
  }
  lf_barrier();
  int first = less[LF_THREADS - 1], at = matrices + 2 + first + same[t.index] - mine;
  if (t.index == 0) {
    order[own] = first;
    if (own == matrices) order[matrices + 1] = first + same[LF_THREADS - 1];
    if (own == 0 && bad[LF_THREADS - 1] < n) lf_report(trap, launch, bad[LF_THREADS - 1], index[bad[LF_THREADS - 1]]);
  }
  for (int i = from; i < end; i++)
    if (lf_group_of(index[i], matrices) == own) order[at++] = i;
}

#ifdef LF_RACE
LF_RACE_CASE(rows_order) {
  std::vector<int> index(600), order(605);
  for (int i = 0; i < 600; i++) index[i] = i * 7 % 5 - 1;
  long trap[3] = {};
  lf_race_launch(rows_order, {4}, {256}, 0, order.data(), index.data(), trap, 600, 3, 0);
}
#endif

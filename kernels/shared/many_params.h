// Lists of up to 32 parameters for LF_ENTRY, where params.h has 16.
#pragma once

#include "device.h"

#undef LF_LENGTH
#define LF_LENGTH(list)                                                                                                            \
  LF_CALL(LF_COUNT_32, LF_LIST list, 32, 31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, \
          7, 6, 5, 4, 3, 2, 1, 0)
#define LF_COUNT_32(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, a1, b1, c1, d1, e1, f1, g1, h1, i1, j1, k1, l1, m1, n1, o1, p1, length, ...) \
  length

#define LF_MAP_17(F, S, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, ...) LF_MAP_16(F, S, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p) S() LF_MORE_1(F, S, __VA_ARGS__)
#define LF_MAP_18(F, S, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, ...) LF_MAP_16(F, S, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p) S() LF_MORE_2(F, S, __VA_ARGS__)
#define LF_MAP_19(F, S, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, ...) LF_MAP_16(F, S, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p) S() LF_MORE_3(F, S, __VA_ARGS__)
#define LF_MAP_20(F, S, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, ...) LF_MAP_16(F, S, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p) S() LF_MORE_4(F, S, __VA_ARGS__)
#define LF_MAP_21(F, S, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, ...) LF_MAP_16(F, S, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p) S() LF_MORE_5(F, S, __VA_ARGS__)
#define LF_MAP_22(F, S, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, ...) LF_MAP_16(F, S, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p) S() LF_MORE_6(F, S, __VA_ARGS__)
#define LF_MAP_23(F, S, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, ...) LF_MAP_16(F, S, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p) S() LF_MORE_7(F, S, __VA_ARGS__)
#define LF_MAP_24(F, S, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, ...) LF_MAP_16(F, S, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p) S() LF_MORE_8(F, S, __VA_ARGS__)
#define LF_MAP_25(F, S, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, ...) LF_MAP_16(F, S, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p) S() LF_MORE_9(F, S, __VA_ARGS__)
#define LF_MAP_26(F, S, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, ...) LF_MAP_16(F, S, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p) S() LF_MORE_10(F, S, __VA_ARGS__)
#define LF_MAP_27(F, S, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, ...) LF_MAP_16(F, S, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p) S() LF_MORE_11(F, S, __VA_ARGS__)
#define LF_MAP_28(F, S, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, ...) LF_MAP_16(F, S, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p) S() LF_MORE_12(F, S, __VA_ARGS__)
#define LF_MAP_29(F, S, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, ...) LF_MAP_16(F, S, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p) S() LF_MORE_13(F, S, __VA_ARGS__)
#define LF_MAP_30(F, S, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, ...) LF_MAP_16(F, S, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p) S() LF_MORE_14(F, S, __VA_ARGS__)
#define LF_MAP_31(F, S, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, ...) LF_MAP_16(F, S, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p) S() LF_MORE_15(F, S, __VA_ARGS__)
#define LF_MAP_32(F, S, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, ...) LF_MAP_16(F, S, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p) S() LF_MORE_16(F, S, __VA_ARGS__)
#define LF_MORE_1(F, S, a) F(16, a)
#define LF_MORE_2(F, S, a, b) LF_MORE_1(F, S, a) S() F(17, b)
#define LF_MORE_3(F, S, a, b, c) LF_MORE_2(F, S, a, b) S() F(18, c)
#define LF_MORE_4(F, S, a, b, c, d) LF_MORE_3(F, S, a, b, c) S() F(19, d)
#define LF_MORE_5(F, S, a, b, c, d, e) LF_MORE_4(F, S, a, b, c, d) S() F(20, e)
#define LF_MORE_6(F, S, a, b, c, d, e, f) LF_MORE_5(F, S, a, b, c, d, e) S() F(21, f)
#define LF_MORE_7(F, S, a, b, c, d, e, f, g) LF_MORE_6(F, S, a, b, c, d, e, f) S() F(22, g)
#define LF_MORE_8(F, S, a, b, c, d, e, f, g, h) LF_MORE_7(F, S, a, b, c, d, e, f, g) S() F(23, h)
#define LF_MORE_9(F, S, a, b, c, d, e, f, g, h, i) LF_MORE_8(F, S, a, b, c, d, e, f, g, h) S() F(24, i)
#define LF_MORE_10(F, S, a, b, c, d, e, f, g, h, i, j) LF_MORE_9(F, S, a, b, c, d, e, f, g, h, i) S() F(25, j)
#define LF_MORE_11(F, S, a, b, c, d, e, f, g, h, i, j, k) LF_MORE_10(F, S, a, b, c, d, e, f, g, h, i, j) S() F(26, k)
#define LF_MORE_12(F, S, a, b, c, d, e, f, g, h, i, j, k, l) LF_MORE_11(F, S, a, b, c, d, e, f, g, h, i, j, k) S() F(27, l)
#define LF_MORE_13(F, S, a, b, c, d, e, f, g, h, i, j, k, l, m) LF_MORE_12(F, S, a, b, c, d, e, f, g, h, i, j, k, l) S() F(28, m)
#define LF_MORE_14(F, S, a, b, c, d, e, f, g, h, i, j, k, l, m, n) LF_MORE_13(F, S, a, b, c, d, e, f, g, h, i, j, k, l, m) S() F(29, n)
#define LF_MORE_15(F, S, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o) LF_MORE_14(F, S, a, b, c, d, e, f, g, h, i, j, k, l, m, n) S() F(30, o)
#define LF_MORE_16(F, S, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p) LF_MORE_15(F, S, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o) S() F(31, p)

// How the kernels of kernels/shared, which are written once for CUDA and Metal, declare
// their parameters. device.h of either makes a kernel of
//
//   LF_ENTRY(256, scale_f32, ((float, out), (const float, x)), ((long, n), (float, scale))) {
//     long i = (long)t.group.x * 256 + t.index;
//     if (i < n) out[i] = x[i] * scale;
//   }
//
// that is, of the most threads of a block, the name, the pointers to device memory and the
// numbers. The body sees them by name, and its position as t. LF_ENTRY_SHARED has one more
// list before the pointers: memory that the threads of a block share, ((float, part, 32)).
// Of a pointer x, LF_HAS(x) says that it is not null, LF_ALIGNED(x) that it is aligned to 16
// bytes.
#pragma once

#define LF_ENTRY(threads, name, pointers, numbers) LF_ENTRY_(LF_NONE, (), threads, name, pointers, numbers)
#define LF_ENTRY_SHARED(threads, name, shared, pointers, numbers) LF_ENTRY_(LF_MAP, shared, threads, name, pointers, numbers)

// LF_LIST removes the parentheses of a list, LF_CALL calls a macro with one.
#define LF_LIST(...) __VA_ARGS__
#define LF_CALL(F, ...) F(__VA_ARGS__)

// LF_LENGTH is the number of items of a list, 16 at most.
#define LF_LENGTH(list) LF_CALL(LF_COUNT, LF_LIST list, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0)
#define LF_COUNT(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, length, ...) length

// LF_MAP calls F with the place of each item of a list and the item, S() between them.
#define LF_MAP(F, S, list) LF_MAP_(F, S, LF_LENGTH(list), LF_LIST list)
#define LF_MAP_(F, S, n, ...) LF_MAP__(F, S, n, __VA_ARGS__)
#define LF_MAP__(F, S, n, ...) LF_MAP_##n(F, S, __VA_ARGS__)
#define LF_NONE(F, S, list)
#define LF_COMMA() ,
#define LF_NOTHING()
#define LF_MAP_1(F, S, a) F(0, a)
#define LF_MAP_2(F, S, a, b) LF_MAP_1(F, S, a) S() F(1, b)
#define LF_MAP_3(F, S, a, b, c) LF_MAP_2(F, S, a, b) S() F(2, c)
#define LF_MAP_4(F, S, a, b, c, d) LF_MAP_3(F, S, a, b, c) S() F(3, d)
#define LF_MAP_5(F, S, a, b, c, d, e) LF_MAP_4(F, S, a, b, c, d) S() F(4, e)
#define LF_MAP_6(F, S, a, b, c, d, e, f) LF_MAP_5(F, S, a, b, c, d, e) S() F(5, f)
#define LF_MAP_7(F, S, a, b, c, d, e, f, g) LF_MAP_6(F, S, a, b, c, d, e, f) S() F(6, g)
#define LF_MAP_8(F, S, a, b, c, d, e, f, g, h) LF_MAP_7(F, S, a, b, c, d, e, f, g) S() F(7, h)
#define LF_MAP_9(F, S, a, b, c, d, e, f, g, h, i) LF_MAP_8(F, S, a, b, c, d, e, f, g, h) S() F(8, i)
#define LF_MAP_10(F, S, a, b, c, d, e, f, g, h, i, j) LF_MAP_9(F, S, a, b, c, d, e, f, g, h, i) S() F(9, j)
#define LF_MAP_11(F, S, a, b, c, d, e, f, g, h, i, j, k) LF_MAP_10(F, S, a, b, c, d, e, f, g, h, i, j) S() F(10, k)
#define LF_MAP_12(F, S, a, b, c, d, e, f, g, h, i, j, k, l) LF_MAP_11(F, S, a, b, c, d, e, f, g, h, i, j, k) S() F(11, l)
#define LF_MAP_13(F, S, a, b, c, d, e, f, g, h, i, j, k, l, m) LF_MAP_12(F, S, a, b, c, d, e, f, g, h, i, j, k, l) S() F(12, m)
#define LF_MAP_14(F, S, a, b, c, d, e, f, g, h, i, j, k, l, m, n) LF_MAP_13(F, S, a, b, c, d, e, f, g, h, i, j, k, l, m) S() F(13, n)
#define LF_MAP_15(F, S, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o) LF_MAP_14(F, S, a, b, c, d, e, f, g, h, i, j, k, l, m, n) S() F(14, o)
#define LF_MAP_16(F, S, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p) LF_MAP_15(F, S, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o) S() F(15, p)

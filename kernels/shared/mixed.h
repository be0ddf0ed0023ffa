// Operands that are f32 or bf16 in memory. Kernels compute in f32, and round what they
// store as bf16 to nearest even.
#pragma once

#include "element.h"
#include "pack.h"

// The types of a kernel's operands, which are numbered in the order of its pointers: all
// are f32 …
struct lf_all_f32 {
  LF_DEVICE bool bf16(int) const { return false; }
};
// … or those whose bits are set are bf16.
struct lf_mixed {
  int bits;
  LF_DEVICE bool bf16(int operand) const { return (bits >> operand & 1) != 0; }
};

LF_DEVICE void lf_widen(LF_GLOBAL const ushort* p, LF_PRIVATE lf_pack<1>& x) { x.v[0] = lf_as_bf16::get(*p); }
LF_DEVICE void lf_widen(LF_GLOBAL const ushort* p, LF_PRIVATE lf_pack<4>& x) {
  uint2 w = *(LF_GLOBAL const uint2*)p;
  x.v[0] = lf_from_bits(w.x << 16), x.v[1] = lf_from_bits(w.x & 0xffff0000u);
  x.v[2] = lf_from_bits(w.y << 16), x.v[3] = lf_from_bits(w.y & 0xffff0000u);
}
LF_DEVICE void lf_narrow(LF_GLOBAL ushort* p, LF_PRIVATE const lf_pack<1>& x) { *p = lf_as_bf16::put(x.v[0]); }
LF_DEVICE void lf_narrow(LF_GLOBAL ushort* p, LF_PRIVATE const lf_pack<4>& x) {
  uint2 w;
  w.x = (uint)lf_as_bf16::put(x.v[0]) | (uint)lf_as_bf16::put(x.v[1]) << 16;
  w.y = (uint)lf_as_bf16::put(x.v[2]) | (uint)lf_as_bf16::put(x.v[3]) << 16;
  *(LF_GLOBAL uint2*)p = w;
}

// V numbers of an operand from number i on. If V is 4, the operand is aligned to 16 bytes,
// and i is a multiple of 4.
template <int V, class S>
LF_DEVICE void lf_load(S types, int operand, LF_GLOBAL const void* p, long i, LF_PRIVATE lf_pack<V>& x) {
  if (types.bf16(operand))
    lf_widen((LF_GLOBAL const ushort*)p + i, x);
  else
    x.load((LF_GLOBAL const float*)p + i);
}
template <int V, class S>
LF_DEVICE void lf_store(S types, int operand, LF_GLOBAL void* p, long i, LF_PRIVATE const lf_pack<V>& x) {
  if (types.bf16(operand))
    lf_narrow((LF_GLOBAL ushort*)p + i, x);
  else
    x.store((LF_GLOBAL float*)p + i);
}

// v as it is after an operand has been stored and loaded.
template <class S>
LF_DEVICE float lf_rounded(S types, int operand, float v) {
  return types.bf16(operand) ? lf_as_bf16::get(lf_as_bf16::put(v)) : v;
}

// Number i of an operand.
template <class S>
LF_DEVICE float lf_load(S types, int operand, LF_GLOBAL const void* p, long i) {
  return types.bf16(operand) ? lf_as_bf16::get(((LF_GLOBAL const ushort*)p)[i]) : ((LF_GLOBAL const float*)p)[i];
}
template <class S>
LF_DEVICE void lf_store(S types, int operand, LF_GLOBAL void* p, long i, float v) {
  if (types.bf16(operand))
    ((LF_GLOBAL ushort*)p)[i] = lf_as_bf16::put(v);
  else
    ((LF_GLOBAL float*)p)[i] = v;
}

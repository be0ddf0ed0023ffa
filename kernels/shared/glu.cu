// Gated linear units (Shazeer 2020, arXiv 2002.05202) and their gradients:
//
//   y = act(gate)·up,  dgate = dy·up·act'(gate),  dup = dy·act(gate), act of act.h
//
// Layout: all of n elements; an output may share the memory of any input.
// Grid: 256 threads for 1024 elements, four of each thread, as 16 bytes where all
//   operands lie on 16 bytes.
//   Kernels that end in _stored take operands of f32 or bf16, by the bits of stored, in
//   the order of the pointers.
// Traffic: forward 12 bytes an element, backward 20, or 6 and 10; bound by memory.
// Registers: forward 29 to 32, backward 32 to 38, on sm_80 and sm_90a.
// Reference: for i { y[i] = act(gate[i])·up[i] }
#include "act.h"
#include "mixed.h"

template <class A, int V, class S>
LF_DEVICE void lf_glu(lf_thread t, LF_GLOBAL void* out, LF_GLOBAL const void* gate, LF_GLOBAL const void* up, long n, S types) {
  LF_GROUPS(V, i, n) {
    lf_pack<V> g, u;
    lf_load(types, 1, gate, i, g), lf_load(types, 2, up, i, u);
#pragma unroll
    for (int k = 0; k < V; k++) u.v[k] *= A::value(g.v[k]);
    lf_store(types, 0, out, i, u);
  }
}

template <class A, int V, class S>
LF_DEVICE void lf_glu_grad(lf_thread t, LF_GLOBAL void* dgate, LF_GLOBAL void* dup, LF_GLOBAL const void* dy, LF_GLOBAL const void* gate,
                        LF_GLOBAL const void* up, long n, S types) {
  LF_GROUPS(V, i, n) {
    lf_pack<V> d, g, u;
    lf_load(types, 2, dy, i, d), lf_load(types, 3, gate, i, g), lf_load(types, 4, up, i, u);
#pragma unroll
    for (int k = 0; k < V; k++) {
      lf_act_value a = A::both(g.v[k]);
      g.v[k] = d.v[k] * u.v[k] * a.slope;
      u.v[k] = d.v[k] * a.value;
    }
    lf_store(types, 0, dgate, i, g), lf_store(types, 1, dup, i, u);
  }
}

#define LF_GLU_BODY(act, types)                                                                                      \
  if ((n & 3) == 0 && LF_ALIGNED(out) && LF_ALIGNED(gate) && LF_ALIGNED(up))                                         \
    lf_glu<lf_##act, 4>(t, out, gate, up, n, types);                                                                 \
  else                                                                                                               \
    lf_glu<lf_##act, 1>(t, out, gate, up, n, types);
#define LF_GLU_GRAD_BODY(act, types)                                                                                 \
  if ((n & 3) == 0 && LF_ALIGNED(dgate) && LF_ALIGNED(dup) && LF_ALIGNED(dy) && LF_ALIGNED(gate) && LF_ALIGNED(up))  \
    lf_glu_grad<lf_##act, 4>(t, dgate, dup, dy, gate, up, n, types);                                                 \
  else                                                                                                               \
    lf_glu_grad<lf_##act, 1>(t, dgate, dup, dy, gate, up, n, types);
#define LF_GLU(act)                                                                                                  \
  LF_ENTRY(256, glu_##act##_f32, ((float, out), (const float, gate), (const float, up)), ((long, n))) {              \
    lf_all_f32 types;                                                                                                \
    LF_GLU_BODY(act, types)                                                                                          \
  }                                                                                                                  \
  LF_ENTRY(256, glu_##act##_stored, ((uchar, out), (const uchar, gate), (const uchar, up)), ((long, n), (int, stored))) { \
    lf_mixed types = {stored};                                                                                       \
    LF_GLU_BODY(act, types)                                                                                          \
  }                                                                                                                  \
  LF_ENTRY(256, glu_grad_##act##_f32,                                                                                \
           ((float, dgate), (float, dup), (const float, dy), (const float, gate), (const float, up)), ((long, n))) { \
    lf_all_f32 types;                                                                                                \
    LF_GLU_GRAD_BODY(act, types)                                                                                     \
  }                                                                                                                  \
  LF_ENTRY(256, glu_grad_##act##_stored,                                                                             \
           ((uchar, dgate), (uchar, dup), (const uchar, dy), (const uchar, gate), (const uchar, up)), ((long, n), (int, stored))) { \
    lf_mixed types = {stored};                                                                                       \
    LF_GLU_GRAD_BODY(act, types)                                                                                     \
  }
LF_GLU(silu)
LF_GLU(gelu)
LF_GLU(gelu_tanh)

#ifdef LF_RACE
LF_RACE_CASE(glu) {
  auto gate = lf_race_noise<float>(1100), up = gate, dy = gate;
  lf_race_launch(glu_grad_silu_f32, {2}, {256}, 0, gate.data(), up.data(), dy.data(), gate.data(), up.data(), 1100);
  lf_race_launch(glu_grad_silu_stored, {2}, {256}, 0, gate.data(), up.data(), dy.data(), gate.data(), up.data(), 1100, 31);
  lf_race_launch(glu_gelu_f32, {2}, {256}, 0, gate.data(), gate.data(), up.data(), 1099);
}
#endif

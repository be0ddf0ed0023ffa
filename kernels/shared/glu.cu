// Gated linear units (Shazeer 2020, arXiv 2002.05202) and their gradients:
//
//   y = act(gate)·up,  dgate = dy·up·act'(gate),  dup = dy·act(gate), act of act.h
//
// Layout: all of n elements; an output may share the memory of any input.
// Grid: 256 threads for 1024 elements, four of each thread, as 16 bytes where all
//   operands lie on 16 bytes.
// Traffic: forward 12 bytes an element, backward 20; bound by memory.
// Registers: forward 31 or 32, backward 32 to 36, on sm_80 and sm_90a.
// Reference: for i { y[i] = act(gate[i])·up[i] }
#include "act.h"
#include "pack.h"

template <class A, int V>
LF_DEVICE void lf_glu(lf_thread t, LF_GLOBAL float* out, LF_GLOBAL const float* gate, LF_GLOBAL const float* up, long n) {
  LF_GROUPS(V, i, n) {
    lf_pack<V> g, u;
    g.load(gate + i), u.load(up + i);
#pragma unroll
    for (int k = 0; k < V; k++) u.v[k] *= A::value(g.v[k]);
    u.store(out + i);
  }
}

template <class A, int V>
LF_DEVICE void lf_glu_grad(lf_thread t, LF_GLOBAL float* dgate, LF_GLOBAL float* dup, LF_GLOBAL const float* dy, LF_GLOBAL const float* gate,
                        LF_GLOBAL const float* up, long n) {
  LF_GROUPS(V, i, n) {
    lf_pack<V> d, g, u;
    d.load(dy + i), g.load(gate + i), u.load(up + i);
#pragma unroll
    for (int k = 0; k < V; k++) {
      lf_act_value a = A::both(g.v[k]);
      g.v[k] = d.v[k] * u.v[k] * a.slope;
      u.v[k] = d.v[k] * a.value;
    }
    g.store(dgate + i), u.store(dup + i);
  }
}

#define LF_GLU(act)                                                                                                  \
  LF_ENTRY(256, glu_##act##_f32, ((float, out), (const float, gate), (const float, up)), ((long, n))) {              \
    if ((n & 3) == 0 && LF_ALIGNED(out) && LF_ALIGNED(gate) && LF_ALIGNED(up))                                       \
      lf_glu<lf_##act, 4>(t, out, gate, up, n);                                                                      \
    else                                                                                                             \
      lf_glu<lf_##act, 1>(t, out, gate, up, n);                                                                      \
  }                                                                                                                  \
  LF_ENTRY(256, glu_grad_##act##_f32,                                                                                \
           ((float, dgate), (float, dup), (const float, dy), (const float, gate), (const float, up)), ((long, n))) { \
    if ((n & 3) == 0 && LF_ALIGNED(dgate) && LF_ALIGNED(dup) && LF_ALIGNED(dy) && LF_ALIGNED(gate) && LF_ALIGNED(up)) \
      lf_glu_grad<lf_##act, 4>(t, dgate, dup, dy, gate, up, n);                                                      \
    else                                                                                                             \
      lf_glu_grad<lf_##act, 1>(t, dgate, dup, dy, gate, up, n);                                                      \
  }
LF_GLU(silu)
LF_GLU(gelu)
LF_GLU(gelu_tanh)

#ifdef LF_RACE
LF_RACE_CASE(glu) {
  auto gate = lf_race_noise<float>(1100), up = gate, dy = gate;
  lf_race_launch(glu_grad_silu_f32, {2}, {256}, 0, gate.data(), up.data(), dy.data(), gate.data(), up.data(), 1100);
  lf_race_launch(glu_gelu_f32, {2}, {256}, 0, gate.data(), gate.data(), up.data(), 1099);
}
#endif

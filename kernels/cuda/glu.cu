// Gated linear units (Shazeer 2020, arXiv 2002.05202) and their gradients:
//
//   y = act(gate)·up,  dgate = dy·up·act'(gate),  dup = dy·act(gate), act of act.cuh
//
// Layout: all of n elements; an output may share the memory of any input.
// Grid: 256 threads for 1024 elements, four of each thread, as 16 bytes where all
//   operands lie on 16 bytes.
// Traffic: forward 12 bytes an element, backward 20; bound by memory.
// Registers: forward 31 or 32, backward 32 to 36, on sm_80 and sm_90a.
// Reference: for i { y[i] = act(gate[i])·up[i] }
#include "act.cuh"
#include "row.cuh"

// The elements of this thread: V at a time.
#define LF_GROUPS(V, at, n)                                                                          \
  for (long long at = (long long)blockIdx.x * 1024 + threadIdx.x * V, at##_end = at + 1024 - threadIdx.x * V; \
       at < at##_end && at < n; at += 256 * V)

template <class A, int V>
LF_DEVICE void lf_glu(float* out, const float* gate, const float* up, long long n) {
  LF_GROUPS(V, i, n) {
    lf_pack<V> g, u;
    g.load(gate + i), u.load(up + i);
#pragma unroll
    for (int k = 0; k < V; k++) u.v[k] *= A::value(g.v[k]);
    u.store(out + i);
  }
}

template <class A, int V>
LF_DEVICE void lf_glu_grad(float* dgate, float* dup, const float* dy, const float* gate, const float* up, long long n) {
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

#define LF_GLU(act)                                                                                                        \
  extern "C" __global__ void __launch_bounds__(256) glu_##act##_f32(float* out, const float* gate, const float* up, long long n) { \
    if (lf_fours(n, out, gate, up))                                                                                        \
      lf_glu<lf_##act, 4>(out, gate, up, n);                                                                               \
    else                                                                                                                   \
      lf_glu<lf_##act, 1>(out, gate, up, n);                                                                               \
  }                                                                                                                        \
  LF_KERNEL(glu_##act##_f32);                                                                                              \
  extern "C" __global__ void __launch_bounds__(256)                                                                        \
      glu_grad_##act##_f32(float* dgate, float* dup, const float* dy, const float* gate, const float* up, long long n) {   \
    if (lf_fours(n, dgate, dup, dy, gate, up))                                                                             \
      lf_glu_grad<lf_##act, 4>(dgate, dup, dy, gate, up, n);                                                               \
    else                                                                                                                   \
      lf_glu_grad<lf_##act, 1>(dgate, dup, dy, gate, up, n);                                                               \
  }                                                                                                                        \
  LF_KERNEL(glu_grad_##act##_f32);
LF_GLU(silu)
LF_GLU(gelu)
LF_GLU(gelu_tanh)

#ifdef LF_RACE
#include "../sim/test/race.h"
LF_RACE_CASE(glu) {
  auto gate = lf_race_noise<float>(1100), up = gate, dy = gate;
  lf_race_launch(glu_grad_silu_f32, {2}, {256}, 0, gate.data(), up.data(), dy.data(), gate.data(), up.data(), 1100);
  lf_race_launch(glu_gelu_f32, {2}, {256}, 0, gate.data(), gate.data(), up.data(), 1099);
}
#endif

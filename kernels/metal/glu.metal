// Gated linear units (Shazeer 2020, arXiv 2002.05202) and their gradients:
//
//   y = act(gate)·up,  dgate = dy·up·act'(gate),  dup = dy·act(gate), act of act.h
//
// Layout: all of n elements; an output may share the memory of any input.
// Grid: 256 threads for 1024 elements, four of each thread, as 16 bytes where all
//   operands lie on 16 bytes.
// Traffic: forward 12 bytes an element, backward 20; bound by memory.
// Reference: for i { y[i] = act(gate[i])·up[i] }
#include "act.h"
#include "row.h"

// The elements of this thread: V at a time.
#define LF_GROUPS(V, at, n)                                                                 \
  for (long at = (long)t.group.x * 1024 + t.index * V, at##_end = at + 1024 - t.index * V; \
       at < at##_end && at < n; at += 256 * V)

template <class A, int V>
inline void lf_glu(lf_thread t, device float* out, device const float* gate, device const float* up, long n) {
  LF_GROUPS(V, i, n) {
    lf_pack<V> g, u;
    g.load(gate + i), u.load(up + i);
    for (int k = 0; k < V; k++) u.v[k] *= A::value(g.v[k]);
    u.store(out + i);
  }
}

template <class A, int V>
inline void lf_glu_grad(lf_thread t, device float* dgate, device float* dup, device const float* dy, device const float* gate,
                        device const float* up, long n) {
  LF_GROUPS(V, i, n) {
    lf_pack<V> d, g, u;
    d.load(dy + i), g.load(gate + i), u.load(up + i);
    for (int k = 0; k < V; k++) {
      lf_act_value a = A::both(g.v[k]);
      g.v[k] = d.v[k] * u.v[k] * a.slope;
      u.v[k] = d.v[k] * a.value;
    }
    g.store(dgate + i), u.store(dup + i);
  }
}

#define LF_GLU(act)                                                                                                          \
  struct glu_##act##_f32_args { LF_ARGS; long n; };                                                                          \
  LF_KERNEL(256)                                                                                                             \
  glu_##act##_f32(device float* out [[buffer(0)]], device const float* gate [[buffer(1)]], device const float* up [[buffer(2)]], \
                  constant glu_##act##_f32_args& a [[buffer(3)]], LF_THREAD) {                                               \
    LF_BEGIN;                                                                                                                \
    if (LF_FOURS(a, a.n, 7u))                                                                                                \
      lf_glu<lf_##act, 4>(t, out, gate, up, a.n);                                                                            \
    else                                                                                                                     \
      lf_glu<lf_##act, 1>(t, out, gate, up, a.n);                                                                            \
  }                                                                                                                          \
  struct glu_grad_##act##_f32_args { LF_ARGS; long n; };                                                                     \
  LF_KERNEL(256)                                                                                                             \
  glu_grad_##act##_f32(device float* dgate [[buffer(0)]], device float* dup [[buffer(1)]], device const float* dy [[buffer(2)]], \
                       device const float* gate [[buffer(3)]], device const float* up [[buffer(4)]],                         \
                       constant glu_grad_##act##_f32_args& a [[buffer(5)]], LF_THREAD) {                                     \
    LF_BEGIN;                                                                                                                \
    if (LF_FOURS(a, a.n, 31u))                                                                                               \
      lf_glu_grad<lf_##act, 4>(t, dgate, dup, dy, gate, up, a.n);                                                            \
    else                                                                                                                     \
      lf_glu_grad<lf_##act, 1>(t, dgate, dup, dy, gate, up, a.n);                                                            \
  }
LF_GLU(silu)
LF_GLU(gelu)
LF_GLU(gelu_tanh)

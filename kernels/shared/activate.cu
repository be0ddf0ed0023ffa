// Activations of act.h and their gradients:
//
//   y = act(x),  dx = dy·act'(x)
//
// Layout: all of n elements; the output may share the memory of any input.
// Grid: 256 threads for 1024 elements, four of each thread, as 16 bytes where all
//   operands lie on 16 bytes.
// Traffic: forward 8 bytes an element, backward 12; bound by memory.
// Registers: 28 to 32 on sm_80 and sm_90a.
// Reference: for i { y[i] = act(x[i]) }
#include "act.h"
#include "pack.h"

template <class A, int V>
LF_DEVICE void lf_activate(lf_thread t, LF_GLOBAL float* out, LF_GLOBAL const float* x, long n) {
  LF_GROUPS(V, i, n) {
    lf_pack<V> v;
    v.load(x + i);
#pragma unroll
    for (int k = 0; k < V; k++) v.v[k] = A::value(v.v[k]);
    v.store(out + i);
  }
}

template <class A, int V>
LF_DEVICE void lf_activate_grad(lf_thread t, LF_GLOBAL float* dx, LF_GLOBAL const float* dy, LF_GLOBAL const float* x, long n) {
  LF_GROUPS(V, i, n) {
    lf_pack<V> d, v;
    d.load(dy + i), v.load(x + i);
#pragma unroll
    for (int k = 0; k < V; k++) d.v[k] *= A::both(v.v[k]).slope;
    d.store(dx + i);
  }
}

#define LF_ACTIVATE(act)                                                                                       \
  LF_ENTRY(256, activate_##act##_f32, ((float, out), (const float, x)), ((long, n))) {                         \
    if ((n & 3) == 0 && LF_ALIGNED(out) && LF_ALIGNED(x))                                                      \
      lf_activate<lf_##act, 4>(t, out, x, n);                                                                  \
    else                                                                                                       \
      lf_activate<lf_##act, 1>(t, out, x, n);                                                                  \
  }                                                                                                            \
  LF_ENTRY(256, activate_grad_##act##_f32, ((float, dx), (const float, dy), (const float, x)), ((long, n))) {  \
    if ((n & 3) == 0 && LF_ALIGNED(dx) && LF_ALIGNED(dy) && LF_ALIGNED(x))                                     \
      lf_activate_grad<lf_##act, 4>(t, dx, dy, x, n);                                                          \
    else                                                                                                       \
      lf_activate_grad<lf_##act, 1>(t, dx, dy, x, n);                                                          \
  }
LF_ACTIVATE(silu)
LF_ACTIVATE(gelu)
LF_ACTIVATE(gelu_tanh)
LF_ACTIVATE(quick_gelu)

#ifdef LF_RACE
LF_RACE_CASE(activate) {
  auto x = lf_race_noise<float>(1100), dy = x;
  lf_race_launch(activate_grad_gelu_f32, {2}, {256}, 0, dy.data(), dy.data(), x.data(), 1100);
  lf_race_launch(activate_quick_gelu_f32, {2}, {256}, 0, x.data(), x.data(), 1099);
}
#endif

// Activations of act.h and their gradients:
//
//   y = act(x),  dx = dy·act'(x)
//
// Layout: all of n elements; the output may share the memory of any input.
// Grid: 256 threads for 1024 elements, four of each thread, as 16 bytes where all
//   operands lie on 16 bytes. Kernels that end in _stored take operands of f32 or bf16, by
//   the bits of stored, in the order of the pointers.
// Traffic: forward 8 bytes an element, backward 12, or 4 and 6; bound by memory.
// Registers: 28 to 32 on sm_80 and sm_90a.
// Reference: for i { y[i] = act(x[i]) }
#include "act.h"
#include "mixed.h"

template <class A, int V, class S>
LF_DEVICE void lf_activate(lf_thread t, LF_GLOBAL void* out, LF_GLOBAL const void* x, long n, S types) {
  LF_GROUPS(V, i, n) {
    lf_pack<V> v;
    lf_load(types, 1, x, i, v);
#pragma unroll
    for (int k = 0; k < V; k++) v.v[k] = A::value(v.v[k]);
    lf_store(types, 0, out, i, v);
  }
}

template <class A, int V, class S>
LF_DEVICE void lf_activate_grad(lf_thread t, LF_GLOBAL void* dx, LF_GLOBAL const void* dy, LF_GLOBAL const void* x, long n, S types) {
  LF_GROUPS(V, i, n) {
    lf_pack<V> d, v;
    lf_load(types, 1, dy, i, d), lf_load(types, 2, x, i, v);
#pragma unroll
    for (int k = 0; k < V; k++) d.v[k] *= A::both(v.v[k]).slope;
    lf_store(types, 0, dx, i, d);
  }
}

#define LF_ACTIVATE_BODY(act, types)                                                                                     \
  if ((n & 3) == 0 && LF_ALIGNED(out) && LF_ALIGNED(x))                                                                  \
    lf_activate<lf_##act, 4>(t, out, x, n, types);                                                                       \
  else                                                                                                                   \
    lf_activate<lf_##act, 1>(t, out, x, n, types);
#define LF_ACTIVATE_GRAD_BODY(act, types)                                                                                \
  if ((n & 3) == 0 && LF_ALIGNED(dx) && LF_ALIGNED(dy) && LF_ALIGNED(x))                                                 \
    lf_activate_grad<lf_##act, 4>(t, dx, dy, x, n, types);                                                               \
  else                                                                                                                   \
    lf_activate_grad<lf_##act, 1>(t, dx, dy, x, n, types);
#define LF_ACTIVATE(act)                                                                                                 \
  LF_ENTRY(256, activate_##act##_f32, ((float, out), (const float, x)), ((long, n))) {                                   \
    lf_all_f32 types;                                                                                                    \
    LF_ACTIVATE_BODY(act, types)                                                                                         \
  }                                                                                                                      \
  LF_ENTRY(256, activate_##act##_stored, ((uchar, out), (const uchar, x)), ((long, n), (int, stored))) {                 \
    lf_mixed types = {stored};                                                                                           \
    LF_ACTIVATE_BODY(act, types)                                                                                         \
  }                                                                                                                      \
  LF_ENTRY(256, activate_grad_##act##_f32, ((float, dx), (const float, dy), (const float, x)), ((long, n))) {            \
    lf_all_f32 types;                                                                                                    \
    LF_ACTIVATE_GRAD_BODY(act, types)                                                                                    \
  }                                                                                                                      \
  LF_ENTRY(256, activate_grad_##act##_stored, ((uchar, dx), (const uchar, dy), (const uchar, x)), ((long, n), (int, stored))) { \
    lf_mixed types = {stored};                                                                                           \
    LF_ACTIVATE_GRAD_BODY(act, types)                                                                                    \
  }
LF_ACTIVATE(silu)
LF_ACTIVATE(gelu)
LF_ACTIVATE(gelu_tanh)
LF_ACTIVATE(quick_gelu)

#ifdef LF_RACE
LF_RACE_CASE(activate) {
  auto x = lf_race_noise<float>(1100), dy = x;
  lf_race_launch(activate_grad_gelu_f32, {2}, {256}, 0, dy.data(), dy.data(), x.data(), 1100);
  lf_race_launch(activate_grad_silu_stored, {2}, {256}, 0, (uchar*)dy.data(), (uchar*)dy.data(), (uchar*)x.data(), 1100, 7);
  lf_race_launch(activate_quick_gelu_f32, {2}, {256}, 0, x.data(), x.data(), 1099);
}
#endif

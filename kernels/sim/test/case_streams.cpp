// Streams, events, capture and graphs.
#include <string.h>

#include <atomic>

#include "cuda.h"

static const int n = 1000;

static Args scale(Ptr x, Ptr y, float by) { return Args(x, y, by, n); }

// Upload on one stream, compute on another: with the event right, without it wrong.
static bool upload_and_scale(bool with_event) {
  void *s, *t, *e, *h;
  OK(cuStreamCreate(&s, 1));
  OK(cuStreamCreate(&t, 1));
  OK(cuEventCreate(&e, 2));
  OK(cuMemHostAlloc(&h, n * 4, 0));
  for (int i = 0; i < n; i++) static_cast<float*>(h)[i] = (float)i;
  Ptr x, y;
  OK(cuMemAlloc_v2(&x, n * 4));
  OK(cuMemAlloc_v2(&y, n * 4));
  OK(cuMemcpyHtoDAsync_v2(x, h, n * 4, s));
  OK(cuEventRecord(e, s));
  if (with_event) OK(cuStreamWaitEvent(t, e, 0));
  OK(launch("test_scale", 4, 256, 0, t, scale(x, y, 2)));
  OK(cuStreamSynchronize(t));
  OK(cuStreamSynchronize(s));
  auto v = download<float>(y, n);
  for (int i = 0; i < n; i++) {
    if (v[(size_t)i] != 2.f * (float)i) return false;
  }
  return true;
}

CASE("streams/event", "") {
  open_device();
  CHECK(upload_and_scale(true));
}

// A stream is a thread, and blocks need a stack for each of theirs: more would be
// mapped here than a process may map, if the stacks of closed streams remained.
CASE("streams/many", "") {
  open_device();
  Ptr x;
  OK(cuMemAlloc_v2(&x, 256 * 4));
  for (int i = 0; i < 200; i++) {
    void* s;
    OK(cuStreamCreate(&s, 1));
    OK(launch("test_scale", 1, 256, 0, s, Args(x, x, 1.f, 256)));
    OK(cuStreamSynchronize(s));
    OK(cuStreamDestroy_v2(s));
  }
}

CASE("streams/planted_missing_event", "LFSIM_STREAMS=lazy LFSIM_PATIENCE=30000") {
  open_device();
  CHECK(!upload_and_scale(false));
}

// A pinned buffer that is written again before its copy has run.
CASE("streams/planted_slot_reused", "LFSIM_STREAMS=lazy LFSIM_PATIENCE=30000") {
  open_device();
  void *s, *h;
  OK(cuStreamCreate(&s, 1));
  OK(cuMemHostAlloc(&h, 4, 0));
  Ptr x;
  OK(cuMemAlloc_v2(&x, 8));
  *static_cast<int*>(h) = 1;
  OK(cuMemcpyHtoDAsync_v2(x, h, 4, s));
  *static_cast<int*>(h) = 2;
  OK(cuMemcpyHtoDAsync_v2(x + 4, h, 4, s));
  OK(cuStreamSynchronize(s));
  CHECK(download<int>(x, 2)[0] == 2);
}

// Pageable memory is staged: it may change at once.
CASE("streams/pageable", "LFSIM_STREAMS=lazy LFSIM_PATIENCE=30000") {
  open_device();
  void* s;
  OK(cuStreamCreate(&s, 1));
  Ptr x;
  OK(cuMemAlloc_v2(&x, 4));
  int v = 1;
  OK(cuMemcpyHtoDAsync_v2(x, &v, 4, s));
  v = 2;
  OK(cuMemcpyDtoHAsync_v2(&v, x, 4, s));
  CHECK(v == 1);
}

// Blocking streams wait for the default stream and it for them; others do not.
CASE("streams/default", "LFSIM_STREAMS=lazy LFSIM_PATIENCE=30000") {
  open_device();
  void *blocking, *other;
  OK(cuStreamCreate(&blocking, 0));
  OK(cuStreamCreate(&other, 1));
  Ptr x = upload(std::vector<float>(n, 1.f)), y = upload(std::vector<float>(n, 1.f));
  OK(launch("test_scale", 4, 256, 0, blocking, scale(x, x, 2)));
  OK(launch("test_scale", 4, 256, 0, nullptr, scale(x, x, 3)));
  OK(launch("test_scale", 4, 256, 0, blocking, scale(x, y, 5)));
  OK(cuStreamSynchronize(blocking));
  CHECK(download<float>(y, n)[0] == 30.f);
  OK(launch("test_scale", 4, 256, 0, nullptr, scale(x, x, 7)));
  OK(launch("test_scale", 4, 256, 0, other, scale(x, y, 1)));
  OK(cuStreamSynchronize(other));
  CHECK(download<float>(y, n)[0] == 6.f);
}

CASE("streams/timing", "") {
  open_device();
  void *a, *b, *c, *s;
  float ms;
  OK(cuStreamCreate(&s, 1));
  OK(cuEventCreate(&a, 0));
  OK(cuEventCreate(&b, 0));
  OK(cuEventCreate(&c, 2));
  OK(cuEventQuery(a));
  RESULT(InvalidHandle, cuEventElapsedTime_v2(&ms, a, b));
  Ptr x = upload(std::vector<float>(n, 1.f));
  OK(cuEventRecord(a, s));
  OK(launch("test_scale", 4, 256, 0, s, scale(x, x, 2)));
  OK(cuEventRecord(b, s));
  OK(cuEventRecord(c, s));
  OK(cuEventSynchronize(b));
  OK(cuEventElapsedTime_v2(&ms, a, b));
  CHECK(ms > 0 && ms < 10000);
  OK(cuStreamSynchronize(s));
  RESULT(InvalidHandle, cuEventElapsedTime_v2(&ms, a, c));
  MESSAGE("without timing");
  OK(cuEventDestroy_v2(a));
  RESULT(InvalidHandle, cuEventDestroy_v2(a));
  OK(cuStreamDestroy_v2(s));
  RESULT(InvalidHandle, cuStreamSynchronize(s));
}

static std::atomic<int> called;

CASE("streams/host_function", "LFSIM_STREAMS=lazy") {
  open_device();
  void* s;
  OK(cuStreamCreate(&s, 1));
  OK(cuLaunchHostFunc(s, [](void* p) { called = *static_cast<int*>(p); }, (void*)&n));
  while (called != n) {  // without a request, a lazy stream continues too
  }
}

CASE("graphs/captured", "") {
  open_device();
  void *s, *t, *fork, *join, *h, *graph, *exec;
  OK(cuStreamCreate(&s, 1));
  OK(cuStreamCreate(&t, 1));
  OK(cuEventCreate(&fork, 2));
  OK(cuEventCreate(&join, 2));
  OK(cuMemHostAlloc(&h, n * 4, 0));
  Ptr x, y, z;
  OK(cuMemAlloc_v2(&x, n * 4));
  OK(cuMemAlloc_v2(&y, n * 4));
  OK(cuMemAlloc_v2(&z, n * 4));
  function("test_scale"), function("probe_axpy_f32");
  OK(cuStreamBeginCapture_v2(s, abi::CaptureThreadLocal));
  OK(cuMemcpyHtoDAsync_v2(x, h, n * 4, s));
  OK(cuEventRecord(fork, s));
  OK(cuStreamWaitEvent(t, fork, 0));
  OK(launch("test_scale", 4, 256, 0, s, scale(x, y, 2)));
  OK(launch("test_scale", 4, 256, 0, t, scale(x, z, 3)));
  OK(cuEventRecord(join, t));
  OK(cuStreamWaitEvent(s, join, 0));
  OK(launch("probe_axpy_f32", 4, 256, 0, s, Args(1.f, z, y, n)));
  OK(cuMemcpyDtoHAsync_v2(h, y, n * 4, s));
  OK(cuStreamEndCapture(s, &graph));
  size_t nodes;
  OK(cuGraphGetNodes(graph, nullptr, &nodes));
  CHECK(nodes == 5);
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  OK(cuGraphDestroy(graph));
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < n; i++) static_cast<float*>(h)[i] = (float)(i + round);
    OK(cuGraphLaunch(exec, s));
    OK(cuStreamSynchronize(s));
    for (int i = 0; i < n; i++) CHECK(static_cast<float*>(h)[i] == 5.f * (float)(i + round));
  }
  OK(cuGraphExecDestroy(exec));
  RESULT(InvalidHandle, cuGraphLaunch(exec, s));
}

// Two branches that should have been joined: some order of the nodes shows it.
CASE("graphs/planted_missing_dependency", "LFSIM_ORDER=reverse") {
  open_device();
  void *graph, *exec, *a, *b, *f = function("test_scale");
  Ptr x = upload(std::vector<float>(n, 1.f)), y = upload(std::vector<float>(n));
  Args first(x, x, 2.f, n), second(x, y, 3.f, n);
  OK(cuGraphCreate(&graph, 0));
  abi::KernelNodeParams p{f, 4, 1, 1, 256, 1, 1, 0, first.get(), nullptr, nullptr, nullptr};
  OK(cuGraphAddKernelNode_v2(&a, graph, nullptr, 0, &p));
  p.params = second.get();
  OK(cuGraphAddKernelNode_v2(&b, graph, nullptr, 0, &p));
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  OK(cuGraphLaunch(exec, nullptr));
  CHECK(download<float>(y, n)[0] == 3.f);  // 6 had the second waited for the first
  OK(cuGraphAddDependencies(graph, &a, &b, 1));
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  OK(cuGraphLaunch(exec, nullptr));
  CHECK(download<float>(y, n)[0] == 12.f);
  p.params = first.get();
  OK(cuGraphExecKernelNodeSetParams_v2(exec, b, &p));
  OK(cuGraphLaunch(exec, nullptr));
  CHECK(download<float>(x, n)[0] == 16.f);
  OK(cuGraphAddDependencies(graph, &b, &a, 1));
  RESULT(InvalidValue, cuGraphInstantiateWithFlags(&exec, graph, 0));
  MESSAGE("depend on each other");
}

static void* capturing(int mode) {
  void* s;
  OK(cuStreamCreate(&s, 1));
  OK(cuStreamBeginCapture_v2(s, mode));
  return s;
}

CASE("graphs/illegal_in_capture", "") {
  open_device();
  Ptr x = upload(std::vector<float>(n, 1.f)), y;
  void *graph, *t, *e;
  std::vector<float> host(n);
  OK(cuStreamCreate(&t, 0));
  OK(cuEventCreate(&e, 0));

  void* s = capturing(abi::CaptureGlobal);
  RESULT(StreamCaptureUnsupported, cuMemAlloc_v2(&y, 4));
  RESULT(StreamCaptureInvalidated, cuStreamEndCapture(s, &graph));

  s = capturing(abi::CaptureRelaxed);
  OK(cuMemAlloc_v2(&y, 4));
  RESULT(StreamCaptureUnsupported, cuStreamSynchronize(s));
  RESULT(StreamCaptureInvalidated, cuMemsetD32Async(x, 0, 1, s));
  RESULT(StreamCaptureInvalidated, cuStreamEndCapture(s, &graph));

  s = capturing(abi::CaptureThreadLocal);
  RESULT(StreamCaptureUnsupported, cuMemcpyDtoH_v2(host.data(), x, 4));
  RESULT(StreamCaptureInvalidated, cuStreamEndCapture(s, &graph));

  s = capturing(abi::CaptureRelaxed);
  RESULT(StreamCaptureUnsupported, cuMemcpyDtoHAsync_v2(host.data(), x, 4, s));
  MESSAGE("pageable memory in a capture");
  RESULT(StreamCaptureInvalidated, cuStreamEndCapture(s, &graph));

  s = capturing(abi::CaptureRelaxed);
  OK(cuEventRecord(e, s));
  RESULT(CapturedEvent, cuEventSynchronize(e));
  OK(cuMemsetD32Async(x, 0, 1, s));
  OK(cuStreamEndCapture(s, &graph));

  s = capturing(abi::CaptureRelaxed);
  OK(cuEventRecord(e, s));
  OK(cuStreamWaitEvent(t, e, 0));
  OK(cuMemsetD32Async(x, 0, 1, t));
  RESULT(StreamCaptureUnmatched, cuStreamEndCapture(t, &graph));
  RESULT(StreamCaptureUnjoined, cuStreamEndCapture(s, &graph));

  OK(cuEventRecord(e, t));
  s = capturing(abi::CaptureRelaxed);
  RESULT(StreamCaptureIsolation, cuStreamWaitEvent(s, e, 0));
  RESULT(StreamCaptureInvalidated, cuStreamEndCapture(s, &graph));

  function("test_scale");
  OK(cuStreamBeginCapture_v2(t, abi::CaptureThreadLocal));
  RESULT(StreamCaptureImplicit, launch("test_scale", 4, 256, 0, nullptr, scale(x, x, 2)));
  RESULT(StreamCaptureInvalidated, cuStreamEndCapture(t, &graph));
  RESULT(StreamCaptureUnsupported, cuStreamBeginCapture_v2(nullptr, 0));
  RESULT(InvalidValue, cuStreamEndCapture(t, &graph));
  OK(cuCtxSynchronize());
}

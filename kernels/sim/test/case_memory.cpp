// Memory: limits, frees, leaks, pinning, copies.
#include <string.h>
#include <sys/mman.h>

#include "cuda.h"

CASE("memory/limit", "LFSIM_MEM=1M") {
  open_device();
  Ptr a, b;
  size_t free, total;
  OK(cuMemAlloc_v2(&a, 600 << 10));
  RESULT(OutOfMemory, cuMemAlloc_v2(&b, 600 << 10));
  OK(cuMemGetInfo_v2(&free, &total));
  CHECK(total == 1 << 20 && free == 424 << 10);
  OK(cuMemFree_v2(a));
  OK(cuMemAlloc_v2(&b, 600 << 10));
  RESULT(InvalidValue, cuMemAlloc_v2(&a, 0));
}

CASE("memory/double_free", "") {
  open_device();
  Ptr p;
  OK(cuMemAlloc_v2(&p, 100));
  RESULT(InvalidValue, cuMemFree_v2(p + 4));
  MESSAGE("4 bytes inside of device allocation 1 of 100 bytes");
  OK(cuMemFree_v2(p));
  RESULT(InvalidValue, cuMemFree_v2(p));
  MESSAGE("double free of device allocation 1 of 100 bytes");
  OK(cuMemFree_v2(0));
}

CASE("memory/leak", "LFSIM_LEAKS=1") {
  open_device();
  Ptr a, b;
  OK(cuMemAlloc_v2(&a, 100));
  OK(cuMemAlloc_v2(&b, 200));
  OK(cuMemFree_v2(a));
  CHECK(lfsim_leaks() == 1);
  OK(cuDevicePrimaryCtxRelease_v2(0));  // reports, and frees
  MESSAGE("leak: device allocation 2 of 200 bytes was never freed");
  CHECK(lfsim_leaks() == 0);
}

CASE("memory/poisoned", "") {
  open_device();
  Ptr p;
  OK(cuMemAlloc_v2(&p, 4000));
  CHECK(p % 256 == 0);
  for (unsigned char c : download<unsigned char>(p, 4000)) CHECK(c == 0xff);
}

CASE("memory/async", "LFSIM_MEM=1M") {
  open_device();
  void *s, *t;
  OK(cuStreamCreate(&s, 1));
  OK(cuStreamCreate(&t, 1));
  Ptr p, q;
  OK(cuMemAllocAsync(&p, 600 << 10, s));
  OK(cuMemsetD32Async(p, 7, (600 << 10) / 4, s));
  OK(cuMemFreeAsync(p, s));
  RESULT(InvalidValue, cuMemFreeAsync(p, s));
  MESSAGE("double free");
  RESULT(InvalidValue, cuMemsetD32Async(p, 7, 1, t));
  MESSAGE("use after free");
  OK(cuMemAllocAsync(&q, 600 << 10, s));  // fits once p is free in the stream's order
  OK(cuStreamSynchronize(s));
}

// Memory that another stream will allocate does not exist yet.
CASE("memory/async_other_stream", "LFSIM_STREAMS=lazy") {
  open_device();
  void *s, *t;
  OK(cuStreamCreate(&s, 1));
  OK(cuStreamCreate(&t, 1));
  Ptr p, x = upload(noise(32, 1));
  OK(cuMemAllocAsync(&p, 128, s));
  OK(launch("test_scale", 1, 32, 0, t, Args(x, p, 2.f, 32)));
  RESULT(IllegalAddress, cuStreamSynchronize(t));
  MESSAGE("before its cuMemAllocAsync in stream order");
}

CASE("memory/pinned", "LFSIM_PINNED=1M") {
  open_device();
  void *h, *g;
  OK(cuMemHostAlloc(&h, 600 << 10, 0));
  RESULT(OutOfMemory, cuMemHostAlloc(&g, 600 << 10, 0));
  Ptr p = upload(std::vector<float>(32, 3.f));
  OK(launch("test_scale", 1, 32, 0, nullptr, Args(p, (Ptr)h, 2.f, 32)));  // mapped: kernels reach it
  OK(cuCtxSynchronize());
  CHECK(static_cast<float*>(h)[31] == 6.f);
  OK(cuMemFreeHost(h));
  RESULT(InvalidValue, cuMemFreeHost(h));
  RESULT(InvalidValue, cuMemFreeHost(&g));
}

CASE("memory/register", "") {
  open_device();
  int can;
  OK(cuDeviceGetAttribute(&can, 113, 0));
  CHECK(can == 1);
  size_t n = 1 << 16;
  void* file = mmap(nullptr, n, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  RESULT(InvalidValue, cuMemHostRegister_v2(file, n, 0));
  MESSAGE("without CU_MEMHOSTREGISTER_READ_ONLY");
  OK(cuMemHostRegister_v2(file, n, abi::HostRegisterReadOnly));
  RESULT(HostMemoryAlreadyRegistered, cuMemHostRegister_v2(static_cast<char*>(file) + 4096, 4096, abi::HostRegisterReadOnly));
  OK(cuMemHostUnregister(file));
  RESULT(HostMemoryNotRegistered, cuMemHostUnregister(file));
}

CASE("memory/register_unsupported", "LFSIM_NO_READ_ONLY_REGISTER=1") {
  open_device();
  int can;
  OK(cuDeviceGetAttribute(&can, 113, 0));
  CHECK(can == 0);
  std::vector<char> v(8192);
  RESULT(NotSupported, cuMemHostRegister_v2(v.data(), v.size(), abi::HostRegisterReadOnly));
  OK(cuMemHostRegister_v2(v.data(), v.size(), 0));
  OK(cuMemHostUnregister(v.data()));
}

CASE("memory/copies", "") {
  open_device();
  auto x = noise(100, 1);
  Ptr p = upload(x);
  std::vector<float> y(100);
  RESULT(InvalidValue, cuMemcpyHtoD_v2((Ptr)y.data(), x.data(), 400));
  MESSAGE("is no device memory");
  RESULT(InvalidValue, cuMemcpyDtoH_v2((void*)p, p, 400));
  MESSAGE("is device memory, host memory is expected");
  RESULT(InvalidValue, cuMemcpyDtoH_v2(y.data(), p + 200, 400));
  MESSAGE("400 bytes from byte 200 on of device allocation 1 of 400 bytes");
  abi::Memcpy2D c{};
  c.src_type = abi::MemoryDevice, c.src_device = p, c.src_pitch = 40, c.src_x = 8;
  c.dst_type = abi::MemoryHost, c.dst_host = y.data(), c.dst_pitch = 12;
  c.width = 12, c.height = 10;
  OK(cuMemcpy2D_v2(&c));
  for (size_t i = 0; i < 10; i++) CHECK(!memcmp(&y[i * 3], &x[i * 10 + 2], 12));
  OK(cuMemFree_v2(p));
  RESULT(InvalidValue, cuMemcpyDtoH_v2(y.data(), p, 400));
  MESSAGE("use after free");
}

CASE("memory/two_devices", "LFSIM_DEVICES=2") {
  open_device();
  int n;
  OK(cuDeviceGetCount(&n));
  CHECK(n == 2);
  Ptr p = upload(noise(32, 1));
  void* context;
  OK(cuDevicePrimaryCtxRetain(&context, 1));
  OK(cuCtxSetCurrent(context));
  Ptr q = upload(noise(32, 1));
  OK(launch("test_scale", 1, 32, 0, nullptr, Args(q, q, 2.f, 32)));
  OK(cuCtxSynchronize());
  OK(launch("test_scale", 1, 32, 0, nullptr, Args(p, q, 2.f, 32)));
  RESULT(IllegalAddress, cuCtxSynchronize());
  MESSAGE("is memory of device 0, the kernel runs on 1");
}

CASE("memory/injected", "LFSIM_FAIL=alloc:2,hostalloc:1,register:1,copy:3,launch:test_scale:2") {
  open_device();
  Ptr p = upload(noise(32, 1)), q;
  void* h;
  RESULT(OutOfMemory, cuMemAlloc_v2(&q, 128));
  OK(cuMemAlloc_v2(&q, 128));
  RESULT(OutOfMemory, cuMemHostAlloc(&h, 128, 0));
  std::vector<char> v(4096);
  RESULT(OutOfMemory, cuMemHostRegister_v2(v.data(), v.size(), 0));
  OK(launch("test_scale", 1, 32, 0, nullptr, Args(p, q, 2.f, 32)));
  OK(cuCtxSynchronize());
  OK(launch("test_scale", 1, 32, 0, nullptr, Args(p, q, 2.f, 32)));
  RESULT(LaunchFailed, cuCtxSynchronize());
  RESULT(LaunchFailed, cuMemAlloc_v2(&q, 128));
}

CASE("memory/lost", "LFSIM_FAIL=lost:1") {
  open_device();
  Ptr p = upload(noise(32, 1));
  OK(launch("test_scale", 1, 32, 0, nullptr, Args(p, p, 2.f, 32)));
  RESULT(Unknown, cuCtxSynchronize());
}

CASE("memory/lost_one", "LFSIM_DEVICES=2 LFSIM_FAIL=lost:1") {
  open_device();
  Ptr p = upload(noise(32, 1));
  OK(launch("test_halves", 1, 32, 0, nullptr, Args(p)));
  RESULT(Unknown, cuCtxSynchronize());
  void* context;
  OK(cuDevicePrimaryCtxRetain(&context, 1));
  OK(cuCtxSetCurrent(context));
  Ptr q = upload(noise(32, 1));
  OK(launch("test_scale", 1, 32, 0, nullptr, Args(q, q, 2.f, 32)));
  OK(cuCtxSynchronize());
}

CASE("memory/no_device", "LFSIM_NO_DEVICE=1") { RESULT(NoDevice, cuInit(0)); }

CASE("memory/no_context", "") {
  Ptr p;
  RESULT(NotInitialized, cuMemAlloc_v2(&p, 4));
  OK(cuInit(0));
  RESULT(InvalidContext, cuMemAlloc_v2(&p, 4));
}

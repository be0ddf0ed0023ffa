// The driver API as the tests call it, and the little that spares them
// repetition. Handles are void*.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include <string>
#include <vector>

#include "../driver/abi.h"

namespace abi = lfsim::abi;
using Ptr = abi::DevicePtr;

#define DRIVER(name, ...) extern "C" abi::Result name(__VA_ARGS__)
DRIVER(cuInit, unsigned);
DRIVER(cuDeviceGet, int*, int);
DRIVER(cuDeviceGetCount, int*);
DRIVER(cuDeviceGetAttribute, int*, int, int);
DRIVER(cuDevicePrimaryCtxRetain, void**, int);
DRIVER(cuDevicePrimaryCtxRelease_v2, int);
DRIVER(cuCtxSetCurrent, void*);
DRIVER(cuCtxSynchronize, void);
DRIVER(cuModuleLoadData, void**, const void*);
DRIVER(cuModuleUnload, void*);
DRIVER(cuModuleGetFunction, void**, void*, const char*);
DRIVER(cuFuncSetAttribute, void*, int, int);
DRIVER(cuFuncGetParamInfo, void*, size_t, size_t*, size_t*);
DRIVER(cuLaunchKernel, void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**);
DRIVER(cuLaunchKernelEx, const abi::LaunchConfig*, void*, void**, void**);
DRIVER(cuLaunchHostFunc, void*, void (*)(void*), void*);
DRIVER(cuMemAlloc_v2, Ptr*, size_t);
DRIVER(cuMemFree_v2, Ptr);
DRIVER(cuMemAllocAsync, Ptr*, size_t, void*);
DRIVER(cuMemFreeAsync, Ptr, void*);
DRIVER(cuMemGetInfo_v2, size_t*, size_t*);
DRIVER(cuMemHostAlloc, void**, size_t, unsigned);
DRIVER(cuMemFreeHost, void*);
DRIVER(cuMemHostRegister_v2, void*, size_t, unsigned);
DRIVER(cuMemHostUnregister, void*);
DRIVER(cuMemcpyHtoD_v2, Ptr, const void*, size_t);
DRIVER(cuMemcpyDtoH_v2, void*, Ptr, size_t);
DRIVER(cuMemcpyHtoDAsync_v2, Ptr, const void*, size_t, void*);
DRIVER(cuMemcpyDtoHAsync_v2, void*, Ptr, size_t, void*);
DRIVER(cuMemcpy2D_v2, const abi::Memcpy2D*);
DRIVER(cuMemsetD8_v2, Ptr, unsigned char, size_t);
DRIVER(cuMemsetD32Async, Ptr, unsigned, size_t, void*);
DRIVER(cuStreamCreate, void**, unsigned);
DRIVER(cuStreamDestroy_v2, void*);
DRIVER(cuStreamSynchronize, void*);
DRIVER(cuStreamQuery, void*);
DRIVER(cuStreamWaitEvent, void*, void*, unsigned);
DRIVER(cuStreamBeginCapture_v2, void*, int);
DRIVER(cuStreamEndCapture, void*, void**);
DRIVER(cuEventCreate, void**, unsigned);
DRIVER(cuEventDestroy_v2, void*);
DRIVER(cuEventRecord, void*, void*);
DRIVER(cuEventQuery, void*);
DRIVER(cuEventSynchronize, void*);
DRIVER(cuEventElapsedTime_v2, float*, void*, void*);
DRIVER(cuGraphCreate, void**, unsigned);
DRIVER(cuGraphAddKernelNode_v2, void**, void*, void* const*, size_t, const abi::KernelNodeParams*);
DRIVER(cuGraphAddMemsetNode, void**, void*, void* const*, size_t, const abi::MemsetNodeParams*, void*);
DRIVER(cuGraphAddDependencies, void*, void* const*, void* const*, size_t);
DRIVER(cuGraphGetNodes, void*, void**, size_t*);
DRIVER(cuGraphInstantiateWithFlags, void**, void*, unsigned long long);
DRIVER(cuGraphExecKernelNodeSetParams_v2, void*, void*, const abi::KernelNodeParams*);
DRIVER(cuGraphLaunch, void*, void*);
DRIVER(cuGraphExecDestroy, void*);
DRIVER(cuGraphDestroy, void*);
DRIVER(cuGetErrorName, int, const char**);
extern "C" const char* lfsim_last_message();
extern "C" int lfsim_leaks();
#undef DRIVER

// Case is one test: a process of its own, since errors of launches stay.
struct Case {
  const char *name, *environment;
  void (*run)();
  Case(const char* name, const char* environment, void (*run)());
};
#define CASE_JOIN_(a, b) a##b
#define CASE_JOIN(a, b) CASE_JOIN_(a, b)
#define CASE_(name, environment, f)                      \
  static void f();                                       \
  static const Case CASE_JOIN(f, _)(name, environment, f); \
  static void f()
#define CASE(name, environment) CASE_(name, environment, CASE_JOIN(case_, __LINE__))

[[noreturn]] void failed(const char* file, int line, const std::string& what);
void expect(const char* file, int line, const char* call, int got, int want);

#define CHECK(x)                                    \
  do {                                              \
    if (!(x)) failed(__FILE__, __LINE__, #x);       \
  } while (0)
#define RESULT(want, call) expect(__FILE__, __LINE__, #call, call, abi::want)
#define OK(call) RESULT(Success, call)
// MESSAGE checks the last reported error.
#define MESSAGE(text)                                                                               \
  do {                                                                                              \
    if (!strstr(lfsim_last_message(), text)) failed(__FILE__, __LINE__, std::string("\"") + text + "\" is not in: " + lfsim_last_message()); \
  } while (0)

// open makes the primary context of device 0 current.
void open_device();

// function loads a kernel by its name.
void* function(const char* name);

// Args packs parameters for a launch.
class Args {
 public:
  template <class... T>
  explicit Args(T... v) {
    (push(v), ...);
  }
  void** get() {
    pointers_.clear();
    for (auto& c : cells_) pointers_.push_back(&c);
    return pointers_.data();
  }

 private:
  template <class T>
  void push(T v) {
    uint64_t c = 0;
    __builtin_memcpy(&c, &v, sizeof v);
    cells_.push_back(c);
  }
  std::vector<uint64_t> cells_;
  std::vector<void*> pointers_;
};

// launch in one dimension, on a stream.
abi::Result launch(const char* name, unsigned grid, unsigned block, unsigned shared, void* stream, Args args);

template <class T>
Ptr upload(const std::vector<T>& v) {
  Ptr p;
  OK(cuMemAlloc_v2(&p, v.size() * sizeof(T)));
  OK(cuMemcpyHtoD_v2(p, v.data(), v.size() * sizeof(T)));
  return p;
}

template <class T>
std::vector<T> download(Ptr p, size_t n) {
  std::vector<T> v(n);
  OK(cuMemcpyDtoH_v2(v.data(), p, n * sizeof(T)));
  return v;
}

// noise returns n numbers in [-1, 1), the same each time.
std::vector<float> noise(size_t n, unsigned seed);
std::vector<uint16_t> bf16(const std::vector<float>& v);
float widen(uint16_t bf16);

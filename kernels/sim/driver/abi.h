// Numbers and structures of the driver API, with the layout of NVIDIA's
// cuda.h. This is our own copy, so that the simulator needs only a C++
// compiler; test/abi.cpp compares it with the real header if available.
#pragma once
#include <stddef.h>
#include <stdint.h>

namespace lfsim::abi {

using DevicePtr = unsigned long long;

// Result is CUresult, with the names of cuGetErrorName without CUDA_ERROR_.
enum Result : int {
  Success = 0,
  InvalidValue = 1,
  OutOfMemory = 2,
  NotInitialized = 3,
  NoDevice = 100,
  InvalidDevice = 101,
  InvalidImage = 200,
  InvalidContext = 201,
  NoBinaryForGpu = 209,
  PeerAccessUnsupported = 217,
  FileNotFound = 301,
  InvalidHandle = 400,
  NotFound = 500,
  NotReady = 600,
  IllegalAddress = 700,
  LaunchOutOfResources = 701,
  ContextIsDestroyed = 709,
  HostMemoryAlreadyRegistered = 712,
  HostMemoryNotRegistered = 713,
  IllegalInstruction = 715,
  MisalignedAddress = 716,
  LaunchFailed = 719,
  NotSupported = 801,
  StreamCaptureUnsupported = 900,
  StreamCaptureInvalidated = 901,
  StreamCaptureMerge = 902,
  StreamCaptureUnmatched = 903,
  StreamCaptureUnjoined = 904,
  StreamCaptureIsolation = 905,
  StreamCaptureImplicit = 906,
  CapturedEvent = 907,
  StreamCaptureWrongThread = 908,
  Unknown = 999,
};

enum : int {  // CUfunction_attribute
  MaxThreadsPerBlock = 0,
  SharedSizeBytes = 1,
  ConstSizeBytes = 2,
  LocalSizeBytes = 3,
  NumRegs = 4,
  PtxVersion = 5,
  BinaryVersion = 6,
  MaxDynamicSharedSizeBytes = 8,
  PreferredSharedMemoryCarveout = 9,
};

enum : unsigned {
  StreamNonBlocking = 1,
  EventDisableTiming = 2,
  HostRegisterReadOnly = 8,
};

enum NodeType : int { NodeKernel, NodeMemcpy, NodeMemset, NodeHost, NodeGraph, NodeEmpty, NodeWaitEvent, NodeEventRecord };

enum CaptureMode : int { CaptureGlobal, CaptureThreadLocal, CaptureRelaxed };

enum MemoryType : int { MemoryHost = 1, MemoryDevice = 2, MemoryArray = 3, MemoryUnified = 4 };

struct Uuid {
  unsigned char bytes[16];
};

struct LaunchAttribute {
  int id;
  char pad[4];
  union {
    char bytes[64];
    struct {
      unsigned x, y, z;
    } cluster;
    int value;
  };
};

struct LaunchConfig {
  unsigned gx, gy, gz, bx, by, bz, shared;
  void* stream;
  LaunchAttribute* attributes;
  unsigned nattributes;
};

struct KernelNodeParams {
  void* function;
  unsigned gx, gy, gz, bx, by, bz, shared;
  void** params;
  void** extra;
  void* kernel;
  void* context;
};

struct MemsetNodeParams {
  DevicePtr dst;
  size_t pitch;
  unsigned value, element;
  size_t width, height;
};

struct HostNodeParams {
  void (*fn)(void*);
  void* data;
};

struct Memcpy2D {
  size_t src_x, src_y;
  int src_type;
  const void* src_host;
  DevicePtr src_device;
  void* src_array;
  size_t src_pitch;
  size_t dst_x, dst_y;
  int dst_type;
  void* dst_host;
  DevicePtr dst_device;
  void* dst_array;
  size_t dst_pitch;
  size_t width, height;
};

struct Memcpy3D {
  size_t src_x, src_y, src_z, src_lod;
  int src_type;
  const void* src_host;
  DevicePtr src_device;
  void* src_array;
  void* reserved0;
  size_t src_pitch, src_height;
  size_t dst_x, dst_y, dst_z, dst_lod;
  int dst_type;
  void* dst_host;
  DevicePtr dst_device;
  void* dst_array;
  void* reserved1;
  size_t dst_pitch, dst_height;
  size_t width, height, depth;
};

}  // namespace lfsim::abi

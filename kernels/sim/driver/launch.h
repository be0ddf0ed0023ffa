// Conversion of API arguments to a launch, for streams and graphs.
#pragma once
#include "work.h"

namespace lfsim {

struct LaunchSpec {
  void* function;
  unsigned gx, gy, gz, bx, by, bz, shared;
  void** params;
  void** extra;
};

abi::Result make_kernel(Context* context, const LaunchSpec& spec, std::shared_ptr<KernelWork>* work);

// readable reports whether n bytes can be read, so that a wrong pointer gives
// an error instead of a crash.
bool readable(const void* p, size_t n);

}  // namespace lfsim

// Making a launch out of what the API is given, for streams and graphs alike.
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

// readable tells whether n bytes can be read; a wrong pointer is then an error
// instead of the end of the process.
bool readable(const void* p, size_t n);

}  // namespace lfsim

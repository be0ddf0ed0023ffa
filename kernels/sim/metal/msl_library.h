// A compiled shader in memory.
#pragma once
#include <string>

#include "msl.h"

namespace lfmsl {
// prepare_engine reads the engine's settings and tells it of Metal; once, before the first dispatch.
void prepare_engine();
}  // namespace lfmsl

struct lf_msl {
  void* handle = nullptr;
  const lf_msl_library* table = nullptr;

  explicit lf_msl(const std::string& shared_object);  // throws lfmsl::Error
  lf_msl(const lf_msl&) = delete;
  lf_msl& operator=(const lf_msl&) = delete;
  ~lf_msl();
};

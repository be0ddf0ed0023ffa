// From Metal to what clang++ compiles as C++.
#pragma once
#include <stdexcept>
#include <string>

namespace lfmsl {

// Error is a mistake in a shader, or in how one is compiled.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// rewrite makes C++ of a preprocessed shader: attributes go, threadgroup arrays come from
// the engine, and every kernel gets a wrapper that hands it its arguments.
std::string rewrite(const std::string& preprocessed);

}  // namespace lfmsl

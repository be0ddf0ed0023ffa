// Translation from Metal to C++ for clang++.
#pragma once
#include <stdexcept>
#include <string>

namespace lfmsl {

// Error is a mistake in a shader, or in how one is compiled.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// rewrite converts a preprocessed shader to C++. It removes attributes, takes threadgroup
// arrays from the engine, and adds a wrapper that passes arguments to every kernel.
std::string rewrite(const std::string& preprocessed);

}  // namespace lfmsl

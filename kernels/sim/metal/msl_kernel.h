// The signature of a kernel, and the wrapper generated from it.
#pragma once
#include <string>
#include <vector>

#include "msl_tokens.h"

namespace lfmsl {

struct Parameter {
  std::string type, name;
  std::string attribute, argument;  // buffer and 2 of [[buffer(2)]]
  bool reference = false;
};

struct Kernel {
  std::string name;
  std::string threads;  // of max_total_threads_per_threadgroup, empty if not said
  std::vector<Parameter> parameters;
  size_t body = 0;  // where the brace of its body is
};

// read_kernel reads the signature that follows the word kernel at i.
Kernel read_kernel(const Text&, size_t i);

// wrappers returns the functions and the table by which kernels are called.
std::string wrappers(const std::vector<Kernel>&);

// attribute_end returns the position after the ]] of the [[ at i, or i if there is none.
size_t attribute_end(const Text&, size_t i);

}  // namespace lfmsl

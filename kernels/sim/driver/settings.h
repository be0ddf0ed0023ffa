// The environment: LFSIM_… as the README of kernels/sim lists them.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include <chrono>
#include <string>
#include <vector>

namespace lfsim {

struct Settings {
  bool no_device = false;
  bool leaks = false;    // report them
  bool verbose = false;  // a line for every launch
  bool lazy_streams = false;
  // A lazy stream continues by itself after this time, since a program may
  // legitimately wait for a host function by other means.
  std::chrono::milliseconds patience{50};
  std::string keep;  // the folder of launches that are kept
  std::string count;  // the file of the counts of launches
  int devices = 1;
  int major = 8, minor = 0;
  size_t memory = (size_t)4 << 30;  // of each device
  size_t pinned = ~(size_t)0;       // most that may be pinned
  bool read_only_register = true;   // attribute 113
};

const Settings& settings();

// injected reports whether LFSIM_FAIL selects this call of a kind (alloc,
// hostalloc, register, copy, launch, lost, module, …) to fail. Kinds that have
// a name, such as launch:gemm_f32:2, count calls of that name.
bool injected(const std::string& kind, const std::string& name = "");

// complain writes "lfsim: …" to stderr and keeps it for lfsim_last_message.
void complain(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace lfsim

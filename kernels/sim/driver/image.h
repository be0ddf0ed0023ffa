// Module images: what nvcc makes (fat binary, cubin, PTX), and the simulator's
// own form for tests without nvcc: "LFSIM", then names of kernels, a line each.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "abi.h"

namespace lfsim {

// Entry describes a kernel of a cubin.
struct Entry {
  unsigned max_threads = 1024;           // of __launch_bounds__
  std::map<unsigned, unsigned> params;   // ordinal → size
  unsigned shared = 0;                   // static shared memory
};

struct Image {
  bool complete = false;  // entries lists all kernels; else they are compressed
  bool cubin = false;     // and says more of them than their names
  std::map<std::string, Entry> entries;
};

// parse reads an image as a device of this compute capability would choose
// from it. *why says what is wrong with it.
abi::Result parse_image(const void* image, int major, int minor, Image* parsed, std::string* why);

}  // namespace lfsim

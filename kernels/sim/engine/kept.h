// A launch that can be repeated elsewhere: the kernel's name, sizes and
// parameters, and the memory that these point into before the launch.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include <string>
#include <vector>

#include "../device/kernel.h"

namespace lfsim {

struct Kept {
  static constexpr uint32_t nowhere = ~0u;
  struct Pointer {
    uint32_t range = nowhere;  // of the memory below
    uint64_t offset = 0;
  };

  std::string kernel;
  dim3 grid, block;
  unsigned shared = 0;
  std::vector<uint64_t> cells;
  std::vector<Pointer> pointers;  // one for each cell
  std::vector<std::vector<char>> memory;

  uint64_t threads() const { return (uint64_t)grid.x * grid.y * grid.z * block.x * block.y * block.z; }

  bool write(const std::string& file) const;
  bool read(const std::string& file);
};

}  // namespace lfsim

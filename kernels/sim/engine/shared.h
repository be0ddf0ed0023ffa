// Shared memory of a block: every array ends at a page that faults, and is
// poisoned anew for every block.
#pragma once
#include <stddef.h>

#include <string>
#include <vector>

#include "../device/kernel.h"

namespace lfsim {

class SharedMemory {
 public:
  SharedMemory() = default;
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  // begin poisons dynamic bytes and forgets the static arrays of the last block.
  void begin(size_t dynamic_bytes);

  void* dynamic() const { return dynamic_.begin; }

  // fixed returns the array of one declaration, which is created when the first thread reaches it.
  void* fixed(const void* key, size_t bytes, size_t align, Site site);

  // total returns the number of bytes used by the block so far.
  size_t total() const { return total_; }

  // contains reports whether bytes at p are shared memory of this block.
  bool contains(const void* p, size_t bytes) const;

  // trampled detects an error that the guard pages miss: a write into the few
  // bytes of padding before them. Empty if there was none.
  std::string trampled() const;

  // describe describes an address near an array relative to it; empty if it is
  // near none.
  std::string describe(const void* p) const;

 private:
  // Array has its own mapping: guard, slack, array, slack, guard.
  struct Array {
    char* mapping = nullptr;
    size_t room = 0;  // between the guards
    char *begin = nullptr, *end = nullptr;
    const void* key = nullptr;
    Site site{};
    void map(size_t bytes);
    void place(size_t bytes, size_t align);
    void unmap();
  };
  static bool holds(const Array& a, const void* p, size_t bytes);
  static std::string name(const Array& a, bool is_dynamic);

  Array dynamic_;
  std::vector<Array> fixed_;  // the first used_ are this block's
  size_t used_ = 0, total_ = 0;
};

}  // namespace lfsim

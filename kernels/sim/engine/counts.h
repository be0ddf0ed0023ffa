// Counts of what the threads of a launch do to memory, tensor cores and barriers, for
// kernels whose accesses the compiler reports (the library libcuda_count.so).
#pragma once
#include <stdint.h>

#include <string>
#include <unordered_map>
#include <vector>

#include "../device/kernel.h"

namespace lfsim {

// Counts are independent of the order in which threads and blocks run. An access is one
// of a warp: that of all its lanes at the same place of the code.
struct Counts {
  uint64_t reads = 0, sectors_read = 0;        // of global memory, in sectors of 32 bytes
  uint64_t writes = 0, sectors_written = 0;
  uint64_t wavefronts = 0, conflicts = 0;      // of shared memory; the wavefronts that banks in conflict add
  uint64_t mma = 0;                            // instructions of tensor cores
  uint64_t barriers = 0;                       // of the block that has most

  void add(const Counts&);
};

// to_string formats counts: sectors/accesses of global memory, wavefronts of shared memory
// without conflicts + those that conflicts add, and the rest.
std::string to_string(const Counts&);

// counted reports whether the kernels of this program were compiled to report accesses.
bool counted();

// Counter counts a block. An access of a lane belongs to the access of the warp with the
// same place in the code and the same number, counted from the last point that all lanes
// of the warp passed together: a barrier or a primitive of the whole warp.
class Counter {
 public:
  Counts counts;

  explicit Counter(unsigned warps) : warps_(warps) {}
  void access(const Lane&, unsigned epoch, uintptr_t code, bool write, bool shared, const void* p, unsigned bytes);
  void matrix(const uint16_t* const rows[8]);  // one of an ldmatrix
  void end();

 private:
  struct Group {
    bool write, shared;
    unsigned bytes;
    uint32_t lanes = 0;
    uintptr_t address[32];
  };
  struct Place {
    unsigned epoch = 0;
    unsigned times[32] = {};      // by lane
    std::vector<size_t> groups;   // by number
  };
  struct Ledger {
    unsigned epoch = 0;
    std::unordered_map<uintptr_t, Place> places;
    std::vector<Group> groups;
  };
  void settle(Ledger&);
  void global(const Group&);
  void shared(const Group&);
  void banks(std::vector<uintptr_t>& words);

  std::vector<Ledger> warps_;
};

// report_access is called on a fiber for each access that the compiler reports, and for those of cp.async.
void report_access(const void* code, bool write, const void* p, unsigned long bytes);

}  // namespace lfsim

// The address book: every range of memory that a device or the driver knows,
// also what has been freed, so that a wrong address can be told by its name.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include <deque>
#include <map>
#include <mutex>
#include <string>

namespace lfsim {

enum class Kind { Device, Pinned, Registered };

// Freeing is memory passed to cuMemFreeAsync whose stream has not reached the
// call. Only work submitted earlier may use it.
enum class Life { Live, Freeing, Freed };

struct Range {
  uintptr_t begin = 0;
  size_t bytes = 0;
  Kind kind = Kind::Device;
  Life state = Life::Live;
  int device = 0;
  bool open = true;     // false: faults, before and behind its life in stream order
  uint64_t serial = 0;  // the how manieth of its kind
  char* mapping = nullptr;
  size_t mapped = 0;

  bool holds(uintptr_t p, size_t n) const { return p >= begin && p - begin <= bytes && n <= bytes - (p - begin); }
  std::string name() const;
};

class AddressBook {
 public:
  static AddressBook& get();

  // map creates device memory full of NaNs between two guard pages, as near to
  // the upper one as an alignment of 256 bytes allows. It is open, or opened
  // later.
  bool map(size_t bytes, int device, bool open, Range* made);

  // open lets memory be used, free ends its life; freed ranges keep their
  // addresses for a long time. freeing says that free will follow.
  void open(uintptr_t begin);
  void freeing(uintptr_t begin);
  void free(uintptr_t begin);

  // add records host memory that is pinned or registered.
  Range add(uintptr_t begin, size_t bytes, Kind kind, int device);

  // remove forgets host memory.
  void remove(uintptr_t begin);

  // find returns the range that contains p, or that ends at p if no other begins there.
  bool find(uintptr_t p, Range* found) const;

  // overlaps reports whether host memory in [p, p+n) is known already.
  bool overlaps(uintptr_t p, size_t n) const;

  // trampled describes a write past the end of a range, before the guard page.
  std::string trampled(const Range& r) const;

  // describe describes an address: inside, next to, or in a freed range. Empty: unknown.
  std::string describe(uintptr_t p) const;

  // leaks counts the objects that a device (-1: any) still holds, and reports each.
  int leaks(int device, bool report) const;

  // clear frees all device memory of a device, as the end of its context does.
  void clear(int device);

  size_t used(int device) const;
  size_t pinned() const;

 private:
  void retire(Range& r);

  mutable std::mutex mu_;
  std::map<uintptr_t, Range> ranges_;
  std::deque<uintptr_t> freed_;
  uint64_t serial_[3] = {};
  std::map<int, size_t> used_;
  size_t pinned_ = 0;
};

}  // namespace lfsim

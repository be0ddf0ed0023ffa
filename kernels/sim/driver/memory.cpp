#include "memory.h"

#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <vector>

#include "settings.h"

namespace lfsim {

static constexpr size_t page = 4096;
static constexpr size_t alignment = 256;       // of cuMemAlloc
static constexpr size_t most_freed = 1 << 14;  // ranges that keep their addresses; the kernel allows 65530 mappings
static constexpr unsigned char poison = 0xff;  // NaN in every float format

std::string Range::name() const {
  static const char* const kinds[] = {"device allocation", "pinned allocation", "registered memory"};
  return std::string(kinds[(int)kind]) + " " + std::to_string(serial) + " of " + std::to_string(bytes) + " bytes";
}

AddressBook& AddressBook::get() {
  static auto* book = new AddressBook;
  return *book;
}

static void unlock(const Range& r) {
  mprotect(r.mapping + page, r.mapped - 2 * page, PROT_READ | PROT_WRITE);
  memset(r.mapping + page, poison, r.mapped - 2 * page);
}

bool AddressBook::map(size_t bytes, int device, bool open, Range* made) {
  size_t room = (bytes + page - 1) / page * page;
  void* p = mmap(nullptr, room + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return false;
  Range r;
  r.mapping = static_cast<char*>(p);
  r.mapped = room + 2 * page;
  r.begin = (uintptr_t)(r.mapping + page) + ((room - bytes) & ~(alignment - 1));
  r.bytes = bytes;
  r.device = device;
  r.open = open;
  if (open) unlock(r);
  std::lock_guard<std::mutex> lock(mu_);
  r.serial = ++serial_[(int)Kind::Device];
  used_[device] += bytes;
  ranges_[r.begin] = r;
  *made = r;
  return true;
}

Range AddressBook::add(uintptr_t begin, size_t bytes, Kind kind, int device) {
  std::lock_guard<std::mutex> lock(mu_);
  Range r;
  r.begin = begin;
  r.bytes = bytes;
  r.kind = kind;
  r.device = device;
  r.serial = ++serial_[(int)kind];
  pinned_ += bytes;
  ranges_[begin] = r;
  return r;
}

// retire closes a range: any access to it faults, and its addresses are not
// reused until many other ranges have been freed.
void AddressBook::retire(Range& r) {
  mmap(r.mapping, r.mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  r.state = Life::Freed;
  r.open = false;
  used_[r.device] -= r.bytes;
  freed_.push_back(r.begin);
  if (freed_.size() <= most_freed) return;
  auto old = ranges_.find(freed_.front());
  freed_.pop_front();
  munmap(old->second.mapping, old->second.mapped);
  ranges_.erase(old);
}

void AddressBook::open(uintptr_t begin) {
  std::lock_guard<std::mutex> lock(mu_);
  Range& r = ranges_.at(begin);
  unlock(r);
  r.open = true;
}

void AddressBook::freeing(uintptr_t begin) {
  std::lock_guard<std::mutex> lock(mu_);
  ranges_.at(begin).state = Life::Freeing;
}

void AddressBook::free(uintptr_t begin) {
  std::lock_guard<std::mutex> lock(mu_);
  retire(ranges_.at(begin));
}

void AddressBook::remove(uintptr_t begin) {
  std::lock_guard<std::mutex> lock(mu_);
  auto it = ranges_.find(begin);
  pinned_ -= it->second.bytes;
  ranges_.erase(it);
}

bool AddressBook::find(uintptr_t p, Range* found) const {
  std::lock_guard<std::mutex> lock(mu_);
  auto it = ranges_.upper_bound(p);
  if (it == ranges_.begin()) return false;
  --it;
  if (p - it->first > it->second.bytes) return false;
  *found = it->second;
  return true;
}

bool AddressBook::overlaps(uintptr_t p, size_t n) const {
  std::lock_guard<std::mutex> lock(mu_);
  auto it = ranges_.lower_bound(p + n);
  if (it == ranges_.begin()) return false;
  --it;
  return it->second.begin + it->second.bytes > p;
}

std::string AddressBook::trampled(const Range& r) const {
  auto* end = reinterpret_cast<const unsigned char*>(r.begin + r.bytes);
  auto* guard = reinterpret_cast<const unsigned char*>(r.mapping + r.mapped - page);
  for (auto* p = end; p < guard; p++) {
    if (*p != poison) return "a write " + std::to_string(p - end) + " bytes past the end of " + r.name();
  }
  return "";
}

std::string AddressBook::describe(uintptr_t p) const {
  if (p < 65536) return "a null pointer, or near one";
  std::lock_guard<std::mutex> lock(mu_);
  auto it = ranges_.upper_bound(p);
  std::string s;
  if (it != ranges_.begin()) {
    const Range& r = std::prev(it)->second;
    if (r.holds(p, 1)) {
      if (r.state == Life::Freed) return "use after free of " + r.name();
      if (!r.open) return "use of " + r.name() + " before its cuMemAllocAsync in stream order";
      if (r.state == Life::Freeing) return "use of " + r.name() + ", which is being freed";
      return "inside of " + r.name() + ", " + std::to_string(p - r.begin) + " bytes from its start";
    }
    if (p - (r.begin + r.bytes) < 1 << 20) s = std::to_string(p - (r.begin + r.bytes)) + " bytes past the end of " + r.name();
  }
  if (it != ranges_.end() && it->first - p < (s.empty() ? 1 << 20 : page)) {
    std::string before = std::to_string(it->first - p) + " bytes before " + it->second.name();
    s = s.empty() ? before : s + ", " + before;
  }
  return s;
}

int AddressBook::leaks(int device, bool report) const {
  std::lock_guard<std::mutex> lock(mu_);
  int n = 0;
  for (auto& [begin, r] : ranges_) {
    if (r.state == Life::Freed || r.state == Life::Freeing) continue;
    if (device >= 0 && (r.device != device || r.kind != Kind::Device)) continue;
    n++;
    if (report) complain("leak: %s was never freed", r.name().c_str());
  }
  return n;
}

void AddressBook::clear(int device) {
  std::lock_guard<std::mutex> lock(mu_);
  std::vector<uintptr_t> mine;
  for (auto& [begin, r] : ranges_) {
    if (r.kind == Kind::Device && r.device == device && r.state != Life::Freed) mine.push_back(begin);
  }
  for (uintptr_t begin : mine) retire(ranges_.at(begin));
}

size_t AddressBook::used(int device) const {
  std::lock_guard<std::mutex> lock(mu_);
  auto it = used_.find(device);
  return it == used_.end() ? 0 : it->second;
}

size_t AddressBook::pinned() const {
  std::lock_guard<std::mutex> lock(mu_);
  return pinned_;
}

}  // namespace lfsim

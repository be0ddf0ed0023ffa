#include "fake_memory.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <deque>
#include <map>
#include <mutex>
#include <string>

#include "../engine/engine.h"
#include "fake_live.h"
#include "msl.h"

namespace {

constexpr size_t alignment = 16;
constexpr size_t most_freed = 1 << 14;     // mappings that keep their addresses; Linux allows 65530
constexpr unsigned char margin = 0xa5;     // the bytes between memory and its guards
constexpr size_t guard = 2 * LF_MSL_NEAR;  // of a second mapping: no address behind it is near a bound buffer

struct Range {
  uint64_t serial;
  uintptr_t begin;
  size_t bytes;
  char* mapping = nullptr;  // with the guards; null: the program's own memory
  size_t mapped = 0;
  bool freed = false;
  char* alias = nullptr;  // the second mapping, with its guards; null: there is none
  size_t aliased = 0;
  uint64_t address = 0;              // of begin in it
  unsigned readers = 0, writers = 0; // grants of accesses through it

  size_t distance(uintptr_t p, uintptr_t from) const { return p >= from + bytes ? p - (from + bytes) : p < from ? from - p : 0; }
  std::string name() const {
    return "buffer " + std::to_string(serial) + " of " + std::to_string(bytes) + (mapping ? " bytes" : " bytes, which was not copied");
  }
};

// Book is all memory that was ever mapped, less what was freed long ago.
struct Book {
  std::mutex mu;
  std::map<uint64_t, Range> ranges;  // by serial
  std::deque<uint64_t> freed;
  uint64_t last = 0, mapped = 0, borrowed = 0;

  static Book& get();
};

size_t page() {
  static const size_t n = (size_t)getpagesize();
  return n;
}

// written_at returns the address of the first byte of [from, to) that was written.
const unsigned char* written_at(const void* from, const void* to) {
  auto* p = static_cast<const unsigned char*>(from);
  auto* end = static_cast<const unsigned char*>(to);
  if (p == end || (*p == margin && !memcmp(p, p + 1, (size_t)(end - p) - 1))) return nullptr;
  while (*p == margin) p++;
  return p;
}

void check(const Range& r) {
  if (!r.mapping || r.freed) return;
  auto* begin = reinterpret_cast<const unsigned char*>(r.begin);
  if (auto* p = written_at(r.mapping + page(), begin)) lf_die("a write %zu bytes before %s", (size_t)(begin - p), r.name().c_str());
  auto* end = begin + r.bytes;
  if (auto* p = written_at(end, r.mapping + r.mapped - page())) lf_die("a write %zu bytes past the end of %s", (size_t)(p - end), r.name().c_str());
}

// describe_alias describes an address in the second mapping of a range.
std::string describe_alias(const Range& r, uintptr_t p) {
  if (p - r.address >= r.bytes) return std::to_string(r.distance(p, r.address)) + (p > r.address ? " bytes past the end of " : " bytes before ") + r.name();
  if (r.freed) return "use after free of " + r.name();
  return "inside of " + r.name() + (r.readers ? ", which useResource has declared for reading only" : ", which is not bound, and not declared by useResource");
}

// describe describes an address: inside, next to, or in a freed range. Empty: unknown.
std::string describe(const void* address) {
  auto p = (uintptr_t)address;
  if (p < 65536) return "a null pointer, or near one";
  Book& book = Book::get();
  std::lock_guard<std::mutex> lock(book.mu);
  std::string beside;
  size_t nearest = 1 << 20;
  for (auto& [serial, r] : book.ranges) {
    if (r.alias && p - (uintptr_t)r.alias < r.aliased) return describe_alias(r, p);
    if (p >= r.begin && p - r.begin < r.bytes) return (r.freed ? "use after free of " : "inside of ") + r.name();
    bool behind = p >= r.begin + r.bytes;
    size_t away = r.distance(p, r.begin);
    if (away >= nearest) continue;
    nearest = away;
    beside = std::to_string(away) + (behind ? " bytes past the end of " : " bytes before ") + r.name();
  }
  return beside;
}

// reserve maps pages that fault, in place of those at an address if there is one.
char* reserve(void* at, size_t bytes) {
  void* p = mmap(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (at ? MAP_FIXED : 0), -1, 0);
  return p == MAP_FAILED ? nullptr : static_cast<char*>(p);
}

// protect lets the second mapping allow what is granted.
void protect(const Range& r) {
  if (!r.alias) return;
  int allowed = r.writers ? PROT_READ | PROT_WRITE : r.readers ? PROT_READ : PROT_NONE;
  if (mprotect(r.alias + guard, r.aliased - 2 * guard, allowed) != 0) lf_die("useResource: %s is read-only", r.name().c_str());
}

void grant(uint64_t serial, bool write, int change) {
  Book& book = Book::get();
  std::lock_guard<std::mutex> lock(book.mu);
  auto it = book.ranges.find(serial);
  if (it == book.ranges.end() || it->second.freed) return;
  it->second.readers += change;
  if (write) it->second.writers += change;
  protect(it->second);
}

// Never destroyed: threads end after main does.
Book& Book::get() {
  static auto* book = [] {
    lfsim::describe_address = describe;
    return new Book;
  }();
  return *book;
}

}  // namespace

extern "C" {

void* lf_memory_map(size_t bytes, uint64_t* serial) {
  Book& book = Book::get();
  size_t room = (bytes + page() - 1) / page() * page();
  char* p = reserve(nullptr, room + 2 * page());
  if (!p) return nullptr;
  Range r{};
  r.mapping = p;
  r.mapped = room + 2 * page();
  r.begin = (uintptr_t)(r.mapping + page()) + ((room - bytes) & ~(alignment - 1));
  r.bytes = bytes;
  if (mmap(r.mapping + page(), room, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED) {
    munmap(r.mapping, r.mapped);
    return nullptr;
  }
  auto* begin = reinterpret_cast<char*>(r.begin);
  memset(r.mapping + page(), margin, (size_t)(begin - (r.mapping + page())));
  memset(begin + bytes, margin, (size_t)(r.mapping + r.mapped - page() - (begin + bytes)));
  std::lock_guard<std::mutex> lock(book.mu);
  *serial = r.serial = ++book.last;
  book.ranges[r.serial] = r;
  book.mapped += bytes;
  return begin;
}

void lf_memory_borrow(void* begin, size_t bytes, uint64_t* serial) {
  Book& book = Book::get();
  Range r{};
  r.begin = (uintptr_t)begin;
  r.bytes = bytes;
  std::lock_guard<std::mutex> lock(book.mu);
  *serial = r.serial = ++book.last;
  book.ranges[r.serial] = r;
  book.borrowed += bytes;
}

void lf_memory_free(uint64_t serial) {
  Book& book = Book::get();
  std::lock_guard<std::mutex> lock(book.mu);
  auto it = book.ranges.find(serial);
  Range& r = it->second;
  if (!r.mapping) {
    book.borrowed -= r.bytes;
    if (r.alias) munmap(r.alias, r.aliased);
    book.ranges.erase(it);
    return;
  }
  check(r);
  reserve(r.mapping, r.mapped);
  if (r.alias) reserve(r.alias, r.aliased);
  r.freed = true;
  book.mapped -= r.bytes;
  book.freed.push_back(serial);
  if (book.freed.size() <= most_freed) return;
  auto old = book.ranges.find(book.freed.front());
  book.freed.pop_front();
  munmap(old->second.mapping, old->second.mapped);
  if (old->second.alias) munmap(old->second.alias, old->second.aliased);
  book.ranges.erase(old);
}

uint64_t lf_memory_address(uint64_t serial) {
  Book& book = Book::get();
  std::lock_guard<std::mutex> lock(book.mu);
  Range& r = book.ranges.at(serial);
  if (r.address) return r.address;
  uintptr_t from = r.begin / page() * page();
  size_t bytes = (r.begin + r.bytes - from + page() - 1) / page() * page();
  char* alias = reserve(nullptr, bytes + 2 * guard);
  if (!alias) lf_die("gpuAddress: no addresses are left for %s", r.name().c_str());
  // Of shared pages, mremap of no bytes makes another mapping.
  if (mremap(reinterpret_cast<void*>(from), 0, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, alias + guard) == MAP_FAILED) {
    if (r.mapping) lf_die("gpuAddress: %s cannot be mapped twice", r.name().c_str());
    munmap(alias, bytes + 2 * guard);
    return r.address = r.begin;
  }
  r.alias = alias;
  r.aliased = bytes + 2 * guard;
  r.address = (uintptr_t)alias + guard + (r.begin - from);
  protect(r);
  return r.address;
}

void lf_memory_grant(uint64_t serial, bool write) { grant(serial, write, 1); }
void lf_memory_revoke(uint64_t serial, bool write) { grant(serial, write, -1); }

bool lf_memory_is_live(uint64_t serial) {
  Book& book = Book::get();
  std::lock_guard<std::mutex> lock(book.mu);
  auto it = book.ranges.find(serial);
  return it != book.ranges.end() && !it->second.freed;
}

void lf_memory_check(uint64_t serial) {
  Book& book = Book::get();
  std::lock_guard<std::mutex> lock(book.mu);
  auto it = book.ranges.find(serial);
  if (it != book.ranges.end()) check(it->second);
}

uint64_t lf_memory_mapped(void) {
  Book& book = Book::get();
  std::lock_guard<std::mutex> lock(book.mu);
  return book.mapped;
}

uint64_t lf_memory_borrowed(void) {
  Book& book = Book::get();
  std::lock_guard<std::mutex> lock(book.mu);
  return book.borrowed;
}

}  // extern "C"

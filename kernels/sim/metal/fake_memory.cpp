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

namespace {

constexpr size_t alignment = 16;
constexpr size_t most_freed = 1 << 14;  // mappings that keep their addresses; Linux allows 65530
constexpr unsigned char margin = 0xa5;  // the bytes between memory and its guards

struct Range {
  uint64_t serial;
  uintptr_t begin;
  size_t bytes;
  char* mapping = nullptr;  // with the guards; null: the program's own memory
  size_t mapped = 0;
  bool freed = false;

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

// describe describes an address: inside, next to, or in a freed range. Empty: unknown.
std::string describe(const void* address) {
  auto p = (uintptr_t)address;
  if (p < 65536) return "a null pointer, or near one";
  Book& book = Book::get();
  std::lock_guard<std::mutex> lock(book.mu);
  std::string beside;
  size_t nearest = 1 << 20;
  for (auto& [serial, r] : book.ranges) {
    if (p >= r.begin && p - r.begin < r.bytes) return (r.freed ? "use after free of " : "inside of ") + r.name();
    bool behind = p >= r.begin + r.bytes;
    size_t away = behind ? p - (r.begin + r.bytes) : r.begin - p;
    if (away >= nearest) continue;
    nearest = away;
    beside = std::to_string(away) + (behind ? " bytes past the end of " : " bytes before ") + r.name();
  }
  return beside;
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
  void* p = mmap(nullptr, room + 2 * page(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  Range r{};
  r.mapping = static_cast<char*>(p);
  r.mapped = room + 2 * page();
  r.begin = (uintptr_t)(r.mapping + page()) + ((room - bytes) & ~(alignment - 1));
  r.bytes = bytes;
  if (mprotect(r.mapping + page(), room, PROT_READ | PROT_WRITE) != 0) {
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
    book.ranges.erase(it);
    return;
  }
  check(r);
  mmap(r.mapping, r.mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  r.freed = true;
  book.mapped -= r.bytes;
  book.freed.push_back(serial);
  if (book.freed.size() <= most_freed) return;
  auto old = book.ranges.find(book.freed.front());
  book.freed.pop_front();
  munmap(old->second.mapping, old->second.mapped);
  book.ranges.erase(old);
}

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

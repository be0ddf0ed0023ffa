#include "shared.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <new>

#include "engine.h"

namespace lfsim {

static constexpr size_t page = 4096;
static constexpr unsigned char poison = 0xff;  // NaN in every float format

static size_t pages(size_t n) { return (n + page - 1) / page * page; }

void SharedMemory::Array::map(size_t bytes) {
  if (room >= bytes) return;
  unmap();
  room = pages(bytes);
  void* p = mmap(nullptr, room + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  mapping = static_cast<char*>(p);
  mprotect(mapping + page, room, PROT_READ | PROT_WRITE);
}

// place positions the array as near to the upper guard as its alignment allows
// and poisons everything between the guards. Not by memset: the sanitizer for
// races would take that for an access by the block.
void SharedMemory::Array::place(size_t bytes, size_t align) {
  map(bytes);
  char* top = mapping + page + room;
  begin = top - (bytes + align - 1) / align * align;
  end = begin + bytes;
  size_t from = room > pages(bytes) ? room - pages(bytes) : 0;  // a larger mapping: only the last pages
  for (char* p = mapping + page + from; p < top; p += 8) {
    *reinterpret_cast<volatile unsigned long long*>(p) = ~0ull;
  }
}

void SharedMemory::Array::unmap() {
  if (mapping) munmap(mapping, room + 2 * page);
  mapping = begin = end = nullptr;
  room = 0;
}

SharedMemory::~SharedMemory() {
  dynamic_.unmap();
  for (auto& a : fixed_) a.unmap();
}

void SharedMemory::begin(size_t dynamic_bytes) {
  if (dynamic_bytes) {
    dynamic_.place(dynamic_bytes, 128);
  } else {
    dynamic_.begin = dynamic_.end = nullptr;
  }
  used_ = 0;
  total_ = dynamic_bytes;
}

void* SharedMemory::fixed(const void* key, size_t bytes, size_t align, Site site) {
  for (size_t i = 0; i < used_; i++) {
    if (fixed_[i].key == key) return fixed_[i].begin;
  }
  if (used_ == fixed_.size()) fixed_.emplace_back();
  Array& a = fixed_[used_++];
  a.key = key;
  a.site = site;
  a.place(bytes, align);
  total_ += bytes;
  return a.begin;
}

bool SharedMemory::holds(const Array& a, const void* p, size_t bytes) {
  auto* q = static_cast<const char*>(p);
  return a.begin && q >= a.begin && q + bytes <= a.end;
}

bool SharedMemory::contains(const void* p, size_t bytes) const {
  if (holds(dynamic_, p, bytes)) return true;
  for (size_t i = 0; i < used_; i++) {
    if (holds(fixed_[i], p, bytes)) return true;
  }
  return false;
}

std::string SharedMemory::name(const Array& a, bool is_dynamic) {
  char text[128];
  if (is_dynamic) {
    snprintf(text, sizeof text, "dynamic %s memory (%zu bytes)", options.words->shared, (size_t)(a.end - a.begin));
  } else {
    const char* file = strrchr(a.site.file, '/');
    snprintf(text, sizeof text, "the %s array of %s:%d (%zu bytes)", options.words->shared, file ? file + 1 : a.site.file, a.site.line, (size_t)(a.end - a.begin));
  }
  return text;
}

std::string SharedMemory::trampled() const {
  auto check = [](const Array& a, bool is_dynamic) -> std::string {
    if (!a.begin) return "";
    const char* top = a.mapping + page + a.room;
    for (const char* p = a.end; p < top; p++) {
      if (static_cast<unsigned char>(*p) != poison) {
        return "a write " + std::to_string(p - a.end) + " bytes past the end of " + name(a, is_dynamic);
      }
    }
    const char* low = std::max<const char*>(top - pages((size_t)(top - a.begin)), a.begin - 64);  // all would take longer than small blocks
    for (const char* p = low; p < a.begin; p++) {
      if (static_cast<unsigned char>(*p) != poison) {
        return "a write " + std::to_string(a.begin - p) + " bytes before " + name(a, is_dynamic);
      }
    }
    return "";
  };
  std::string s = check(dynamic_, true);
  for (size_t i = 0; i < used_ && s.empty(); i++) s = check(fixed_[i], false);
  return s;
}

std::string SharedMemory::describe(const void* p) const {
  auto* q = static_cast<const char*>(p);
  auto beside = [&](const Array& a, bool is_dynamic) -> std::string {
    if (!a.begin || q < a.mapping || q >= a.mapping + a.room + 2 * page) return "";
    if (q >= a.end) return std::to_string(q - a.end) + " bytes past the end of " + name(a, is_dynamic);
    return std::to_string(a.begin - q) + " bytes before " + name(a, is_dynamic);
  };
  std::string s = beside(dynamic_, true);
  for (size_t i = 0; i < used_ && s.empty(); i++) s = beside(fixed_[i], false);
  return s;
}

}  // namespace lfsim

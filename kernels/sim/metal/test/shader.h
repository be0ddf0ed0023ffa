// Helpers of the shader compiler's self-tests.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include <functional>
#include <string>
#include <vector>

#include "../msl.h"

// Case registers a test under a name; it fails by check.
struct Case {
  Case(const char* name, void (*run)());
};
#define CASE(id, name)            \
  static void case_##id();        \
  static Case of_##id(name, case_##id); \
  static void case_##id()

void check(bool ok, const char* file, int line, const std::string& what);
#define CHECK(condition) check((condition), __FILE__, __LINE__, #condition)
// CONTAINS wants a part in a text.
#define CONTAINS(text, part) contains((text), (part), __FILE__, __LINE__)
void contains(const std::string& text, const std::string& part, const char* file, int line);

// Buffer ends at a page that faults, and begins as 0xff.
class Buffer {
 public:
  explicit Buffer(size_t bytes);
  template <class T>
  explicit Buffer(const std::vector<T>& v) : Buffer(v.size() * sizeof(T)) {
    for (size_t i = 0; i < v.size(); i++) at<T>(i) = v[i];
  }
  Buffer(Buffer&&) noexcept;
  ~Buffer();

  template <class T>
  T& at(size_t i) const {
    return static_cast<T*>(begin_)[i];
  }
  void* begin() const { return begin_; }
  size_t bytes() const { return bytes_; }

 private:
  void *mapping_ = nullptr, *begin_ = nullptr;
  size_t bytes_ = 0;
};

using Macros = std::vector<const char*>;

// Library is a compiled source; error is why there is none.
class Library {
 public:
  Library(const std::string& source, const Macros& macros = {});
  ~Library();
  std::string error;

  int kernel(const std::string& name) const;
  lf_msl_info about(const std::string& name) const { return lf_msl_about(library_, kernel(name)); }

  // run dispatches threadgroups of threads, and gives the error's text, empty if there is
  // none. The buffers have the indices 0, 1, …
  std::string run(const std::string& name, unsigned groups, unsigned threads, const std::vector<const Buffer*>& buffers) const;
  std::string run(const std::string& name, const lf_msl_args& args) const;

 private:
  lf_msl* library_ = nullptr;
};

// library returns the compiled file of the folder shaders, which is compiled once for
// each set of macros.
const Library& library(const std::string& file, const Macros& macros = {});

// in_all_orders repeats f with each order of threads, and with several threads of the host.
void in_all_orders(const std::function<void(const char* order)>& f);

std::vector<float> noise(size_t n, unsigned seed);

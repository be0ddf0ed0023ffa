#include "kept.h"

#include <stdio.h>

namespace lfsim {

namespace {

// File is a file of numbers and byte strings in the byte order of the machine:
// it is read on the machine that wrote it.
struct File {
  FILE* f;
  bool ok;
  File(const std::string& name, const char* mode) : f(fopen(name.c_str(), mode)), ok(f) {}
  ~File() {
    if (f) fclose(f);
  }
  bool close() {
    ok = f && !fclose(f) && ok;
    f = nullptr;
    return ok;
  }
  void put(const void* p, size_t n) { ok = ok && fwrite(p, 1, n, f) == n; }
  void get(void* p, size_t n) { ok = ok && fread(p, 1, n, f) == n; }

  template <class V>
  void put_all(const V& v) {
    uint64_t n = v.size();
    put(&n, sizeof n);
    put(v.data(), n * sizeof v[0]);
  }
  template <class V>
  void get_all(V& v) {
    uint64_t n = 0;
    get(&n, sizeof n);
    if (!(ok = ok && n <= (uint64_t)1 << 30)) return;
    v.resize(n);
    get(&v[0], n * sizeof v[0]);
  }
};

}  // namespace

bool Kept::write(const std::string& file) const {
  // A name of its own first: a process may end while it writes.
  File f(file + ".new", "wb");
  f.put_all(kernel);
  unsigned sizes[7] = {grid.x, grid.y, grid.z, block.x, block.y, block.z, shared};
  f.put(sizes, sizeof sizes);
  f.put_all(cells);
  f.put_all(pointers);
  uint64_t n = memory.size();
  f.put(&n, sizeof n);
  for (auto& m : memory) f.put_all(m);
  return f.close() && !rename((file + ".new").c_str(), file.c_str());
}

bool Kept::read(const std::string& file) {
  File f(file, "rb");
  f.get_all(kernel);
  unsigned sizes[7] = {};
  f.get(sizes, sizeof sizes);
  grid = {sizes[0], sizes[1], sizes[2]}, block = {sizes[3], sizes[4], sizes[5]}, shared = sizes[6];
  f.get_all(cells);
  f.get_all(pointers);
  uint64_t n = 0;
  f.get(&n, sizeof n);
  if (!f.ok || n > KernelDef::max_params || pointers.size() != cells.size()) return false;
  memory.resize(n);
  for (auto& m : memory) f.get_all(m);
  return f.ok;
}

}  // namespace lfsim

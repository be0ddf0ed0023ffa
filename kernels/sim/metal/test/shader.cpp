// The self-tests of the shader compiler: "shadertest" runs all cases, "shadertest PART…" the
// cases with one of the parts in their names. Each case is a line, "ok NAME" or "FAIL NAME: …".
#include "shader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <map>
#include <memory>
#include <random>

#include "../../engine/engine.h"
#include "../msl_library.h"
#include "../msl_process.h"

namespace {

std::map<std::string, void (*)()>& cases() {
  static std::map<std::string, void (*)()> all;
  return all;
}

struct Failure {
  std::string what;
};

constexpr size_t page = 4096;

}  // namespace

Case::Case(const char* name, void (*run)()) { cases()[name] = run; }

void check(bool ok, const char* file, int line, const std::string& what) {
  if (ok) return;
  const char* slash = strrchr(file, '/');
  throw Failure{std::string(slash ? slash + 1 : file) + ":" + std::to_string(line) + ": " + what};
}

void contains(const std::string& text, const std::string& part, const char* file, int line) {
  check(text.find(part) != std::string::npos, file, line, "expected \"" + part + "\" in \"" + text + "\"");
}

Buffer::Buffer(size_t bytes) : bytes_(bytes) {
  size_t room = (bytes + page - 1) / page * page;
  mapping_ = mmap(nullptr, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping_ == MAP_FAILED) abort();
  mprotect(static_cast<char*>(mapping_) + room, page, PROT_NONE);
  memset(mapping_, 0xff, room);
  begin_ = static_cast<char*>(mapping_) + room - bytes;
}

Buffer::Buffer(Buffer&& o) noexcept : mapping_(o.mapping_), begin_(o.begin_), bytes_(o.bytes_) { o.mapping_ = nullptr; }

Buffer::~Buffer() {
  if (mapping_) munmap(mapping_, (bytes_ + page - 1) / page * page + page);
}

Library::Library(const std::string& source, const Macros& macros) {
  char* e = nullptr;
  library_ = lf_msl_compile(source.data(), source.size(), macros.data(), (int)macros.size(), &e);
  if (!library_) error = e;
  free(e);
}

Library::~Library() {
  if (library_) lf_msl_free(library_);
}

int Library::kernel(const std::string& name) const {
  for (int i = 0; library_ && i < lf_msl_count(library_); i++) {
    if (name == lf_msl_name(library_, i)) return i;
  }
  throw Failure{"there is no kernel " + name + " " + error};
}

std::string Library::run(const std::string& name, const lf_msl_args& args) const {
  char* e = nullptr;
  uint64_t work = 0;
  int status = lf_msl_dispatch(library_, kernel(name), &args, &work, &e);
  std::string text = e ? e : "";
  free(e);
  check((status == 0) == text.empty(), __FILE__, __LINE__, "status " + std::to_string(status) + " with the error \"" + text + "\"");
  return text;
}

std::string Library::run(const std::string& name, unsigned groups, unsigned threads, const std::vector<const Buffer*>& buffers) const {
  lf_msl_args a{};
  for (size_t i = 0; i < buffers.size(); i++) {
    a.buffer[i] = buffers[i] ? buffers[i]->begin() : nullptr;
    a.length[i] = buffers[i] ? buffers[i]->bytes() : 0;
  }
  a.grid[0] = groups, a.grid[1] = a.grid[2] = 1;
  a.threads[0] = threads, a.threads[1] = a.threads[2] = 1;
  return run(name, a);
}

const Library& library(const std::string& file, const Macros& macros) {
  static std::map<std::string, std::unique_ptr<Library>> all;
  std::string key = file;
  for (const char* m : macros) key += std::string(" ") + m;
  auto& l = all[key];
  if (!l) {
    std::string path = lfmsl::here() + "/../metal/test/shaders/" + file;
    l = std::make_unique<Library>("#line 1 \"" + file + "\"\n" + lfmsl::read_file(path), macros);
    check(l->error.empty(), __FILE__, __LINE__, l->error);
  }
  return *l;
}

void in_all_orders(const std::function<void(const char*)>& f) {
  const lfsim::Options before = lfsim::options;
  struct Mode {
    const char* name;
    lfsim::Order order;
    uint64_t seed;
    int threads;
  };
  static const Mode modes[] = {{"forward", lfsim::Order::Forward, 1, 1}, {"reverse", lfsim::Order::Reverse, 1, 2}, {"random", lfsim::Order::Random, 3, 1}, {"random 2", lfsim::Order::Random, 4, 2}};
  for (const Mode& m : modes) {
    lfsim::options.order = m.order;
    lfsim::options.seed = m.seed;
    lfsim::options.threads = m.threads;
    f(m.name);
  }
  lfsim::options = before;
}

std::vector<float> noise(size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> v(n);
  for (float& x : v) x = (float)(int32_t)random() * 0x1p-31f;
  return v;
}

int main(int argc, char** argv) {
  lfmsl::prepare_engine();
  int failed = 0;
  for (auto& [name, run] : cases()) {
    bool wanted = argc == 1;
    for (int i = 1; i < argc; i++) wanted |= name.find(argv[i]) != std::string::npos;
    if (!wanted) continue;
    try {
      run();
      printf("ok %s\n", name.c_str());
    } catch (const Failure& f) {
      printf("FAIL %s: %s\n", name.c_str(), f.what.c_str());
      failed = 1;
    }
    fflush(stdout);
  }
  return failed;
}

// Runs the kernels of counted.cu and compares what is counted with what they say.
#include "count.h"

#include <stdio.h>
#include <stdlib.h>

#include <memory>
#include <string>
#include <vector>

#include "../engine/engine.h"
#include "../engine/environment.h"

namespace {

struct Known {
  const char* name;
  LfCountKernel kernel;
  const char* want;
  unsigned threads;
};

std::vector<Known>& cases() {
  static std::vector<Known> all;
  return all;
}

}  // namespace

LfCountCase::LfCountCase(const char* name, LfCountKernel kernel, const char* want, unsigned threads) { cases().push_back({name, kernel, want, threads}); }

int main() {
  lfsim::read_options();
  int failed = 0;
  for (const Known& c : cases()) {
    std::unique_ptr<float, void (*)(void*)> memory(static_cast<float*>(calloc(9, 1024)), free);
    auto* to = reinterpret_cast<float*>(((uintptr_t)memory.get() | 255) + 1);
    const float* from = to + 1024;
    void* params[] = {&to, &from};
    lfsim::KernelDef def{c.name, (void*)c.kernel, &lfsim::Register<float*, const float*>::call, 2, {}};
    lfsim::Counts counts;
    std::string got;
    if (lfsim::run({&def, params, {}, {c.threads}, 0, 48 * 1024, &counts}, &got) == lfsim::Outcome::Done) got = to_string(counts);
    printf("%s %s: %s\n", got == c.want ? "ok" : "FAIL", c.name, got.c_str());
    failed += got != c.want;
  }
  return failed > 0;
}

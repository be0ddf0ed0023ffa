// The program of the race detector: "race --list" names the cases, "race NAME"
// runs one, "race --repeat FILE…" what LFSIM_KEEP has kept, and "race --kernels"
// names all kernels. Each kernel that runs is printed. ThreadSanitizer reports on
// stderr and makes the status 66.
#include "race.h"

#include <stdio.h>
#include <string.h>

#include <map>
#include <string>

#include "../engine/engine.h"
#include "../engine/kept.h"

static std::map<std::string, void (*)()>& cases() {
  static std::map<std::string, void (*)()> all;
  return all;
}

// watch runs a launch, and ends the program if it fails.
static void watch(const lfsim::Launch& launch) {
  const dim3 &grid = launch.grid, &block = launch.block;
  size_t threads = (size_t)grid.x * grid.y * grid.z * block.x * block.y * block.z;
  if (threads > 2048) {
    fprintf(stderr, "race: %zu threads in a launch, at most 2048: each takes the detector a megabyte\n", threads);
    exit(2);
  }
  printf("%s\n", launch.kernel->name);
  fflush(stdout);
  std::string message;
  if (lfsim::run(launch, &message) == lfsim::Outcome::Done) return;
  fprintf(stderr, "race: %s\n", message.c_str());
  exit(1);
}

// name_of finds the name that a kernel is registered by.
static const char* name_of(void* function) {
  for (const std::string& name : lfsim::kernel_names()) {
    const lfsim::KernelDef* def = lfsim::find_kernel(name);
    if (def->function == function) return def->name;
  }
  return "a kernel";
}

LfRaceCase::LfRaceCase(const char* name, void (*run)()) { cases()[name] = run; }

void lf_race_run(void* function, void (*call)(void*, void* const*), int nparams, void** params, dim3 grid, dim3 block, unsigned shared) {
  lfsim::KernelDef def{name_of(function), function, call, nparams, {}};
  watch({&def, params, grid, block, shared, 227 * 1024});
}

// repeat runs a launch on a copy of the memory that it had.
static void repeat(const char* file) {
  lfsim::Kept kept;
  const lfsim::KernelDef* def = kept.read(file) ? lfsim::find_kernel(kept.kernel) : nullptr;
  if (!def || kept.cells.size() != (size_t)def->nparams) {
    fprintf(stderr, "race: %s: not a launch of a kernel of this program\n", file);
    exit(2);
  }
  // 256 bytes, to which allocations of the device are aligned.
  std::vector<void*> memory;
  for (auto& m : kept.memory) {
    memory.push_back(aligned_alloc(256, (m.size() / 256 + 1) * 256));
    memcpy(memory.back(), m.data(), m.size());
  }
  std::vector<void*> params;
  for (size_t i = 0; i < kept.cells.size(); i++) {
    const lfsim::Kept::Pointer& p = kept.pointers[i];
    if (p.range != lfsim::Kept::nowhere) kept.cells[i] = (uint64_t)(uintptr_t)memory.at(p.range) + p.offset;
    params.push_back(&kept.cells[i]);
  }
  watch({def, params.data(), kept.grid, kept.block, kept.shared, 227 * 1024});
  for (void* m : memory) free(m);
}

int main(int argc, char** argv) {
  if (argc == 2 && !strcmp(argv[1], "--list")) {
    for (auto& c : cases()) printf("%s\n", c.first.c_str());
    return 0;
  }
  if (argc == 2 && !strcmp(argv[1], "--kernels")) {
    for (const std::string& name : lfsim::kernel_names()) printf("%s\n", name.c_str());
    return 0;
  }
  if (argc > 2 && !strcmp(argv[1], "--repeat")) {
    for (int i = 2; i < argc; i++) repeat(argv[i]);
    return 0;
  }
  auto it = argc == 2 ? cases().find(argv[1]) : cases().end();
  if (it == cases().end()) {
    fprintf(stderr, "usage: race --list | --kernels | NAME | --repeat FILE…\n");
    return 2;
  }
  it->second();
  return 0;
}

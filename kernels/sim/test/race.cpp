// The program of the race detector: "race --list" names the cases, "race NAME"
// runs one. ThreadSanitizer reports on stderr and makes the status 66.
#include "race.h"

#include <stdio.h>
#include <string.h>

#include <map>
#include <string>

#include "../engine/engine.h"

static std::map<std::string, void (*)()>& cases() {
  static std::map<std::string, void (*)()> all;
  return all;
}

LfRaceCase::LfRaceCase(const char* name, void (*run)()) { cases()[name] = run; }

void lf_race_run(void* function, void (*call)(void*, void* const*), int nparams, void** params, dim3 grid, dim3 block, unsigned shared) {
  size_t threads = (size_t)grid.x * grid.y * grid.z * block.x * block.y * block.z;
  if (threads > 2048) {
    fprintf(stderr, "race: %zu threads in a launch, at most 2048: each takes the detector a megabyte\n", threads);
    exit(2);
  }
  lfsim::KernelDef def{"kernel", function, call, nparams, {}};
  lfsim::Launch launch{&def, params, grid, block, shared, 227 * 1024};
  std::string message;
  if (lfsim::run(launch, &message) == lfsim::Outcome::Done) return;
  fprintf(stderr, "race: %s\n", message.c_str());
  exit(1);
}

int main(int argc, char** argv) {
  if (argc == 2 && !strcmp(argv[1], "--list")) {
    for (auto& c : cases()) printf("%s\n", c.first.c_str());
    return 0;
  }
  auto it = argc == 2 ? cases().find(argv[1]) : cases().end();
  if (it == cases().end()) {
    fprintf(stderr, "usage: race --list | NAME\n");
    return 2;
  }
  it->second();
  return 0;
}

#include "keep.h"

#include <stdio.h>

#include <map>
#include <mutex>

#include "../engine/kept.h"
#include "settings.h"

namespace lfsim {

// The detector needs a megabyte per thread, and a millisecond to map it, so
// repeated launches should be no larger. Two blocks show what one does to another.
static constexpr uint64_t most_threads = 2048, enough_threads = 512;
static constexpr size_t most_bytes = (size_t)16 << 20;

// worth orders launches by their threads: more are better, but not more than enough.
static uint64_t worth(uint64_t threads) {
  if (threads > most_threads) return 0;
  return threads <= enough_threads ? most_threads + threads : most_threads + 1 - threads;
}

// gather copies the memory that the parameters point into. False: it is too much.
static bool gather(const KernelWork& work, Kept* kept) {
  std::map<uintptr_t, uint32_t> known;
  size_t total = 0;
  for (int i = 0; i < work.kernel->nparams; i++) {
    Range r;
    if (!work.kernel->params[i].pointer || !AddressBook::get().find((uintptr_t)work.cells[(size_t)i], &r)) continue;
    auto [it, added] = known.emplace(r.begin, (uint32_t)kept->memory.size());
    if (added) {
      if ((total += r.bytes) > most_bytes) return false;
      auto* from = reinterpret_cast<const char*>(r.begin);
      kept->memory.emplace_back(from, from + r.bytes);
    }
    kept->pointers[(size_t)i] = {it->second, work.cells[(size_t)i] - r.begin};
  }
  return true;
}

void keep(const KernelWork& work) {
  static std::mutex mu;
  static std::map<std::string, uint64_t> best;
  std::lock_guard<std::mutex> lock(mu);
  std::string file = settings().keep + "/" + work.kernel->name;
  auto [most, first] = best.emplace(work.kernel->name, 0);
  if (first) {
    FILE* seen = fopen((file + ".seen").c_str(), "w");
    if (!seen || fclose(seen)) complain("LFSIM_KEEP: cannot write %s.seen", file.c_str());
  }
  Kept kept;
  kept.kernel = work.kernel->name;
  kept.grid = work.grid, kept.block = work.block, kept.shared = work.dynamic_shared;
  kept.cells = work.cells;
  kept.pointers.resize(kept.cells.size());
  if (worth(kept.threads()) <= most->second || !gather(work, &kept)) return;
  most->second = worth(kept.threads());
  if (!kept.write(file)) complain("LFSIM_KEEP: cannot write %s", file.c_str());
}

}  // namespace lfsim

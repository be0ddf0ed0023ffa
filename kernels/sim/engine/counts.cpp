#include "counts.h"

#include <algorithm>

#include "block.h"

namespace lfsim {

static bool reported;

bool counted() { return reported; }

void Counts::add(const Counts& o) {
  reads += o.reads, sectors_read += o.sectors_read;
  writes += o.writes, sectors_written += o.sectors_written;
  wavefronts += o.wavefronts, conflicts += o.conflicts;
  mma += o.mma;
  barriers = std::max(barriers, o.barriers);
}

std::string to_string(const Counts& c) {
  auto text = [](uint64_t n) { return std::to_string(n); };
  return "read " + text(c.sectors_read) + "/" + text(c.reads) + " written " + text(c.sectors_written) + "/" + text(c.writes) + " shared " + text(c.wavefronts - c.conflicts) + "+" + text(c.conflicts) +
         " mma " + text(c.mma) + " barriers " + text(c.barriers);
}

void Counter::end() {
  for (Ledger& l : warps_) settle(l);
}

void Counter::access(const Lane& lane, unsigned epoch, uintptr_t code, bool write, bool shared, const void* p, unsigned bytes) {
  Ledger& l = warps_[lane.warp];
  if (l.epoch != epoch) {  // all lanes of the warp have passed the same point
    settle(l);
    l.epoch = epoch;
  }
  Place& place = l.places[code << 2 | (uintptr_t)write << 1 | (uintptr_t)shared];
  if (place.epoch != epoch) {
    place = {};
    place.epoch = epoch;
  }
  unsigned n = place.times[lane.lane]++;
  if (n == place.groups.size()) {
    place.groups.push_back(l.groups.size());
    l.groups.push_back({write, shared, 0, 0, {}});
  }
  Group& g = l.groups[place.groups[n]];
  g.bytes = std::max(g.bytes, bytes);
  g.lanes |= 1u << lane.lane;
  g.address[lane.lane] = (uintptr_t)p;
}

void Counter::settle(Ledger& l) {
  for (const Group& g : l.groups) g.shared ? shared(g) : global(g);
  l.groups.clear();
}

void Counter::global(const Group& g) {
  std::vector<uintptr_t> sectors;
  for (uint32_t m = g.lanes; m; m &= m - 1) {
    uintptr_t p = g.address[__builtin_ctz(m)];
    for (uintptr_t s = p / 32; s <= (p + g.bytes - 1) / 32; s++) sectors.push_back(s);
  }
  std::sort(sectors.begin(), sectors.end());
  auto n = (uint64_t)(std::unique(sectors.begin(), sectors.end()) - sectors.begin());
  g.write ? counts.writes++ : counts.reads++;
  (g.write ? counts.sectors_written : counts.sectors_read) += n;
}

// Accesses of 8 bytes are served for half a warp at a time, of 16 bytes for a quarter.
void Counter::shared(const Group& g) {
  int lanes = g.bytes > 8 ? 8 : g.bytes > 4 ? 16 : 32;
  for (int first = 0; first < 32; first += lanes) {
    std::vector<uintptr_t> words;
    for (int l = first; l < first + lanes; l++) {
      if (!(g.lanes >> l & 1)) continue;
      for (uintptr_t w = g.address[l] / 4; w <= (g.address[l] + g.bytes - 1) / 4; w++) words.push_back(w);
    }
    banks(words);
  }
}

void Counter::matrix(const uint16_t* const rows[8]) {
  std::vector<uintptr_t> words;
  for (int r = 0; r < 8; r++) {
    for (unsigned i = 0; i < 4; i++) words.push_back((uintptr_t)rows[r] / 4 + i);
  }
  banks(words);
}

// A wavefront has one word of each of the 32 banks.
void Counter::banks(std::vector<uintptr_t>& words) {
  if (words.empty()) return;
  std::sort(words.begin(), words.end());
  words.erase(std::unique(words.begin(), words.end()), words.end());
  unsigned load[32] = {};
  for (uintptr_t w : words) load[w % 32]++;
  unsigned most = *std::max_element(load, load + 32);
  counts.wavefronts += most;
  counts.conflicts += most - 1;
}

// Constants, and the engine's memory: a kernel reads its indices there.
static bool is_global(const void* address) {
  extern char image_begin __asm__("__ehdr_start") __attribute__((visibility("hidden")));
  extern char image_end __asm__("_end") __attribute__((visibility("hidden")));
  auto within = [p = (uintptr_t)address](const void* begin, size_t bytes) { return p - (uintptr_t)begin < bytes; };
  const Block& b = *running;
  return !within(self()->stack.top() - Stack::size, Stack::size) && !within(&b, sizeof b) && !within(b.fibers.data(), b.fibers.size() * sizeof(Fiber)) &&
         !within(&current, sizeof current) && !within(&image_begin, (size_t)(&image_end - &image_begin));
}

void report_access(const void* code, bool write, const void* p, unsigned long bytes) {
  if (!current || !running->counter) return;
  bool shared = running->shared.contains(p, 1);
  if (!shared && !is_global(p)) return;
  for (unsigned long at = 0; at < bytes; at += 16) {  // 16 bytes are the most that a lane moves at a time
    running->counter->access(*current, self()->epoch, (uintptr_t)code, write, shared, static_cast<const char*>(p) + at, (unsigned)std::min(bytes - at, 16ul));
  }
}

}  // namespace lfsim

// What -fsanitize=thread calls. The race detector has its own library instead.
#ifndef LFSIM_TSAN
#define REPORT(name, write, bytes) \
  extern "C" void __tsan_##name(void* p) { lfsim::report_access(__builtin_return_address(0), write, p, bytes); }
#define REPORT_BOTH(suffix, bytes) REPORT(read##suffix, false, bytes) REPORT(write##suffix, true, bytes)
#define REPORT_ANY(bytes) REPORT_BOTH(bytes, bytes) REPORT(unaligned_read##bytes, false, bytes) REPORT(unaligned_write##bytes, true, bytes)
REPORT_ANY(1) REPORT_ANY(2) REPORT_ANY(4) REPORT_ANY(8) REPORT_ANY(16)
extern "C" void __tsan_read_range(void* p, unsigned long n) { lfsim::report_access(__builtin_return_address(0), false, p, n); }
extern "C" void __tsan_write_range(void* p, unsigned long n) { lfsim::report_access(__builtin_return_address(0), true, p, n); }
extern "C" void __tsan_init() { lfsim::reported = true; }
extern "C" void __tsan_func_entry(void*) {}
extern "C" void __tsan_func_exit() {}
#endif

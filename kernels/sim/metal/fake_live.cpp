#include "fake_live.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>

#include "../engine/engine.h"
#include "fake_memory.h"
#include "include/lf_metal_fake.h"

namespace {

struct Census {
  std::mutex mu;
  std::condition_variable quiet;
  std::set<uint64_t> living;
  int count[LF_KINDS] = {};
  uint64_t last = 0;
  int finishing = 0;
  lf_metal_work work = {};

  // Never destroyed: threads end after main does.
  static Census& get() {
    static auto* census = new Census;
    return *census;
  }
};

// The time that lf_metal_live waits for unfinished work: a handler may be slow.
constexpr std::chrono::seconds patience{10};

}  // namespace

extern "C" {

void lf_die(const char* format, ...) {
  va_list args;
  va_start(args, format);
  flockfile(stderr);
  fputs("fake Metal: ", stderr);
  vfprintf(stderr, format, args);
  fputc('\n', stderr);
  funlockfile(stderr);
  va_end(args);
  abort();
}

uint64_t lf_born(int kind) {
  Census& c = Census::get();
  std::lock_guard<std::mutex> lock(c.mu);
  c.count[kind]++;
  c.living.insert(++c.last);
  return c.last;
}

void lf_gone(int kind, uint64_t number) {
  Census& c = Census::get();
  std::lock_guard<std::mutex> lock(c.mu);
  c.count[kind]--;
  c.living.erase(number);
}

bool lf_lives(uint64_t number) {
  Census& c = Census::get();
  std::lock_guard<std::mutex> lock(c.mu);
  return c.living.count(number) != 0;
}

void lf_finishing(bool begins) {
  Census& c = Census::get();
  std::lock_guard<std::mutex> lock(c.mu);
  c.finishing += begins ? 1 : -1;
  if (!c.finishing) c.quiet.notify_all();
}

void lf_ran(uint64_t work) {
  Census& c = Census::get();
  std::lock_guard<std::mutex> lock(c.mu);
  c.work.command_buffers++;
  c.work.most_work = std::max(c.work.most_work, work);
  c.work.work += work;
}

void lf_on_the_way(uint64_t command_buffers) {
  Census& c = Census::get();
  std::lock_guard<std::mutex> lock(c.mu);
  c.work.most_on_the_way = std::max(c.work.most_on_the_way, command_buffers);
}

void lf_requested(uint64_t buffers, uint64_t bytes) {
  Census& c = Census::get();
  std::lock_guard<std::mutex> lock(c.mu);
  if (buffers) c.work.requests++;
  c.work.resident_buffers = buffers;
  c.work.resident_bytes = bytes;
}

size_t lf_turn(size_t i, size_t n) {
  switch (lfsim::options.order) {
    case lfsim::Order::Forward:
      return i;
    case lfsim::Order::Reverse:
      return n - 1 - i;
    default:
      return lfsim::options.seed % 2 ? (i + lfsim::options.seed) % n : n - 1 - (i + lfsim::options.seed) % n;
  }
}

__attribute__((visibility("default"))) lf_metal_counts lf_metal_live(void) {
  Census& c = Census::get();
  std::unique_lock<std::mutex> lock(c.mu);
  c.quiet.wait_for(lock, patience, [&] { return c.finishing == 0; });
  lf_metal_counts n;
  n.devices = c.count[LF_DEVICE];
  n.queues = c.count[LF_QUEUE];
  n.buffers = c.count[LF_BUFFER];
  n.libraries = c.count[LF_LIBRARY];
  n.functions = c.count[LF_FUNCTION];
  n.pipelines = c.count[LF_PIPELINE];
  n.command_buffers = c.count[LF_COMMAND_BUFFER];
  n.encoders = c.count[LF_ENCODER];
  n.events = c.count[LF_EVENT];
  n.residency_sets = c.count[LF_RESIDENCY_SET];
  return n;
}

__attribute__((visibility("default"))) lf_metal_work lf_metal_commands(void) {
  Census& c = Census::get();
  std::lock_guard<std::mutex> lock(c.mu);
  lf_metal_work w = c.work;
  c.work = {};
  c.work.resident_buffers = w.resident_buffers;
  c.work.resident_bytes = w.resident_bytes;
  return w;
}

__attribute__((visibility("default"))) uint64_t lf_metal_allocated(void) { return lf_memory_mapped(); }
__attribute__((visibility("default"))) uint64_t lf_metal_borrowed(void) { return lf_memory_borrowed(); }

}  // extern "C"

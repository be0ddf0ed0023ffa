// cp.async, executed as late as allowed: shared memory holds poison from the
// issue to the wait, which reveals a wait for too few groups. Copying at once
// (options.eager_copies) is the other extreme.
#include <string.h>

#include "block.h"

namespace lfsim {

static void land(const PendingCopy& c) {
  if (c.valid) {
    race::read(c.src, (unsigned long)c.valid);
    memcpy(c.dst, c.src, (size_t)c.valid);
  }
  memset(static_cast<char*>(c.dst) + c.valid, 0, (size_t)(c.bytes - c.valid));
  race::write(c.dst, (unsigned long)c.bytes);
}

void cp_async(void* dst, const void* src, int bytes, int valid, Site site) {
  Fiber& f = *self();
  if (((uintptr_t)dst | (uintptr_t)src) & (uintptr_t)(bytes - 1)) {
    running->fail(Outcome::Misaligned, "cp.async of " + to_string(site) + ": both addresses must lie on " + std::to_string(bytes) + " bytes");
  }
  if (valid < 0 || valid > bytes) fail("cp.async of %s: %d of %d bytes", to_string(site).c_str(), valid, bytes);
  if (!running->shared.contains(dst, (size_t)bytes)) fail("cp.async of %s: the destination is not shared memory of this block", to_string(site).c_str());
  if (valid) {
    if (running->shared.contains(src, 1)) fail("cp.async of %s: the source is shared memory", to_string(site).c_str());
    // A fault is the fault of the thread that asks, not of the one that waits.
    (void)*static_cast<const volatile char*>(src);
    (void)*(static_cast<const volatile char*>(src) + valid - 1);
  }
  report_access(__builtin_return_address(0), true, dst, (unsigned long)bytes);
  if (valid) report_access(__builtin_return_address(0), false, src, (unsigned long)valid);
  PendingCopy c{dst, src, bytes, valid, f.group};
  race::write(dst, (unsigned long)bytes);
  if (options.eager_copies) {
    land(c);
    c.bytes = 0;  // still counts as issued
  } else {
    memset(dst, 0xff, (size_t)bytes);
  }
  race::Aside aside(running->tracked, f.tracked);
  f.copies.push_back(c);
}

void cp_async_commit() { self()->group++; }

void cp_async_wait(int keep) {
  Fiber& f = *self();
  size_t left = 0;
  for (PendingCopy& c : f.copies) {
    if (c.group >= f.group - keep) {
      f.copies[left++] = c;
    } else if (c.bytes) {
      land(c);
    }
  }
  f.copies.resize(left);
}

void cp_async_wait_all() {
  cp_async_commit();
  cp_async_wait(0);
}

void end_of_copies(Fiber& f) {
  if (f.copies.empty()) return;
  bool committed = f.copies.front().group < f.group;
  fail("returns with %zu cp.async in flight: %s", f.copies.size(), committed ? "a wait is missing" : "they were never committed, so no wait counted them");
}

}  // namespace lfsim

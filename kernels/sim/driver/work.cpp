#include "work.h"

#include <stdio.h>
#include <string.h>

#include <chrono>
#include <mutex>

#include "keep.h"
#include "memory.h"

namespace lfsim {

static double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// foreign_pointer finds a parameter that points to nothing that this device
// can reach. A pointer past the last byte is allowed: it may belong to an
// empty tensor.
bool KernelWork::foreign_pointer(std::string* why) const {
  for (int i = 0; i < kernel->nparams; i++) {
    if (!kernel->params[i].pointer || !cells[(size_t)i]) continue;
    auto p = (uintptr_t)cells[(size_t)i];
    Range r;
    std::string what = "parameter " + std::to_string(i) + " (" + std::to_string(kernel->nparams) + " in all) ";
    char hex[32];
    snprintf(hex, sizeof hex, "%#zx ", (size_t)p);
    if (!AddressBook::get().find(p, &r)) {
      *why = what + hex + "is no device pointer, nor pinned or registered: host memory";
    } else if (!r.open) {
      *why = what + hex + AddressBook::get().describe(p);
    } else if (r.kind == Kind::Device && r.device != device) {
      *why = what + hex + "is memory of device " + std::to_string(r.device) + ", the kernel runs on " + std::to_string(device);
    } else {
      continue;
    }
    return true;
  }
  return false;
}

// write_counts appends a line to the file that LFSIM_COUNT names.
static void write_counts(const KernelWork& w, const Counts& c) {
  static std::mutex mu;
  std::lock_guard<std::mutex> lock(mu);
  FILE* f = fopen(settings().count.c_str(), "a");
  if (f) {
    fprintf(f, "%s<<<(%u,%u,%u), (%u,%u,%u), %u>>> %s\n", w.kernel->name, w.grid.x, w.grid.y, w.grid.z, w.block.x, w.block.y, w.block.z, w.dynamic_shared, to_string(c).c_str());
  }
  if (!f || fclose(f)) complain("LFSIM_COUNT: cannot write %s", settings().count.c_str());
}

abi::Result KernelWork::run() {
  if (injected("lost")) return refuse(abi::Unknown, "injected: the device is lost");
  if (injected("launch", kernel->name)) return refuse(abi::LaunchFailed, "injected: %s fails", kernel->name);
  std::string message;
  if (foreign_pointer(&message)) return refuse(abi::IllegalAddress, "%s: illegal address: %s", kernel->name, message.c_str());
  if (!settings().keep.empty()) keep(*this);
  void* params[KernelDef::max_params];
  for (int i = 0; i < kernel->nparams; i++) params[i] = &cells[(size_t)i];
  Counts counts;
  Launch launch{kernel, params, grid, block, dynamic_shared, shared_limit, settings().count.empty() ? nullptr : &counts};
  double start = now();
  Outcome outcome = lfsim::run(launch, &message);
  if (settings().verbose) {
    fprintf(stderr, "lfsim: %s<<<(%u,%u,%u), (%u,%u,%u), %u>>> %.3f ms\n", kernel->name, grid.x, grid.y, grid.z, block.x, block.y, block.z, dynamic_shared, (now() - start) * 1e3);
  }
  switch (outcome) {
    case Outcome::Done:
      if (launch.counts) write_counts(*this, counts);
      return abi::Success;
    case Outcome::IllegalAddress:
      return refuse(abi::IllegalAddress, "%s", message.c_str());
    case Outcome::Misaligned:
      return refuse(abi::MisalignedAddress, "%s", message.c_str());
    case Outcome::IllegalInstruction:
      return refuse(abi::IllegalInstruction, "%s", message.c_str());
    default:
      return refuse(abi::LaunchFailed, "%s", message.c_str());
  }
}

abi::Result CopyWork::run() {
  if (injected("copy")) return refuse(abi::Unknown, "injected: a copy fails");
  const char* from = staged ? staged->data() : src.base;
  for (size_t z = 0; z < depth; z++) {
    for (size_t y = 0; y < height; y++) memmove(dst.base + z * dst.slice + y * dst.pitch, from + z * src.slice + y * src.pitch, width);
  }
  return abi::Success;
}

template <class T>
static void fill(char* p, size_t n, unsigned value) {
  auto* q = reinterpret_cast<T*>(p);
  for (size_t i = 0; i < n; i++) q[i] = (T)value;
}

abi::Result FillWork::run() {
  for (size_t y = 0; y < height; y++) {
    char* row = dst + y * pitch;
    switch (element) {
      case 1:
        memset(row, (int)value, width);
        break;
      case 2:
        fill<uint16_t>(row, width, value);
        break;
      default:
        fill<uint32_t>(row, width, value);
    }
  }
  return abi::Success;
}

abi::Result OpenWork::run() {
  AddressBook::get().open(begin);
  return abi::Success;
}

abi::Result FreeWork::run() {
  Range r;
  AddressBook::get().find(begin, &r);
  std::string s = r.open ? AddressBook::get().trampled(r) : "";
  if (!s.empty()) complain("%s, found when it was freed", s.c_str());
  AddressBook::get().free(begin);
  return abi::Success;
}

abi::Result RecordWork::run() {
  mark->seconds = now();
  return abi::Success;
}

}  // namespace lfsim

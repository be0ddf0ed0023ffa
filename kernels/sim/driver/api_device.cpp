// Initialisation and devices.
#include <stdio.h>
#include <string.h>

#include <algorithm>

#include "memory.h"
#include "state.h"

using namespace lfsim;

// Features of recent compute capabilities, from the tables of the CUDA
// programming guide.
static const Architecture architectures[] = {
    {7, 5, 68, 1024, 16, 64 << 10, 64 << 10, 4 << 20},       {8, 0, 108, 2048, 32, 164 << 10, 163 << 10, 40 << 20},  {8, 6, 84, 1536, 16, 100 << 10, 99 << 10, 6 << 20},
    {8, 9, 128, 1536, 24, 100 << 10, 99 << 10, 72 << 20},    {9, 0, 132, 2048, 32, 228 << 10, 227 << 10, 50 << 20},  {10, 0, 148, 2048, 32, 228 << 10, 227 << 10, 126 << 20},
    {12, 0, 188, 1536, 24, 100 << 10, 99 << 10, 128 << 20},
};

const Architecture& lfsim::architecture() {
  static const Architecture chosen = [] {
    const Settings& s = settings();
    Architecture best = architectures[0];
    for (const Architecture& a : architectures) {
      if (a.major < s.major || (a.major == s.major && a.minor <= s.minor)) best = a;
    }
    best.major = s.major, best.minor = s.minor;
    return best;
  }();
  return chosen;
}

static std::string describe(const void* p) { return AddressBook::get().describe((uintptr_t)p); }

// The default stream exists as soon as the context does.
static std::shared_ptr<Context> make_context(int device) {
  auto c = std::make_shared<Context>();
  c->device = device;
  c->primary = true;
  c->id = next_id();
  c->default_stream = Stream::start(c.get(), true, 0);
  return c;
}

LFSIM_API cuInit(unsigned flags) {
  if (flags) return abi::InvalidValue;
  if (settings().no_device || settings().devices == 0) return abi::NoDevice;
  if (injected("init")) return abi::Unknown;
  Lock lock(state().mu);
  if (state().initialized) return abi::Success;
  install_fault_handlers();
  describe_address = describe;
  for (int i = 0; i < settings().devices; i++) {
    auto c = make_context(i);
    state().primaries.push_back(c);
    state().contexts.add(c);
  }
  state().initialized = true;
  return abi::Success;
}

static abi::Result check(int device) {
  Lock lock(state().mu);
  if (!state().initialized) return abi::NotInitialized;
  return device >= 0 && device < settings().devices ? abi::Success : abi::InvalidDevice;
}

#define DEVICE(d) \
  if (abi::Result r_ = check(d)) return r_

LFSIM_API cuDriverGetVersion(int* version) {
  *version = 13000;
  return abi::Success;
}

LFSIM_API cuDeviceGetCount(int* n) {
  DEVICE(0);
  *n = settings().devices;
  return abi::Success;
}

LFSIM_API cuDeviceGet(int* device, int ordinal) {
  DEVICE(ordinal);
  *device = ordinal;
  return abi::Success;
}

LFSIM_API cuDeviceGetName(char* name, int n, int device) {
  DEVICE(device);
  snprintf(name, (size_t)n, "Simulated GPU (sm_%d%d)", settings().major, settings().minor);
  return abi::Success;
}

LFSIM_API cuDeviceGetUuid_v2(abi::Uuid* uuid, int device) {
  DEVICE(device);
  memcpy(uuid->bytes, "lorafuse-sim-gpu", 16);
  uuid->bytes[15] = (unsigned char)device;
  return abi::Success;
}
LFSIM_API cuDeviceGetUuid(abi::Uuid* uuid, int device) { return cuDeviceGetUuid_v2(uuid, device); }

LFSIM_API cuDeviceTotalMem_v2(size_t* bytes, int device) {
  DEVICE(device);
  *bytes = settings().memory;
  return abi::Success;
}

LFSIM_API cuDeviceGetPCIBusId(char* id, int n, int device) {
  DEVICE(device);
  snprintf(id, (size_t)n, "0000:%02X:00.0", device + 1);
  return abi::Success;
}

// The numbers are from CUdevice_attribute.
static int attribute(int a, int device) {
  const Architecture& arch = architecture();
  switch (a) {
    case 1:  // threads of a block
    case 2:
    case 3:
      return 1024;
    case 4:
      return 64;
    case 5:  // blocks of a grid
      return 2147483647;
    case 6:
    case 7:
      return 65535;
    case 8:  // shared memory of a block, without asking for more
      return 48 << 10;
    case 9:
      return 64 << 10;
    case 10:  // warp
      return 32;
    case 11:  // pitch
      return 2147483647;
    case 12:  // registers of a block
    case 82:
      return 65536;
    case 13:  // kHz
      return 1410000;
    case 14:  // texture alignment
      return 512;
    case 16:
      return arch.multiprocessors;
    case 33:  // PCI
      return device + 1;
    case 36:
      return 1215000;
    case 37:
      return 5120;
    case 38:
      return arch.l2;
    case 39:
      return arch.threads;
    case 40:  // copy engines
      return 2;
    case 75:
      return arch.major;
    case 76:
      return arch.minor;
    case 81:
      return arch.shared_multiprocessor;
    case 97:
      return arch.shared_optin;
    case 106:
      return arch.blocks;
    case 111:  // reserved shared memory of a block
      return arch.major >= 8 ? 1024 : 0;
    case 113:
      return settings().read_only_register;
    case 15:   // overlap
    case 19:   // maps host memory
    case 31:   // concurrent kernels
    case 41:   // unified addresses
    case 78:   // priorities
    case 91:   // host pointers of registered memory
    case 99:   // registers host memory
    case 115:  // memory pools
      return 1;
    default:
      return 0;
  }
}

LFSIM_API cuDeviceGetAttribute(int* value, int a, int device) {
  DEVICE(device);
  if (a < 1 || a > 200) return abi::InvalidValue;
  *value = attribute(a, device);
  return abi::Success;
}

LFSIM_API cuDeviceCanAccessPeer(int* can, int device, int peer) {
  DEVICE(device);
  DEVICE(peer);
  *can = 0;
  return abi::Success;
}

LFSIM_API cuDeviceGetP2PAttribute(int* value, int, int device, int peer) {
  DEVICE(device);
  DEVICE(peer);
  *value = 0;
  return abi::Success;
}

LFSIM_API cuCtxEnablePeerAccess(void*, unsigned) { return abi::PeerAccessUnsupported; }
LFSIM_API cuCtxDisablePeerAccess(void*) { return abi::PeerAccessUnsupported; }

// lfsim_leaks counts allocations that live, of all devices and of the host,
// and names each on stderr.
extern "C" __attribute__((visibility("default"))) int lfsim_leaks() { return AddressBook::get().leaks(-1, true); }

namespace {
struct AtExit {
  ~AtExit() {
    if (settings().leaks && AddressBook::get().leaks(-1, true)) fflush(stderr);
  }
} at_exit;
}  // namespace

// Memory of devices: allocated and freed at once or in the order of a stream,
// and host memory that is pinned or registered.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>

#include "memory.h"
#include "work.h"

using namespace lfsim;

static AddressBook& book() { return AddressBook::get(); }

static abi::Result allocate(Context* context, abi::DevicePtr* p, size_t bytes, bool open) {
  if (!p || !bytes) return refuse(abi::InvalidValue, "an allocation of %zu bytes", bytes);
  if (injected("alloc")) return refuse(abi::OutOfMemory, "injected: %zu bytes are refused", bytes);
  size_t used = book().used(context->device);
  if (used + bytes > settings().memory && !open) {
    context->synchronize();  // memory being freed in stream order is free then
    used = book().used(context->device);
  }
  if (used + bytes > settings().memory) return abi::OutOfMemory;
  Range r;
  if (!book().map(bytes, context->device, open, &r)) return abi::OutOfMemory;
  *p = r.begin;
  return abi::Success;
}

// freeable finds the allocation that begins at p.
static abi::Result freeable(Context* context, abi::DevicePtr p, Range* r) {
  if (!book().find(p, r) || r->kind != Kind::Device) return refuse(abi::InvalidValue, "free of %#llx, which is no device memory", p);
  if (r->state == Life::Freed || r->state == Life::Freeing) return refuse(abi::InvalidValue, "double free of %s", r->name().c_str());
  if (r->begin != p) return refuse(abi::InvalidValue, "free of %#llx, %llu bytes inside of %s", p, p - r->begin, r->name().c_str());
  if (r->device != context->device) return refuse(abi::InvalidValue, "free of memory of device %d, the current one is %d", r->device, context->device);
  return abi::Success;
}

LFSIM_API cuMemAlloc_v2(abi::DevicePtr* p, size_t bytes) {
  ENTER(context);
  if (abi::Result r = unsafe("cuMemAlloc")) return r;
  return allocate(context, p, bytes, true);
}

LFSIM_API cuMemAllocPitch_v2(abi::DevicePtr* p, size_t* pitch, size_t width, size_t height, unsigned element) {
  if (element != 4 && element != 8 && element != 16) return abi::InvalidValue;
  *pitch = (width + 511) / 512 * 512;
  return cuMemAlloc_v2(p, *pitch * height);
}

LFSIM_API cuMemFree_v2(abi::DevicePtr p) {
  ENTER(context);
  if (!p) return abi::Success;
  if (abi::Result r = unsafe("cuMemFree")) return r;
  Range range;
  if (abi::Result r = freeable(context, p, &range)) return r;
  context->synchronize();
  return FreeWork(range.begin).run();
}

LFSIM_API cuMemAllocAsync(abi::DevicePtr* p, size_t bytes, void* stream) {
  ENTER(context);
  {
    Lock lock(state().mu);
    std::shared_ptr<Stream> s;
    if (abi::Result r = stream_of(context, stream, &s)) return r;
    if (s->capture) return refuse(abi::NotSupported, "allocations as nodes of graphs are not simulated");
  }
  if (abi::Result r = allocate(context, p, bytes, false)) return r;
  return submit(context, stream, std::make_shared<OpenWork>((uintptr_t)*p));
}

LFSIM_API cuMemAllocFromPoolAsync(abi::DevicePtr* p, size_t bytes, void*, void* stream) { return cuMemAllocAsync(p, bytes, stream); }

LFSIM_API cuMemFreeAsync(abi::DevicePtr p, void* stream) {
  ENTER(context);
  if (!p) return abi::Success;
  Range range;
  if (abi::Result r = freeable(context, p, &range)) return r;
  {
    Lock lock(state().mu);
    std::shared_ptr<Stream> s;
    if (abi::Result r = stream_of(context, stream, &s)) return r;
    if (s->capture) return refuse(abi::NotSupported, "freeing as a node of a graph is not simulated");
  }
  book().freeing(range.begin);
  return submit(context, stream, std::make_shared<FreeWork>(range.begin));
}

LFSIM_API cuMemGetInfo_v2(size_t* free, size_t* total) {
  ENTER(context);
  *total = settings().memory;
  *free = *total - std::min(*total, book().used(context->device));
  return abi::Success;
}

LFSIM_API cuMemGetAddressRange_v2(abi::DevicePtr* begin, size_t* bytes, abi::DevicePtr p) {
  ENTER(context);
  Range r;
  if (!book().find(p, &r) || r.kind != Kind::Device || r.state == Life::Freed || !r.holds(p, 1)) return abi::NotFound;
  if (begin) *begin = r.begin;
  if (bytes) *bytes = r.bytes;
  return abi::Success;
}

// The pool behind cuMemAllocAsync: one for each device, whose handle is not looked into.
static char pools[16];

LFSIM_API cuDeviceGetDefaultMemPool(void** pool, int device) {
  if (device < 0 || device >= settings().devices) return abi::InvalidDevice;
  *pool = &pools[device];
  return abi::Success;
}
LFSIM_API cuDeviceGetMemPool(void** pool, int device) { return cuDeviceGetDefaultMemPool(pool, device); }

LFSIM_API cuMemPoolSetAttribute(void*, int, void*) { return abi::Success; }

LFSIM_API cuMemPoolGetAttribute(void* pool, int attribute, void* value) {
  enum { release_threshold = 4, reserved_current, reserved_high, used_current, used_high };
  auto device = (int)(static_cast<char*>(pool) - pools);
  if (device < 0 || device >= settings().devices) return abi::InvalidValue;
  if (attribute < release_threshold) {
    *static_cast<int*>(value) = 1;
  } else {
    *static_cast<uint64_t*>(value) = attribute == release_threshold ? 0 : book().used(device);
  }
  return abi::Success;
}

LFSIM_API cuMemPoolTrimTo(void*, size_t) { return abi::Success; }

LFSIM_API cuMemHostAlloc(void** p, size_t bytes, unsigned) {
  ENTER(context);
  if (abi::Result r = unsafe("cuMemHostAlloc")) return r;
  if (!bytes) return abi::InvalidValue;
  if (injected("hostalloc") || book().pinned() + bytes > settings().pinned) return refuse(abi::OutOfMemory, "%zu bytes of pinned memory are refused", bytes);
  if (posix_memalign(p, 4096, bytes)) return abi::OutOfMemory;
  memset(*p, 0xff, bytes);
  book().add((uintptr_t)*p, bytes, Kind::Pinned, context->device);
  return abi::Success;
}
LFSIM_API cuMemAllocHost_v2(void** p, size_t bytes) { return cuMemHostAlloc(p, bytes, 0); }

LFSIM_API cuMemFreeHost(void* p) {
  ENTER(context);
  if (abi::Result r = unsafe("cuMemFreeHost")) return r;
  Range range;
  if (!book().find((uintptr_t)p, &range) || range.kind != Kind::Pinned || range.begin != (uintptr_t)p) {
    return refuse(abi::InvalidValue, "free of %p, which is no pinned allocation, or was freed", p);
  }
  context->synchronize();
  book().remove(range.begin);
  free(p);
  return abi::Success;
}

LFSIM_API cuMemHostGetDevicePointer_v2(abi::DevicePtr* device, void* p, unsigned) {
  ENTER(context);
  Range range;
  if (!book().find((uintptr_t)p, &range) || range.kind == Kind::Device) return refuse(abi::InvalidValue, "%p is neither pinned nor registered", p);
  *device = (uintptr_t)p;
  return abi::Success;
}

LFSIM_API cuMemHostGetFlags(unsigned* flags, void*) {
  *flags = 0;
  return abi::Success;
}

// writable reports whether the first page of a mapping is writable. Mappings
// of files opened for reading are not; registering them needs a flag and a
// device that supports it.
static bool writable(void* p) {
  FILE* maps = fopen("/proc/self/maps", "r");
  if (!maps) return true;
  bool found = true;
  char line[512], access[8];
  unsigned long begin, end;
  while (fgets(line, sizeof line, maps)) {
    if (sscanf(line, "%lx-%lx %7s", &begin, &end, access) == 3 && (uintptr_t)p >= begin && (uintptr_t)p < end) found = access[1] == 'w';
  }
  fclose(maps);
  return found;
}

LFSIM_API cuMemHostRegister_v2(void* p, size_t bytes, unsigned flags) {
  ENTER(context);
  if (abi::Result r = unsafe("cuMemHostRegister")) return r;
  if (!p || !bytes) return abi::InvalidValue;
  if (injected("register")) return refuse(abi::OutOfMemory, "injected: %zu bytes are not registered", bytes);
  bool read_only = flags & abi::HostRegisterReadOnly;
  if (read_only && !settings().read_only_register) return refuse(abi::NotSupported, "registering memory that is only read, on a device whose attribute 113 is 0");
  if (!read_only && !writable(p)) return refuse(abi::InvalidValue, "registering a mapping that cannot be written without CU_MEMHOSTREGISTER_READ_ONLY");
  if (book().overlaps((uintptr_t)p, bytes)) return abi::HostMemoryAlreadyRegistered;
  if (book().pinned() + bytes > settings().pinned) return abi::OutOfMemory;
  book().add((uintptr_t)p, bytes, Kind::Registered, context->device);
  return abi::Success;
}

LFSIM_API cuMemHostUnregister(void* p) {
  ENTER(context);
  Range range;
  if (!book().find((uintptr_t)p, &range) || range.kind != Kind::Registered || range.begin != (uintptr_t)p) return abi::HostMemoryNotRegistered;
  context->synchronize();
  book().remove(range.begin);
  return abi::Success;
}

LFSIM_API cuPointerGetAttribute(void* value, int attribute, abi::DevicePtr p) {
  enum { attribute_context = 1, memory_type, device_pointer, host_pointer, ordinal = 9, range_start = 11, range_size = 12, mapped = 13 };
  ENTER(context);
  if (!value) return abi::InvalidValue;
  Range r;
  if (!book().find(p, &r) || r.state == Life::Freed || !r.holds(p, 1)) return abi::InvalidValue;
  bool device = r.kind == Kind::Device;
  switch (attribute) {
    case attribute_context: {
      Lock lock(state().mu);
      *static_cast<void**>(value) = state().primaries[(size_t)r.device].get();
      break;
    }
    case memory_type:
      *static_cast<unsigned*>(value) = device ? abi::MemoryDevice : abi::MemoryHost;
      break;
    case device_pointer:
    case host_pointer:
      if (attribute == host_pointer && device) return abi::InvalidValue;
      *static_cast<abi::DevicePtr*>(value) = p;
      break;
    case ordinal:
      *static_cast<int*>(value) = r.device;
      break;
    case range_start:
      *static_cast<abi::DevicePtr*>(value) = r.begin;
      break;
    case range_size:
      *static_cast<size_t*>(value) = r.bytes;
      break;
    case mapped:
      *static_cast<bool*>(value) = true;
      break;
    default:
      return refuse(abi::NotSupported, "pointer attribute %d is not simulated", attribute);
  }
  return abi::Success;
}

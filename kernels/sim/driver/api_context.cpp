// Contexts: a stack of them for every thread of the host, as the driver has it.
#include "memory.h"
#include "state.h"

using namespace lfsim;

static thread_local std::vector<Context*> stack;

Context* lfsim::current_context() { return stack.empty() ? nullptr : stack.back(); }

// destroy ends a context: its work, its memory, its handles.
static void destroy(Context* c) {
  c->synchronize();
  if (settings().leaks) AddressBook::get().leaks(c->device, true);
  AddressBook::get().clear(c->device);
  Lock lock(state().mu);
  for (auto& [key, weak] : c->streams) {
    if (auto s = weak.lock()) s->close();
    state().streams.erase(key);
  }
  c->streams.clear();
  std::vector<const void*> modules;
  for (auto& [key, m] : state().modules.all()) {
    if (m->context == c) modules.push_back(key);
  }
  for (const void* m : modules) state().modules.erase(m);
}

static abi::Result primary_of(int device, Context** c) {
  Lock lock(state().mu);
  if (!state().initialized) return abi::NotInitialized;
  if (device < 0 || (size_t)device >= state().primaries.size()) return abi::InvalidDevice;
  *c = state().primaries[(size_t)device].get();
  return abi::Success;
}

LFSIM_API cuDevicePrimaryCtxRetain(void** context, int device) {
  Context* c;
  if (abi::Result r = primary_of(device, &c)) return r;
  Lock lock(state().mu);
  c->retained++;
  *context = c;
  return abi::Success;
}

LFSIM_API cuDevicePrimaryCtxRelease_v2(int device) {
  Context* c;
  if (abi::Result r = primary_of(device, &c)) return r;
  {
    Lock lock(state().mu);
    if (c->retained == 0) return refuse(abi::InvalidContext, "the primary context of device %d is released more often than retained", device);
    if (--c->retained) return abi::Success;
  }
  destroy(c);
  return abi::Success;
}

LFSIM_API cuDevicePrimaryCtxReset_v2(int device) {
  Context* c;
  if (abi::Result r = primary_of(device, &c)) return r;
  destroy(c);
  return abi::Success;
}

LFSIM_API cuDevicePrimaryCtxSetFlags_v2(int device, unsigned) {
  Context* c;
  return primary_of(device, &c);
}

LFSIM_API cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  Context* c;
  if (abi::Result r = primary_of(device, &c)) return r;
  Lock lock(state().mu);
  *flags = 0;
  *active = c->retained > 0;
  return abi::Success;
}

static bool known(void* context) {
  Lock lock(state().mu);
  return state().contexts.get(context) != nullptr;
}

LFSIM_API cuCtxSetCurrent(void* context) {
  if (context && !known(context)) return refuse(abi::InvalidContext, "%p is not a context", context);
  if (!stack.empty()) stack.pop_back();
  if (context) stack.push_back(static_cast<Context*>(context));
  return abi::Success;
}

LFSIM_API cuCtxGetCurrent(void** context) {
  *context = current_context();
  return abi::Success;
}

LFSIM_API cuCtxPushCurrent_v2(void* context) {
  if (!known(context)) return refuse(abi::InvalidContext, "%p is not a context", context);
  stack.push_back(static_cast<Context*>(context));
  return abi::Success;
}

LFSIM_API cuCtxPopCurrent_v2(void** context) {
  if (stack.empty()) return abi::InvalidContext;
  if (context) *context = stack.back();
  stack.pop_back();
  return abi::Success;
}

// The project does not create contexts, since other libraries share the
// primary one.
LFSIM_API cuCtxCreate_v2(void**, unsigned, int) { return refuse(abi::NotSupported, "only primary contexts are simulated"); }
LFSIM_API cuCtxCreate_v4(void**, void*, unsigned, int) { return refuse(abi::NotSupported, "only primary contexts are simulated"); }
LFSIM_API cuCtxDestroy_v2(void*) { return refuse(abi::InvalidContext, "the primary context is released, not destroyed"); }

LFSIM_API cuCtxGetDevice(int* device) {
  ENTER(context);
  *device = context->device;
  return abi::Success;
}

LFSIM_API cuCtxGetFlags(unsigned* flags) {
  ENTER(context);
  *flags = 0;
  return abi::Success;
}

LFSIM_API cuCtxGetApiVersion(void*, unsigned* version) {
  *version = 3020;
  return abi::Success;
}

LFSIM_API cuCtxGetId(void* context, unsigned long long* id) {
  Context* c = context ? static_cast<Context*>(context) : current_context();
  if (!c) return abi::InvalidContext;
  *id = c->id;
  return abi::Success;
}

LFSIM_API cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  ENTER(context);
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return abi::Success;
}

// The limits of the device's heap, stack and printf: nothing here has them.
LFSIM_API cuCtxGetLimit(size_t* value, int) {
  ENTER(context);
  *value = 0;
  return abi::Success;
}
LFSIM_API cuCtxSetLimit(int, size_t) {
  ENTER(context);
  return abi::Success;
}

LFSIM_API cuCtxSynchronize() {
  ENTER(context);
  {
    Lock lock(state().mu);
    for (auto& c : state().captures) {
      if (c->origin->context != context) continue;
      c->spoiled = true;
      return refuse(abi::StreamCaptureUnsupported, "cuCtxSynchronize while a stream is being captured");
    }
  }
  context->synchronize();
  return sticky(context);
}

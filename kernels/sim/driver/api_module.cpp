// Modules and functions. The code of a kernel is what was compiled into this
// library; the image must still be one that the device would take, and hold it.
#include <stdio.h>
#include <string.h>

#include <string>

#include "state.h"

using namespace lfsim;

LFSIM_API cuModuleLoadData(void** module, const void* image) {
  ENTER(context);
  if (!image || !module) return abi::InvalidValue;
  if (injected("module")) return refuse(abi::InvalidImage, "injected: the image is refused");
  if (abi::Result r = unsafe("cuModuleLoadData")) return r;
  auto m = std::make_shared<Module>();
  m->context = context;
  std::string why;
  if (abi::Result r = parse_image(image, architecture().major, architecture().minor, &m->image, &why)) return refuse(r, "%s", why.c_str());
  Lock lock(state().mu);
  *module = state().modules.add(m);
  return abi::Success;
}

LFSIM_API cuModuleLoadDataEx(void** module, const void* image, unsigned, int*, void**) { return cuModuleLoadData(module, image); }
LFSIM_API cuModuleLoadFatBinary(void** module, const void* image) { return cuModuleLoadData(module, image); }

LFSIM_API cuModuleLoad(void** module, const char* path) {
  FILE* f = fopen(path, "rb");
  if (!f) return abi::FileNotFound;
  std::string s;
  char buffer[1 << 16];
  for (size_t n; (n = fread(buffer, 1, sizeof buffer, f)) > 0;) s.append(buffer, n);
  fclose(f);
  return cuModuleLoadData(module, s.c_str());
}

LFSIM_API cuModuleUnload(void* module) {
  ENTER(context);
  if (abi::Result r = unsafe("cuModuleUnload")) return r;
  context->synchronize();
  Lock lock(state().mu);
  auto m = state().modules.get(module);
  if (!m) return refuse(abi::InvalidHandle, "%p is not a module, or one that was unloaded", module);
  for (auto& [name, f] : m->functions) state().functions.erase(f.get());
  state().modules.erase(module);
  return abi::Success;
}

// agrees compares the parameters that nvcc and the host's compiler saw.
static bool agrees(const KernelDef& k, const Entry& e) {
  if (e.params.size() != (size_t)k.nparams) return false;
  for (auto& [i, size] : e.params) {
    if (i >= (unsigned)k.nparams || k.params[i].size != size) return false;
  }
  return true;
}

LFSIM_API cuModuleGetFunction(void** function, void* module, const char* name) {
  ENTER(context);
  Lock lock(state().mu);
  auto m = state().modules.get(module);
  if (!m) return refuse(abi::InvalidHandle, "%p is not a module, or one that was unloaded", module);
  auto entry = m->image.entries.find(name);
  if (m->image.complete && entry == m->image.entries.end()) return refuse(abi::NotFound, "the image has no kernel %s", name);
  const KernelDef* kernel = find_kernel(name);
  if (!kernel) return refuse(abi::NotFound, "kernel %s is in the image but not in the simulator: compile its file by scripts/cuda_sim.sh, LF_KERNEL(%s) behind it", name, name);
  if (m->image.cubin && !agrees(*kernel, entry->second)) return refuse(abi::InvalidImage, "kernel %s has other parameters in the image than in the simulator: one of the two is out of date", name);
  auto& f = m->functions[name];
  if (!f) {
    f.reset(new Function{kernel, m.get()});
    if (entry != m->image.entries.end()) f->entry = &entry->second;
    state().functions.add(std::shared_ptr<Function>(m, f.get()));
  }
  *function = f.get();
  return abi::Success;
}

LFSIM_API cuModuleGetGlobal_v2(abi::DevicePtr*, size_t*, void*, const char* name) { return refuse(abi::NotFound, "no global %s: variables of modules are not simulated", name ? name : ""); }

// function_of checks a handle; under the driver's lock.
static std::shared_ptr<Function> function_of(void* handle) {
  auto f = state().functions.get(handle);
  if (!f) complain("%p is not a function, or its module was unloaded", handle);
  return f;
}

LFSIM_API cuFuncGetAttribute(int* value, int a, void* handle) {
  ENTER(context);
  Lock lock(state().mu);
  auto f = function_of(handle);
  if (!f) return abi::InvalidHandle;
  int version = architecture().major * 10 + architecture().minor;
  switch (a) {
    case abi::MaxThreadsPerBlock:
      *value = f->entry ? (int)f->entry->max_threads : 1024;
      break;
    case abi::SharedSizeBytes:
      *value = f->entry ? (int)f->entry->shared : 0;
      break;
    case abi::MaxDynamicSharedSizeBytes:
      *value = f->max_dynamic_shared;
      break;
    case abi::PtxVersion:
    case abi::BinaryVersion:
      *value = version;
      break;
    case abi::NumRegs:
      *value = 32;
      break;
    default:
      *value = 0;
  }
  return abi::Success;
}

LFSIM_API cuFuncSetAttribute(void* handle, int a, int value) {
  ENTER(context);
  Lock lock(state().mu);
  auto f = function_of(handle);
  if (!f) return abi::InvalidHandle;
  if (a == abi::MaxDynamicSharedSizeBytes) {
    int fixed = f->entry ? (int)f->entry->shared : 0;
    if (value < 0 || value + fixed > architecture().shared_optin) {
      return refuse(abi::InvalidValue, "%s: %d bytes of dynamic shared memory and %d of static, of at most %d on sm_%d%d", f->kernel->name, value, fixed, architecture().shared_optin, architecture().major,
                    architecture().minor);
    }
    f->max_dynamic_shared = value;
  } else if (a != abi::PreferredSharedMemoryCarveout) {
    return refuse(abi::InvalidValue, "function attribute %d cannot be set", a);
  }
  return abi::Success;
}

LFSIM_API cuFuncSetCacheConfig(void* handle, int) {
  Lock lock(state().mu);
  return function_of(handle) ? abi::Success : abi::InvalidHandle;
}

LFSIM_API cuFuncGetName(const char** name, void* handle) {
  Lock lock(state().mu);
  auto f = function_of(handle);
  if (!f) return abi::InvalidHandle;
  *name = f->kernel->name;
  return abi::Success;
}

// Offsets as a C struct of the parameters has them.
LFSIM_API cuFuncGetParamInfo(void* handle, size_t index, size_t* offset, size_t* size) {
  Lock lock(state().mu);
  auto f = function_of(handle);
  if (!f) return abi::InvalidHandle;
  if (index >= (size_t)f->kernel->nparams) return abi::InvalidValue;
  size_t at = 0;
  for (size_t i = 0; i <= index; i++) {
    size_t n = f->kernel->params[i].size;
    at = (at + n - 1) / n * n;
    if (i == index) {
      *offset = at;
      if (size) *size = n;
    }
    at += n;
  }
  return abi::Success;
}

LFSIM_API cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, void* handle, int threads, size_t dynamic_shared, unsigned) {
  ENTER(context);
  Lock lock(state().mu);
  auto f = function_of(handle);
  if (!f) return abi::InvalidHandle;
  if (threads < 1 || threads > 1024) return abi::InvalidValue;
  const Architecture& a = architecture();
  int shared = (int)dynamic_shared + (f->entry ? (int)f->entry->shared : 0) + (a.major >= 8 ? 1024 : 0);
  int n = std::min(a.blocks, a.threads / ((threads + 31) / 32 * 32));
  *blocks = (int)dynamic_shared > f->max_dynamic_shared ? 0 : std::min(n, a.shared_multiprocessor / std::max(shared, 1));
  return abi::Success;
}
LFSIM_API cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void* handle, int threads, size_t dynamic_shared) {
  return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, handle, threads, dynamic_shared, 0);
}

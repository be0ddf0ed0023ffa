// Launching kernels.
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "launch.h"
#include "memory.h"

using namespace lfsim;

bool lfsim::readable(const void* p, size_t n) {
  char buffer[64];
  iovec to{buffer, std::min(n, sizeof buffer)}, from{const_cast<void*>(p), std::min(n, sizeof buffer)};
  ssize_t got = process_vm_readv(getpid(), &to, 1, &from, 1, 0);
  return got >= 0 || errno != EFAULT;  // where the call is not allowed, all is readable
}

// The names in extra are CU_LAUNCH_PARAM_END, _BUFFER_POINTER and _BUFFER_SIZE.
static abi::Result read_extra(const KernelDef& k, void** extra, std::vector<uint64_t>* cells) {
  const char* buffer = nullptr;
  size_t size = 0, at = 0;
  for (; *extra; extra += 2) {
    auto what = (uintptr_t)extra[0];
    if (what == 1) {
      buffer = static_cast<const char*>(extra[1]);
    } else if (what == 2) {
      size = *static_cast<size_t*>(extra[1]);
    } else {
      return abi::InvalidValue;
    }
  }
  for (int i = 0; i < k.nparams; i++) {
    size_t n = k.params[i].size;
    at = (at + n - 1) / n * n + n;
  }
  if (!buffer || size != at) return refuse(abi::InvalidValue, "%s takes %zu bytes of parameters, the launch brings %zu", k.name, at, size);
  at = 0;
  for (int i = 0; i < k.nparams; i++) {
    size_t n = k.params[i].size;
    at = (at + n - 1) / n * n;
    memcpy(&(*cells)[(size_t)i], buffer + at, n);
    at += n;
  }
  return abi::Success;
}

static abi::Result read_params(const KernelDef& k, void** params, std::vector<uint64_t>* cells) {
  if (k.nparams && !params) return refuse(abi::InvalidValue, "%s takes %d parameters, the launch brings none", k.name, k.nparams);
  if (k.nparams && !readable(params, sizeof(void*) * (size_t)k.nparams)) return refuse(abi::InvalidValue, "%s takes %d parameters, the launch brings fewer", k.name, k.nparams);
  for (int i = 0; i < k.nparams; i++) {
    // Exactly the declared sizes: bindings keep small numbers in larger cells, and memory past the end of an array
    // may not exist.
    if (!params[i] || !readable(params[i], k.params[i].size)) {
      return refuse(abi::InvalidValue, "%s takes %d parameters, number %d of %u bytes cannot be read at %p: too few were given", k.name, k.nparams, i, k.params[i].size, params[i]);
    }
    memcpy(&(*cells)[(size_t)i], params[i], k.params[i].size);
  }
  return abi::Success;
}

abi::Result lfsim::make_kernel(Context* context, const LaunchSpec& s, std::shared_ptr<KernelWork>* work) {
  std::shared_ptr<Function> f;
  {
    Lock lock(state().mu);
    f = state().functions.get(s.function);
  }
  if (!f) return refuse(abi::InvalidHandle, "launch of %p, which is not a function, or its module was unloaded", s.function);
  if (f->module->context != context) return refuse(abi::InvalidHandle, "%s belongs to another context than the current one", f->kernel->name);
  const KernelDef& k = *f->kernel;
  uint64_t threads = (uint64_t)s.bx * s.by * s.bz;
  if (!s.gx || !s.gy || !s.gz || !threads) return refuse(abi::InvalidValue, "%s: an empty grid (%u,%u,%u) or block (%u,%u,%u)", k.name, s.gx, s.gy, s.gz, s.bx, s.by, s.bz);
  if (threads > 1024 || s.bx > 1024 || s.by > 1024 || s.bz > 64) return refuse(abi::InvalidValue, "%s: a block of (%u,%u,%u), at most 1024 threads, 64 in z", k.name, s.bx, s.by, s.bz);
  if (s.gx > 2147483647u || s.gy > 65535 || s.gz > 65535) return refuse(abi::InvalidValue, "%s: a grid of (%u,%u,%u), at most 2147483647, 65535 and 65535", k.name, s.gx, s.gy, s.gz);
  if (f->entry && threads > f->entry->max_threads) {
    return refuse(abi::LaunchOutOfResources, "%s: a block of %llu threads, its __launch_bounds__ promise at most %u", k.name, (unsigned long long)threads, f->entry->max_threads);
  }
  if (s.shared > (unsigned)f->max_dynamic_shared) {
    return refuse(abi::InvalidValue, "%s: %u bytes of dynamic shared memory, at most %d: above 48 KiB it must be asked for by cuFuncSetAttribute", k.name, s.shared, f->max_dynamic_shared);
  }
  auto w = std::make_shared<KernelWork>();
  w->function = f.get();
  w->kernel = &k;
  w->grid = {s.gx, s.gy, s.gz};
  w->block = {s.bx, s.by, s.bz};
  w->dynamic_shared = s.shared;
  w->shared_limit = (unsigned)(f->max_dynamic_shared > 48 * 1024 ? architecture().shared_optin : 48 * 1024);
  w->device = context->device;
  w->cells.resize((size_t)k.nparams);
  if (s.params && s.extra) return refuse(abi::InvalidValue, "%s: parameters both in kernelParams and in extra", k.name);
  if (abi::Result r = s.extra ? read_extra(k, s.extra, &w->cells) : read_params(k, s.params, &w->cells)) return r;
  for (int i = 0; i < k.nparams; i++) {
    Range r;
    uint64_t p = w->cells[(size_t)i];
    if (k.params[i].pointer && p && AddressBook::get().find(p, &r) && r.state != Life::Live && r.holds(p, 1)) {
      return refuse(abi::InvalidValue, "%s: parameter %d: use after free of %s", k.name, i, r.name().c_str());
    }
  }
  *work = w;
  return abi::Success;
}

static abi::Result launch(const LaunchSpec& spec, void* stream) {
  ENTER(context);
  std::shared_ptr<KernelWork> work;
  if (abi::Result r = make_kernel(context, spec, &work)) return r;
  return submit(context, stream, work);
}

LFSIM_API cuLaunchKernel(void* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void* stream, void** params, void** extra) {
  return launch({f, gx, gy, gz, bx, by, bz, shared, params, extra}, stream);
}

// Launch attributes that affect only speed are accepted and ignored.
LFSIM_API cuLaunchKernelEx(const abi::LaunchConfig* c, void* f, void** params, void** extra) {
  enum { ignore = 0, cluster = 4, cluster_policy = 5, stream_serialization = 6, priority = 8, carveout = 14 };
  for (unsigned i = 0; i < c->nattributes; i++) {
    const abi::LaunchAttribute& a = c->attributes[i];
    bool single = a.id == cluster && a.cluster.x * a.cluster.y * a.cluster.z == 1;
    if (!single && a.id != ignore && a.id != cluster_policy && a.id != stream_serialization && a.id != priority && a.id != carveout) {
      return refuse(abi::NotSupported, "launch attribute %d is not simulated", a.id);
    }
  }
  return launch({f, c->gx, c->gy, c->gz, c->bx, c->by, c->bz, c->shared, params, extra}, c->stream);
}

LFSIM_API cuLaunchCooperativeKernel(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**) {
  return refuse(abi::NotSupported, "cooperative launches are not simulated: blocks run one after the other");
}

LFSIM_API cuLaunchHostFunc(void* stream, void (*fn)(void*), void* data) {
  ENTER(context);
  if (!fn) return abi::InvalidValue;
  return submit(context, stream, std::make_shared<HostWork>(fn, data));
}

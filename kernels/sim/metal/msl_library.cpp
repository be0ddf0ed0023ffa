#include "msl_library.h"

#include <dlfcn.h>
#include <string.h>

#include <new>

#include "msl_compile.h"
#include "msl_rewrite.h"

using lfmsl::Error;

#define API extern "C" __attribute__((visibility("default")))

// check refuses signatures that Metal would.
static void check(const lf_msl_kernel& k) {
  uint32_t seen[2] = {0, 0};
  for (uint32_t i = 0; i < k.nparams; i++) {
    const lf_msl_param& p = k.params[i];
    bool memory = p.kind == LF_MSL_THREADGROUP;
    uint32_t most = memory ? 8 : 31;
    std::string what = std::string("kernel ") + k.name + ": parameter " + p.name;
    if (p.index >= most) throw Error(what + " has index " + std::to_string(p.index) + ", of at most " + std::to_string(most - 1));
    if (seen[memory] >> p.index & 1) throw Error(what + " has the index " + std::to_string(p.index) + " of another");
    seen[memory] |= 1u << p.index;
  }
  if (k.threads > 1024) throw Error(std::string("kernel ") + k.name + ": max_total_threads_per_threadgroup of " + std::to_string(k.threads) + ", a threadgroup has at most 1024");
}

lf_msl::lf_msl(const std::string& path) : handle(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  if (!handle) throw Error(dlerror());
  table = static_cast<const lf_msl_library*>(dlsym(handle, "lf_msl_table"));
  if (!table) throw Error(path + " is no compiled shader");
  for (uint64_t i = 0; i < table->nkernels; i++) check(table->kernels[i]);
}

lf_msl::~lf_msl() {
  if (handle) dlclose(handle);
}

API lf_msl* lf_msl_compile(const char* source, size_t bytes, const char* const* macros, int count, char** error) {
  try {
    lfmsl::Source s;
    s.text.assign(source, bytes);
    s.macros.assign(macros, macros + count);
    return new lf_msl(lfmsl::compile(s));
  } catch (const std::exception& e) {
    *error = strdup(e.what());
    return nullptr;
  }
}

API void lf_msl_free(lf_msl* m) { delete m; }

API int lf_msl_count(const lf_msl* m) { return (int)m->table->nkernels; }

API const char* lf_msl_name(const lf_msl* m, int kernel) { return m->table->kernels[kernel].name; }

API lf_msl_info lf_msl_about(const lf_msl* m, int kernel) {
  const lf_msl_kernel& k = m->table->kernels[kernel];
  lf_msl_info info{};
  info.threads = k.threads;
  for (uint32_t i = 0; i < k.nparams; i++) {
    const lf_msl_param& p = k.params[i];
    if (p.kind == LF_MSL_THREADGROUP) {
      info.threadgroups |= 1u << p.index;
      continue;
    }
    info.buffers |= 1u << p.index;
    info.align[p.index] = (uint32_t)p.align;
    if (p.kind == LF_MSL_REFERENCE) info.bytes[p.index] = (uint32_t)p.size;
  }
  for (const lf_msl_shared* s = m->table->shared; s != m->table->shared_end; s++) {
    if (!strcmp(s->kernel, k.name)) info.shared += (s->size + 15) / 16 * 16;
  }
  return info;
}

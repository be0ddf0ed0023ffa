// Grids of a shader on the engine.
#include <stdio.h>
#include <string.h>

#include <mutex>
#include <string>

#include "../engine/block.h"
#include "../engine/environment.h"
#include "msl_library.h"
#include "msl_source_lines.h"

namespace {

constexpr unsigned most_shared = 32768, most_threads = 1024;

const lf_msl_kernel* kernel_of(const lfsim::Launch* l) { return static_cast<const lf_msl_kernel*>(l->kernel->function); }
const lf_msl_args* args_of(const lfsim::Launch* l) { return reinterpret_cast<const lf_msl_args*>(l->params); }

void call(void* kernel, void* const* params) { static_cast<const lf_msl_kernel*>(kernel)->call(reinterpret_cast<const lf_msl_args*>(params)); }

// runtime_describes is the description of an address by the Metal runtime.
lfsim::Describe runtime_describes;

// describe returns a description of an address by the buffer nearest to it.
std::string describe(const void* address) {
  const lf_msl_kernel* k = kernel_of(lfsim::running->launch);
  const lf_msl_args* a = args_of(lfsim::running->launch);
  uintptr_t nearest = LF_MSL_NEAR;
  std::string found;
  auto p = (uintptr_t)address;
  for (uint32_t i = 0; i < k->nparams; i++) {
    if (k->params[i].kind == LF_MSL_THREADGROUP) continue;
    uint32_t n = k->params[i].index;
    auto begin = (uintptr_t)a->buffer[n], end = begin + a->length[n];
    std::string name = "buffer " + std::to_string(n) + " (" + k->params[i].name + ") of " + std::to_string(a->length[n]) + " bytes";
    uintptr_t distance = p >= end ? p - end : p < begin ? begin - p : 0;
    if (distance >= nearest || (p >= begin && p < end)) continue;
    nearest = distance;
    found = std::to_string(distance) + (p >= end ? " bytes past the end of " : " bytes before ") + name;
  }
  if (!found.empty()) return found;
  return runtime_describes ? runtime_describes(address) : "";
}

// refusal returns the error of an invalid dispatch before it begins; empty if it is valid.
std::string refusal(const lf_msl_kernel& k, const lf_msl_info& info, const lf_msl_args& a) {
  char text[256];
  uint64_t threads = (uint64_t)a.threads[0] * a.threads[1] * a.threads[2], groups = (uint64_t)a.grid[0] * a.grid[1] * a.grid[2];
  if (!threads || !groups) return "a grid of no threads";
  unsigned most = info.threads ? info.threads : most_threads;
  if (threads > most) {
    snprintf(text, sizeof text, "%llu threads in a threadgroup, of at most %u", (unsigned long long)threads, most);
    return text;
  }
  size_t shared = info.shared;
  for (uint32_t i = 0; i < k.nparams; i++) {
    const lf_msl_param& p = k.params[i];
    if (p.kind == LF_MSL_THREADGROUP) {
      if (!a.threadgroup[p.index]) {
        snprintf(text, sizeof text, "threadgroup memory %u (%s) has no length", p.index, p.name);
        return text;
      }
      if (a.threadgroup[p.index] % 16) {
        snprintf(text, sizeof text, "threadgroup memory %u (%s) of %llu bytes, which is no multiple of 16", p.index, p.name, (unsigned long long)a.threadgroup[p.index]);
        return text;
      }
      shared += a.threadgroup[p.index];
      continue;
    }
    if (!a.buffer[p.index]) {
      snprintf(text, sizeof text, "buffer %u (%s) is not bound", p.index, p.name);
      return text;
    }
    if ((uintptr_t)a.buffer[p.index] % p.align) {
      snprintf(text, sizeof text, "buffer %u (%s) does not lie on the %llu bytes of its type", p.index, p.name, (unsigned long long)p.align);
      return text;
    }
    if (p.kind == LF_MSL_REFERENCE && a.length[p.index] < p.size) {
      snprintf(text, sizeof text, "buffer %u (%s) has %llu bytes, its type %llu", p.index, p.name, (unsigned long long)a.length[p.index], (unsigned long long)p.size);
      return text;
    }
  }
  if (shared > most_shared) {
    snprintf(text, sizeof text, "%zu bytes of threadgroup memory, of at most %u", shared, most_shared);
    return text;
  }
  return "";
}

}  // namespace

void lfmsl::prepare_engine() {
  static std::once_flag once;
  std::call_once(once, [] {
    lfsim::read_options();
    lfsim::options.words = &lfsim::metal_words;
    lfsim::options.everybody = true;
    lfsim::options.code_addresses = true;
    runtime_describes = lfsim::describe_address;
    lfsim::describe_address = describe;
    lfsim::install_fault_handlers();
  });
}

extern "C" __attribute__((visibility("default"))) int lf_msl_dispatch(const lf_msl* m, int kernel, const lf_msl_args* args, uint64_t* work, char** error) {
  lfmsl::prepare_engine();
  const lf_msl_kernel& k = m->table->kernels[kernel];
  std::string message = refusal(k, lf_msl_about(m, kernel), *args);
  if (!message.empty()) {
    *error = strdup((k.name + (": " + message)).c_str());
    return LF_MSL_FAILED;
  }
  lfsim::KernelDef def{};
  def.name = k.name;
  def.function = const_cast<lf_msl_kernel*>(&k);
  def.call = call;
  lfsim::Launch launch{&def, reinterpret_cast<void* const*>(args), {args->grid[0], args->grid[1], args->grid[2]}, {args->threads[0], args->threads[1], args->threads[2]}, 0, most_shared};
  std::atomic<uint64_t> done{0};
  launch.work = &done;
  lfsim::Outcome outcome = lfsim::run(launch, &message);
  *work += done;
  if (outcome != lfsim::Outcome::Done) *error = strdup(lfmsl::with_source_lines(message).c_str());
  return (int)outcome;
}

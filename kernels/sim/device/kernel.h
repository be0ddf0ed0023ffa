// Kernels: the position of a thread, shared memory, and the registration of
// kernels for the driver.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include <type_traits>
#include <utility>

#include "vector.h"

namespace lfsim {

// Place holds the indices and sizes common to all threads of a block.
struct Place {
  uint3 block;
  dim3 block_dim, grid_dim;
};

// Lane holds the indices of a thread.
struct Lane {
  uint3 thread;
  unsigned lane, warp;
  const Place* place;
};

// current is the lane that runs on this OS thread. Initial-exec, since it is
// read for every threadIdx; eight bytes fit into the loader's reserve for
// libraries opened late.
extern thread_local Lane* current __attribute__((tls_model("initial-exec")));

// LFSIM_UNWATCHED marks functions whose accesses are not those of a kernel, such as what
// warp primitives do with their arguments on the stacks of sleeping lanes: they are neither
// races nor counted. Only __syncwarp orders memory between lanes.
#define LFSIM_UNWATCHED __attribute__((no_sanitize("thread")))

// Site is the position of a collective call in a kernel: lanes that meet at
// different sites have diverged.
struct Site {
  const char* file;
  int line;
  static constexpr Site here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { return {file, line}; }
  // code returns a site known only by its address.
  static Site code(const void* address) { return {static_cast<const char*>(address), 0}; }
};

// fail ends the launch with an error that names kernel, block and thread.
[[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));

// dynamic_shared returns the block's dynamic shared memory, static_shared the
// memory of one declaration (its key), poisoned for every block.
void* dynamic_shared();
void* static_shared(const void* key, size_t bytes, size_t align, Site site = Site::here());

// KernelDef is a kernel as the driver sees it.
struct Param {
  unsigned size;
  bool pointer;
};

struct KernelDef {
  static constexpr int max_params = 64;
  const char* name;
  void* function;
  void (*call)(void* function, void* const* params);
  int nparams;
  Param params[max_params];
};

void register_kernel(const KernelDef*);

// Register makes a KernelDef out of a function's type.
template <class... A>
struct Register {
  static_assert(sizeof...(A) <= KernelDef::max_params, "a kernel with more than 64 parameters");
  static_assert(((std::is_pointer<A>::value || std::is_arithmetic<A>::value) && ...),
                "parameters of kernels are pointers and numbers: a launch copies at most 8 bytes of each");
  KernelDef def;

  template <size_t... I>
  LFSIM_UNWATCHED static void unpack(void* f, void* const* p, std::index_sequence<I...>) {
    ((void (*)(A...))f)(*static_cast<A*>(p[I])...);
  }
  static void call(void* f, void* const* p) { unpack(f, p, std::index_sequence_for<A...>{}); }

  Register(const char* name, void (*f)(A...))
      : def{name, (void*)f, &call, (int)sizeof...(A), {Param{(unsigned)sizeof(A), std::is_pointer<A>::value}...}} {
    register_kernel(&def);
  }
};

}  // namespace lfsim

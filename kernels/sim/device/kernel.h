// What makes a function a kernel: where its threads find themselves, shared
// memory, and the registration by which the driver finds it.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include <type_traits>
#include <utility>

#include "vector.h"

namespace lfsim {

// Place is what all threads of a block know.
struct Place {
  uint3 block;
  dim3 block_dim, grid_dim;
};

// Lane is what a thread knows of itself.
struct Lane {
  uint3 thread;
  unsigned lane, warp;
  const Place* place;
};

// current is the lane that runs on this OS thread. Initial-exec, since it is
// read for every threadIdx; eight bytes fit into what the loader keeps for
// libraries opened late.
extern thread_local Lane* current __attribute__((tls_model("initial-exec")));

// Site is where in a kernel a collective was called: lanes that meet at two
// different ones have diverged.
struct Site {
  const char* file;
  int line;
  static constexpr Site here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { return {file, line}; }
  // code is a place that is known by its address only.
  static Site code(const void* address) { return {static_cast<const char*>(address), 0}; }
};

// fail ends the launch with an error that names kernel, block and thread.
[[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));

// dynamic_shared is the block's dynamic shared memory; static_shared that of
// one declaration (its key), poisoned for every block.
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
  static void unpack(void* f, void* const* p, std::index_sequence<I...>) {
    ((void (*)(A...))f)(*static_cast<A*>(p[I])...);
  }
  static void call(void* f, void* const* p) { unpack(f, p, std::index_sequence_for<A...>{}); }

  Register(const char* name, void (*f)(A...))
      : def{name, (void*)f, &call, (int)sizeof...(A), {Param{(unsigned)sizeof(A), std::is_pointer<A>::value}...}} {
    register_kernel(&def);
  }
};

}  // namespace lfsim

// Handlers of the compiler's undefined-behaviour checks
// (-fsanitize=alignment, bounds, shift, integer-divide-by-zero), which report
// file and line. The arguments have the layouts of the compilers' own
// runtime.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "block.h"

namespace {

struct Location {
  const char* file;
  uint32_t line, column;
};

struct Type {
  uint16_t kind, info;
  char name[1];
};

struct TypeMismatch {
  Location at;
  const Type* type;
  unsigned char log_alignment, kind;
};

struct OutOfBounds {
  Location at;
  const Type *array, *index;
};

struct Overflow {
  Location at;
  const Type* type;
};

[[noreturn]] void refuse(const Location& at, lfsim::Outcome outcome, const std::string& what) {
  std::string s = to_string(lfsim::Site{at.file, (int)at.line}) + ": " + what;
  if (lfsim::running && lfsim::current) lfsim::running->fail(outcome, s);
  fprintf(stderr, "lfsim: %s\n", s.c_str());
  abort();
}

}  // namespace

// Shaders that are compiled while the simulator runs look for these by name.
#ifdef LFSIM_METAL
#define HANDLER extern "C" __attribute__((visibility("default"))) void
#else
#define HANDLER extern "C" __attribute__((visibility("hidden"))) void
#endif

HANDLER __ubsan_handle_type_mismatch_v1(TypeMismatch* d, uintptr_t p) {
  static const char* const kinds[] = {"a load of", "a store of", "a reference to", "an access in", "a call of a member of"};
  char text[256];
  snprintf(text, sizeof text, "misaligned: %s %s at %p, which does not lie on %u bytes", kinds[d->kind < 5 ? d->kind : 3], d->type->name, (void*)p, 1u << d->log_alignment);
  refuse(d->at, lfsim::Outcome::Misaligned, text);
}

HANDLER __ubsan_handle_out_of_bounds(OutOfBounds* d, uintptr_t i) {
  refuse(d->at, lfsim::Outcome::Failed, "index " + std::to_string((int64_t)i) + " is out of the bounds of " + d->array->name);
}

HANDLER __ubsan_handle_shift_out_of_bounds(OutOfBounds* d, uintptr_t, uintptr_t n) {
  refuse(d->at, lfsim::Outcome::Failed, "a shift of " + std::string(d->array->name) + " by " + std::to_string((int64_t)n));
}

HANDLER __ubsan_handle_divrem_overflow(Overflow* d, uintptr_t, uintptr_t) { refuse(d->at, lfsim::Outcome::Failed, "integer division by zero"); }

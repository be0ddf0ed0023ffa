// Environment variables, and the ones that the engine reads.
#pragma once
#include <stdint.h>

namespace lfsim {

// read_options reads LFSIM_ORDER, LFSIM_SEED, LFSIM_EAGER_CP and LFSIM_THREADS.
void read_options();

// bad ends the process: a variable is not what is expected.
[[noreturn]] void bad(const char* variable, const char* value, const char* expected);

// get returns null for a variable that is empty or not set.
const char* get(const char* variable);

// number reads bytes and counts; K, M and G multiply.
uint64_t number(const char* variable, uint64_t otherwise);

bool flag(const char* variable);

}  // namespace lfsim

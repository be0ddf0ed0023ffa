// What all of the fake knows: how it ends a process that misuses it, and which of its
// objects are alive.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// lf_die says what was done wrong and ends the process, as Apple's validation layer does.
__attribute__((noreturn, format(printf, 1, 2))) void lf_die(const char* format, ...);

enum {
  LF_DEVICE,
  LF_QUEUE,
  LF_BUFFER,
  LF_LIBRARY,
  LF_FUNCTION,
  LF_PIPELINE,
  LF_COMMAND_BUFFER,
  LF_ENCODER,
  LF_EVENT,
  LF_KINDS,
};

// lf_born gives a new object its number, lf_gone ends its life.
uint64_t lf_born(int kind);
void lf_gone(int kind, uint64_t number);
bool lf_lives(uint64_t number);

// lf_finishing brackets the time between the end of a command buffer and the release of
// all that it held, which lf_metal_live waits out.
void lf_finishing(bool begins);

// lf_turn is which of n independent things has turn i, by LFSIM_ORDER.
size_t lf_turn(size_t i, size_t n);

#ifdef __cplusplus
}
#endif

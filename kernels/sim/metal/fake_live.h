// Common state of the fake: termination of a process that misuses it, and the set of
// live objects.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// lf_die reports the misuse and ends the process, as Apple's validation layer does.
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
  LF_RESIDENCY_SET,
  LF_KINDS,
};

// lf_born assigns a number to a new object, lf_gone records its end.
uint64_t lf_born(int kind);
void lf_gone(int kind, uint64_t number);
bool lf_lives(uint64_t number);

// lf_finishing brackets the time between the end of a command buffer and the release of
// all that it held, which lf_metal_live waits out.
void lf_finishing(bool begins);

// Counts for lf_metal_commands: a command buffer has run, so many of a queue exist, residency is requested.
void lf_ran(uint64_t work);
void lf_on_the_way(uint64_t command_buffers);
void lf_requested(uint64_t buffers, uint64_t bytes);

// lf_turn returns which of n independent items is processed at turn i, according to LFSIM_ORDER.
size_t lf_turn(size_t i, size_t n);

#ifdef __cplusplus
}
#endif

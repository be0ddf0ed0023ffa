// Functions of the fake Metal for tests, in addition to Metal's API.
#ifndef LF_METAL_FAKE_H
#define LF_METAL_FAKE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  int devices, queues, buffers, libraries, functions, pipelines, command_buffers, encoders, events, residency_sets;
} lf_metal_counts;

// lf_metal_live counts the objects of the process that were not deallocated, once what
// is running on other threads has let go of its own.
lf_metal_counts lf_metal_live(void);

// lf_metal_allocated returns the bytes of live buffers with their own memory,
// lf_metal_borrowed the bytes of newBufferWithBytesNoCopy.
uint64_t lf_metal_allocated(void);
uint64_t lf_metal_borrowed(void);

// Command buffers of the process. Work is the number of threads that ran, plus the barriers
// and simdgroup functions that each of them called.
typedef struct {
  uint64_t command_buffers, work;             // that ran
  uint64_t most_work;                         // of one command buffer
  uint64_t most_on_the_way;                   // command buffers of a queue that existed and had not ended
  uint64_t requests;                          // of residency
  uint64_t resident_buffers, resident_bytes;  // of the last request
} lf_metal_work;

// lf_metal_commands returns what happened since its last call.
lf_metal_work lf_metal_commands(void);

#ifdef __cplusplus
}
#endif
#endif

// Functions of the fake Metal for tests, in addition to Metal's API.
#ifndef LF_METAL_FAKE_H
#define LF_METAL_FAKE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  int devices, queues, buffers, libraries, functions, pipelines, command_buffers, encoders, events;
} lf_metal_counts;

// lf_metal_live counts the objects of the process that were not deallocated, once what
// is running on other threads has let go of its own.
lf_metal_counts lf_metal_live(void);

// lf_metal_allocated returns the bytes of live buffers with their own memory,
// lf_metal_borrowed the bytes of newBufferWithBytesNoCopy.
uint64_t lf_metal_allocated(void);
uint64_t lf_metal_borrowed(void);

#ifdef __cplusplus
}
#endif
#endif

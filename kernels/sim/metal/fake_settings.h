// The environment of a fake device: LFSIM_METAL_… as the README of kernels/sim lists
// them, read when the device is made.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { LF_NO_COPY_WORKS, LF_NO_COPY_NIL, LF_NO_COPY_EMPTY };

typedef struct lf_failures lf_failures;

typedef struct {
  bool no_device;
  int family;             // 5 … 10: Apple5 …
  uint64_t max_buffer;    // maxBufferLength
  uint64_t memory;        // recommendedMaxWorkingSetSize, and no more than that
  uint64_t page;          // what newBufferWithBytesNoCopy wants
  int no_copy;            // LF_NO_COPY_…
  unsigned language;      // the highest MTLLanguageVersion that compiles
  uint64_t patience;      // milliseconds that a command buffer waits for an event
  uint64_t watchdog;      // work of a command buffer before it is stopped, 0: any
  bool no_residency;      // newResidencySetWithDescriptor fails
  lf_failures* failures;  // LFSIM_METAL_FAIL
} lf_settings;

// lf_settings_read ends the process with a message where a value makes no sense.
lf_settings lf_settings_read(void);
void lf_settings_free(lf_settings* s);

// lf_injected reports whether LFSIM_METAL_FAIL selects this call of a kind (alloc,
// library, pipeline, command, lost) to fail. An entry kind:name counts calls of that name
// only.
bool lf_injected(lf_failures* f, const char* kind, const char* name);

// lf_injected_command returns the MTLCommandBufferError that this command buffer ends with, or 0, and its text.
int lf_injected_command(lf_failures* f, const char** text);

// lf_timeout_text is the text of Apple's driver for a command buffer that took too long.
#define lf_timeout_text "Caused GPU Timeout Error (00000002:kIOGPUCommandBufferCallbackErrorTimeout)"

#ifdef __cplusplus
}
#endif

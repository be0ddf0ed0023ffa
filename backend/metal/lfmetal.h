// What Go calls of Metal. Everything is handed over by numbers and opaque pointers; a
// run is one call, whatever the number of its launches. Functions may be called from
// several threads, but for those on one command, and commands are done in the order in
// which they were given.
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef struct lfm_device lfm_device;
typedef struct lfm_library lfm_library;
typedef struct lfm_kernel lfm_kernel;
typedef struct lfm_command lfm_command;

// What errors leave behind is a text that the caller frees.

lfm_device* lfm_open(char** error); // NULL where there is no device
void lfm_close(lfm_device*);        // after all else of it was given back

typedef struct {
  char name[128];
  uint64_t working_set, max_buffer; // bytes
  uint32_t threads;                 // of a threadgroup, at most
  uint32_t apple, metal;            // the highest family Apple… and Metal…, 0 if none
  uint32_t language;                // of shaders, at most: 300 for 3.0
  uint32_t unified;
} lfm_info;

lfm_info lfm_describe(lfm_device*);

// A text of shaders as it is compiled: safe mathematics, the macros LF_SIMD and LF_BFLOAT.
lfm_library* lfm_compile(lfm_device*, const char* source, size_t bytes, uint32_t language, int simd, int bfloat, char** error);
void lfm_library_free(lfm_library*);

// A kernel of a library.
lfm_kernel* lfm_pipeline(lfm_device*, lfm_library*, const char* name, uint32_t* threads, char** error);
void lfm_kernel_free(lfm_kernel*);

// How a kernel takes the arguments of a launch: arguments that are pointers become the
// buffers 0, 1, …; all numbers lie in one struct of so many bytes, behind these.
enum { LFM_POINTER, LFM_FOUR, LFM_EIGHT }; // kinds of arguments: a pointer, a number of so many bytes
enum { LFM_ARGS = 56, LFM_BUFFERS = 31 };
void lfm_layout(lfm_kernel*, const uint8_t* kinds, int count);

// Buffers are known by their slots, from 1 on; 0 is none. A pointer is a slot and an
// offset.
#define LFM_SHIFT 40
uint32_t lfm_alloc(lfm_device*, uint64_t bytes, void** contents);     // zeroed
uint32_t lfm_wrap(lfm_device*, void* pages, uint64_t bytes);          // in place: pages and bytes are multiples of a page
void lfm_free(lfm_device*, uint32_t slot);                            // when no command uses it

// A launch, as package gpu lays it out.
typedef struct {
  uintptr_t kernel; // a lfm_kernel*
  uint32_t grid[3], block[3];
  uint32_t shared, count;
  uint64_t args[LFM_ARGS];
} lfm_launch;

// Gives launches as one command. Where that fails, nothing runs, and failed is the
// number of the launch that is wrong.
lfm_command* lfm_run(lfm_device*, const lfm_launch*, int count, int* failed, char** error);

// Gives a copy between buffers as a command.
lfm_command* lfm_copy(lfm_device*, uint64_t to, uint64_t from, uint64_t bytes, char** error);

// How a command has ended.
enum { LFM_DONE, LFM_LOST, LFM_MEMORY, LFM_TIMEOUT };

// Waits for a command and ends it. seconds is what it took the device.
int lfm_wait(lfm_command*, double* seconds, char** error);

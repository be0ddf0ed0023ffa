// The C interface through which Go calls Metal. It passes only numbers and opaque pointers.
// A run is one call, whatever the number of its launches. Functions may be called from
// several threads, but only one thread may use a command at a time. Commands complete
// in the order in which they were submitted.
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef struct lfm_device lfm_device;
typedef struct lfm_library lfm_library;
typedef struct lfm_kernel lfm_kernel;
typedef struct lfm_command lfm_command;

// Errors are returned as strings that the caller frees.

lfm_device* lfm_open(char** error); // NULL if there is no device
void lfm_close(lfm_device*);        // after all its objects have been freed

typedef struct {
  char name[128];
  uint64_t working_set, max_buffer; // bytes
  uint32_t threads;                 // per threadgroup, maximum
  uint32_t memory;                  // bytes of threadgroup memory, maximum
  uint32_t apple, metal;            // the highest supported family Apple… and Metal…, 0 if none
  uint32_t language;                // highest version of the shading language: 300 for 3.0
  uint32_t unified;
} lfm_info;

lfm_info lfm_describe(lfm_device*);

// Compiles shader source with safe math and the macros LF_SIMD and LF_BFLOAT.
lfm_library* lfm_compile(lfm_device*, const char* source, size_t bytes, uint32_t language, int simd, int bfloat, char** error);
void lfm_library_free(lfm_library*);

// What the compiler made of a kernel.
typedef struct {
  uint32_t threads; // of a threadgroup, maximum
  uint32_t width;   // threads of a simdgroup
  uint32_t memory;  // bytes of threadgroup memory that the kernel declares
} lfm_limits;

// A kernel of a library.
lfm_kernel* lfm_pipeline(lfm_device*, lfm_library*, const char* name, lfm_limits*, char** error);
void lfm_kernel_free(lfm_kernel*);

// Defines how a launch's arguments are bound: pointers become the buffers 0, 1, …; all
// numbers are packed into one struct, which is the last buffer.
enum { LFM_POINTER, LFM_FOUR, LFM_EIGHT }; // kinds of arguments: a pointer, a number of 4 or 8 bytes
enum { LFM_ARGS = 68, LFM_BUFFERS = 31 };
void lfm_layout(lfm_kernel*, const uint8_t* kinds, int count);

// Buffers are identified by slots, starting at 1; 0 means no buffer. A pointer combines a
// slot and an offset. Buffers up to the working set of the device stay resident between
// commands, from macOS 15 on; others are made resident by each command that uses them.
#define LFM_SHIFT 40
// address is by which kernels reach the buffer's memory through a table, 0 if the device
// has no Metal 3.
uint32_t lfm_alloc(lfm_device*, uint64_t bytes, void** contents, uint64_t* address); // zeroed
uint32_t lfm_wrap(lfm_device*, void* pages, uint64_t bytes, uint64_t* address);      // in place: pages and bytes are multiples of the page size
void lfm_free(lfm_device*, uint32_t slot);                            // no command may be using it

// A launch in the memory layout of package gpu.
typedef struct {
  uintptr_t kernel; // a lfm_kernel*
  uint32_t grid[3], block[3];
  uint32_t shared, count;
  uint32_t accesses[2]; // range of the accesses of lfm_run
  uint64_t args[LFM_ARGS];
} lfm_launch;

// Memory that a launch reaches by an address in a table, in the memory layout of package
// gpu. at is a pointer, 0 for none.
typedef struct {
  uint64_t at;
  uint32_t written, unused;
} lfm_access;

// A part of the grid of a launch: groups threadgroups from position first on.
typedef struct {
  uint32_t first[3], groups[3];
} lfm_part;

// Submits launches as one command, or a part of one launch if part is not NULL. On failure
// nothing runs, and failed is the index of the invalid launch.
lfm_command* lfm_run(lfm_device*, const lfm_launch*, int count, const lfm_access* accesses, const lfm_part* part, int* failed, char** error);

// Submits a copy between buffers as a command.
lfm_command* lfm_copy(lfm_device*, uint64_t to, uint64_t from, uint64_t bytes, char** error);

// Waits for a command and releases it. seconds is its duration on the device. The result is
// 0 or the code in Metal's error domain of command buffers, -1 if Metal gives none.
int lfm_wait(lfm_command*, double* seconds, char** error);

// The memory of buffers: between pages that fault, and known by number, so that a wrong
// address can be told by its name.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// lf_memory_map makes memory of zeros that ends, but for its alignment of 16, at a page
// that faults; NULL if there is none. *serial is its number, from 1.
void* lf_memory_map(size_t bytes, uint64_t* serial);

// lf_memory_borrow notes memory of the program's own.
void lf_memory_borrow(void* begin, size_t bytes, uint64_t* serial);

// lf_memory_free ends the life of memory: whoever touches what was mapped faults, and
// nothing new gets its addresses until many others have been freed. It ends the process
// if something was written beside it.
void lf_memory_free(uint64_t serial);

// lf_memory_is_live tells whether memory was not freed yet; lf_memory_check ends the
// process if something was written beside it.
bool lf_memory_is_live(uint64_t serial);
void lf_memory_check(uint64_t serial);

uint64_t lf_memory_mapped(void);    // bytes that live
uint64_t lf_memory_borrowed(void);  // bytes noted

#ifdef __cplusplus
}
#endif

// The memory of buffers: between pages that fault, and known by number, so that a wrong
// address can be told by its name.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// lf_memory_map creates zeroed memory that ends at a guard page, except for its
// alignment of 16; NULL if memory is exhausted. *serial is its number, from 1.
void* lf_memory_map(size_t bytes, uint64_t* serial);

// lf_memory_borrow records memory owned by the program.
void lf_memory_borrow(void* begin, size_t bytes, uint64_t* serial);

// lf_memory_free frees memory: any access to mapped memory faults, and its addresses
// are not reused until many others have been freed. It ends the process if bytes
// next to it were overwritten.
void lf_memory_free(uint64_t serial);

// lf_memory_address returns the address by which kernels reach memory that is not bound:
// another mapping of it, which faults unless lf_memory_grant has allowed accesses, by one
// command buffer or more. lf_memory_revoke takes back one grant. Private pages of the
// program cannot be mapped twice and have their own address, which never faults.
uint64_t lf_memory_address(uint64_t serial);
void lf_memory_grant(uint64_t serial, bool write);
void lf_memory_revoke(uint64_t serial, bool write);

// lf_memory_is_live reports whether memory has not been freed; lf_memory_check ends
// the process if bytes next to it were overwritten.
bool lf_memory_is_live(uint64_t serial);
void lf_memory_check(uint64_t serial);

uint64_t lf_memory_mapped(void);    // bytes that live
uint64_t lf_memory_borrowed(void);  // bytes noted

#ifdef __cplusplus
}
#endif

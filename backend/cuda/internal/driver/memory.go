//go:build cuda && linux

package driver

/*
#include <stdint.h>
#include <cuda.h>

static CUresult host_alloc(size_t bytes, void **p) {
	return cuMemHostAlloc(p, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
}
static CUresult to_device(uintptr_t dst, void *src, size_t bytes, CUstream s) {
	return cuMemcpyHtoDAsync(dst, src, bytes, s);
}
static CUresult to_host(void *dst, uintptr_t src, size_t bytes, CUstream s) {
	return cuMemcpyDtoHAsync(dst, src, bytes, s);
}
*/
import "C"

import (
	"unsafe"

	"gorgonia.org/cu"
)

// HostAlloc allocates pinned memory. The device copies to and from it without staging, and can access it in place at
// the same address.
func HostAlloc(bytes int) ([]byte, error) {
	var p unsafe.Pointer
	if err := check(C.host_alloc(C.size_t(bytes), &p)); err != nil {
		return nil, err
	}
	return unsafe.Slice((*byte)(p), bytes), nil
}

// HostFree frees memory returned by HostAlloc.
func HostFree(b []byte) error {
	if b == nil {
		return nil
	}
	return check(C.cuMemFreeHost(unsafe.Pointer(unsafe.SliceData(b))))
}

// HostRegister pins memory that was allocated elsewhere. readOnly is required for read-only pages and is not supported
// by every device.
func HostRegister(b []byte, readOnly bool) error {
	flags := C.uint(C.CU_MEMHOSTREGISTER_PORTABLE)
	if readOnly {
		flags |= C.CU_MEMHOSTREGISTER_READ_ONLY
	}
	return check(C.cuMemHostRegister(unsafe.Pointer(unsafe.SliceData(b)), C.size_t(len(b)), flags))
}

// HostUnregister undoes HostRegister.
func HostUnregister(b []byte) error {
	return check(C.cuMemHostUnregister(unsafe.Pointer(unsafe.SliceData(b))))
}

// ToDevice enqueues a copy from pinned memory. The memory must not change until the copy is done.
func ToDevice(dst cu.DevicePtr, src []byte, s cu.Stream) error {
	return check(C.to_device(C.uintptr_t(dst), unsafe.Pointer(unsafe.SliceData(src)), C.size_t(len(src)), stream(s)))
}

// ToHost enqueues a copy into pinned memory.
func ToHost(dst []byte, src cu.DevicePtr, s cu.Stream) error {
	return check(C.to_host(unsafe.Pointer(unsafe.SliceData(dst)), C.uintptr_t(src), C.size_t(len(dst)), stream(s)))
}

// WaitDefault waits for work on the default stream, such as the rest of a copy that has returned.
func WaitDefault() error { return check(C.cuStreamSynchronize(nil)) }

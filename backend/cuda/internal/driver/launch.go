//go:build cuda && linux

package driver

/*
#include <stdint.h>
#include <stdlib.h>
#include <cuda.h>

enum { CELLS = 68 };

// A launch as it lies in memory: the same as gpu.Launch.
typedef struct {
	CUfunction fn;
	unsigned grid[3], block[3], shared, count, accesses[2];
	unsigned long long cells[CELLS];
} lf_launch;

#cgo noescape lf_issue
#cgo nocallback lf_issue
#cgo noescape lf_event_wait

// lf_issue enqueues n launches. It gives the result in the lower half, and in
// the upper one how many were enqueued.
static uint64_t lf_issue(void *launches, int n, CUstream s) {
	lf_launch *l = launches;
	void *p[CELLS];
	for (int i = 0; i < n; i++, l++) {
		if (!l->grid[0]) continue; // nothing to do this time
		if (l->count > CELLS) return (uint64_t)i << 32 | CUDA_ERROR_INVALID_VALUE;
		for (unsigned j = 0; j < l->count; j++) p[j] = &l->cells[j];
		CUresult r = cuLaunchKernel(l->fn, l->grid[0], l->grid[1], l->grid[2], l->block[0], l->block[1], l->block[2], l->shared, s, p, 0);
		if (r) return (uint64_t)i << 32 | r;
	}
	return (uint64_t)n << 32;
}

// lf_event_wait asks a while, since short work ends sooner than a thread
// wakes, and then sleeps.
static CUresult lf_event_wait(CUevent e, int times) {
	CUresult r = CUDA_ERROR_NOT_READY;
	while (times-- > 0 && (r = cuEventQuery(e)) == CUDA_ERROR_NOT_READY);
	return r == CUDA_ERROR_NOT_READY ? cuEventSynchronize(e) : r;
}
*/
import "C"

import (
	"unsafe"

	"gorgonia.org/cu"

	"github.com/lorafuse/lorafuse/backend/gpu"
)

// Handle returns a kernel's handle for use in launches.
func Handle(f cu.Function) uintptr { return uintptr(unsafe.Pointer(function(f))) }

// Launches are launches of kernels.
type Launches []gpu.Launch

// The sizes of both descriptions of a launch are the same.
var (
	_ [unsafe.Sizeof(gpu.Launch{}) - C.sizeof_lf_launch]struct{}
	_ [C.sizeof_lf_launch - unsafe.Sizeof(gpu.Launch{})]struct{}
	_ [gpu.MaxArgs - C.CELLS]struct{}
	_ [C.CELLS - gpu.MaxArgs]struct{}
)

// Issue enqueues the launches in their order, with one call. done is how many
// were enqueued.
func (l Launches) Issue(s cu.Stream) (done int, err error) {
	if len(l) == 0 {
		return 0, nil
	}
	r := uint64(C.lf_issue(unsafe.Pointer(unsafe.SliceData(l)), C.int(len(l)), stream(s)))
	return int(r >> 32), check(C.CUresult(uint32(r)))
}

// SetMaxShared allows launches of f to use the given number of bytes of dynamic shared memory. It is needed above 48
// KiB.
func SetMaxShared(f cu.Function, bytes int) error {
	return check(C.cuFuncSetAttribute(function(f), C.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, C.int(bytes)))
}

// spins is the number of times that an event is polled before the thread sleeps: some tens of microseconds.
const spins = 200

// Wait blocks until the work before e is done.
func Wait(e cu.Event) error { return check(C.lf_event_wait(event(e), spins)) }

//go:build cgo && (darwin || (metal && metalfake))

package metal

/*
#include <stdlib.h>
#include "lfmetal.h"

#cgo noescape lfm_run
#cgo nocallback lfm_run
#cgo noescape lfm_copy
#cgo nocallback lfm_copy
#cgo noescape lfm_wait
#cgo nocallback lfm_wait
*/
import "C"

import (
	"errors"
	"time"
	"unsafe"

	"github.com/lorafuse/lorafuse/backend/gpu"
)

// This file contains all calls to C: Go wrappers of the functions of lfmetal.h.

// runtimeError is an error message of Metal.
type runtimeError string

func (e runtimeError) Error() string { return string(e) }

// errOf converts a C string to an error and frees it. A null string gives nil.
func errOf(text *C.char) error {
	if text == nil {
		return nil
	}
	defer C.free(unsafe.Pointer(text))
	return runtimeError(C.GoString(text))
}

// system is a device of Metal.
type system struct {
	device    *C.lfm_device
	addresses []uint64 // of buffers by slot, for tables; of the device's turn
}

// openSystem opens the default device.
func openSystem() (*system, error) {
	var text *C.char
	d := C.lfm_open(&text)
	if d == nil {
		return nil, errOf(text)
	}
	return &system{device: d}, nil
}

func (s *system) close() { C.lfm_close(s.device) }

// traits holds the properties of a device.
type traits struct {
	name                   string
	workingSet, maxBuffer  int64 // bytes
	threads, memory        int   // of a threadgroup, at most; memory in bytes
	apple, metal, language int   // families, 0 if the device is in none, and language version
	unified                bool
}

func (s *system) traits() traits {
	i := C.lfm_describe(s.device)
	return traits{
		name: C.GoString(&i.name[0]), workingSet: int64(i.working_set), maxBuffer: int64(i.max_buffer),
		threads: int(i.threads), memory: int(i.memory),
		apple: int(i.apple), metal: int(i.metal), language: int(i.language), unified: i.unified != 0,
	}
}

// library is a text of shaders that is compiled.
type library struct{ l *C.lfm_library }

func (s *system) compile(source string, f form) (library, error) {
	text, number := C.CString(source), func(b bool) C.int {
		if b {
			return 1
		}
		return 0
	}
	defer C.free(unsafe.Pointer(text))
	var why *C.char
	l := C.lfm_compile(s.device, text, C.size_t(len(source)), C.uint32_t(f.language()), number(f.simd), number(f.bfloat), &why)
	if l == nil {
		return library{}, errOf(why)
	}
	return library{l}, nil
}

func (l library) free() { C.lfm_library_free(l.l) }

// pipeline is a kernel that can be launched.
type pipeline struct {
	k       *C.lfm_kernel
	threads int // of a threadgroup, at most
	width   int // threads of a simdgroup
	memory  int // bytes of threadgroup memory that it declares
}

var errNoKernel = errors.New("there is no such kernel")

// pipeline finds a kernel of a library. Errors: errNoKernel.
func (s *system) pipeline(l library, name string) (pipeline, error) {
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	var why *C.char
	var limits C.lfm_limits
	k := C.lfm_pipeline(s.device, l.l, text, &limits, &why)
	if k == nil {
		if err := errOf(why); err != nil {
			return pipeline{}, err
		}
		return pipeline{}, errNoKernel
	}
	return pipeline{k, int(limits.threads), int(limits.width), int(limits.memory)}, nil
}

func (p pipeline) free() { C.lfm_kernel_free(p.k) }

// handle returns the value that launches use as their function.
func (p pipeline) handle() uintptr { return uintptr(unsafe.Pointer(p.k)) }

// layout passes the kinds of the kernel's arguments to Metal.
func (p pipeline) layout(kinds []gpu.Kind) {
	var list [gpu.MaxArgs]C.uint8_t
	for i, k := range kinds {
		switch k {
		case gpu.PointerKind:
			list[i] = C.LFM_POINTER
		case gpu.LongKind:
			list[i] = C.LFM_EIGHT
		default:
			list[i] = C.LFM_FOUR
		}
	}
	C.lfm_layout(p.k, &list[0], C.int(len(kinds)))
}

// alloc allocates zeroed memory and returns its address and its contents in host memory. The address is 0 if no memory
// is left.
func (s *system) alloc(bytes int) (at gpu.Pointer, contents []byte) {
	var p unsafe.Pointer
	var address C.uint64_t
	if at = s.placeOf(C.lfm_alloc(s.device, C.uint64_t(bytes), &p, &address), address); at == 0 {
		return 0, nil
	}
	return at, unsafe.Slice((*byte)(p), bytes)
}

// wrap returns a buffer of pages outside the Go heap, or 0 if the device does not support that.
func (s *system) wrap(pages unsafe.Pointer, bytes int) gpu.Pointer {
	var address C.uint64_t
	return s.placeOf(C.lfm_wrap(s.device, pages, C.uint64_t(bytes), &address), address)
}

// placeOf returns the pointer to the start of a new buffer, or 0 for no buffer, and records its address for tables.
func (s *system) placeOf(buffer C.uint32_t, address C.uint64_t) gpu.Pointer {
	for len(s.addresses) <= int(buffer) {
		s.addresses = append(s.addresses, 0)
	}
	s.addresses[buffer] = uint64(address)
	return gpu.Pointer(buffer) << C.LFM_SHIFT
}

// address returns the device address of a pointer, for tables.
func (s *system) address(p gpu.Pointer) uint64 {
	const offset = 1<<C.LFM_SHIFT - 1
	return s.addresses[p>>C.LFM_SHIFT] + uint64(p&offset)
}

// free frees the buffer that starts at an address.
func (s *system) free(at gpu.Pointer) { C.lfm_free(s.device, C.uint32_t(at>>C.LFM_SHIFT)) }

// The sizes of both descriptions of a launch, of a part and of an access are the same.
var (
	_ [unsafe.Sizeof(gpu.Launch{}) - C.sizeof_lfm_launch]struct{}
	_ [C.sizeof_lfm_launch - unsafe.Sizeof(gpu.Launch{})]struct{}
	_ [gpu.MaxArgs - C.LFM_ARGS]struct{}
	_ [C.LFM_ARGS - gpu.MaxArgs]struct{}
	_ [unsafe.Sizeof(part{}) - C.sizeof_lfm_part]struct{}
	_ [C.sizeof_lfm_part - unsafe.Sizeof(part{})]struct{}
	_ [unsafe.Sizeof(gpu.Access{}) - C.sizeof_lfm_access]struct{}
	_ [C.sizeof_lfm_access - unsafe.Sizeof(gpu.Access{})]struct{}
)

// work is a command that was given.
type work struct{ c *C.lfm_command }

// run submits launches as one command, or a part of one launch if only is not nil. Ranges of accesses tell which memory
// they reach by addresses in tables. On failure, wrong is the index of the launch at fault.
func (s *system) run(l []gpu.Launch, accesses []gpu.Access, only *part) (w work, wrong int, err error) {
	var failed C.int
	var why *C.char
	c := C.lfm_run(s.device, (*C.lfm_launch)(unsafe.Pointer(unsafe.SliceData(l))), C.int(len(l)), (*C.lfm_access)(unsafe.Pointer(unsafe.SliceData(accesses))), (*C.lfm_part)(unsafe.Pointer(only)), &failed, &why)
	if c == nil {
		return work{}, int(failed), errOf(why)
	}
	return work{c}, 0, nil
}

// copy submits a copy between buffers as a command.
func (s *system) copy(to, from gpu.Pointer, bytes int) (work, error) {
	var why *C.char
	c := C.lfm_copy(s.device, C.uint64_t(to), C.uint64_t(from), C.uint64_t(bytes), &why)
	if c == nil {
		return work{}, errOf(why)
	}
	return work{c}, nil
}

// wait waits for a command, releases it and returns its duration on the device.
func (w work) wait() (time.Duration, error) {
	var seconds C.double
	var why *C.char
	code := C.lfm_wait(w.c, &seconds, &why)
	err := errOf(why)
	if code != 0 {
		err = failureOf(int(code), err)
	}
	return time.Duration(float64(seconds) * float64(time.Second)), err
}

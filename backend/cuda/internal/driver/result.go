//go:build cuda && linux

package driver

// #include <cuda.h>
import "C"

import (
	"errors"
	"fmt"
	"reflect"
)

// Result is a status code of the driver. Nonzero values are errors.
type Result int

// The results that callers tell apart.
const (
	OutOfMemory      Result = C.CUDA_ERROR_OUT_OF_MEMORY
	NotInitialized   Result = C.CUDA_ERROR_NOT_INITIALIZED
	Deinitialized    Result = C.CUDA_ERROR_DEINITIALIZED
	NoDevice         Result = C.CUDA_ERROR_NO_DEVICE
	NotFound         Result = C.CUDA_ERROR_NOT_FOUND
	NotReady         Result = C.CUDA_ERROR_NOT_READY
	IllegalAddress   Result = C.CUDA_ERROR_ILLEGAL_ADDRESS
	LaunchFailed     Result = C.CUDA_ERROR_LAUNCH_FAILED
	NotSupported     Result = C.CUDA_ERROR_NOT_SUPPORTED
	NoBinaryForGPU   Result = C.CUDA_ERROR_NO_BINARY_FOR_GPU
	InvalidPTX       Result = C.CUDA_ERROR_INVALID_PTX
	InvalidValue     Result = C.CUDA_ERROR_INVALID_VALUE
	ContextDestroyed Result = C.CUDA_ERROR_CONTEXT_IS_DESTROYED
)

// Error returns the driver's name and description of the result.
func (r Result) Error() string {
	var name, text *C.char
	if C.cuGetErrorName(C.CUresult(r), &name) != 0 || name == nil {
		return fmt.Sprintf("CUDA error %d", int(r))
	}
	if C.cuGetErrorString(C.CUresult(r), &text) != 0 || text == nil || C.GoString(text) == C.GoString(name) {
		return C.GoString(name)
	}
	return fmt.Sprintf("%s: %s", C.GoString(name), C.GoString(text))
}

func check(r C.CUresult) error {
	if r == 0 {
		return nil
	}
	return Result(r)
}

// Of converts an error of cu, whose type is unexported, to a Result; other errors are returned unchanged.
func Of(err error) error {
	if err == nil {
		return nil // avoids the allocations below
	}
	return of(err)
}

func of(err error) error {
	var r Result
	if errors.As(err, &r) {
		return err
	}
	for e := err; e != nil; e = errors.Unwrap(e) {
		if v := reflect.ValueOf(e); v.Kind() == reflect.Int && v.Type().PkgPath() == "gorgonia.org/cu" {
			return Result(v.Int())
		}
	}
	return err
}

// Fatal reports whether err leaves the context unusable, so that all further calls on it fail.
func Fatal(err error) bool {
	var r Result
	if !errors.As(err, &r) {
		return false
	}
	switch r {
	case C.CUDA_ERROR_ILLEGAL_ADDRESS, C.CUDA_ERROR_LAUNCH_FAILED, C.CUDA_ERROR_LAUNCH_TIMEOUT,
		C.CUDA_ERROR_ILLEGAL_INSTRUCTION, C.CUDA_ERROR_MISALIGNED_ADDRESS, C.CUDA_ERROR_INVALID_ADDRESS_SPACE,
		C.CUDA_ERROR_INVALID_PC, C.CUDA_ERROR_HARDWARE_STACK_ERROR, C.CUDA_ERROR_ASSERT,
		C.CUDA_ERROR_ECC_UNCORRECTABLE, C.CUDA_ERROR_NVLINK_UNCORRECTABLE, C.CUDA_ERROR_CONTEXT_IS_DESTROYED,
		C.CUDA_ERROR_DEINITIALIZED, C.CUDA_ERROR_UNKNOWN:
		return true
	}
	return false
}

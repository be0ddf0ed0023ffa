//go:build cuda && linux

package shim

/*
#cgo CFLAGS: -O2 -Wall
#cgo LDFLAGS: -L${SRCDIR}/lib -ldl
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"os"
	"strings"
	"sync"
	"unsafe"
)

// EnvLibrary names the driver's library; no other place is then looked at.
const EnvLibrary = "LORAFUSE_LIBCUDA"

// places lists the paths to search for the driver, in order: the name for the dynamic linker, then the paths of
// containers and WSL.
var places = []string{
	"libcuda.so.1",
	"/usr/local/nvidia/lib64/libcuda.so.1",
	"/usr/local/nvidia/lib/libcuda.so.1",
	"/usr/lib/wsl/lib/libcuda.so.1",
	"/usr/lib64/nvidia/libcuda.so.1",
	"/run/opengl-driver/lib/libcuda.so.1",
}

// Attempt is one place that was tried, and why it gave no driver.
type Attempt struct {
	Path   string
	Why    string
	Result int // the result of cuInit; 0 if it was not called
}

// Error reports that no working driver was found.
type Error struct{ Tried []Attempt }

// Error lists the paths that were tried, each with its problem.
func (e *Error) Error() string {
	var reasons []string
	places := map[string][]string{}
	for _, a := range e.Tried {
		if places[a.Why] == nil {
			reasons = append(reasons, a.Why)
		}
		places[a.Why] = append(places[a.Why], a.Path)
	}
	for i, why := range reasons {
		reasons[i] = strings.Join(places[why], ", ") + ": " + why
	}
	return "no CUDA driver: " + strings.Join(reasons, "; ")
}

var (
	mu      sync.Mutex
	loaded  string
	missing int
)

// Load opens the driver and starts it, once: a driver that is open stays, and
// only a failure is tried again. Errors: *Error.
func Load() error {
	mu.Lock()
	defer mu.Unlock()
	if loaded != "" {
		return nil
	}
	paths := places
	if p := os.Getenv(EnvLibrary); p != "" {
		paths = []string{p}
	}
	failed := &Error{}
	for _, p := range paths {
		a, lacks := open(p)
		if a == nil {
			loaded, missing = p, lacks
			return nil
		}
		failed.Tried = append(failed.Tried, *a)
	}
	return failed
}

// Loaded returns the path of the opened library, empty if none, and the number of functions that it lacks.
func Loaded() (path string, lacks int) {
	mu.Lock()
	defer mu.Unlock()
	return loaded, missing
}

// open tries one library; a nil attempt means that it is open.
func open(path string) (*Attempt, int) {
	p := C.CString(path)
	defer C.free(unsafe.Pointer(p))
	var why [512]C.char
	var lacks C.int
	switch rc := C.lorafuse_cuda_open(p, &why[0], C.int(len(why)), &lacks); {
	case rc == 0:
		return nil, int(lacks)
	case rc < 0:
		// Messages of dlopen begin with the path.
		return &Attempt{Path: path, Why: strings.TrimPrefix(C.GoString(&why[0]), path+": ")}, 0
	default:
		return &Attempt{Path: path, Why: C.GoString(&why[0]), Result: int(rc)}, 0
	}
}

// call calls trampoline i without arguments. It is here because tests cannot
// use cgo.
func call(i int) int { return int(C.lorafuse_cuda_call(C.int(i))) }

// symbols returns the number of trampolines.
func symbols() int { return int(C.lorafuse_cuda_symbols()) }

//go:build cgo && metal && metalfake

package metal

// #include "lf_metal_fake.h"
import "C"

// fakeObjects counts what the stand-in for Metal has made in this process that is not
// given back, for tests.
func fakeObjects() int {
	n := C.lf_metal_live()
	return int(n.devices + n.queues + n.buffers + n.libraries + n.functions + n.pipelines + n.command_buffers + n.encoders + n.events)
}

// fakeMemory is the memory of its buffers in bytes: its own, and that of mapped files.
func fakeMemory() (own, borrowed int64) {
	return int64(C.lf_metal_allocated()), int64(C.lf_metal_borrowed())
}

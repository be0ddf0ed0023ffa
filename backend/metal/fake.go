//go:build cgo && metal && metalfake

package metal

// #include "lf_metal_fake.h"
import "C"

// fakeObjects returns the number of live objects of the fake Metal in this process, for tests.
func fakeObjects() int {
	n := C.lf_metal_live()
	return int(n.devices + n.queues + n.buffers + n.libraries + n.functions + n.pipelines + n.command_buffers + n.encoders + n.events)
}

// fakeMemory returns the total size of its buffers in bytes: own memory, and mapped files.
func fakeMemory() (own, borrowed int64) {
	return int64(C.lf_metal_allocated()), int64(C.lf_metal_borrowed())
}

//go:build cgo && metal && metalfake

package metal

// #include "lf_metal_fake.h"
import "C"

// fakeObjects returns the number of live objects of the fake Metal in this process, for tests.
func fakeObjects() int {
	n := C.lf_metal_live()
	return int(n.devices + n.queues + n.buffers + n.libraries + n.functions + n.pipelines + n.command_buffers + n.encoders + n.events + n.residency_sets)
}

// fakeMemory returns the total size of its buffers in bytes: own memory, and mapped files.
func fakeMemory() (own, borrowed int64) {
	return int64(C.lf_metal_allocated()), int64(C.lf_metal_borrowed())
}

// fakeWork counts the command buffers of the fake Metal.
type fakeWork struct {
	Commands, Work, MostWork, MostOnTheWay   int // command buffers that ran, their work, and the maxima
	Requests, ResidentBuffers, ResidentBytes int // of residency; the last two of the last request
}

// fakeCommands returns the counts since its last call, for tests.
func fakeCommands() fakeWork {
	w := C.lf_metal_commands()
	return fakeWork{
		int(w.command_buffers), int(w.work), int(w.most_work), int(w.most_on_the_way),
		int(w.requests), int(w.resident_buffers), int(w.resident_bytes),
	}
}

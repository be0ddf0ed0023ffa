//go:build cgo && (darwin || (metal && metalfake))

package metal

import (
	"testing"

	"github.com/lorafuse/lorafuse/backend"
)

// Unseen has f run while the host does not see that commands end, and waits until it
// does.
func (d *Device) Unseen(f func()) {
	gate := gate(make(chan struct{}))
	d.order.Lock()
	d.queue.add(work{}, gate)
	before := d.queue.issued
	d.order.Unlock()
	// What is given from here on ends behind the gate.
	d.queue.await(before)
	f()
	close(gate)
	d.drain()
}

// gate is a completion behind which others wait until it is closed.
type gate chan struct{}

func (g gate) finish(error) { <-g }

// Held is the memory that a device has, what is about to be freed left out.
func (d *Device) Held() (n int64) {
	d.memory.mu.Lock()
	defer d.memory.mu.Unlock()
	for _, bytes := range d.memory.held {
		n += bytes
	}
	return n
}

// Windows is the number of buffers that are pages of mapped files.
func (d *Device) Windows() int {
	d.memory.mu.Lock()
	defer d.memory.mu.Unlock()
	return len(d.memory.windows)
}

// Limbo is the number of buffers that are freed and in use.
func (d *Device) Limbo() int {
	d.memory.mu.Lock()
	defer d.memory.mu.Unlock()
	return len(d.memory.limbo)
}

// Settle waits until no command is under way, and nothing waits to be given back.
func (d *Device) Settle() {
	d.drain()
	d.reap()
}

// Programs is how many executables a closed device still keeps memory for.
func (d *Device) Programs() int { return len(d.programs) }

// Simd and BFloat tell how shaders are compiled.
func (d *Device) Simd() bool   { return d.shaders.form.simd }
func (d *Device) BFloat() bool { return d.shaders.form.bfloat }

// InPlace tells whether a buffer is pages of a mapped file.
func InPlace(b backend.Buffer) bool { return b.(*buffer).block.use == usePages }

// Address is where a buffer lies on the device.
func Address(b backend.Buffer) uint64 { return uint64(b.(*buffer).at(0)) }

// SetPageSize sets, for a test, the size of the host's pages.
func SetPageSize(t testing.TB, n int) {
	before := pageSize
	pageSize = n
	t.Cleanup(func() { pageSize = before })
}

// Break has the self-test fail.
func Break(t testing.TB) {
	selfBroken = 1
	t.Cleanup(func() { selfBroken = 0 })
}

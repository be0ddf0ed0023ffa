//go:build cgo && (darwin || (metal && metalfake))

package metal

import (
	"testing"
	"time"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/gpu"
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
	_ = d.Do(runner{d}.Drain)
}

// gate is a completion behind which others wait until it is closed.
type gate chan struct{}

func (g gate) Finish(error) { <-g }

// Held is the memory that a device has, what is about to be freed left out.
func (d *Device) Held() int64 { return d.usage().Held }

// Limbo is the number of buffers that are freed and in use.
func (d *Device) Limbo() int { return d.usage().Limbo }

func (d *Device) usage() (u gpu.Usage) {
	_ = d.Do(func() error { u = d.Usage(); return nil })
	return u
}

// Windows is the number of buffers that are pages of mapped files.
func (d *Device) Windows() (n int) {
	_ = d.Do(func() error { n = len(d.windows); return nil })
	return n
}

// Settle waits until no command is under way, and nothing waits to be given back.
func (d *Device) Settle() {
	_ = d.Do(runner{d}.Drain)
	d.Reap()
}

// Programs is how many executables a closed device still keeps memory for.
func (d *Device) Programs() int { return d.Usage().Programs }

// Simd and BFloat tell how shaders are compiled.
func (d *Device) Simd() bool   { return d.shaders.form.simd }
func (d *Device) BFloat() bool { return d.shaders.form.bfloat }
func (d *Device) Tables() bool { return d.shaders.form.tables }

// InPlace tells whether a buffer is pages of a mapped file.
func InPlace(b backend.Buffer) bool { return b.(*gpu.Buffer).Block.Use == gpu.UsePages }

// Address is where a buffer lies on the device.
func Address(b backend.Buffer) uint64 { return uint64(b.(*gpu.Buffer).At(0)) }

// SetPageSize sets, for a test, the size of the host's pages.
func SetPageSize(t testing.TB, n int) {
	before := pageSize
	pageSize = n
	t.Cleanup(func() { pageSize = before })
}

// SetConvertBytes sets, for a test, the memory for pieces of weights that are converted.
func SetConvertBytes(t testing.TB, n int) {
	before := convertBytes
	convertBytes = n
	t.Cleanup(func() { convertBytes = before })
}

// Break has the self-test fail.
func Break(t testing.TB) {
	selfBroken = 1
	t.Cleanup(func() { selfBroken = 0 })
}

// Divide divides a grid that takes a slow device the given seconds, for command buffers up to limit seconds.
func Divide(limit float64, grid [3]uint32, slow float64, each func(first, groups [3]uint32, slow float64)) {
	p := &pace{limit: limit}
	p.set(1)
	_ = p.divide(part{groups: grid}, slow, func(part part, slow float64) error {
		each(part.first, part.groups, slow)
		return nil
	})
}

// NewPace returns a function that has the estimates learn from a command, and gives the ratio of estimated time to
// that of a slow device.
func NewPace(limit float64) func(slow float64, took time.Duration) float64 {
	p := &pace{limit: limit}
	p.set(1)
	return func(slow float64, took time.Duration) float64 {
		p.learn(slow, took)
		return p.estimate(1)
	}
}

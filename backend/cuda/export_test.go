//go:build cuda && linux

package cuda

import (
	"testing"

	"github.com/lorafuse/lorafuse/backend"
	"github.com/lorafuse/lorafuse/backend/gpu"
)

// Graphs is how many graphs an executable keeps.
func Graphs(e backend.Executable) int {
	return len(e.(*gpu.Executable).Program().(*program).graphs.ready)
}

// Replayed is how many runs of an executable were launched by a graph of an earlier run.
func (d *Device) Replayed(e backend.Executable) (n int) {
	_ = d.Do(func() error { n = e.(*gpu.Executable).Program().(*program).graphs.replayed; return nil })
	return n
}

// Held is the memory that a device has allocated, what is about to be freed
// left out.
func (d *Device) Held() (n int64) {
	_ = d.Do(func() error { n = d.Usage().Held; return nil })
	return n
}

// Unseen has f run while the host does not see that runs end, and waits until all
// that f has given has been done.
func (d *Device) Unseen(f func()) error {
	gate := gate(make(chan struct{}))
	defer close(gate)
	if err := d.Do(func() error { _, err := d.compute.mark(gate); return err }); err != nil {
		return err
	}
	f()
	return d.Do(d.compute.Synchronize)
}

// gate is a completion behind which others wait until it is closed.
type gate chan struct{}

func (g gate) Finish(error) { <-g }

// Programs is how many executables a closed device still keeps memory for.
func (d *Device) Programs() int { return d.Usage().Programs }

// DecodeQueries sets, for a test, up to how many queries are decoded.
func DecodeQueries(t testing.TB, n int) {
	before := sizes
	sizes.DecodeQueries = n
	t.Cleanup(func() { sizes = before })
}

// LoadSizes sets, for a test, how many bytes the ring's slots, the windows that
// are registered, trials and the memory of conversions have.
func (d *Device) LoadSizes(slot, window, trial, staging int) {
	d.ringSlot, d.window, d.trial, d.staging = int64(slot), int64(window), int64(trial), staging
}

// Address is where a buffer lies on the device.
func Address(b backend.Buffer) uint64 { return uint64(b.(*gpu.Buffer).At(0)) }

// Closing tells whether somebody closes the device.
func (d *Device) Closing() bool {
	d.loads.mu.Lock()
	defer d.loads.mu.Unlock()
	return d.loads.closed
}

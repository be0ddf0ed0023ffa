//go:build cuda && linux

package cuda

import (
	"testing"

	"github.com/lorafuse/lorafuse/backend"
)

// Graphs is how many graphs an executable keeps.
func Graphs(e backend.Executable) int { return len(e.(*executable).graphs.ready) }

// Held is the memory that a device has allocated, what is about to be freed
// left out.
func (d *Device) Held() (n int64) {
	_ = d.queue.do(func() error {
		for _, bytes := range d.memory.held {
			n += bytes
		}
		return nil
	})
	return n
}

// Programs is how many executables a closed device still keeps memory for.
func (d *Device) Programs() int { return len(d.programs) }

// DecodeQueries sets, for a test, up to how many queries are decoded.
func DecodeQueries(t testing.TB, n int) {
	before := decodeQueries
	decodeQueries = n
	t.Cleanup(func() { decodeQueries = before })
}

//go:build cgo && (darwin || (metal && metalfake))

package metal

import (
	"fmt"

	"github.com/lorafuse/lorafuse/backend/gpu"
	"github.com/lorafuse/lorafuse/internal/bytesize"
)

// blockAlign is the alignment of block sizes. It keeps copies of a block's last bytes within the block.
const blockAlign = 16

// Allocate allocates zeroed memory, which the host has too.
func (r runner) Allocate(b *gpu.Block) error {
	n, t := int64(b.Bytes), &r.traits
	if n <= t.maxBuffer && r.taken+n <= t.workingSet {
		b.At, b.Host = r.system.alloc((b.Bytes + blockAlign - 1) / blockAlign * blockAlign)
	}
	if b.At != 0 {
		r.taken += n
		return nil
	}
	limit := ""
	if n > t.maxBuffer {
		limit = fmt.Sprintf("; a buffer has at most %s", bytesize.Binary(t.maxBuffer))
	}
	return gpu.Exhausted(fmt.Sprintf("the working set of the device is %s%s", bytesize.Binary(t.workingSet), limit))
}

// Free frees the Metal buffer of a block.
func (r runner) Free(b *gpu.Block) {
	r.system.free(b.At)
	if b.Use != gpu.UsePages {
		r.taken -= int64(b.Bytes)
	}
}

// Idle reports whether the commands on a block have ended.
func (r runner) Idle(b *gpu.Block) bool { return r.queue.reached(b.Used.Load()) }

// Drain waits for the commands that were given.
func (r runner) Drain() error {
	r.queue.await(r.queue.issued)
	return nil
}

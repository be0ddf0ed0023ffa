package safetensors

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// ring is what a device does: it has a few slots of pinned memory, queues a copy
// to the device when one is full, and has the slot again when that copy is done,
// in any order.
type ring struct {
	memory arena
	slot   int64
	free   chan []byte
	queue  chan queued
	views  []*View
	device [][]byte
	wg     sync.WaitGroup

	mu            sync.Mutex
	outside, peak int
	waited        int
}

type queued struct {
	chunk *Chunk
	data  []byte
}

func newRing(t require.TestingT, views []*View, slots int, size int64) *ring {
	r := &ring{slot: size, free: make(chan []byte, slots), queue: make(chan queued, slots), views: views, device: make([][]byte, len(views))}
	var err error
	r.memory, err = newArena(int64(slots) * size)
	require.NoError(t, err)
	for i := range int64(slots) {
		r.free <- r.memory.data[i*size : (i+1)*size]
	}
	for i, v := range views {
		r.device[i] = make([]byte, v.Len())
	}
	r.wg.Go(r.copyAll)
	return r
}

// copyAll is the device.
func (r *ring) copyAll() {
	var waiting []queued
	for {
		job, ok := queued{}, true
		if len(waiting) == 0 {
			job, ok = <-r.queue
		} else {
			select {
			case job, ok = <-r.queue:
			default:
			}
		}
		if !ok {
			return
		}
		if job.chunk != nil {
			waiting = append(waiting, job)
			if len(waiting) < cap(r.free) && rand.IntN(2) == 0 {
				continue // let some gather
			}
		}
		i := rand.IntN(len(waiting))
		job = waiting[i]
		waiting = append(waiting[:i], waiting[i+1:]...)
		for _, p := range job.chunk.Parts {
			copy(r.device[p.View][p.From:p.From+p.Length], job.data[p.At:])
		}
		clear(job.data) // a reader that is still at it will be noticed
		r.mu.Lock()
		r.outside--
		r.mu.Unlock()
		r.free <- job.data[:r.slot]
	}
}

// close waits for the copies. All slots must be back.
func (r *ring) close() {
	for range cap(r.free) {
		<-r.free
	}
	close(r.queue)
	r.wg.Wait()
	r.memory.free()
}

func (r *ring) Slot(ctx context.Context, _ *Chunk) ([]byte, error) {
	var slot []byte
	select {
	case slot = <-r.free:
	default:
		r.mu.Lock()
		r.waited++
		r.mu.Unlock()
		select {
		case slot = <-r.free:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.outside++
	r.peak = max(r.peak, r.outside)
	return slot, nil
}

func (r *ring) Done(c *Chunk, data []byte) error {
	if int64(cap(data)) < r.slot && int64(len(data)) != c.Length {
		return fmt.Errorf("not the slot: %d bytes", len(data))
	}
	r.queue <- queued{c, data}
	return nil
}

// A model many times the size of the ring goes through it, and nothing but the
// ring is needed, however many readers there are.
func TestRing(t *testing.T) {
	defer goleak.VerifyNone(t)
	const slots = 3
	size := 4 * pageAlign
	v := bigFile(t, int(200*pageAlign))
	for _, s := range []Strategy{Auto, Pread, Mmap, Direct} {
		r := newRing(t, []*View{v}, slots, size)
		stats, err := Load(t.Context(), []*View{v}, r, LoadOptions{Threads: 6, ChunkSize: size, Strategy: s})
		require.NoError(t, err)
		r.close()
		require.True(t, bytes.Equal(noise(v.Len()), r.device[0]))
		assert.LessOrEqual(t, r.peak, slots)
		assert.Positive(t, r.waited, "six readers share three slots")
		assert.Equal(t, 6, stats.Threads)
	}
}

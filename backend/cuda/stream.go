//go:build cuda && linux

package cuda

import (
	"runtime"
	"sync"
	"sync/atomic"

	"gorgonia.org/cu"

	"github.com/lorafuse/lorafuse/backend/cuda/internal/driver"
	"github.com/lorafuse/lorafuse/backend/gpu"
)

// stream is an ordered queue of device work. Work that can be waited for ends with a mark, whose number is its ticket.
type stream struct {
	cu.Stream
	issued uint64        // the last ticket; of the device's goroutine
	done   atomic.Uint64 // the last completed ticket
	join   cu.Event      // for other streams to wait for
	marks  chan mark
	free   chan cu.Event // of marks
	made   int           // events for marks
	ended  sync.WaitGroup
}

type mark struct {
	ticket uint64
	event  cu.Event
	end    gpu.Completion // or nil
}

// maxMarks is the maximum number of pending marks. With more, the device's goroutine waits for one.
const maxMarks = 256

// newStream makes a stream on the current context, with a goroutine that waits
// for its marks and calls idle when there are none left.
func newStream(context cu.CUContext, idle func()) (*stream, error) {
	s := &stream{marks: make(chan mark, maxMarks), free: make(chan cu.Event, maxMarks)}
	var err error
	if s.Stream, err = cu.MakeStream(cu.NonBlocking); err != nil {
		return nil, driver.Of(err)
	}
	if s.join, err = cu.MakeEvent(cu.DisableTiming); err != nil {
		_ = s.Destroy()
		return nil, driver.Of(err)
	}
	s.ended.Go(func() { s.wait(context, idle) })
	return s, nil
}

// wait waits for each mark and notifies its waiters. It runs on its own thread.
func (s *stream) wait(context cu.CUContext, idle func()) {
	runtime.LockOSThread()
	err := driver.Of(cu.SetCurrentContext(context))
	for m := range s.marks {
		result := err
		if result == nil {
			result = driver.Wait(m.event)
		}
		s.done.Store(m.ticket)
		s.free <- m.event
		if m.end != nil {
			m.end.Finish(result)
		}
		if len(s.marks) == 0 {
			idle()
		}
	}
}

// mark marks the end of the enqueued work; end, if not nil, is notified when it is done. It returns the ticket.
func (s *stream) mark(end gpu.Completion) (uint64, error) {
	e, err := s.event()
	if err != nil {
		return s.issued, err
	}
	if err := driver.Of(e.Record(s.Stream)); err != nil {
		s.free <- e // close waits for all of them
		return s.issued, err
	}
	s.issued++
	s.marks <- mark{s.issued, e, end}
	return s.issued, nil
}

// event returns an event for a mark.
func (s *stream) event() (cu.Event, error) {
	select {
	case e := <-s.free:
		return e, nil
	default:
	}
	if s.made < maxMarks {
		e, err := cu.MakeEvent(cu.DisableTiming | cu.BlockingSyncEvent)
		if err == nil {
			s.made++
		}
		return e, driver.Of(err)
	}
	return <-s.free, nil
}

// after makes later work on s wait for the work that is now enqueued on other.
func (s *stream) after(other *stream) error {
	if err := other.join.Record(other.Stream); err != nil {
		return driver.Of(err)
	}
	return driver.Of(s.Wait(other.join, 0))
}

// reached reports whether the work up to a ticket has ended.
func (s *stream) reached(ticket uint64) bool { return s.done.Load() >= ticket }

// close waits for all work and destroys the stream.
func (s *stream) close() {
	close(s.marks)
	s.ended.Wait()
	_ = s.Synchronize()
	for range s.made {
		e := <-s.free
		_ = cu.DestroyEvent(&e)
	}
	_ = cu.DestroyEvent(&s.join)
	_ = s.Destroy()
}

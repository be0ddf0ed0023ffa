package safetensors

import (
	"sync"
	"sync/atomic"
)

const (
	// gatherChunk is the number of bytes that are gathered before they are
	// written: as many as fit in a CPU cache.
	gatherChunk = 1 << 20
	// gatherGap is the maximum number of unwanted bytes to read rather than
	// make another call, which may go to another machine.
	gatherGap = 64 << 10
	// gatherMost is the maximum number of bytes that a call reads if not all
	// are wanted.
	gatherMost = 4 << 20
	// gatherReaders is the number of concurrent calls.
	gatherReaders = 4
)

// gather fills dst with the bytes of the slice from offset off, which must
// exist.
func (s *Slice) gather(dst []byte, off int64) error {
	if s.box.source != nil {
		return s.gatherSource(dst, off)
	}
	return s.box.WithBytes(func(data []byte) error {
		s.copyRuns(dst, off, data, 0)
		return nil
	})
}

// runs calls fn for groups of equally spaced runs that cover length bytes of
// the slice from offset off: count runs of the given length, step apart, the
// first at offset at.
func (s *Slice) runs(off, length int64, fn func(at, length, step, count int64)) {
	for length > 0 {
		number, inside := off/s.run, off%s.run
		at, left, step := int64(0), int64(1), int64(0)
		for i := len(s.loops) - 1; i >= 0; i-- {
			l := s.loops[i]
			turn := number % l.count
			number /= l.count
			at += turn * l.step
			if i == len(s.loops)-1 {
				left, step = l.count-turn, l.step
			}
		}
		n, count := s.run, min(left, length/s.run)
		if inside > 0 || count == 0 { // a run that is only partly wanted
			n, count = min(s.run-inside, length), 1
		}
		fn(at+inside, n, step, count)
		off += n * count
		length -= n * count
	}
}

// copyRuns copies the same bytes as gather, from memory that holds the box from
// offset base.
func (s *Slice) copyRuns(dst []byte, off int64, data []byte, base int64) {
	s.runs(off, int64(len(dst)), func(at, length, step, count int64) {
		copySteps(dst[:length*count], data[at-base:], int(length), int(step))
		dst = dst[length*count:]
	})
}

// copySteps copies length bytes at a time, step bytes apart in src. Single
// elements are moved without a call to copy, which would cost more than the
// move.
func copySteps(dst, src []byte, length, step int) {
	switch length {
	case 1:
		for i := range dst {
			dst[i] = src[i*step]
		}
	case 2:
		for at := 0; len(dst) >= 2; at += step {
			*(*[2]byte)(dst) = *(*[2]byte)(src[at:])
			dst = dst[2:]
		}
	case 4:
		for at := 0; len(dst) >= 4; at += step {
			*(*[4]byte)(dst) = *(*[4]byte)(src[at:])
			dst = dst[4:]
		}
	case 8:
		for at := 0; len(dst) >= 8; at += step {
			*(*[8]byte)(dst) = *(*[8]byte)(src[at:])
			dst = dst[8:]
		}
	default:
		for at := 0; len(dst) > 0; at += step {
			copy(dst[:length], src[at:])
			dst = dst[length:]
		}
	}
}

// gatherSource implements gather for a tensor that is read on demand.
func (s *Slice) gatherSource(dst []byte, off int64) error {
	if s.box.file.mapping.isClosed() {
		return s.box.file.errClosed()
	}
	calls := s.calls(off, int64(len(dst)))
	errs := make([]error, len(calls))
	var next atomic.Int64
	var failed atomic.Bool
	work := func() {
		for i := next.Add(1) - 1; i < int64(len(calls)) && !failed.Load(); i = next.Add(1) - 1 {
			if errs[i] = s.read(dst, off, calls[i]); errs[i] != nil {
				failed.Store(true)
			}
		}
	}
	var wg sync.WaitGroup
	for range min(gatherReaders, len(calls)) - 1 {
		wg.Go(work)
	}
	work()
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// call is one call of the reader.
type call struct {
	begin, end int64 // offsets in the box
	off, n     int64 // the wanted bytes, in the slice
}

// calls returns the calls that read length bytes of the slice from offset off.
func (s *Slice) calls(off, length int64) (calls []call) {
	c := call{off: off}
	s.runs(off, length, func(at, length, step, count int64) {
		for range count {
			switch {
			case c.n == 0:
				c.begin = at
			case at-c.end > gatherGap || at+length-c.begin > gatherMost:
				calls = append(calls, c)
				c = call{begin: at, off: c.off + c.n}
			}
			c.end = at + length
			c.n += length
			at += step
		}
	})
	if c.n > 0 {
		calls = append(calls, c)
	}
	return calls
}

// read makes one call and copies the wanted bytes to dst, which holds the bytes
// of the slice from offset off.
func (s *Slice) read(dst []byte, off int64, c call) error {
	wanted := dst[c.off-off:][:c.n]
	if c.n == c.end-c.begin {
		_, err := s.box.readSource(wanted, c.begin)
		return err
	}
	data := make([]byte, c.end-c.begin)
	if _, err := s.box.readSource(data, c.begin); err != nil {
		return err
	}
	s.copyRuns(wanted, c.off, data, c.begin)
	return nil
}

package safetensors

import (
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// readAhead tells the kernel which pages of a mapping are about to be read, and so
// keeps it from reading others. Left alone, the first touch of a page that is
// not in memory reads what lies around it: 128 KiB by default, 8 MiB on some
// machines, for a tensor of 4 KiB. MADV_RANDOM would stop that, but then each
// page of a whole file is read by itself, which takes eight times as long, and
// leaves the page cache in small pieces that take ten times as long to map ever
// after. So a small tensor is asked for exactly, before its first touch, unless
// somebody goes through the file from front to back, where reading ahead is
// right, or it is in memory anyway.
type readAhead struct {
	end    atomic.Int64                    // of the bytes that were used last
	streak atomic.Int32                    // how often in a row bytes followed the ones before
	warm   atomic.Int32                    // how often in a row they were in memory
	asked  atomic.Pointer[[]atomic.Uint64] // a bit for each block
}

const (
	aheadMost   = 2 << 20  // from here on, what is read around a tensor is little beside it
	aheadBlock  = 16 << 10 // bytes that are asked for once
	aheadGap    = 64 << 10 // between tensors that follow each other
	aheadStreak = 8        // tensors that make a reader of everything, or a file that is in memory
)

// expect is called before the bytes from begin to end are handed out.
func (m *mapping) expect(begin, end int64) {
	if !m.region.mapped || begin == end {
		return
	}
	a := &m.ahead
	gap := begin - a.end.Swap(end)
	if gap < 0 || gap > aheadGap {
		a.streak.Store(0)
	} else if a.streak.Load() >= aheadStreak || a.streak.Add(1) >= aheadStreak {
		return
	}
	if end-begin > aheadMost || a.warm.Load() >= aheadStreak || !a.ask(begin/aheadBlock, (end-1)/aheadBlock, m.data) {
		return
	}
	if in, of, ok := mincore(m.data[begin&^(pageSize-1) : end]); ok && in == of {
		a.warm.Add(1)
		return
	}
	a.warm.Store(0)
	_ = m.willNeed(begin, end) // it was advice
}

// ask notes that the blocks from first to last have been asked for, and reports
// whether one of them is new.
func (a *readAhead) ask(first, last int64, data []byte) (anew bool) {
	blocks := a.asked.Load()
	if blocks == nil {
		made := make([]atomic.Uint64, len(data)/aheadBlock/64+1)
		a.asked.CompareAndSwap(nil, &made)
		blocks = a.asked.Load()
	}
	for block := first; block <= last; block++ {
		word, bit := &(*blocks)[block/64], uint64(1)<<(block%64)
		if word.Load()&bit == 0 {
			word.Or(bit)
			anew = true
		}
	}
	return anew
}

// exactly makes read(2) of a file read nothing but what it is asked for, or
// takes that back.
func exactly(f *os.File, on bool) {
	advice := unix.FADV_NORMAL
	if on {
		advice = unix.FADV_RANDOM
	}
	_ = unix.Fadvise(int(f.Fd()), 0, 0, advice) // it was advice
}

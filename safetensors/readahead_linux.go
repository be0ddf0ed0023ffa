package safetensors

import (
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// readAhead tells the kernel which pages of a mapping are about to be read, to
// prevent it from reading others. Without advice, touching a page that is not in
// memory reads the pages around it: 128 KiB by default, 8 MiB on some machines,
// even for a tensor of 4 KiB. MADV_RANDOM would prevent that, but then a whole
// file is read page by page, which takes eight times as long and leaves small
// folios in the page cache that take ten times as long to map later. So exactly
// the pages of a small tensor are requested before its first use. Readers that go
// through the file sequentially, for which readahead is right, and files that are
// in memory are left alone.
type readAhead struct {
	end    atomic.Int64                    // end of the bytes used last
	streak atomic.Int32                    // number of consecutive accesses that followed the previous bytes
	warm   atomic.Int32                    // number of consecutive accesses to bytes in memory
	asked  atomic.Pointer[[]atomic.Uint64] // one bit per block
}

const (
	aheadMost   = 2 << 20  // for tensors of this size and above, the bytes read around them hardly matter
	aheadBlock  = 16 << 10 // bytes per block; a block is requested once
	aheadGap    = 64 << 10 // maximum gap between tensors that count as consecutive
	aheadStreak = 8        // consecutive accesses that show a sequential reader, or a file that is in memory
)

// expect must be called before returning the bytes from begin to end.
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
	_ = m.willNeed(begin, end) // only advice
}

// ask marks the blocks from first to last as requested and reports whether one
// of them is new.
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

// exactly turns the readahead of read(2) on a file off, or on again.
func exactly(f *os.File, on bool) {
	advice := unix.FADV_NORMAL
	if on {
		advice = unix.FADV_RANDOM
	}
	_ = unix.Fadvise(int(f.Fd()), 0, 0, advice) // only advice
}

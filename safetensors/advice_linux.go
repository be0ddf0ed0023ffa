package safetensors

import (
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// advice tells the kernel which pages of a mapping are about to be read, and so
// keeps it from reading others. Left alone, the first touch of a page that is
// not in memory reads what lies around it: 128 KiB by default, 8 MiB on some
// machines, for a tensor of 4 KiB. MADV_RANDOM would stop that, but then each
// page of a whole file is read by itself, which takes eight times as long, and
// leaves the page cache in small pieces that take ten times as long to map ever
// after. So a small tensor is asked for exactly, before its first touch, unless
// somebody goes through the file from front to back, where reading ahead is
// right, or it is in memory anyway.
type advice struct {
	end    atomic.Int64                    // of the bytes that were used last
	streak atomic.Int32                    // how often in a row bytes followed the ones before
	warm   atomic.Int32                    // how often in a row they were in memory
	asked  atomic.Pointer[[]atomic.Uint64] // a bit for each block
}

const (
	adviceMost   = 2 << 20  // from here on, what is read around a tensor is little beside it
	adviceBlock  = 16 << 10 // bytes that are asked for once
	adviceGap    = 64 << 10 // between tensors that follow each other
	adviceStreak = 8        // tensors that make a reader of everything, or a file that is in memory
)

// expect is called before the bytes from begin to end are handed out.
func (m *mapping) expect(begin, end int64) {
	if !m.region.mapped || begin == end {
		return
	}
	a := &m.advice
	gap := begin - a.end.Swap(end)
	if gap < 0 || gap > adviceGap {
		a.streak.Store(0)
	} else if a.streak.Load() >= adviceStreak || a.streak.Add(1) >= adviceStreak {
		return
	}
	if end-begin > adviceMost || a.warm.Load() >= adviceStreak || !a.ask(begin/adviceBlock, (end-1)/adviceBlock, m.data) {
		return
	}
	if m.resident(begin, end) {
		a.warm.Add(1)
		return
	}
	a.warm.Store(0)
	_ = m.willNeed(begin, end) // it was advice
}

// ask notes that the blocks from first to last have been asked for, and reports
// whether one of them is new.
func (a *advice) ask(first, last int64, data []byte) (anew bool) {
	blocks := a.asked.Load()
	if blocks == nil {
		made := make([]atomic.Uint64, len(data)/adviceBlock/64+1)
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

// resident reports whether the pages of the bytes from begin to end, no more
// than adviceMost, are in memory. The kernel says yes of all files that are not
// one's own.
func (m *mapping) resident(begin, end int64) bool {
	var pages [adviceMost/4096 + 1]byte // none is smaller
	begin &^= pageSize - 1
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&m.data[begin])), uintptr(end-begin), uintptr(unsafe.Pointer(&pages)))
	if errno != 0 {
		return false
	}
	for _, page := range pages[:(end-begin+pageSize-1)/pageSize] {
		if page&1 == 0 {
			return false
		}
	}
	return true
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

package safetensors

import (
	"errors"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// feed is an origin during a load: what is open of it, what can be done with it
// and what was done.
type feed struct {
	origin *origin
	chunks []*Chunk
	left   atomic.Int64 // chunks that are not through
	ways   mapWays

	once     sync.Once // opens what follows
	buffered *os.File  // nil where the bytes cannot be had but from the origin
	direct   *os.File  // nil where the page cache cannot be avoided
	align    alignment
	cached   []bool  // by group of chunks
	share    float64 // of the sampled pages that are in the page cache, negative for unknown

	mu       sync.Mutex
	noFile   string // why there is no buffered
	noDirect string // why there is no direct
	done     FileStats
	by       [len(strategies)]int64 // bytes read
	began    time.Time
}

func newFeed(o *origin) *feed {
	return &feed{origin: o, share: -1, done: FileStats{Path: o.file.path}}
}

// add announces a chunk.
func (f *feed) add(c *Chunk) {
	f.chunks = append(f.chunks, c)
	f.left.Add(1)
}

// begin is called before every chunk.
func (f *feed) begin() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.began.IsZero() {
		f.began = time.Now()
	}
}

// end is called after every chunk. The last one closes the file, so that few of
// the many files of a model are open at a time.
func (f *feed) end() {
	if f.left.Add(-1) == 0 {
		f.close()
	}
}

// open opens what a strategy needs, once.
func (f *feed) open(s Strategy) { f.once.Do(func() { f.openFor(s) }) }

func (f *feed) openFor(s Strategy) {
	switch {
	case f.origin.memory == nil:
		f.noFile = "read through an io.ReaderAt"
		return
	case !f.origin.mapped():
		f.noFile = "in memory already"
		return
	}
	file, err := reopen(f.origin.file, openFlags)
	if err != nil {
		f.noFile = "cannot be opened again: " + err.Error()
		return
	}
	f.buffered = file
	f.sample()
	if s == Direct || s == Auto && f.share >= 0 && slices.Contains(f.cached, false) {
		f.openDirect()
	}
}

// openDirect opens the file for reads past the page cache, or says why not.
func (f *feed) openDirect() {
	direct, align, err := openDirect(f.origin.file)
	if err != nil {
		f.noDirect = err.Error()
		return
	}
	f.direct, f.align = direct, align
}

// reopen opens the file that was mapped, which may have another name by now, or
// none.
func reopen(of *File, flags int) (*os.File, error) {
	f, err := os.OpenFile(of.path, flags, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !os.SameFile(info, of.info) {
		err = errors.New("another file is there now")
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (f *feed) close() {
	for _, file := range []*os.File{f.buffered, f.direct} {
		if file != nil {
			file.Close()
		}
	}
}

// mostGroups bounds what a sample costs, a few microseconds each.
const mostGroups = 256

// groupOf returns the group of a chunk: one that is asked for together.
func (f *feed) groupOf(c *Chunk) int {
	n := len(f.chunks)
	return (c.number - f.chunks[0].number) * min(n, mostGroups) / n
}

// sample asks the system for a few pages of each group of chunks whether they are
// in its cache, before reading changes that.
func (f *feed) sample() {
	const windows, length = 4, 32 << 10
	var inAll, ofAll int64
	f.cached = make([]bool, min(len(f.chunks), mostGroups))
	for first := 0; first < len(f.chunks); {
		group, next := f.groupOf(f.chunks[first]), first
		for next < len(f.chunks) && f.groupOf(f.chunks[next]) == group {
			next++
		}
		begin, last := f.chunks[first].Offset, f.chunks[next-1]
		end := last.Offset + last.Length
		var in, of int64
		for w := range int64(windows) {
			at := begin + roundDown((end-begin-1)/windows*w, pageAlign)
			i, o, ok := sampleCache(f.buffered, f.origin.memory, at, min(length, end-at))
			if !ok {
				return
			}
			in, of = in+i, of+o
		}
		f.cached[group] = in*10 >= of*9
		inAll, ofAll = inAll+in, ofAll+of
		first = next
	}
	f.share = float64(inAll) / float64(ofAll)
}

// isCached tells whether a chunk is in the page cache, as far as the system
// says.
func (f *feed) isCached(c *Chunk) bool { return f.share < 0 || f.cached[f.groupOf(c)] }

// possible returns the strategy that comes nearest to the one wanted.
func (f *feed) possible(s Strategy) Strategy {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.origin.memory == nil:
		return Pread
	case f.buffered == nil:
		return Mmap
	case s == Direct && (f.direct == nil || f.noDirect != ""):
		return Pread
	}
	return s
}

// refuse notes that direct reads do not work in spite of all.
func (f *feed) refuse(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.noDirect = err.Error()
}

// count notes that a chunk is there, by reading so many bytes.
func (f *feed) count(c *Chunk, s Strategy, read int64, inPlace bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range c.Parts {
		f.done.Bytes += p.Length
	}
	f.done.Read += read
	f.done.Elapsed = time.Since(f.began)
	f.done.InPlace = f.done.InPlace || inPlace
	f.by[s] += read
}

// stats sums up, given what was asked for and how Auto has chosen.
func (f *feed) stats(asked Strategy, chosen string) FileStats {
	s := f.done
	s.Cached = f.share
	for strategy, n := range f.by {
		if n > f.by[s.Strategy] {
			s.Strategy = Strategy(strategy)
		}
	}
	switch {
	case s.Read == 0:
		s.Why = "not read"
	case s.InPlace:
		s.Why = "used in place"
	case asked == Mmap && f.origin.mapped():
		s.Why = "as asked"
	case f.noFile != "":
		s.Why = f.noFile
	case asked == Direct && f.noDirect != "":
		s.Why = "no direct reads: " + f.noDirect
	case asked != Auto:
		s.Why = "as asked"
	default:
		s.Why = chosen
	}
	return s
}

package safetensors

import (
	"errors"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// feed is the state of an origin during a load: its open files, the strategies
// that work for it, and statistics.
type feed struct {
	origin  *origin
	chunks  []*Chunk
	left    atomic.Int64 // chunks not yet loaded
	methods mapWays

	once     sync.Once // opens the files
	buffered *os.File  // nil if only the origin can provide the bytes
	direct   *os.File  // nil if the page cache cannot be bypassed
	align    alignment
	cached   []bool  // by group of chunks
	share    float64 // fraction of the sampled pages that are in the page cache, negative if unknown

	mu       sync.Mutex
	noFile   string // reason why buffered is nil
	noDirect string // reason why direct is nil
	done     FileStats
	by       [len(strategies)]int64 // bytes read, by strategy
	began    time.Time
}

func newFeed(o *origin) *feed {
	return &feed{origin: o, share: -1, done: FileStats{Path: o.file.path}}
}

// add adds a chunk to the load.
func (f *feed) add(c *Chunk) {
	f.chunks = append(f.chunks, c)
	f.left.Add(1)
}

// startChunk must be called before loading a chunk.
func (f *feed) startChunk() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.began.IsZero() {
		f.began = time.Now()
	}
}

// end must be called after loading a chunk. The last call closes the file, so
// that only a few of the many files of a model are open at a time.
func (f *feed) end() {
	if f.left.Add(-1) == 0 {
		f.close()
	}
}

// open opens the files that a strategy needs, once.
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

// openDirect opens the file for reads that bypass the page cache, or records
// why it cannot.
func (f *feed) openDirect() {
	direct, align, err := openDirect(f.origin.file)
	if err != nil {
		f.noDirect = err.Error()
		return
	}
	f.direct, f.align = direct, align
}

// reopen opens the mapped file again, even if it has been renamed or removed.
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

// mostGroups bounds the cost of sampling, a few microseconds per group.
const mostGroups = 256

// groupOf returns the group of a chunk. The page cache is sampled once per
// group.
func (f *feed) groupOf(c *Chunk) int {
	n := len(f.chunks)
	return (c.number - f.chunks[0].number) * min(n, mostGroups) / n
}

// sample asks the system whether a few pages of each group of chunks are in the
// page cache, before the load changes that.
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

// isCached reports whether a chunk is in the page cache, according to the
// sample.
func (f *feed) isCached(c *Chunk) bool { return f.share < 0 || f.cached[f.groupOf(c)] }

// possible returns the usable strategy closest to the requested one.
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

// refuse records that direct reads fail although the file could be opened for
// them.
func (f *feed) refuse(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.noDirect = err.Error()
}

// count records that a chunk was loaded and how many bytes were read for it.
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

// stats returns the statistics, given the requested strategy and the reason for
// Auto's choice.
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

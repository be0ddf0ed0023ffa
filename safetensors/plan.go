package safetensors

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"slices"
)

// LoadPlan is how views are read: cut into chunks, each file from its beginning
// to its end.
type LoadPlan struct {
	// Chunks are in the order of reading: by file, as the views first name them,
	// then by offset.
	Chunks []Chunk
	Bytes  int64 // of the views
	Read   int64 // of the chunks: what lies between and beside the views as well

	views []*View
	runs  []run
}

// Chunk is an extent of a file that is read in one go: whole pages of it, but
// for the last one. Files that are not mapped have no pages; there a chunk
// begins and ends with the tensors it carries.
type Chunk struct {
	File *File
	// Offset is where in the file the chunk begins. A tensor that does not lie in
	// its file as it is (see View.Extent) has chunks of its own, and Offset is
	// one in the tensor.
	Offset int64
	Length int64
	Parts  []Part // in the order of the file; at least one

	plan   *LoadPlan
	number int // in the plan
	run    int // that it was cut from
}

// Part is what a chunk carries of one view. Views may share bytes, so parts may
// overlap.
type Part struct {
	View   int   // number of the view among those planned
	From   int64 // the part's first byte within the view
	At     int64 // and within the chunk
	Length int64
}

// PlanLoad plans how to read the views, in any order, from any number of files;
// they may share bytes. Each byte of each view is in exactly one part. Chunks of
// mapped files begin at a multiple of the page size, and of 4096, and have at
// most LoadOptions.ChunkSize bytes, which is cut down to such a multiple.
//
// Tensors between which there are no more unwanted bytes than MaxHole are read
// together, with what is between them: up to there, reading is cheaper than
// another request.
//
// It fails with ErrRange for impossible options.
func PlanLoad(views []*View, o LoadOptions) (*LoadPlan, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	p := &LoadPlan{views: views}
	p.join(p.extents(), o.maxHole())
	if err := p.cut(o.chunkSize(p.Bytes)); err != nil {
		return nil, err
	}
	for i := range p.Chunks {
		p.Read += p.Chunks[i].Length
	}
	return p, nil
}

// extent is where the bytes of a view lie.
type extent struct {
	view       int
	origin     *origin
	begin, end int64
}

// run is an extent of a file that is read without a break.
type run struct {
	origin     *origin
	begin, end int64
	extents    []extent // sorted by where they begin
}

// extents tells where the views are, sorted by place. Views without bytes are
// nowhere.
func (p *LoadPlan) extents() []extent {
	var origins origins
	extents := make([]extent, 0, len(p.views))
	for i, v := range p.views {
		if n := int64(v.Len()); n > 0 {
			p.Bytes += n
			o, begin := origins.of(v)
			extents = append(extents, extent{view: i, origin: o, begin: begin, end: begin + n})
		}
	}
	slices.SortFunc(extents, func(a, b extent) int {
		return cmp.Or(cmp.Compare(a.origin.number, b.origin.number), cmp.Compare(a.begin, b.begin), cmp.Compare(a.view, b.view))
	})
	return extents
}

// join makes runs of extents that lie side by side.
func (p *LoadPlan) join(rest []extent, maxHole int64) {
	for len(rest) > 0 {
		o := rest[0].origin
		r := run{origin: o, begin: o.down(rest[0].begin), end: o.up(rest[0].end)}
		n := 1
		for n < len(rest) && rest[n].origin == o && o.down(rest[n].begin)-r.end <= maxHole {
			r.end = max(r.end, o.up(rest[n].end))
			n++
		}
		r.extents, rest = rest[:n:n], rest[n:]
		p.runs = append(p.runs, r)
	}
}

// cut makes chunks of about the same length out of each run.
func (p *LoadPlan) cut(size int64) error {
	const most = 1 << 24 // chunks: far beyond any disk, but not beyond what a hostile server may promise
	for number := range p.runs {
		r := &p.runs[number]
		length := r.end - r.begin
		count := (length-1)/size + 1
		if count > most-int64(len(p.Chunks)) {
			return fmt.Errorf("safetensors: %s: %s in chunks of %d are too many: %w", r.origin.file.path, byteCount(uint64(length)), size, ErrRange)
		}
		step := min(roundUp((length-1)/count+1, pageAlign), size)
		var open []extent // those that reach into the chunk
		rest := r.extents
		for begin := r.begin; begin < r.end; begin += step {
			end := begin + min(step, r.end-begin)
			open = slices.DeleteFunc(open, func(e extent) bool { return e.end <= begin })
			for len(rest) > 0 && rest[0].begin < end {
				open, rest = append(open, rest[0]), rest[1:]
			}
			if len(open) > 0 { // else nothing but a hole
				c := p.chunk(number, begin, end, open)
				c.number = len(p.Chunks)
				p.Chunks = append(p.Chunks, c)
			}
		}
	}
	return nil
}

// chunk describes what an extent of a run has of the extents of views.
func (p *LoadPlan) chunk(number int, begin, end int64, extents []extent) Chunk {
	c := Chunk{File: p.runs[number].origin.file, Offset: begin, Length: end - begin, plan: p, run: number}
	c.Parts = make([]Part, len(extents))
	for i, e := range extents {
		from, to := max(begin, e.begin), min(end, e.end)
		c.Parts[i] = Part{View: e.view, From: from - e.begin, At: from - begin, Length: to - from}
	}
	return c
}

// whole describes a run as one chunk.
func (p *LoadPlan) whole(number int) Chunk {
	r := &p.runs[number]
	return p.chunk(number, r.begin, r.end, r.extents)
}

// LoadOptions say how views are loaded. The zero value leaves it to the loader.
type LoadOptions struct {
	// Threads is how many chunks are read at the same time. 0 is one for each
	// CPU, but at least 4, which a disk needs to be busy, and at most 8, which
	// fill the widest PCIe; more than 1024 are an error.
	Threads int
	// Strategy is how bytes get from the file to the sink.
	Strategy Strategy
	// ChunkSize is the most bytes that a sink gets at once. 0 is 16 MiB, where
	// reading is no faster with more, and less where otherwise threads would go
	// without work.
	ChunkSize int64
	// MaxHole is how many unwanted bytes are read to make one chunk of two. 0 is
	// 64 KiB, which takes about as long as another request would; negative is
	// none.
	MaxHole int64
}

const (
	leastThreads     = 4 // of those chosen here
	mostThreads      = 8
	limitThreads     = 1024 // of those asked for: each is one of the system's while it reads
	defaultChunkSize = 16 << 20
	leastChunkSize   = 1 << 20
	defaultMaxHole   = 64 << 10
)

func (o *LoadOptions) check() error {
	switch {
	case o.Threads < 0 || o.Threads > limitThreads:
		return fmt.Errorf("safetensors: load with %d threads, expected at most %d: %w", o.Threads, limitThreads, ErrRange)
	case o.ChunkSize != 0 && o.ChunkSize < pageAlign:
		return fmt.Errorf("safetensors: load in chunks of %d bytes, expected at least %d: %w", o.ChunkSize, pageAlign, ErrRange)
	case o.Strategy > Direct:
		return fmt.Errorf("safetensors: load by %v: %w", o.Strategy, ErrRange)
	}
	return nil
}

func (o *LoadOptions) threads() int {
	if o.Threads > 0 {
		return o.Threads
	}
	return min(max(runtime.GOMAXPROCS(0), leastThreads), mostThreads)
}

func (o *LoadOptions) chunkSize(total int64) int64 {
	if o.ChunkSize > 0 {
		return roundDown(o.ChunkSize, pageAlign)
	}
	const each = 4 // chunks for each thread, so that none is left alone with the last one
	return min(max(roundUp(total/int64(each*o.threads()), pageAlign), leastChunkSize), defaultChunkSize)
}

func (o *LoadOptions) maxHole() int64 {
	if o.MaxHole == 0 {
		return defaultMaxHole
	}
	return max(o.MaxHole, 0)
}

// pageAlign is what chunks are aligned to: what pages are mapped by, and what
// disks are read by.
var pageAlign = max(4096, pageSize)

var pageSize = int64(os.Getpagesize())

func roundDown(n, multiple int64) int64 { return n - n%multiple }

func roundUp(n, multiple int64) int64 { return roundDown(n+multiple-1, multiple) }

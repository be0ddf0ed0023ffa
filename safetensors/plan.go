package safetensors

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"slices"
)

// LoadPlan divides the bytes of views into chunks; each file is read from start
// to end.
type LoadPlan struct {
	// Chunks are in the order of reading: by file, in the order in which the
	// views first refer to the files, then by offset.
	Chunks []Chunk
	Bytes  int64 // total size of the views
	Read   int64 // total size of the chunks, including the bytes between the views

	views []*View
	runs  []run
}

// Chunk is a range of a file that is read at once. In a mapped file it consists
// of whole pages, except for the last one. Other files have no pages; their
// chunks begin and end with the tensors in them.
type Chunk struct {
	File *File
	// Offset is the offset of the chunk in the file. A tensor that is not
	// contiguous in its file (see View.Extent) has its own chunks, and Offset is
	// relative to the tensor.
	Offset int64
	Length int64
	Parts  []Part // in the order of the file; at least one

	plan   *LoadPlan
	number int // index in the plan
	run    int // index of the run that contains it
}

// Part is the part of a view in a chunk. Views may share bytes, so parts may
// overlap.
type Part struct {
	View   int   // index of the view among the planned views
	From   int64 // offset of the part within the view
	At     int64 // offset of the part within the chunk
	Length int64
}

// PlanLoad plans how to read the views, in any order, from any number of files.
// Views may share bytes. Each byte of each view is in exactly one part. Chunks
// of mapped files begin at a multiple of the page size and of 4096 and have at
// most LoadOptions.ChunkSize bytes, which is rounded down to such a multiple.
//
// Tensors separated by at most MaxHole unwanted bytes are read together with the
// bytes between them, which is cheaper than another request.
//
// It fails with ErrRange for invalid options.
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

// extent is the range of a view's bytes in its origin.
type extent struct {
	view       int
	origin     *origin
	begin, end int64
}

// run is a range of a file that is read without gaps.
type run struct {
	origin     *origin
	begin, end int64
	extents    []extent // sorted by offset
}

// extents returns the extents of the views, sorted by origin and offset. Views
// without bytes have none.
func (p *LoadPlan) extents() []extent {
	var origins origins
	extents := make([]extent, 0, len(p.views))
	for i, v := range p.views {
		if n := int64(v.Len()); n > 0 {
			p.Bytes += n
			o, begin := origins.find(v)
			extents = append(extents, extent{view: i, origin: o, begin: begin, end: begin + n})
		}
	}
	slices.SortFunc(extents, func(a, b extent) int {
		return cmp.Or(cmp.Compare(a.origin.number, b.origin.number), cmp.Compare(a.begin, b.begin), cmp.Compare(a.view, b.view))
	})
	return extents
}

// join merges adjacent extents into runs.
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

// cut divides each run into chunks of about the same length.
func (p *LoadPlan) cut(size int64) error {
	const most = 1 << 24 // far more chunks than any disk holds; bounds the sizes that a hostile server may claim
	for number := range p.runs {
		r := &p.runs[number]
		length := r.end - r.begin
		count := (length-1)/size + 1
		if count > most-int64(len(p.Chunks)) {
			return fmt.Errorf("safetensors: %s: %s in chunks of %d are too many: %w", r.origin.file.path, byteCount(uint64(length)), size, ErrRange)
		}
		step := min(roundUp((length-1)/count+1, pageAlign), size)
		var open []extent // the extents that overlap the chunk
		rest := r.extents
		for begin := r.begin; begin < r.end; begin += step {
			end := begin + min(step, r.end-begin)
			open = slices.DeleteFunc(open, func(e extent) bool { return e.end <= begin })
			for len(rest) > 0 && rest[0].begin < end {
				open, rest = append(open, rest[0]), rest[1:]
			}
			if len(open) > 0 { // otherwise the chunk is a hole
				c := p.chunk(number, begin, end, open)
				c.number = len(p.Chunks)
				p.Chunks = append(p.Chunks, c)
			}
		}
	}
	return nil
}

// chunk returns a chunk for part of a run; extents are the views in it.
func (p *LoadPlan) chunk(number int, begin, end int64, extents []extent) Chunk {
	c := Chunk{File: p.runs[number].origin.file, Offset: begin, Length: end - begin, plan: p, run: number}
	c.Parts = make([]Part, len(extents))
	for i, e := range extents {
		from, to := max(begin, e.begin), min(end, e.end)
		c.Parts[i] = Part{View: e.view, From: from - e.begin, At: from - begin, Length: to - from}
	}
	return c
}

// whole returns a run as one chunk.
func (p *LoadPlan) whole(number int) Chunk {
	r := &p.runs[number]
	return p.chunk(number, r.begin, r.end, r.extents)
}

// LoadOptions configure a load. The zero value selects the defaults.
type LoadOptions struct {
	// Threads is the number of chunks read concurrently. Zero means one per
	// CPU, but at least 4, to keep a disk busy, and at most 8, enough to fill
	// the widest PCIe link. Values above 1024 are an error.
	Threads int
	// Strategy is the method by which bytes are read.
	Strategy Strategy
	// ChunkSize is the maximum number of bytes passed to a sink at once. Zero
	// means 16 MiB, the size above which reads do not get faster, or less if
	// some threads would otherwise have no work.
	ChunkSize int64
	// MaxHole is the maximum number of unwanted bytes that are read to merge two
	// chunks. Zero means 64 KiB, which takes about as long as another request. A
	// negative value means none.
	MaxHole int64
}

const (
	leastThreads     = 4 // bounds of the default
	mostThreads      = 8
	limitThreads     = 1024 // limit of Threads: each uses a system thread while it reads
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
	const each = 4 // chunks per thread, so that no thread works alone at the end
	return min(max(roundUp(total/int64(each*o.threads()), pageAlign), leastChunkSize), defaultChunkSize)
}

func (o *LoadOptions) maxHole() int64 {
	if o.MaxHole == 0 {
		return defaultMaxHole
	}
	return max(o.MaxHole, 0)
}

// pageAlign is the alignment of chunks, for both page mapping and disk reads.
var pageAlign = max(4096, pageSize)

var pageSize = int64(os.Getpagesize())

func roundDown(n, multiple int64) int64 { return n - n%multiple }

func roundUp(n, multiple int64) int64 { return roundDown(n+multiple-1, multiple) }

package safetensors

import "io"

// origin is where the bytes of some views come from: a file in memory, one
// behind an io.ReaderAt, or the reader of a single tensor.
type origin struct {
	number int
	file   *File
	memory []byte      // of the file, from its first byte on
	reader io.ReaderAt // where there is no memory
	base   int64       // in the reader, of offset 0
}

// origins finds the origin of views, in the order in which they first come.
type origins struct {
	count  int
	byFile map[*File][2]*origin // in memory, and not
}

// of returns where the bytes of v come from, and where there they begin.
func (s *origins) of(v *View) (*origin, int64) {
	if v.begin == nowhere {
		return s.add(&origin{file: v.file, reader: v.source.r, base: v.source.offset}), 0
	}
	known, kind := s.byFile[v.file], 0
	if v.source != nil {
		kind = 1
	}
	if known[kind] == nil {
		o := &origin{file: v.file}
		if v.source != nil {
			o.reader, o.base = v.source.r, v.source.offset-v.begin
		} else {
			o.memory = v.file.mapping.data
		}
		known[kind] = s.add(o)
		if s.byFile == nil {
			s.byFile = map[*File][2]*origin{}
		}
		s.byFile[v.file] = known
	}
	return known[kind], v.begin
}

func (s *origins) add(o *origin) *origin {
	o.number = s.count
	s.count++
	return o
}

// mapped tells whether the memory is the file's, in pages.
func (o *origin) mapped() bool { return o.memory != nil && o.file.info != nil }

// down returns the last place up to n where a chunk may begin.
func (o *origin) down(n int64) int64 {
	if !o.mapped() {
		return n
	}
	return roundDown(n, pageAlign)
}

// up returns the first place from n on where one may end.
func (o *origin) up(n int64) int64 {
	if !o.mapped() {
		return n
	}
	return min(roundUp(n, pageAlign), int64(len(o.memory)))
}

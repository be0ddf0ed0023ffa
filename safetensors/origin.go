package safetensors

import "io"

// origin is the source of the bytes of some views: a file in memory, a file
// read through an io.ReaderAt, or the reader of a single tensor.
type origin struct {
	number int
	file   *File
	memory []byte      // the file, from its first byte
	reader io.ReaderAt // if memory is nil
	base   int64       // offset 0 in reader
}

// origins returns the origins of views and numbers them in the order of first
// use.
type origins struct {
	count  int
	byFile map[*File][2]*origin // in memory, and not
}

// find returns the origin of v and the offset of v in it.
func (s *origins) find(v *View) (*origin, int64) {
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

// mapped reports whether the memory consists of pages of the file.
func (o *origin) mapped() bool { return o.memory != nil && o.file.info != nil }

// down rounds n down to an offset at which a chunk may begin.
func (o *origin) down(n int64) int64 {
	if !o.mapped() {
		return n
	}
	return roundDown(n, pageAlign)
}

// up rounds n up to an offset at which a chunk may end.
func (o *origin) up(n int64) int64 {
	if !o.mapped() {
		return n
	}
	return min(roundUp(n, pageAlign), int64(len(o.memory)))
}

package safetensors

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"unsafe"
)

// worker is the state of one reader.
type worker struct {
	segments []segment
	vectors  [][]byte
	bounce   arena
	read     int64 // for the current chunk
}

// segment is a nonempty range of a file and its destination in memory.
type segment struct {
	offset int64
	memory []byte
}

func (s *segment) end() int64 { return s.offset + int64(len(s.memory)) }

func (w *worker) close() { w.bounce.free() }

// slot gets the memory for a chunk from the sink: one slot, or the destination
// of each part.
func (w *worker) slot(ctx context.Context, l *loader, c *Chunk) (data []byte, err error) {
	w.segments = w.segments[:0]
	if l.places == nil {
		data, err = l.sink.Slot(ctx, c)
		if err != nil {
			return nil, err
		}
		if int64(len(data)) < c.Length {
			return nil, fmt.Errorf("safetensors: a slot of %d bytes for a chunk of %d: %w", len(data), c.Length, ErrRange)
		}
		data = data[:c.Length]
		w.segments = append(w.segments, segment{c.Offset, data})
		return data, nil
	}
	for _, p := range c.Parts {
		memory, err := l.places.Place(c, p)
		if err != nil {
			return nil, err
		}
		if int64(len(memory)) < p.Length {
			return nil, fmt.Errorf("safetensors: a place of %d bytes for a part of %d: %w", len(memory), p.Length, ErrRange)
		}
		w.addSegment(segment{c.Offset + p.At, memory[:p.Length]})
	}
	return nil, nil
}

// addSegment appends s, merging it with the last segment if it follows that one
// both in the file and in memory.
func (w *worker) addSegment(s segment) {
	if n := len(w.segments); n > 0 && len(s.memory) > 0 {
		last := &w.segments[n-1]
		have := len(last.memory)
		if last.end() == s.offset && cap(last.memory)-have >= len(s.memory) && &last.memory[:have+1][have] == &s.memory[0] {
			last.memory = last.memory[:have+len(s.memory)]
			return
		}
	}
	w.segments = append(w.segments, s)
}

// errRefused is the error of a kind of read that the file system does not
// support.
var errRefused = errors.New("refused by the file system")

// fill reads the segments. On failure it returns the file offset of the error.
func (w *worker) fill(f *feed, c *Chunk, s Strategy) (at int64, err error) {
	w.read = 0
	if s != Direct {
		for i := range w.segments {
			w.read += int64(len(w.segments[i].memory))
		}
	}
	switch {
	case f.origin.memory == nil:
		return w.fillByReader(f.origin.reader, f.origin.base)
	case s == Pread:
		return w.fillByPread(f.buffered)
	case s == Direct:
		return w.fillDirect(f.direct, f.align)
	}
	return w.fillByCopy(f, c)
}

func (w *worker) fillByReader(r io.ReaderAt, base int64) (at int64, err error) {
	for _, s := range w.segments {
		n, err := r.ReadAt(s.memory, base+s.offset)
		switch {
		case n == len(s.memory):
			continue // io.EOF may accompany the last bytes
		case err == nil || err == io.EOF:
			err = io.ErrUnexpectedEOF
		}
		return s.offset + int64(n), fmt.Errorf("%w: %w", ErrFault, err)
	}
	return 0, nil
}

// fillByPread reads segments that are consecutive in the file with one call.
func (w *worker) fillByPread(file *os.File) (at int64, err error) {
	for rest := w.segments; len(rest) > 0; {
		n := 1
		w.vectors = append(w.vectors[:0], rest[0].memory)
		for n < len(rest) && rest[n].offset == rest[n-1].end() {
			w.vectors = append(w.vectors, rest[n].memory)
			n++
		}
		if at, err := readVectors(file, w.vectors, rest[0].offset); err != nil {
			return at, err
		}
		rest = rest[n:]
	}
	return 0, nil
}

// copyPiece is the number of bytes copied from a mapping before their pages are
// dropped. Each reader keeps this many bytes mapped in addition to its
// destination.
const copyPiece = hugePage / 2

// fillByCopy copies from the mapping and drops its pages again. They stay in
// the page cache, but mapped pages count as memory of this process.
func (w *worker) fillByCopy(f *feed, c *Chunk) (at int64, err error) {
	memory := f.origin.memory[:c.Offset+c.Length]
	drop := func(from, to int64) {
		if f.origin.mapped() {
			_ = advise(memory[max(from, c.Offset):to], AdviseDontNeed)
		}
	}
	if f.origin.mapped() && !f.isCached(c) {
		// Page faults read ahead little. pread(2) reads ahead better without
		// advice: the kernel's own readahead uses large folios, requested
		// readahead does not.
		_ = f.origin.file.mapping.willNeed(c.Offset, c.Offset+c.Length)
	}
	at, ok := f.origin.file.mapping.guarded(func() {
		for _, s := range w.segments {
			for done := int64(0); done < int64(len(s.memory)); {
				from := s.offset + done
				to := min(roundDown(from, copyPiece)+copyPiece, s.end())
				copy(s.memory[done:], memory[from:to])
				done += to - from
				if to%copyPiece == 0 {
					drop(to-copyPiece, to)
				}
			}
		}
	})
	drop(c.Offset, int64(len(memory)))
	if !ok {
		return at, ErrFault
	}
	return 0, nil
}

// bounceSize is the size of a reader's aligned buffer, used if the destination
// cannot be read into directly.
const bounceSize = 4 << 20

// leastStraight is the minimum length of a segment to be read in two steps: its
// aligned middle directly, its ends through the bounce buffer.
const leastStraight = 1 << 20

// fillDirect reads past the page cache. Such reads need addresses and lengths
// that are multiples of the disk's block size. Unaligned parts are read into
// the bounce buffer and copied.
func (w *worker) fillDirect(file *os.File, a alignment) (at int64, err error) {
	rests := make([]segment, 0, 2*len(w.segments))
	for _, s := range w.segments {
		from, to := roundUp(s.offset, a.offset), roundDown(s.end(), a.offset)
		if to-from < min(leastStraight, int64(len(s.memory))) || !aligned(s.memory[from-s.offset:], a.memory) {
			rests = append(rests, s)
			continue
		}
		n, err := readDirect(file, s.memory[from-s.offset:to-s.offset], from, a)
		w.read += n
		if err == nil && n < to-from {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return from + n, err
		}
		rests = append(rests, segment{s.offset, s.memory[:from-s.offset]}, segment{to, s.memory[to-s.offset:]})
	}
	return w.fillBounced(file, rests, a)
}

// fillBounced reads the blocks that contain bytes of the segments one by one.
func (w *worker) fillBounced(file *os.File, rest []segment, a alignment) (at int64, err error) {
	rest = slices.DeleteFunc(rest, func(s segment) bool { return len(s.memory) == 0 })
	slices.SortFunc(rest, func(a, b segment) int { return cmp.Compare(a.offset, b.offset) })
	if len(rest) > 0 && w.bounce.data == nil {
		if w.bounce, err = newArena(bounceSize); err != nil {
			return rest[0].offset, err
		}
	}
	for len(rest) > 0 {
		begin := roundDown(rest[0].offset, a.offset)
		end := begin
		for i := 0; i < len(rest) && rest[i].offset <= end+a.offset; i++ {
			end = max(end, roundUp(rest[i].end(), a.offset))
		}
		end = min(end, begin+bounceSize)
		n, err := readDirect(file, w.bounce.data[:end-begin], begin, a)
		w.read += n
		if err != nil {
			return begin + n, err
		}
		for i := 0; i < len(rest) && rest[i].offset < end; i++ {
			s := &rest[i]
			upTo := min(s.end(), end)
			if upTo > begin+n {
				return begin + n, io.ErrUnexpectedEOF
			}
			copy(s.memory[:upTo-s.offset], w.bounce.data[s.offset-begin:])
			s.offset, s.memory = upTo, s.memory[upTo-s.offset:]
		}
		// The remaining segments begin at end, so they are still sorted.
		rest = slices.DeleteFunc(rest, func(s segment) bool { return len(s.memory) == 0 })
	}
	return 0, nil
}

// alignment holds the factors that offsets and memory addresses of direct reads
// must be multiples of.
type alignment struct{ offset, memory int64 }

func aligned(memory []byte, multiple int64) bool {
	return int64(uintptr(unsafe.Pointer(unsafe.SliceData(memory))))%multiple == 0
}

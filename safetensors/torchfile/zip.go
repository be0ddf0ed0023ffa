package torchfile

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
)

// archive is a zip file with its checked directory. The standard library's
// reader accepts archives whose entries overlap, or whose names differ between
// the directory and the local headers; archive rejects them.
type archive struct {
	r         io.ReaderAt
	directory int64 // start of the directory and end of the records
	records   []record
	named     map[string]int // index of the record
}

// record is an entry of the directory.
type record struct {
	name       string
	method     uint16
	flags      uint16
	crc        uint32
	compressed int64
	size       int64
	header     int64 // offset of its local header
	next       int64 // offset of the next record or the directory
}

const (
	stored   = 0
	deflated = 8

	encrypted  = 1 << 0 // flags
	descriptor = 1 << 3 // sizes and checksum follow the data

	sizeEnd       = 22 // sizes of the structures of the format
	sizeEnd64     = 56
	sizeLocator64 = 20
	sizeEntry     = 46
	sizeLocal     = 30
)

var (
	le = binary.LittleEndian
	be = binary.BigEndian
)

// readArchive reads the directory of a zip file.
func readArchive(r io.ReaderAt, size int64) (*archive, error) {
	end, err := findDirectory(r, size)
	if err != nil {
		return nil, err
	}
	if end.size > maxPickle {
		return nil, inRecord("directory", ErrLimit, byteCount(end.size), "at most "+strconv.Itoa(maxPickle))
	}
	text := make([]byte, end.size)
	if err := readFull(r, text, end.at); err != nil {
		return nil, err
	}
	a := &archive{r: r, directory: end.at, named: make(map[string]int, end.count)}
	for at := 0; at < len(text); {
		e, n, err := readEntry(text[at:])
		if err != nil {
			return nil, err
		}
		at += n
		if _, twice := a.named[e.name]; twice {
			return nil, inRecord(e.name, ErrZip, "it twice", "")
		}
		a.named[e.name] = len(a.records)
		a.records = append(a.records, e)
	}
	if int64(len(a.records)) != end.count {
		return nil, inRecord("directory", ErrZip, strconv.Itoa(len(a.records))+" entries", strconv.FormatInt(end.count, 10))
	}
	return a, a.checkOverlap()
}

// place is the position, size and number of entries of the directory.
type place struct{ at, size, count int64 }

// findDirectory reads the end record of the file, which only a comment may
// follow, or the preceding record of the 64-bit format.
func findDirectory(r io.ReaderAt, size int64) (place, error) {
	const longestComment = math.MaxUint16
	tail := make([]byte, min(size, sizeEnd+longestComment))
	if err := readFull(r, tail, size-int64(len(tail))); err != nil {
		return place{}, err
	}
	i := len(tail) - sizeEnd
	for ; i >= 0; i-- {
		if le.Uint32(tail[i:]) == 0x06054b50 && i+sizeEnd+int(le.Uint16(tail[i+20:])) == len(tail) {
			break
		}
	}
	if i < 0 {
		return place{}, inRecord("", ErrTruncated, "no end of the zip archive", "")
	}
	b, at := tail[i:], size-int64(len(tail)-i)
	p := place{int64(le.Uint32(b[16:])), int64(le.Uint32(b[12:])), int64(le.Uint16(b[10:]))}
	disks := [...]uint32{uint32(le.Uint16(b[4:])), uint32(le.Uint16(b[6:]))}
	limit := at
	if wide, end, err := findDirectory64(r, at); err != nil {
		return place{}, err
	} else if end > 0 {
		for _, n := range [...]struct{ narrow, none, wide int64 }{{p.at, math.MaxUint32, wide.at}, {p.size, math.MaxUint32, wide.size}, {p.count, math.MaxUint16, wide.count}} {
			if n.narrow != n.none && n.narrow != n.wide {
				return place{}, inRecord("directory", ErrZip, fmt.Sprintf("%d and %d", n.narrow, n.wide), "the same in both ends")
			}
		}
		p, limit = wide, end
	}
	switch {
	case disks[0] != 0 && disks[0] != math.MaxUint16 || disks[1] != 0 && disks[1] != math.MaxUint16:
		return place{}, inRecord("directory", ErrZip, "an archive of several files", "one")
	case p.at < 0 || p.size < 0 || p.count < 0 || p.at > limit || p.size > limit-p.at:
		return place{}, inRecord("directory", ErrZip, fmt.Sprintf("bytes %d to %d", p.at, uint64(p.at)+uint64(p.size)), "at most "+strconv.FormatInt(limit, 10))
	case p.count > p.size/sizeEntry:
		return place{}, inRecord("directory", ErrZip, strconv.FormatInt(p.count, 10)+" entries", "at most "+strconv.FormatInt(p.size/sizeEntry, 10))
	}
	return p, nil
}

// findDirectory64 reads the end record of the 64-bit format, whose locator
// precedes the end record at offset at. end is the offset of that record, 0 if
// there is none.
func findDirectory64(r io.ReaderAt, at int64) (p place, end int64, err error) {
	if at < sizeLocator64 {
		return place{}, 0, nil
	}
	var locator [sizeLocator64]byte
	if err := readFull(r, locator[:], at-sizeLocator64); err != nil {
		return place{}, 0, err
	}
	if le.Uint32(locator[:]) != 0x07064b50 {
		return place{}, 0, nil
	}
	from := le.Uint64(locator[8:])
	if from > uint64(at) || at-int64(from) < sizeEnd64+sizeLocator64 {
		return place{}, 0, inRecord("directory", ErrZip, "its end at "+strconv.FormatUint(from, 10), "at most "+strconv.FormatInt(at, 10))
	}
	var b [sizeEnd64]byte
	if err := readFull(r, b[:], int64(from)); err != nil {
		return place{}, 0, err
	}
	if le.Uint32(b[:]) != 0x06064b50 {
		return place{}, 0, inRecord("directory", ErrZip, "no end where the locator says", "")
	}
	if le.Uint32(b[16:]) != 0 || le.Uint32(b[20:]) != 0 {
		return place{}, 0, inRecord("directory", ErrZip, "an archive of several files", "one")
	}
	return place{int64(le.Uint64(b[48:])), int64(le.Uint64(b[40:])), int64(le.Uint64(b[32:]))}, int64(from), nil
}

// readEntry reads an entry of the directory and returns its length n.
func readEntry(b []byte) (e record, n int, err error) {
	if len(b) < sizeEntry || le.Uint32(b) != 0x02014b50 {
		return record{}, 0, inRecord("directory", ErrZip, "something else", "an entry")
	}
	name, extra, comment := int(le.Uint16(b[28:])), int(le.Uint16(b[30:])), int(le.Uint16(b[32:]))
	n = sizeEntry + name + extra + comment
	if n > len(b) {
		return record{}, 0, inRecord("directory", ErrZip, "an entry that goes past the end", "")
	}
	e = record{
		name:       string(b[sizeEntry : sizeEntry+name]),
		flags:      le.Uint16(b[8:]),
		method:     le.Uint16(b[10:]),
		crc:        le.Uint32(b[16:]),
		compressed: int64(le.Uint32(b[20:])),
		size:       int64(le.Uint32(b[24:])),
		header:     int64(le.Uint32(b[42:])),
	}
	if disk := le.Uint16(b[34:]); disk != 0 && disk != math.MaxUint16 {
		return record{}, 0, inRecord(e.name, ErrZip, "it in another file", "")
	}
	return e, n, e.widen(b[sizeEntry+name : sizeEntry+name+extra])
}

// widen reads the numbers that exceed 32 bits from the extra fields.
func (e *record) widen(extra []byte) error {
	var wide []byte
	for len(extra) >= 4 {
		id, n := le.Uint16(extra), int(le.Uint16(extra[2:]))
		if n > len(extra)-4 {
			break // invalid padding is ignored
		}
		if id == 1 {
			wide = extra[4 : 4+n]
		}
		extra = extra[4+n:]
	}
	for _, n := range []*int64{&e.size, &e.compressed, &e.header} { // in this order
		if *n != math.MaxUint32 {
			continue
		}
		if len(wide) < 8 {
			return inRecord(e.name, ErrZip, "no 64-bit sizes", "them")
		}
		*n = int64(le.Uint64(wide))
		wide = wide[8:]
		if *n < 0 {
			return inRecord(e.name, ErrZip, "a size of more than 2^63 bytes", "")
		}
	}
	return nil
}

// checkOverlap checks that no byte belongs to two records, or to a record and
// the directory, as in a zip bomb.
func (a *archive) checkOverlap() error {
	order := make([]int, len(a.records))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		return cmp.Compare(a.records[i].header, a.records[j].header)
	})
	for k, i := range order {
		e := &a.records[i]
		e.next = a.directory
		if k+1 < len(order) {
			e.next = a.records[order[k+1]].header
		}
		if err := e.checkEnd(e.header + sizeLocal + int64(len(e.name))); err != nil {
			return err
		}
	}
	return nil
}

// checkEnd checks that data starting at offset at ends where it must.
func (e *record) checkEnd(at int64) error {
	if at < 0 || e.compressed > e.next-at {
		return inRecord(e.name, ErrZip, byteCount(e.compressed)+" at "+strconv.FormatInt(at, 10), "them to end before "+strconv.FormatInt(e.next, 10))
	}
	return nil
}

func readFull(r io.ReaderAt, b []byte, at int64) error {
	n, err := r.ReadAt(b, at)
	switch {
	case n == len(b):
		return nil
	case err == io.EOF:
		return inRecord("", ErrTruncated, byteCount(at+int64(n)), "")
	}
	return err
}

package torchfile

import (
	"compress/flate"
	"errors"
	"hash/crc32"
	"io"
	"math"
	"strconv"
)

// extent is the location of a storage's bytes in the file, stored or deflated.
type extent struct {
	record     string
	at         int64
	compressed int64 // bytes in the file
	size       int64 // bytes of the storage
	deflated   bool
}

// find locates the data of a record. It reads the record's local header and
// none of the data.
func (a *archive) find(name string) (extent, error) {
	i, ok := a.named[name]
	if !ok {
		return extent{}, inRecord(name, ErrRecord, "", "")
	}
	return a.locate(i)
}

func (a *archive) locate(i int) (extent, error) {
	e := &a.records[i]
	switch {
	case e.flags&encrypted != 0:
		return extent{}, inRecord(e.name, ErrUnsupported, "an encrypted record", "")
	case e.method != stored && e.method != deflated:
		return extent{}, inRecord(e.name, ErrUnsupported, "compression method "+strconv.Itoa(int(e.method)), "0 (stored) or 8 (deflated)")
	case e.method == stored && e.size != e.compressed:
		return extent{}, inRecord(e.name, ErrZip, byteCount(e.compressed), byteCount(e.size))
	case e.size/maxRatio > e.compressed:
		return extent{}, inRecord(e.name, ErrZip, byteCount(e.compressed)+" that claim to inflate to "+byteCount(e.size), "at most "+strconv.Itoa(maxRatio)+" for each")
	}
	b := make([]byte, sizeLocal+len(e.name))
	if err := readFull(a.r, b, e.header); err != nil {
		return extent{}, err
	}
	if err := e.checkLocal(b); err != nil {
		return extent{}, err
	}
	at := e.header + int64(len(b)) + int64(le.Uint16(b[28:]))
	if err := e.checkEnd(at); err != nil { // again, now that the length of the extra field is known
		return extent{}, err
	}
	return extent{record: e.name, at: at, compressed: e.compressed, size: e.size, deflated: e.method == deflated}, nil
}

// checkLocal compares the local header of a record with its entry in the
// directory.
func (e *record) checkLocal(b []byte) error {
	switch {
	case le.Uint32(b) != 0x04034b50:
		return inRecord(e.name, ErrZip, "no record where the directory says", "")
	case int(le.Uint16(b[26:])) != len(e.name) || string(b[sizeLocal:]) != e.name:
		return inRecord(e.name, ErrZip, "another name in the record than in the directory", "")
	case le.Uint16(b[8:]) != e.method:
		return inRecord(e.name, ErrZip, "another method in the record than in the directory", "")
	case le.Uint16(b[6:])&descriptor != 0:
		return nil // sizes come after the data
	}
	for _, n := range [...]struct{ local, entry int64 }{{int64(le.Uint32(b[18:])), e.compressed}, {int64(le.Uint32(b[22:])), e.size}} {
		if n.local != n.entry && n.local != math.MaxUint32 {
			return inRecord(e.name, ErrZip, byteCount(n.local)+" in the record", byteCount(n.entry)+" as in the directory")
		}
	}
	return nil
}

// open returns a reader for the bytes of an extent.
func (x *extent) open(file io.ReaderAt) io.Reader {
	raw := io.NewSectionReader(file, x.at, x.compressed)
	if !x.deflated {
		return raw
	}
	return flate.NewReader(raw)
}

// small reads a record of a few bytes.
func (a *archive) small(name string) (string, error) {
	const most = 64
	x, err := a.find(name)
	if err != nil {
		return "", err
	}
	if x.size > most {
		return "", inRecord(name, ErrZip, byteCount(x.size), "at most "+strconv.Itoa(most))
	}
	b := make([]byte, x.size)
	if _, err := io.ReadFull(x.open(a.r), b); err != nil {
		return "", x.failed(err)
	}
	return string(b), nil
}

// failed returns the error of reading an extent. Bytes that do not inflate are
// an error of the file.
func (x *extent) failed(err error) error {
	var corrupt flate.CorruptInputError
	switch {
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		return inRecord(x.record, ErrZip, "fewer bytes", byteCount(x.size))
	case errors.As(err, &corrupt):
		return inRecord(x.record, ErrZip, corrupt.Error(), "")
	}
	return err
}

// verify reads a record and compares its checksum.
func (a *archive) verify(i int) error {
	x, err := a.locate(i)
	if err != nil {
		return err
	}
	sum := crc32.NewIEEE()
	n, err := io.Copy(sum, io.LimitReader(x.open(a.r), x.size+1)) // limit the read to one byte more than expected
	switch want := a.records[i].crc; {
	case err != nil:
		return x.failed(err)
	case n != x.size:
		return inRecord(x.record, ErrZip, byteCount(n), byteCount(x.size))
	case sum.Sum32() != want:
		return inRecord(x.record, ErrChecksum, hex(sum.Sum32()), hex(want))
	}
	return nil
}

func hex(n uint32) string { return "0x" + strconv.FormatUint(uint64(n), 16) }

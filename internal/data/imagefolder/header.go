package imagefolder

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"image/jpeg"
	"image/png"
	"io"
)

// Header holds the properties of an image from its header.
type Header struct {
	Format        string // "png", "jpeg" or "webp", by content
	Width, Height int    // in pixels, at least 1
	// Animated is true for a WebP with several frames.
	Animated bool
}

// ErrImage is the error for files that are not an image or are truncated.
var ErrImage = errors.New("not a whole PNG, JPEG or WebP image")

// ReadHeader reads the header of an image of size bytes. Without decoding pixels, it checks that the file is complete:
// up to the last chunk of a PNG, the end marker of a JPEG, or the length in the header of a WebP. It fails with
// ErrImage.
func ReadHeader(r io.ReaderAt, size int64) (Header, error) {
	var first [12]byte
	n, err := r.ReadAt(first[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return Header{}, err
	}
	whole := io.NewSectionReader(r, 0, size)
	var h Header
	switch start := first[:n]; {
	case n == 0:
		return Header{}, fmt.Errorf("the file is empty: %w", ErrImage)
	case bytes.HasPrefix(start, []byte("\x89PNG\r\n\x1a\n")):
		h, err = readPNG(whole)
	case bytes.HasPrefix(start, []byte("\xff\xd8")):
		h, err = readJPEG(whole)
	case bytes.HasPrefix(start, []byte("RIFF")) && bytes.HasSuffix(start, []byte("WEBP")):
		h, err = readWebP(whole)
	default:
		return Header{}, fmt.Errorf("the file begins with %q: %w", start[:min(n, 4)], ErrImage)
	}
	if err == nil && (h.Width < 1 || h.Height < 1) {
		err = fmt.Errorf("%d × %d pixels", h.Width, h.Height)
	}
	if err != nil {
		return Header{}, fmt.Errorf("%w: %w", ErrImage, err)
	}
	return h, nil
}

// errShort is the error for a truncated file.
var errShort = errors.New("the file is cut short")

func readPNG(r *io.SectionReader) (Header, error) {
	config, err := png.DecodeConfig(bufio.NewReader(r))
	if err != nil {
		return Header{}, short(err)
	}
	h := Header{Format: "png", Width: config.Width, Height: config.Height}
	// A chunk is a length, a name, data of that length and a checksum.
	for at := int64(8); ; {
		var chunk [8]byte
		if _, err := r.ReadAt(chunk[:], at); err != nil {
			return h, short(err)
		}
		at += 12 + int64(binary.BigEndian.Uint32(chunk[:]))
		switch {
		case at > r.Size():
			return h, errShort
		case string(chunk[4:]) == "IEND":
			return h, nil
		}
	}
}

func readJPEG(r *io.SectionReader) (Header, error) {
	config, err := jpeg.DecodeConfig(bufio.NewReader(r))
	if err != nil {
		return Header{}, short(err)
	}
	h := Header{Format: "jpeg", Width: config.Width, Height: config.Height}
	// A segment is a marker and a length; the last one read is the first with pixels. Before it there may be a
	// thumbnail, whose end marker does not count.
	at := int64(2)
	for {
		var segment [4]byte
		if _, err := r.ReadAt(segment[:], at); err != nil {
			return h, short(err)
		}
		switch marker := segment[1]; {
		case segment[0] != 0xff:
			return h, fmt.Errorf("byte %d: found %#02x, expected the start of a segment", at, segment[0])
		case marker == 0xff: // padding
			at++
		case marker == 0x01, 0xd0 <= marker && marker <= 0xd8: // no length
			at += 2
		case marker == 0xd9:
			return h, errors.New("no pixels")
		default:
			at += 2 + int64(binary.BigEndian.Uint16(segment[2:]))
			if marker == 0xda {
				return h, findEnd(r, at)
			}
		}
	}
}

// findEnd searches for the end marker of a JPEG, which cannot occur in pixel data. It searches backwards from the end
// of the file, since other data may follow the image.
func findEnd(r *io.SectionReader, from int64) error {
	const step = 64 << 10
	buffer := make([]byte, step+1)
	for end := r.Size(); end > from; end -= step {
		begin := max(from, end-step-1) // overlap by one byte, for a marker across the boundary
		part := buffer[:end-begin]
		if _, err := r.ReadAt(part, begin); err != nil {
			return short(err)
		}
		if bytes.Contains(part, []byte("\xff\xd9")) {
			return nil
		}
	}
	return errShort
}

// readWebP reads the first chunk of a WebP: a lossy image, a lossless image, or the canvas of several.
func readWebP(r *io.SectionReader) (Header, error) {
	var b [30]byte
	n, err := r.ReadAt(b[:], 0)
	if n < 25 { // the shortest header, of a lossless image
		return Header{}, short(err)
	}
	if 8+int64(binary.LittleEndian.Uint32(b[4:])) > r.Size() {
		return Header{}, errShort
	}
	h, data := Header{Format: "webp"}, b[20:n]
	switch kind := string(b[12:16]); {
	case kind == "VP8L" && data[0] == 0x2f:
		bits := binary.LittleEndian.Uint32(data[1:])
		h.Width, h.Height = int(bits&0x3fff)+1, int(bits>>14&0x3fff)+1
	case n < len(b):
		return h, errShort
	case kind == "VP8 " && string(data[3:6]) == "\x9d\x01\x2a":
		h.Width = int(binary.LittleEndian.Uint16(data[6:]) & 0x3fff)
		h.Height = int(binary.LittleEndian.Uint16(data[8:]) & 0x3fff)
	case kind == "VP8X":
		h.Width = 1 + int(data[4]) + int(data[5])<<8 + int(data[6])<<16
		h.Height = 1 + int(data[7]) + int(data[8])<<8 + int(data[9])<<16
		h.Animated = data[0]&2 != 0
	default:
		return h, fmt.Errorf("found %q, expected a frame", kind)
	}
	return h, nil
}

// short replaces an unexpected end of file by errShort.
func short(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errShort
	}
	return err
}

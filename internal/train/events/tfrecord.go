package events

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
)

// A TFRecord file is a sequence of frames: length (8 bytes, little endian),
// masked CRC of these 8 bytes, data, masked CRC of the data. The mask keeps the
// CRC of data that holds CRCs from being a bad one (tensorflow/core/lib/io).

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func maskedCRC(data []byte) uint32 {
	c := crc32.Checksum(data, castagnoli)
	return c>>15 | c<<17 + 0xa282ead8
}

// appendFrame appends data as one frame to b.
func appendFrame(b, data []byte) []byte {
	var length [8]byte
	binary.LittleEndian.PutUint64(length[:], uint64(len(data)))
	b = append(b, length[:]...)
	b = binary.LittleEndian.AppendUint32(b, maskedCRC(length[:]))
	b = append(b, data...)
	return binary.LittleEndian.AppendUint32(b, maskedCRC(data))
}

// largestFrame limits the memory of a reader. An event of scalars has a few hundred bytes, an event with a picture
// some megabytes.
const largestFrame = 1 << 27

var errFrame = errors.New("damaged TFRecord")

// readFrame reads one frame and returns its data and its whole length. io.EOF
// is the regular end; a cut or damaged frame is errFrame.
func readFrame(r io.Reader) (data []byte, size int64, err error) {
	var head [12]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = errFrame
		}
		return nil, 0, err
	}
	n := binary.LittleEndian.Uint64(head[:8])
	if binary.LittleEndian.Uint32(head[8:]) != maskedCRC(head[:8]) || n > largestFrame {
		return nil, 0, errFrame
	}
	body := make([]byte, n+4)
	if _, err := io.ReadFull(r, body); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = errFrame
		}
		return nil, 0, err
	}
	data = body[:n]
	if binary.LittleEndian.Uint32(body[n:]) != maskedCRC(data) {
		return nil, 0, errFrame
	}
	return data, int64(len(head) + len(body)), nil
}

//go:build !linux

package safetensors

import (
	"io"
	"os"
)

// readVectors fills the buffers in order with the bytes from offset in the
// file. On failure it returns the file offset of the error.
func readVectors(f *os.File, into [][]byte, offset int64) (at int64, err error) {
	for _, p := range into {
		n, err := f.ReadAt(p, offset)
		offset += int64(n)
		switch {
		case n == len(p):
			continue
		case err == io.EOF:
			err = io.ErrUnexpectedEOF
		}
		return offset, err
	}
	return 0, nil
}

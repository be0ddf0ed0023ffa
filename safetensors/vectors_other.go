//go:build !linux

package safetensors

import (
	"io"
	"os"
)

// readVectors fills stretches of memory, one after the other, with what follows
// offset in the file. It says where it has failed.
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

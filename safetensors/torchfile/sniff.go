package torchfile

import (
	"bytes"
	"io"

	"github.com/lorafuse/lorafuse/safetensors"
)

// sniff detects the format of a file from its first bytes.
func sniff(r io.ReaderAt, size int64) (string, error) {
	b := make([]byte, min(size, safetensors.RecognizeBytes))
	if err := readFull(r, b, 0); err != nil {
		return "", err
	}
	foreign := safetensors.Recognize(b)
	switch {
	case foreign == safetensors.ZIP:
		return formatZip, nil
	case isSafetensors(b, size):
		return formatSafetensors, nil
	case foreign == safetensors.Tar: // written by PyTorch
		return "", &FormatError{Rule: ErrUnsupported, Found: foreign.String()}
	case foreign != safetensors.Unrecognized && foreign != safetensors.Pickle:
		return "", &FormatError{Rule: ErrNotTorch, Found: foreign.String()}
	case b[0] == byte(opProto):
		return formatLegacy, nil
	}
	return "", &FormatError{Rule: ErrNotTorch, Found: byteCount(size) + " that begin with " + quote(string(b[:min(len(b), 8)]))}
}

// isSafetensors reports whether a file begins with a header length and a
// header. A pickle can begin with a small number too.
func isSafetensors(b []byte, size int64) bool {
	if len(b) < 9 {
		return false
	}
	n := le.Uint64(b)
	return n >= 1 && n <= maxPickle && n <= uint64(size-8) && bytes.IndexByte([]byte("{ \t\r\n"), b[8]) >= 0
}

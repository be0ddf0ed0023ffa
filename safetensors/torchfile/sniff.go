package torchfile

import (
	"bytes"
	"io"
)

// magics are how files begin that people keep under the names of checkpoints,
// with what to say of those that are not read.
var magics = []struct {
	at    int64
	magic string
	what  string
}{
	{257, "ustar", "a tar archive, as PyTorch wrote before 0.1.10; PyTorch itself loads it with weights_only=False only"},
	{0, "PK\x05\x06", "an empty zip archive"},
	{0, "version https://git-lfs", "a pointer of Git LFS to the file; get it with git lfs pull"},
	{0, "GGUF", "a GGUF file"},
	{0, "\x89HDF\r\n\x1a\n", "an HDF5 file"},
	{0, "\x93NUMPY", "an array of NumPy"},
	{0, "\x1f\x8b", "a file compressed with gzip"},
	{0, "\x28\xb5\x2f\xfd", "a file compressed with zstd"},
	{0, "<", "a web page or the like"},
}

// sniff tells the format of a file from how it begins.
func sniff(r io.ReaderAt, size int64) (string, error) {
	b := make([]byte, min(size, 512))
	if err := readFull(r, b, 0); err != nil {
		return "", err
	}
	switch {
	case bytes.HasPrefix(b, []byte("PK\x03\x04")):
		return formatZip, nil
	case isSafetensors(b, size):
		return formatSafetensors, nil
	}
	for _, m := range magics {
		if m.at <= int64(len(b)) && bytes.HasPrefix(b[m.at:], []byte(m.magic)) {
			rule := ErrNotTorch
			if m.at > 0 {
				rule = ErrUnsupported // it is one
			}
			return "", &FormatError{Rule: rule, Found: m.what}
		}
	}
	if len(b) > 0 && b[0] == byte(opProto) {
		return formatLegacy, nil
	}
	return "", &FormatError{Rule: ErrNotTorch, Found: byteCount(size) + " that begin with " + quote(string(b[:min(len(b), 8)]))}
}

// isSafetensors reports whether a file begins with the length of a header and a
// header. A pickle, too, can begin with a small number.
func isSafetensors(b []byte, size int64) bool {
	if len(b) < 9 {
		return false
	}
	n := le.Uint64(b)
	return n >= 1 && n <= maxPickle && n <= uint64(size-8) && bytes.IndexByte([]byte("{ \t\r\n"), b[8]) >= 0
}

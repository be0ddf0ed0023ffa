package torchfile

import (
	"bufio"
	"errors"
	"io"
)

var errLongLine = errors.New("a line of more than 1024 bytes")

// input reads the bytes of pickles; at is the position.
type input struct {
	r    *bufio.Reader
	at   int64
	size int64
}

func newInput(r io.Reader, size int64) *input {
	return &input{r: bufio.NewReaderSize(r, int(min(size, 64<<10))), size: size}
}

// read returns the next n bytes, which are valid until the next call. It checks
// that they exist before it allocates memory.
func (in *input) read(n uint64) ([]byte, error) {
	if n > uint64(in.size-in.at) {
		return nil, io.ErrUnexpectedEOF
	}
	in.at += int64(n)
	if n <= uint64(in.r.Size()) {
		b, err := in.r.Peek(int(n))
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		_, _ = in.r.Discard(len(b))
		return b, err
	}
	b := make([]byte, n)
	_, err := io.ReadFull(in.r, b)
	return b, err
}

// byte returns the next byte, faster than take(1).
func (in *input) byte() (byte, error) {
	if in.at >= in.size {
		return 0, io.ErrUnexpectedEOF
	}
	in.at++
	c, err := in.r.ReadByte()
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return c, err
}

// line returns the bytes before the next line feed, and skips that. A line
// longer than any name is an error.
func (in *input) line() (string, error) {
	const longest = 1024
	b, err := in.r.Peek(int(min(longest, in.size-in.at)))
	for i, c := range b {
		if c == '\n' {
			line := string(b[:i])
			in.at += int64(i) + 1
			_, _ = in.r.Discard(i + 1)
			return line, nil
		}
	}
	switch {
	case len(b) == longest:
		err = errLongLine
	case err == nil || err == io.EOF:
		err = io.ErrUnexpectedEOF
	}
	return "", err
}

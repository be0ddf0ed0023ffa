package load

import (
	"os"
)

const (
	mebibyte = 1 << 20
	hugePage = 2 * mebibyte
)

// opRead reads a file into a buffer that has been in use before.
func opRead(t *task) (func() (func() error, error), error) {
	info, err := os.Stat(t.file)
	if err != nil {
		return nil, err
	}
	buffer := hugeBuffer(int(info.Size()))
	for i := 0; i < len(buffer); i += page {
		buffer[i] = 1
	}
	return func() (func() error, error) {
		f, err := os.Open(t.file)
		if err != nil {
			return nil, err
		}
		for at := 0; at < len(buffer); {
			n, err := f.Read(buffer[at:min(at+mebibyte, len(buffer))])
			if err != nil {
				return nil, err
			}
			at += n
		}
		return f.Close, nil
	}, nil
}

// opWrite writes a file from memory.
func opWrite(t *task) (func() (func() error, error), error) {
	data, err := os.ReadFile(t.file)
	return func() (func() error, error) {
		f, err := os.Create(t.out)
		if err != nil {
			return nil, err
		}
		for rest := data; len(rest) > 0; {
			n, err := f.Write(rest[:min(len(rest), 16*mebibyte)])
			if err != nil {
				return nil, err
			}
			rest = rest[n:]
		}
		return nil, f.Close()
	}, err
}

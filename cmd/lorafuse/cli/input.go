package cli

import (
	"context"
	"errors"
	"io"
	"os"
)

// input is standard input that an interruption need not wait for.
type input struct {
	ctx context.Context
	r   io.Reader

	reads chan read // of the pending read, or nil
	rest  []byte    // read and not yet given out
}

type read struct {
	data []byte
	err  error
}

// Read reads, or fails with the context's error once the context ends.
func (i *input) Read(p []byte) (int, error) {
	if len(i.rest) == 0 {
		if i.reads == nil {
			i.reads = make(chan read, 1)
			go func(c chan<- read) {
				data := make([]byte, 1<<16)
				n, err := i.r.Read(data)
				c <- read{data[:n], err}
			}(i.reads)
		}
		select {
		case <-i.ctx.Done():
			return 0, i.ctx.Err()
		case r := <-i.reads:
			i.reads = nil
			if len(r.data) == 0 {
				return 0, r.err
			}
			i.rest = r.data
			if r.err != nil && !errors.Is(r.err, io.EOF) {
				return 0, r.err
			}
		}
	}
	n := copy(p, i.rest)
	i.rest = i.rest[n:]
	return n, nil
}

// terminal reports whether the input is a terminal.
func (i *input) terminal() bool { return isTerminal(i.r) }

// isTerminal reports whether a reader or writer is a terminal.
func isTerminal(x any) bool {
	f, ok := x.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

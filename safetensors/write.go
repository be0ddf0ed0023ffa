package safetensors

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
)

// Write writes a file to w. Nothing is written where the entries cannot be. The
// header comes first; then each tensor is written in one call, straight from
// its memory, so a w where calls are expensive wants a buffer.
//
// The entries may come in any order; the same entries and metadata give the
// same bytes. nil metadata is left out of the file, an empty map is not. It
// fails with ErrDuplicateTensor, ErrUTF8, ErrEntry, ErrHeaderTooLarge, as
// Entry.Size does, with ErrSize where the data is not what the shape asks for,
// and with what w and Entry.Write fail with.
func Write(w io.Writer, entries []Entry, metadata map[string]string) error {
	l, err := newLayout(entries, metadata)
	if err != nil {
		return err
	}
	return l.writeTo(w, entries)
}

// WriteFile writes a file at path. It goes to a temporary name in the same
// folder, is synced and then renamed: at any moment, and after any failure,
// path is the old file or the new one, whole. So what is written may come from
// the very file that is replaced. Symbolic links are followed; the mode is that
// of the old file, for a new one that of the umask.
//
// It fails with ErrNotRegular where path is a folder or a device, else as Write.
func WriteFile(path string, entries []Entry, metadata map[string]string, opts ...Option) error {
	l, err := newLayout(entries, metadata)
	if err != nil {
		return withPath(err, path)
	}
	p, err := l.stage(path, entries, newOptions(opts))
	if err != nil {
		return err
	}
	return p.commit()
}

// Option changes how files are written.
type Option func(*options)

type options struct {
	syncFile, syncFolder bool
}

func newOptions(opts []Option) options {
	o := options{syncFile: true}
	for _, opt := range opts {
		opt(&o)
	}
	return o
}

// NoSync leaves it to the operating system when the data reaches the disk. It
// is faster, and after a crash of the machine, not of the program, the file may
// be empty or broken.
func NoSync() Option { return func(o *options) { o.syncFile, o.syncFolder = false, false } }

// Durable syncs the folder, too: when the write has returned, the new file
// survives a crash of the machine. Without it the old one may come back.
func Durable() Option { return func(o *options) { o.syncFile, o.syncFolder = true, true } }

// stage writes the file under a temporary name next to path.
func (l *layout) stage(path string, entries []Entry, o options) (*pendingFile, error) {
	// Small tensors are gathered; what is larger than the buffer passes by it.
	return stage(path, l.size, o, func(w io.Writer) error {
		buffered := bufio.NewWriterSize(w, 256<<10)
		if err := l.writeTo(buffered, entries); err != nil {
			return err
		}
		return buffered.Flush()
	})
}

func (l *layout) writeTo(w io.Writer, entries []Entry) error {
	if _, err := w.Write(l.header); err != nil {
		return fmt.Errorf("safetensors: write header: %w", err)
	}
	exact := exactWriter{w: w}
	for place, i := range l.order {
		e := &entries[i]
		if e.Write == nil {
			if len(e.Data) == 0 {
				continue
			}
			if _, err := w.Write(e.Data); err != nil {
				return fmt.Errorf("safetensors: write tensor %s: %w", quote(e.Name), err)
			}
			continue
		}
		size := l.sizes[place]
		exact.left = size
		if err := e.Write(&exact); err != nil {
			return fmt.Errorf("safetensors: write tensor %s: %w", quote(e.Name), err)
		}
		if exact.left != 0 {
			return tensorError(e.Name, ErrSize, byteCount(uint64(size-exact.left))+" written", byteCount(uint64(size)))
		}
	}
	return nil
}

// exactWriter keeps a source from writing more than its share.
type exactWriter struct {
	w    io.Writer
	left int64
}

func (x *exactWriter) Write(p []byte) (int, error) {
	if int64(len(p)) > x.left {
		return 0, fmt.Errorf("%d bytes where %d are left: %w", len(p), x.left, ErrSize)
	}
	n, err := x.w.Write(p)
	x.left -= int64(n)
	return n, err
}

func putLength(b []byte, n int) { binary.LittleEndian.PutUint64(b, uint64(n)) }

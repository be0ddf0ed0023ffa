package safetensors

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path/filepath"
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
	if err := l.writeTo(w, entries); err != nil {
		return writeError("", 0, err)
	}
	return nil
}

// WriteFile writes a file at path. It has another name, or none, until it is
// complete: at any moment, and after any failure of the program, path is the
// old file or the new one, whole. So what is written may come from the very file
// that is replaced. A crash of the machine is another matter: see Durable.
//
// Symbolic links are followed. A file that is replaced keeps its mode, and is
// replaced only by somebody who may write to it; other names that it has, hard
// links, keep the old contents. The mode of a new file is that of the umask.
// The data is written straight from memory; what passes through Entry.Write in
// small pieces is gathered in a buffer of 1 MiB.
//
// A killed process leaves nothing behind where the system knows files without a
// name (Linux, on most local file systems); elsewhere, and for an instant there
// as well, the file is called .NAME.unfinished, and the next write to path
// removes what nobody is writing any more.
//
// It fails with ErrNotRegular where path is a folder or a device, with
// fs.ErrPermission where the old file may not be written, else as Write. Where
// there is no room, it says how many bytes are needed; on Linux that is found
// out before anything is written.
func WriteFile(path string, entries []Entry, metadata map[string]string, opts ...Option) error {
	l, err := newLayout(entries, metadata)
	if err != nil {
		return withPath(err, path)
	}
	p, err := l.stage(path, entries, newOptions(opts).durable)
	if err != nil {
		return err
	}
	if err := p.commit(); err != nil {
		return err
	}
	if p.durable {
		if err := syncFolder(filepath.Dir(p.path)); err != nil {
			return writeError(path, l.size, err)
		}
	}
	return nil
}

// Option changes how files are written.
type Option interface{ apply(*options) }

type options struct {
	durable bool
	name    modelName
	step    func() // if not nil, called between two changes of a folder
}

func newOptions(opts []Option) options {
	o := options{name: defaultName}
	for _, opt := range opts {
		opt.apply(&o)
	}
	return o
}

type optionFunc func(*options)

func (f optionFunc) apply(o *options) { f(o) }

// Durable makes what is written survive a crash of the machine once the write
// has returned; a crash before that leaves the old file or the new one. The data
// is brought to the disk before the file gets its name, the folder after that.
//
// It is not the default because it takes several times as long, and who writes
// many files (a cache, a folder that takes its place as a whole) wants to pay for
// it once, or never. Without it the operating system writes within half a minute
// or so, and a crash of the machine before that may leave an empty or a broken
// file, even where there was an old one.
func Durable() Option { return optionFunc(func(o *options) { o.durable = true }) }

// stage writes the file, without giving it its name.
func (l *layout) stage(path string, entries []Entry, durable bool) (*pendingFile, error) {
	return stage(path, l.size, durable, func(w *fileWriter) error {
		err := l.writeTo(w, entries)
		if err == nil {
			err = w.flush()
		}
		if isFault(err) && !errors.Is(err, ErrFault) {
			// What was being written when it was found out may be another tensor.
			return fmt.Errorf("tensor %s: its data: %w", quote(l.tensorAt(entries, w.written)), ErrFault)
		}
		return err
	})
}

// tensorAt is the name of the tensor that the byte of the file belongs to.
func (l *layout) tensorAt(entries []Entry, at int64) string {
	at -= int64(len(l.header))
	for place, i := range l.order {
		if at < l.sizes[place] {
			return entries[i].Name
		}
		at -= l.sizes[place]
	}
	return ""
}

func (l *layout) writeTo(w io.Writer, entries []Entry) error {
	put := func(p []byte) error { _, err := w.Write(p); return err }
	f, isFile := w.(*fileWriter)
	if isFile {
		put = f.keep
	}
	if err := put(l.header); err != nil {
		return fmt.Errorf("header: %w", err)
	}
	exact := exactWriter{w: w, file: f}
	for place, i := range l.order {
		e := &entries[i]
		if e.Write == nil {
			if len(e.Data) == 0 {
				continue
			}
			if err := put(e.Data); err != nil {
				return fmt.Errorf("tensor %s: %w", quote(e.Name), err)
			}
			continue
		}
		size := l.sizes[place]
		exact.left = size
		if err := e.Write(&exact); err != nil {
			return fmt.Errorf("tensor %s: %w", quote(e.Name), err)
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
	file *fileWriter // w, if it is one
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

// ofMapping returns a writer for bytes of a mapping.
func (x *exactWriter) ofMapping() io.Writer {
	if x.file == nil {
		return x
	}
	return mappedWriter{x}
}

type mappedWriter struct{ x *exactWriter }

func (m mappedWriter) Write(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		piece := p[n:min(n+writeTogether, len(p))]
		populate(piece)
		var written int
		written, err = m.x.Write(piece)
		n += written
	}
	return n, err
}

func putLength(b []byte, n int) { binary.LittleEndian.PutUint64(b, uint64(n)) }

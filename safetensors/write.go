package safetensors

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path/filepath"
)

// Write writes a file to w. If the entries are invalid, it writes nothing. It
// writes the header first, then each tensor in one call, directly from memory,
// so wrap w in a buffer if its calls are expensive.
//
// The entries may be in any order; the same entries and metadata give the same
// bytes. nil metadata is omitted from the file, an empty map is not. Write
// fails with ErrDuplicateTensor, ErrUTF8, ErrEntry and ErrHeaderTooLarge, with
// the errors of Entry.Size, with ErrSize if the length of the data does not
// match the shape, and with errors of w and Entry.Write.
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

// WriteFile writes a file at path. The file has another name, or none, until it
// is complete: at any moment, and after any failure of the program, path is
// either the old file or the new one, complete. So the entries may be read from
// the file that is replaced. For crashes of the machine see Durable.
//
// Symbolic links are followed. A replaced file keeps its mode and must be
// writable for the caller; other hard links to it keep the old contents. The
// mode of a new file follows the umask. The data is written directly from
// memory; small writes of Entry.Write are collected in a buffer of 1 MiB.
//
// If the system supports files without a name (Linux, on most local file
// systems), a killed process leaves nothing behind. On other systems, and for an
// instant there too, the file is named .NAME.unfinished; the next write to path
// removes such a file if its writer is dead.
//
// It fails with ErrNotRegular if path is a folder or a device, with
// fs.ErrPermission if the old file is not writable, and as Write does. If the
// disk is full, the error states the number of bytes needed; on Linux this is
// detected before anything is written.
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

// Option configures how files are written.
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

// Durable makes a write survive a crash of the machine after it has returned; an
// earlier crash leaves either the old file or the new one. The data is flushed to
// disk before the file is renamed, the folder after that.
//
// It is not the default because it takes several times as long. Callers that
// write many files (a cache, a folder that is replaced as a whole) want to pay
// that price once, or never. Without it the operating system writes the data
// within about half a minute, and an earlier crash of the machine may leave an
// empty or broken file, even if an old one existed.
func Durable() Option { return optionFunc(func(o *options) { o.durable = true }) }

// stage writes the file without naming it yet.
func (l *layout) stage(path string, entries []Entry, durable bool) (*pendingFile, error) {
	return stage(path, l.size, durable, func(w *fileWriter) error {
		err := l.writeTo(w, entries)
		if err == nil {
			err = w.flush()
		}
		if isFault(err) && !errors.Is(err, ErrFault) {
			// The byte being written when the fault was found may belong to
			// another tensor.
			return fmt.Errorf("tensor %s: its data: %w", quote(l.tensorAt(entries, w.written)), ErrFault)
		}
		return err
	})
}

// tensorAt returns the name of the tensor that contains the byte at offset at
// of the file.
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

// exactWriter limits a source to its share of bytes.
type exactWriter struct {
	w    io.Writer
	file *fileWriter // w, if it is a fileWriter
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

package torchfile

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"hash/crc32"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

// pickled assembles pickles: strings are text, ints are BININT, byte slices are
// opcodes, tuples are tuples of all these.
type (
	code  []byte
	tuple []any
)

func pickled(parts ...any) []byte {
	b := []byte{byte(opProto), 2}
	b = appendParts(b, parts)
	return append(b, byte(opStop))
}

func appendParts(b []byte, parts []any) []byte {
	for _, p := range parts {
		switch p := p.(type) {
		case code:
			b = append(b, p...)
		case []byte:
			b = append(b, p...)
		case opcode:
			b = append(b, byte(p))
		case string:
			b = append(b, byte(opBinUnicode))
			b = append(binary.LittleEndian.AppendUint32(b, uint32(len(p))), p...)
		case int:
			b = appendParts(b, []any{int64(p)})
		case int64:
			if p == int64(int32(p)) {
				b = binary.LittleEndian.AppendUint32(append(b, byte(opBinInt)), uint32(p))
			} else {
				b = binary.LittleEndian.AppendUint64(append(b, byte(opLong1), 8), uint64(p))
			}
		case tuple:
			b = append(appendParts(append(b, byte(opMark)), p), byte(opTuple))
		case nil:
			b = append(b, byte(opNone))
		}
	}
	return b
}

func call(module, name string, args ...any) code {
	b := append(code{byte(opGlobal)}, module+"\n"+name+"\n"...)
	return append(appendParts(b, []any{tuple(args)}), byte(opReduce))
}

func globalCode(module, name string) code {
	return append(code{byte(opGlobal)}, module+"\n"+name+"\n"...)
}

// storageCode is a storage by its persistent id.
func storageCode(class, key string, numel int64) code {
	module := "torch"
	if class == "UntypedStorage" {
		module += ".storage"
	}
	return append(appendParts(nil, []any{tuple{"storage", globalCode(module, class), key, "cpu", numel}}), byte(opBinPersID))
}

// tensorCode is _rebuild_tensor_v2 over a storage.
func tensorCode(storage code, offset int64, size, stride tuple) code {
	return call("torch._utils", "_rebuild_tensor_v2", storage, offset, size, stride, code{byte(opNewFalse)}, call("collections", "OrderedDict"))
}

func dictCode(pairs ...any) code {
	b := appendParts(code{byte(opEmptyDict), byte(opMark)}, pairs)
	return append(b, byte(opSetItems))
}

// entry is a record of an archive that a test writes, with all that it may lie
// about.
type entry struct {
	name           string
	data           []byte
	method         uint16
	size           *uint32 // in the directory, where it is not that of the data
	compressed     *uint32
	crc            *uint32
	header         *uint32
	flags          uint16
	disk           uint16
	extra          []byte // of the directory
	localName      string
	localMethod    *uint16
	localSize      *uint32
	localExtra     []byte
	localSignature []byte
}

func u32(n uint32) *uint32 { return &n }

func or[T any](p *T, v T) T {
	if p != nil {
		return *p
	}
	return v
}

// zipped writes an archive. Edits of its end are for the caller, who finds it
// sizeEnd before the last byte.
func zipped(entries ...entry) []byte {
	var file, directory []byte
	for _, e := range entries {
		packed := e.data
		if e.method == deflated {
			packed = deflate(e.data)
		}
		at := uint32(len(file))
		sum := crc32.ChecksumIEEE(e.data)
		localName := e.name
		if e.localName != "" {
			localName = e.localName
		}
		signature := []byte("PK\x03\x04")
		if e.localSignature != nil {
			signature = e.localSignature
		}
		file = append(file, signature...)
		file = le.AppendUint16(file, 20)
		file = le.AppendUint16(file, e.flags)
		file = le.AppendUint16(file, or(e.localMethod, e.method))
		file = append(file, 0, 0, 0, 0)
		file = le.AppendUint32(file, sum)
		file = le.AppendUint32(file, uint32(len(packed)))
		file = le.AppendUint32(file, or(e.localSize, uint32(len(e.data))))
		file = le.AppendUint16(file, uint16(len(localName)))
		file = le.AppendUint16(file, uint16(len(e.localExtra)))
		file = append(append(append(file, localName...), e.localExtra...), packed...)

		directory = append(directory, "PK\x01\x02\x14\x00\x14\x00"...)
		directory = le.AppendUint16(directory, e.flags)
		directory = le.AppendUint16(directory, e.method)
		directory = append(directory, 0, 0, 0, 0)
		directory = le.AppendUint32(directory, or(e.crc, sum))
		directory = le.AppendUint32(directory, or(e.compressed, uint32(len(packed))))
		directory = le.AppendUint32(directory, or(e.size, uint32(len(e.data))))
		directory = le.AppendUint16(directory, uint16(len(e.name)))
		directory = le.AppendUint16(directory, uint16(len(e.extra)))
		directory = le.AppendUint16(directory, 0)
		directory = le.AppendUint16(directory, e.disk)
		directory = append(directory, 0, 0, 0, 0, 0, 0)
		directory = le.AppendUint32(directory, or(e.header, at))
		directory = append(append(directory, e.name...), e.extra...)
	}
	start := uint32(len(file))
	file = append(file, directory...)
	file = append(file, "PK\x05\x06\x00\x00\x00\x00"...)
	file = le.AppendUint16(file, uint16(len(entries)))
	file = le.AppendUint16(file, uint16(len(entries)))
	file = le.AppendUint32(file, uint32(len(directory)))
	file = le.AppendUint32(file, start)
	return append(file, 0, 0)
}

func deflate(data []byte) []byte {
	var b bytes.Buffer
	w, _ := flate.NewWriter(&b, flate.BestCompression)
	_, _ = w.Write(data)
	_ = w.Close()
	return b.Bytes()
}

// archived is a checkpoint of a pickle and storages that are called 0, 1, ….
func archived(pickle []byte, storages ...[]byte) []byte {
	entries := []entry{{name: "x/data.pkl", data: pickle}}
	for i, s := range storages {
		entries = append(entries, entry{name: "x/data/" + string(rune('0'+i)), data: s})
	}
	return zipped(entries...)
}

// memory is a file in memory.
type memory struct{ *bytes.Reader }

func newMemory(data []byte) memory { return memory{bytes.NewReader(data)} }

func (m memory) WithBytes(fn func([]byte) error) error {
	data := make([]byte, m.Size())
	if _, err := m.ReadAt(data, 0); err != nil {
		return err
	}
	return fn(data)
}

func (m memory) Close() error { return nil }

// loaded is a tensor and what reads its bytes.
type loaded struct {
	placed
	io.ReaderAt
}

// openBytes is Open without a file.
func openBytes(data []byte) ([]loaded, error) {
	c, err := read(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, err
	}
	tensors, err := c.layout()
	if err != nil {
		return nil, err
	}
	readers, err := newReaders(tensors, func() (lender, error) { return newMemory(data), nil })
	if err != nil {
		return nil, err
	}
	out := make([]loaded, len(tensors))
	for i, t := range tensors {
		if readers[i] == nil {
			readers[i] = io.NewSectionReader(bytes.NewReader(data), t.offset, t.view.size)
		}
		out[i] = loaded{t, readers[i]}
	}
	return out, nil
}

func (l *loaded) bytes(t testing.TB) []byte {
	b := make([]byte, l.view.size)
	if len(b) == 0 {
		return b
	}
	n, err := l.ReadAt(b, 0)
	if n < len(b) {
		require.NoError(t, err)
	}
	return b
}

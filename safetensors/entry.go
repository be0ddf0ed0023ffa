package safetensors

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Entry is a tensor to write: row-major (C order), little-endian. Its bytes are
// in Data or, to avoid holding them in memory until they are written, produced
// by Write.
type Entry struct {
	Name  string
	DType DType
	Shape []int // empty for a scalar
	Data  []byte
	// Write writes exactly the bytes of the tensor. If it is set, Data is nil.
	Write func(w io.Writer) error
}

// Size returns the number of bytes implied by shape and dtype. It fails with
// ErrDType, ErrShape, ErrOverflow and ErrPartialByte.
func (e *Entry) Size() (int64, error) {
	if e.DType.Bits() == 0 {
		return 0, tensorError(e.Name, ErrDType, e.DType.String(), "")
	}
	elements := elementCount{n: 1}
	for _, d := range e.Shape {
		if d < 0 {
			return 0, tensorError(e.Name, ErrShape, fmt.Sprint(e.Shape), "no negative dimension")
		}
		elements.times(uint64(d))
	}
	size, whole, overflow := elements.bytes(e.DType)
	switch {
	case overflow || int64(size) < 0:
		return 0, tensorError(e.Name, ErrOverflow, fmt.Sprint(e.DType, e.Shape), "")
	case !whole:
		return 0, tensorError(e.Name, ErrPartialByte, fmt.Sprint(e.DType, e.Shape), "")
	}
	return int64(size), nil
}

// layout is the position of everything in a file to write.
type layout struct {
	order  []int   // indices of the entries, in the order of the file
	sizes  []int64 // data sizes, in the same order
	header []byte  // length, JSON and padding
	size   int64   // size of the file
}

// newLayout checks the entries and orders them as the Hugging Face writer does:
// by dtype, descending, then by name.
func newLayout(entries []Entry, metadata map[string]string) (*layout, error) {
	l := &layout{order: make([]int, len(entries)), sizes: make([]int64, len(entries))}
	for i := range l.order {
		l.order[i] = i
	}
	slices.SortFunc(l.order, func(i, j int) int {
		a, b := &entries[i], &entries[j]
		if a.DType != b.DType {
			return int(b.DType) - int(a.DType)
		}
		return strings.Compare(a.Name, b.Name)
	})
	for place, i := range l.order {
		e := &entries[i]
		size, err := e.Size()
		switch {
		case err != nil:
			return nil, err
		case e.Name == metadataKey:
			return nil, tensorError(e.Name, ErrEntry, "a reserved name", "")
		case !utf8.ValidString(e.Name):
			return nil, tensorError(e.Name, ErrUTF8, "", "")
		case e.Write != nil && e.Data != nil:
			return nil, tensorError(e.Name, ErrEntry, "both Data and Write", "one of them")
		case e.Write == nil && int64(len(e.Data)) != size:
			return nil, tensorError(e.Name, ErrSize, byteCount(uint64(len(e.Data))), byteCount(uint64(size))+" for "+fmt.Sprint(e.DType, e.Shape))
		}
		l.sizes[place] = size
		l.size += size
		if l.size < 0 {
			return nil, tensorError(e.Name, ErrOverflow, "a file of more than 2^63 bytes", "")
		}
	}
	if err := checkUnique(entries); err != nil {
		return nil, err
	}
	return l, l.encodeHeader(entries, metadata)
}

func checkUnique(entries []Entry) error {
	records := make([]record, len(entries))
	for i := range entries {
		records[i].name = entries[i].Name
	}
	var names nameIndex
	if i := names.build(records); i >= 0 {
		return tensorError(entries[i].Name, ErrDuplicateTensor, "", "")
	}
	return nil
}

// encodeHeader writes the header byte for byte as the Hugging Face writer does:
// compact JSON, metadata first, padded with spaces to a multiple of 8. The keys
// of the metadata are sorted; the reference leaves their order unspecified.
func (l *layout) encodeHeader(entries []Entry, metadata map[string]string) error {
	estimate := lengthSize + 8
	for i := range entries {
		estimate += len(entries[i].Name) + 96
	}
	b := append(make([]byte, 0, estimate), "\x00\x00\x00\x00\x00\x00\x00\x00{"...)
	if metadata != nil {
		var err error
		if b, err = appendMetadata(b, metadata); err != nil {
			return err
		}
		if len(entries) > 0 {
			b = append(b, ',')
		}
	}
	var begin int64
	for place, i := range l.order {
		if place > 0 {
			b = append(b, ',')
		}
		e := &entries[i]
		b = appendJSONString(b, e.Name)
		b = append(b, `:{"dtype":"`...)
		b = append(b, e.DType.String()...)
		b = append(b, `","shape":[`...)
		for j, d := range e.Shape {
			if j > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendInt(b, int64(d), 10)
		}
		b = append(b, `],"data_offsets":[`...)
		b = strconv.AppendInt(b, begin, 10)
		b = append(b, ',')
		begin += l.sizes[place]
		b = strconv.AppendInt(b, begin, 10)
		b = append(b, "]}"...)
	}
	b = append(b, '}')
	for len(b)%8 != 0 {
		b = append(b, ' ')
	}
	n := len(b) - lengthSize
	if n > maxHeader {
		return &FormatError{Rule: ErrHeaderTooLarge, Found: byteCount(uint64(n)), Expected: "at most " + strconv.Itoa(maxHeader)}
	}
	putLength(b, n)
	l.header = b
	l.size += int64(len(b))
	return nil
}

func appendMetadata(b []byte, metadata map[string]string) ([]byte, error) {
	keys := make([]string, 0, len(metadata))
	for key, value := range metadata {
		if !utf8.ValidString(key) || !utf8.ValidString(value) {
			return nil, &FormatError{Rule: ErrUTF8, Found: "metadata " + quote(key) + ": " + quote(value)}
		}
		keys = append(keys, key)
	}
	slices.Sort(keys)
	b = append(b, `"`+metadataKey+`":{`...)
	for i, key := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendJSONString(b, key)
		b = append(b, ':')
		b = appendJSONString(b, metadata[key])
	}
	return append(b, '}'), nil
}

// appendJSONString appends s as a JSON string. It escapes only the characters
// that JSON requires to be escaped, in the shortest form, as Rust's serde_json
// does.
func appendJSONString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	start := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		b = append(b, s[start:i]...)
		start = i + 1
		if short := strings.IndexByte("\b\f\n\r\t\"\\", c); short >= 0 {
			b = append(b, '\\', `bfnrt"\`[short])
		} else {
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	b = append(b, s[start:]...)
	return append(b, '"')
}

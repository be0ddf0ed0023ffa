package safetensors

import (
	"cmp"
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"unicode/utf8"
)

const (
	lengthSize  = 8           // size of the length field at the start of a file
	maxHeader   = 100_000_000 // bytes of JSON, the limit of the reference
	metadataKey = "__metadata__"
)

// header is the parsed header of a file.
type header struct {
	text     []byte // the JSON; records and names point into it
	records  []record
	names    nameIndex
	metadata map[string]string // nil if the file has none
}

// record is the entry of one tensor in the header. Its dimensions stay in the
// text, checked, and are parsed on demand, so the memory of a header is bounded
// by its length.
type record struct {
	name       string
	begin, end uint64 // offsets in the data, which follows the header
	shapeAt    uint32 // offset of the shape's array in the text
	rank       uint32
	dtype      DType
}

// headerLength checks the first eight bytes of a file of the given size and
// returns the length of the header.
func headerLength(first []byte, fileSize int64) (int64, error) {
	if fileSize < lengthSize || len(first) < lengthSize {
		return 0, &FormatError{Rule: ErrHeaderTooSmall, Found: byteCount(uint64(fileSize)), Expected: "at least 8"}
	}
	n := binary.LittleEndian.Uint64(first)
	if n > maxHeader {
		return 0, &FormatError{Rule: ErrHeaderTooLarge, Found: byteCount(n), Expected: "at most " + strconv.Itoa(maxHeader)}
	}
	if int64(n) > fileSize-lengthSize {
		return 0, &FormatError{Rule: ErrHeaderPastEnd, Found: byteCount(n), Expected: "at most the " + byteCount(uint64(fileSize-lengthSize)) + " that follow"}
	}
	return int64(n), nil
}

// parseHeader parses the JSON and checks it against every rule of the format;
// dataSize bytes follow the header. The header retains text.
func parseHeader(text []byte, dataSize uint64) (*header, error) {
	if !utf8.Valid(text) {
		return nil, &FormatError{Rule: ErrUTF8, Found: "invalid bytes", Offset: lengthSize + int64(firstInvalid(text))}
	}
	h := &header{text: text, records: make([]record, 0, len(text)/100)}
	if err := h.read(); err != nil {
		return nil, err
	}
	if !contiguous(h.records) {
		slices.SortStableFunc(h.records, byPlace)
	}
	if duplicate := h.names.build(h.records); duplicate >= 0 {
		return nil, tensorError(h.records[duplicate].name, ErrDuplicateTensor, "", "")
	}
	if err := checkLayout(h.records, dataSize); err != nil {
		return nil, err
	}
	return h, nil
}

// contiguous reports whether each tensor begins where the previous one ends.
// Such records are sorted.
func contiguous(records []record) bool {
	var end uint64
	for i := range records {
		if records[i].begin != end {
			return false
		}
		end = records[i].end
	}
	return true
}

func byPlace(a, b record) int {
	return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end))
}

// read parses the text into records, in the order of the text, and metadata.
func (h *header) read() error {
	s := &scanner{text: h.text, base: lengthSize}
	last := F32
	err := s.object(func(key string) error {
		if key == metadataKey {
			return h.readMetadata(s)
		}
		h.records = append(h.records, record{name: key})
		r := &h.records[len(h.records)-1]
		if !r.readPlain(s, last) {
			if err := r.read(s); err != nil {
				return ofTensor(err, key)
			}
		}
		last = r.dtype
		return nil
	})
	if err == nil {
		err = s.end()
	}
	return err
}

func (h *header) readMetadata(s *scanner) error {
	if h.metadata != nil {
		return s.fail(ErrDuplicateMetadata, "one "+metadataKey)
	}
	h.metadata = map[string]string{}
	if s.peek() != '{' {
		return s.fail(ErrMetadata, "an object")
	}
	return s.object(func(key string) error {
		if s.peek() != '"' {
			return s.fail(ErrMetadata, "a string for the key "+quote(key))
		}
		value, err := s.string()
		if err != nil {
			return err
		}
		if _, ok := h.metadata[key]; ok {
			return s.failAt(s.pos, ErrDuplicateMetadata, "a second "+quote(key), "")
		}
		h.metadata[key] = value
		return nil
	})
}

// read parses the description of a tensor and checks the rules for a single
// tensor.
func (r *record) read(s *scanner) error {
	if s.peek() != '{' {
		return s.fail(ErrTensorInfo, "an object")
	}
	var seen struct{ dtype, shape, offsets bool }
	var elements elementCount
	err := s.object(func(key string) error {
		var field *bool
		switch key {
		case "dtype":
			field = &seen.dtype
		case "shape":
			field = &seen.shape
		case "data_offsets":
			field = &seen.offsets
		default: // unknown fields are ignored
			return s.skip(2)
		}
		if *field {
			return s.fail(ErrDuplicateField, "one "+key)
		}
		*field = true
		switch key {
		case "dtype":
			return readDType(s, &r.dtype)
		case "shape":
			return r.readShape(s, &elements)
		default:
			return r.readOffsets(s)
		}
	})
	switch {
	case err != nil:
		return err
	case !seen.dtype:
		return s.failAt(s.pos, ErrMissingField, "", "dtype")
	case !seen.shape:
		return s.failAt(s.pos, ErrMissingField, "", "shape")
	case !seen.offsets:
		return s.failAt(s.pos, ErrMissingField, "", "data_offsets")
	}
	return r.checkSize(elements, s.text)
}

func readDType(s *scanner, d *DType) error {
	if s.peek() != '"' {
		return s.fail(ErrDType, "a string")
	}
	at := s.pos
	name, err := s.string()
	if err != nil {
		return err
	}
	if *d = dtypeNamed(name); *d == Invalid {
		return s.failAt(at, ErrDType, quote(name), "")
	}
	return nil
}

func (r *record) readShape(s *scanner, elements *elementCount) error {
	if s.peek() != '[' {
		return s.fail(ErrShape, "an array")
	}
	r.shapeAt, r.rank = uint32(s.pos), 0
	*elements = elementCount{n: 1}
	return s.array(func() error {
		d, err := s.unsigned(ErrShape)
		r.rank++
		elements.times(d)
		return err
	})
}

func (r *record) readOffsets(s *scanner) error {
	if s.peek() != '[' {
		return s.fail(ErrOffsets, "an array")
	}
	at := s.pos
	n := 0
	err := s.array(func() (err error) {
		switch n++; n {
		case 1:
			r.begin, err = s.unsigned(ErrOffsets)
		case 2:
			r.end, err = s.unsigned(ErrOffsets)
		default:
			err = s.fail(ErrOffsets, "two numbers")
		}
		return err
	})
	if err == nil && n != 2 {
		err = s.failAt(at, ErrOffsets, strconv.Itoa(n)+" numbers", "two")
	}
	return err
}

// elementCount is a product of dimensions, multiplied from left to right.
type elementCount struct {
	n        uint64
	overflow bool // the product overflows, or a dimension exceeds int
}

func (c *elementCount) times(d uint64) {
	hi, lo := bits.Mul64(c.n, d)
	c.n = lo
	c.overflow = c.overflow || hi != 0 || d > math.MaxInt
}

// bytes returns the size of c.n elements of d, rounded down, and whether the
// size is an integral number of bytes.
func (c elementCount) bytes(d DType) (size uint64, ok, overflow bool) {
	hi, lo := bits.Mul64(c.n, uint64(d.Bits()))
	return lo / 8, lo%8 == 0, c.overflow || hi != 0
}

// checkSize compares the size of the data with the size implied by shape and
// dtype.
func (r *record) checkSize(elements elementCount, text []byte) error {
	size, whole, overflow := elements.bytes(r.dtype)
	var rule error
	switch {
	case overflow:
		rule = ErrOverflow
	case !whole:
		rule = ErrPartialByte
	case r.begin > r.end:
		return &FormatError{Rule: ErrReversed, Found: interval(r.begin, r.end)}
	case r.end-r.begin != size:
		return &FormatError{Rule: ErrSize,
			Found: byteCount(r.end - r.begin), Expected: byteCount(size) + " for " + r.dtype.String() + r.shapeText(text)}
	default:
		return nil
	}
	return &FormatError{Rule: rule, Found: r.dtype.String() + r.shapeText(text)}
}

// checkLayout checks that the sorted tensors cover the data without gaps or
// overlaps.
func checkLayout(records []record, dataSize uint64) error {
	var end uint64
	for i := range records {
		switch r := &records[i]; {
		case r.begin > end:
			return tensorError(r.name, ErrHole, "data at "+interval(r.begin, r.end), "a beginning at "+strconv.FormatUint(end, 10))
		case r.begin < end:
			return tensorError(r.name, ErrOverlap, "data at "+interval(r.begin, r.end), "a beginning at "+strconv.FormatUint(end, 10)+
				", where "+quote(records[i-1].name)+" ends")
		default:
			end = r.end
		}
	}
	switch {
	case end > dataSize:
		return &FormatError{Rule: ErrTruncated, Found: byteCount(dataSize) + " of data", Expected: strconv.FormatUint(end, 10)}
	case end < dataSize:
		return &FormatError{Rule: ErrTrailing, Found: byteCount(dataSize) + " of data", Expected: strconv.FormatUint(end, 10)}
	}
	return nil
}

// appendShape appends the dimensions of r to dims.
func (h *header) appendShape(dims []int, r *record) []int {
	s := scanner{text: h.text, pos: int(r.shapeAt)}
	for range r.rank {
		s.pos++ // '[' or ','
		s.space()
		d, _ := s.unsigned(ErrShape) // parsed without error before
		s.space()
		dims = append(dims, int(d))
	}
	return dims
}

// shapeText returns the shape as written in the header, for error messages.
func (r *record) shapeText(text []byte) string {
	const most = 100
	shape := text[r.shapeAt:]
	if len(shape) > most {
		shape = shape[:most]
	}
	if end := slices.Index(shape, ']'); end >= 0 {
		return string(shape[:end+1])
	}
	return string(shape) + "…"
}

// ofTensor adds the tensor's name to an error of the scanner.
func ofTensor(err error, name string) error {
	if f, ok := err.(*FormatError); ok {
		f.Tensor, f.ofTensor = name, true
	}
	return err
}

func firstInvalid(text []byte) int {
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && size == 1 {
			return i
		}
		i += size
	}
	return len(text)
}

func byteCount(n uint64) string {
	if n == 1 {
		return "1 byte"
	}
	return strconv.FormatUint(n, 10) + " bytes"
}

func interval(begin, end uint64) string {
	return "[" + strconv.FormatUint(begin, 10) + ", " + strconv.FormatUint(end, 10) + ")"
}

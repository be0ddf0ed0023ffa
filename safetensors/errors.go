package safetensors

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Errors for the rules of the format. A file that breaks one is rejected with a
// *FormatError that wraps it.
var (
	ErrNotRegular        = errors.New("not a regular file")
	ErrHeaderTooSmall    = errors.New("file is too short for the length of the header")
	ErrHeaderTooLarge    = errors.New("header is too long")
	ErrHeaderPastEnd     = errors.New("header goes past the end of the file")
	ErrUTF8              = errors.New("text is not valid UTF-8")
	ErrSyntax            = errors.New("not a valid JSON object")
	ErrDepth             = errors.New("JSON is nested too deeply")
	ErrMetadata          = errors.New("__metadata__ is not an object of strings")
	ErrDuplicateMetadata = errors.New("metadata is given twice")
	ErrDuplicateTensor   = errors.New("tensor is given twice")
	ErrDuplicateField    = errors.New("field is given twice")
	ErrTensorInfo        = errors.New("description of a tensor is not an object")
	ErrMissingField      = errors.New("field is missing")
	ErrDType             = errors.New("unknown dtype")
	ErrShape             = errors.New("shape is not an array of unsigned integers")
	ErrOffsets           = errors.New("data_offsets is not a pair of unsigned integers")
	ErrReversed          = errors.New("data ends before it begins")
	ErrOverflow          = errors.New("size of the tensor overflows")
	ErrPartialByte       = errors.New("size is not a whole number of bytes")
	ErrSize              = errors.New("size of the data is not that of the shape")
	ErrHole              = errors.New("unused bytes before the data")
	ErrOverlap           = errors.New("data overlaps another tensor's")
	ErrTruncated         = errors.New("file is cut short")
	ErrTrailing          = errors.New("file goes on after the last tensor")
)

// Errors in the index of a sharded model.
var (
	ErrIndex        = errors.New("bad index of shards")
	ErrShardPath    = errors.New("shard is not a file of tensors inside the folder of the index")
	ErrMissingShard = errors.New("shard is missing")
)

// Errors of using files and views.
var (
	ErrNotFound    = errors.New("no such tensor")
	ErrClosed      = errors.New("file is closed")
	ErrInUse       = errors.New("file is in use")
	ErrFault       = errors.New("file could not be read")
	ErrElementType = errors.New("element type does not fit the dtype")
	ErrAlignment   = errors.New("misaligned data")
	ErrByteOrder   = errors.New("little-endian data cannot be viewed in place on a big-endian machine")
	ErrRange       = errors.New("out of range")
	ErrEntry       = errors.New("entry cannot be written")
	ErrBadSize     = errors.New("not a number of bytes")
)

// FormatError describes a violation of the format by a file or by the entries
// of a file to be written.
type FormatError struct {
	Path     string // file, if known
	Tensor   string // name of the tensor, empty if the error does not concern one
	Rule     error  // one of the errors of this package
	Found    string
	Expected string
	Offset   int64   // byte offset in the file of a header that cannot be read, 0 for other errors
	Foreign  Foreign // actual format of the file, if its first bytes show it

	ofTensor bool // Tensor is set; needed because the empty name is valid
}

// Error returns a line with the file, the tensor, the rule, the value found, the
// value expected, and the actual format of the file.
func (e *FormatError) Error() string {
	var b strings.Builder
	b.WriteString("safetensors: ")
	if e.Path != "" {
		b.WriteString(e.Path + ": ")
	}
	if e.ofTensor || e.Tensor != "" {
		b.WriteString("tensor " + quote(e.Tensor) + ": ")
	}
	b.WriteString(e.Rule.Error())
	if e.Offset != 0 {
		fmt.Fprintf(&b, " at byte %d", e.Offset)
	}
	switch {
	case e.Found != "" && e.Expected != "":
		b.WriteString(": found " + e.Found + ", expected " + e.Expected)
	case e.Found != "":
		b.WriteString(": found " + e.Found)
	case e.Expected != "":
		b.WriteString(": expected " + e.Expected)
	}
	if e.Foreign != Unrecognized {
		b.WriteString("; it is " + e.Foreign.String())
	}
	return b.String()
}

// Unwrap returns the broken rule.
func (e *FormatError) Unwrap() error { return e.Rule }

// withPath adds path to a FormatError that does not have one.
func withPath(err error, path string) error {
	var f *FormatError
	if errors.As(err, &f) && f.Path == "" {
		f.Path = path
	}
	return err
}

func tensorError(name string, rule error, found, expected string) error {
	return &FormatError{Tensor: name, ofTensor: true, Rule: rule, Found: found, Expected: expected}
}

// NotFoundError is the error of a failed Lookup; it wraps ErrNotFound. Similar
// names are searched only when the message is built, so trying a name is cheap.
type NotFoundError struct {
	Path string // file, or index of shards
	Name string
	// Shard is the shard that should hold the tensor according to the index, if
	// any.
	Shard string

	names func() []string
}

// Error returns a message with the tensor, the file and the nearest names.
func (e *NotFoundError) Error() string {
	msg := "safetensors: " + e.Path + ": tensor " + quote(e.Name) + ": " + ErrNotFound.Error()
	if e.Shard != "" {
		msg += ": the index places it in " + e.Shard + ", which does not hold it"
	}
	near := e.Nearest()
	for i := range near {
		near[i] = quote(near[i])
	}
	if len(near) > 0 {
		msg += "; nearest: " + strings.Join(near, ", ")
	}
	return msg
}

// Unwrap returns ErrNotFound.
func (e *NotFoundError) Unwrap() error { return ErrNotFound }

// Nearest returns the names closest to the requested one, three at most.
func (e *NotFoundError) Nearest() []string {
	if e.names == nil {
		return nil
	}
	return nearest(e.Name, e.names(), 3)
}

// quote quotes s and truncates it: a hostile file may contain very long
// strings.
func quote(s string) string {
	const most = 200
	if len(s) <= most {
		return strconv.Quote(s)
	}
	return strconv.Quote(s[:most]) + "… (" + strconv.Itoa(len(s)) + " bytes)"
}

package torchfile

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Errors of rejected files. A *FormatError wraps one of these.
var (
	ErrNotTorch    = errors.New("not a file that torch.save has written")
	ErrUnsupported = errors.New("not supported")
	ErrTruncated   = errors.New("cut short")
	ErrZip         = errors.New("bad zip archive")
	ErrRecord      = errors.New("record is missing")
	ErrChecksum    = errors.New("wrong checksum")
	ErrPickle      = errors.New("bad pickle")
	ErrOpcode      = errors.New("opcode is not allowed")
	ErrGlobal      = errors.New("global is not allowed")
	ErrStorage     = errors.New("storage does not have the size that it claims")
	ErrBounds      = errors.New("tensor reaches out of its storage")
	ErrDType       = errors.New("dtype has no counterpart in safetensors")
	ErrName        = errors.New("tensor has no usable name")
	ErrLimit       = errors.New("more than is read") // a limit in the package comment is exceeded
	ErrChanged     = errors.New("file changed while it was opened")
)

// FormatError describes an error in a file and its position.
type FormatError struct {
	Path     string // file, if known
	Record   string // record of the zip archive, or part of a legacy file
	Tensor   string // name of the tensor, empty if the error does not concern one
	Opcode   string // name of the pickle opcode, empty if the error does not concern one
	Offset   int64  // offset of the opcode in the record
	Rule     error  // one of the errors of this package
	Found    string
	Expected string
}

// Error returns a line with the file, the record, the tensor, the rule, the
// position, the value found and the value expected.
func (e *FormatError) Error() string {
	var b strings.Builder
	b.WriteString("torchfile: ")
	if e.Path != "" {
		b.WriteString(e.Path + ": ")
	}
	if e.Record != "" {
		b.WriteString(e.Record + ": ")
	}
	if e.Tensor != "" {
		b.WriteString("tensor " + quote(e.Tensor) + ": ")
	}
	b.WriteString(e.Rule.Error())
	if e.Opcode != "" {
		fmt.Fprintf(&b, " at byte %d (%s)", e.Offset, e.Opcode)
	}
	switch {
	case e.Found != "" && e.Expected != "":
		b.WriteString(": found " + e.Found + ", expected " + e.Expected)
	case e.Found != "":
		b.WriteString(": found " + e.Found)
	case e.Expected != "":
		b.WriteString(": expected " + e.Expected)
	}
	return b.String()
}

// Unwrap returns the broken rule.
func (e *FormatError) Unwrap() error { return e.Rule }

// withPath adds path to an error that does not have one.
func withPath(err error, path string) error {
	var f *FormatError
	if errors.As(err, &f) {
		if f.Path == "" {
			f.Path = path
		}
		return err
	}
	return fmt.Errorf("torchfile: %s: %w", path, err)
}

func inRecord(record string, rule error, found, expected string) error {
	return &FormatError{Record: record, Rule: rule, Found: found, Expected: expected}
}

func ofTensor(name string, rule error, found, expected string) error {
	return &FormatError{Tensor: name, Rule: rule, Found: found, Expected: expected}
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

func byteCount(n int64) string { return strconv.FormatInt(n, 10) + " bytes" }

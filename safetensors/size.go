package safetensors

import (
	"fmt"
	"math"
	"math/bits"
	"regexp"
	"strconv"
	"strings"
)

// sizePattern matches a decimal number in the syntax of Python's float, and a
// unit.
var sizePattern = regexp.MustCompile(strings.ReplaceAll(`^\+?((?:D\.?D?|\.D)(?:[eE][+-]?D)?)\s*([a-zA-Z]*)$`, "D", `(?:\d+(?:_\d+)*)`))

var sizeUnits = map[string]uint64{
	"": 1, "B": 1,
	"KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
	"KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40,
}

// ParseSize parses a human-readable number of bytes: "5GB" is 5·10⁹, as in the
// Hugging Face libraries, "5GiB" is 5·2³⁰, "123" and "123B" are bytes.
// Fractions such as "1.5GB" and exponents are truncated to whole bytes after
// the multiplication. Case does not matter, so bits are not supported.
//
// It returns the same results as huggingface_hub for every size of at least one
// byte, including rounded fractions ("8.2GB" is 8199999999), except that
// integers beyond 2⁵³ are exact. Anything else (no number, another unit, less
// than one byte, more than 2⁶³-1) fails with ErrBadSize.
func ParseSize(s string) (int64, error) {
	m := sizePattern.FindStringSubmatch(strings.TrimSpace(s))
	if m == nil {
		return 0, sizeError(s)
	}
	number := strings.ReplaceAll(m[1], "_", "")
	unit, ok := sizeUnits[strings.ToUpper(m[2])]
	if !ok {
		return 0, sizeError(s)
	}
	// Parse integers exactly: a float64 is inexact beyond 2⁵³.
	if whole, err := strconv.ParseUint(number, 10, 64); err == nil {
		hi, lo := bits.Mul64(whole, unit)
		if hi != 0 || lo == 0 || lo > math.MaxInt64 {
			return 0, sizeError(s)
		}
		return int64(lo), nil
	}
	x, err := strconv.ParseFloat(number, 64)
	x *= float64(unit)
	if err != nil || !(x >= 1 && x < 1<<63) {
		return 0, sizeError(s)
	}
	return int64(x), nil
}

func sizeError(s string) error {
	return fmt.Errorf("safetensors: %s: %w: expected one of at least a byte, such as 5GB, 1.5GiB, 500MB or 4096", quote(s), ErrBadSize)
}

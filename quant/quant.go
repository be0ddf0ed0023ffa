// Package quant keeps weights in few bits: blocks of 64 elements with one scale
// each, made from floats or read as bitsandbytes has saved them.
//
// The element types are those of package tensor: Q8 has signed 8-bit codes, NF4
// the 4-bit NormalFloat of QLoRA (Dettmers et al. 2023, arXiv 2305.14314), FP4 a
// 4-bit float. A matrix is cut into blocks as it lies in memory, row by row, and
// so is the one of bitsandbytes: a block of NF4 or FP4 has the codes and the
// scale that bitsandbytes gives it. In memory a block is its codes followed by
// its scale, a float32: element j of Q8 is byte j; of the 4-bit types byte j
// holds element j in its lower half, and element 32+j in the upper one.
package quant

import (
	"errors"
	"fmt"
	"strings"

	"github.com/lorafuse/lorafuse/internal/suggest"
	"github.com/lorafuse/lorafuse/tensor"
)

// Errors that the functions of this package wrap.
var (
	ErrMethod    = errors.New("unknown quantization")
	ErrDType     = errors.New("not a quantized element type")
	ErrLength    = errors.New("wrong length")
	ErrNotFinite = errors.New("not finite")
	// ErrFormat: not what bitsandbytes writes, or what it writes for settings
	// that are not supported.
	ErrFormat = errors.New("bad quantized weight")
)

// Method is a way to make weights smaller when a model is loaded.
type Method string

// The methods.
const (
	None Method = "none"
	Int8 Method = "int8" // Q8: 8.5 bits per weight
	Bit4 Method = "nf4"  // NF4: 4.5 bits per weight
	Fp8  Method = "fp8"  // F8_E4M3 and a scale for each row: 8 bits per weight
)

// Methods lists the names of all methods.
func Methods() []string { return []string{string(None), string(Int8), string(Bit4), string(Fp8)} }

// ParseMethod finds a method by its name; the empty name is None. It fails with
// ErrMethod.
func ParseMethod(name string) (Method, error) {
	switch m := Method(name); m {
	case None, Int8, Bit4, Fp8:
		return m, nil
	case "":
		return None, nil
	}
	return None, fmt.Errorf("%w: %s", ErrMethod, suggest.Expected(name, Methods()))
}

// UnmarshalText is ParseMethod.
func (m *Method) UnmarshalText(text []byte) (err error) {
	*m, err = ParseMethod(string(text))
	return err
}

// DType is the element type that the method gives weights, Invalid for None.
func (m Method) DType() tensor.DType {
	switch m {
	case Int8:
		return tensor.Q8
	case Bit4:
		return tensor.NF4
	case Fp8:
		return tensor.F8E4M3
	}
	return tensor.Invalid
}

// Name is the name that people know a quantised type by: int8, nf4, fp4 or fp8.
func Name(d tensor.DType) string {
	switch d {
	case tensor.Q8:
		return string(Int8)
	case tensor.F8E4M3:
		return string(Fp8)
	}
	return strings.ToLower(d.String())
}

// checkLength reports whether n elements of type d take so many bytes.
func checkLength(n, bytes int, d tensor.DType) error {
	if !d.Quantized() {
		return fmt.Errorf("quant: %v: %w", d, ErrDType)
	}
	if want := d.Bytes(n); bytes != want {
		return fmt.Errorf("quant: %d elements of %v take %d bytes, found %d: %w", n, d, want, bytes, ErrLength)
	}
	return nil
}

// Package quant stores weights in 8 or 4 bits: blocks of 64 elements with one
// scale each, quantized from floats or loaded from bitsandbytes checkpoints.
//
// The element types are defined in package tensor: Q8 has signed 8-bit codes,
// NF4 is the 4-bit NormalFloat of QLoRA (Dettmers et al. 2023, arXiv
// 2305.14314), FP4 a 4-bit float. The elements of a matrix are divided into
// blocks in memory order, row by row, as in bitsandbytes, so a block of NF4 or
// FP4 has the same codes and scale there. In memory a block is its codes
// followed by its scale, a float32. For Q8, byte j is element j. For the 4-bit
// types, byte j holds element j in its lower half and element 32+j in the upper
// one.
//
// Blocks of other programs ([tensor.DType.Foreign]) are only decoded: those of GGUF
// files, as ggml decodes them, and Z4 and Z8.
package quant

import (
	"errors"
	"fmt"
	"strings"

	"github.com/lorafuse/lorafuse/internal/suggest"
	"github.com/lorafuse/lorafuse/tensor"
)

// Errors wrapped by the functions of this package.
var (
	ErrMethod    = errors.New("unknown quantization")
	ErrDType     = errors.New("not a quantized element type")
	ErrLength    = errors.New("wrong length")
	ErrNotFinite = errors.New("not finite")
	// ErrFormat reports a weight that bitsandbytes does not write, or writes
	// only with unsupported settings.
	ErrFormat = errors.New("bad quantized weight")
)

// Method is a quantization method that is applied when a model is loaded.
type Method string

// The methods.
const (
	None Method = "none"
	Int8 Method = "int8" // Q8: 8.5 bits per weight
	Bit4 Method = "nf4"  // NF4: 4.5 bits per weight
	Fp8  Method = "fp8"  // F8_E4M3 with one scale per row: 8 bits per weight
)

// Methods returns the names of all methods.
func Methods() []string { return []string{string(None), string(Int8), string(Bit4), string(Fp8)} }

// ParseMethod returns the method with the given name; the empty name is None.
// It fails with ErrMethod.
func ParseMethod(name string) (Method, error) {
	switch m := Method(name); m {
	case None, Int8, Bit4, Fp8:
		return m, nil
	case "":
		return None, nil
	}
	return None, fmt.Errorf("%w: %s", ErrMethod, suggest.Expected(name, Methods()))
}

// UnmarshalText implements encoding.TextUnmarshaler with ParseMethod.
func (m *Method) UnmarshalText(text []byte) (err error) {
	*m, err = ParseMethod(string(text))
	return err
}

// DType returns the element type of quantized weights, Invalid for None.
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

// Name returns the common name of a quantized type: int8, nf4, fp4 or fp8.
func Name(d tensor.DType) string {
	switch d {
	case tensor.Q8:
		return string(Int8)
	case tensor.F8E4M3:
		return string(Fp8)
	}
	return strings.ToLower(d.String())
}

// checkLength checks that n elements of type d take the given number of bytes.
func checkLength(n, bytes int, d tensor.DType) error {
	if !d.Quantized() {
		return fmt.Errorf("quant: %v: %w", d, ErrDType)
	}
	if want := d.Bytes(n); bytes != want {
		return fmt.Errorf("quant: %d elements of %v take %d bytes, found %d: %w", n, d, want, bytes, ErrLength)
	}
	return nil
}

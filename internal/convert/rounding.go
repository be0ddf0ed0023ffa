package convert

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/lorafuse/lorafuse/tensor"
)

// precision is the resolution of a float type: its explicit mantissa bits, the
// exponent of its smallest normal number, and its largest number.
type precision struct {
	mantissa, minExp int
	most             float64
}

// Types returns the element types that weights can be converted to, the most
// common ones first.
func Types() []tensor.DType {
	return []tensor.DType{
		tensor.F32, tensor.BF16, tensor.F16, tensor.F64, tensor.F8E4M3, tensor.F8E5M2,
	}
}

// precisions holds the types that weights can be converted from and to.
// Sources: IEEE 754; Micikevicius et al., arXiv 2209.05433, table 1.
var precisions = map[tensor.DType]precision{
	tensor.F64:    {52, -1022, math.MaxFloat64},
	tensor.F32:    {23, -126, math.MaxFloat32},
	tensor.BF16:   {7, -126, 0x1.fep127},
	tensor.F16:    {10, -14, 65504},
	tensor.F8E5M2: {2, -14, 57344},
	tensor.F8E4M3: {3, -6, 448},
}

// limit returns the smallest number that overflows the type: half a unit in the
// last place above the largest number.
func (p precision) limit() float64 {
	_, exp := math.Frexp(p.most)
	return p.most + math.Ldexp(1, exp-1-p.mantissa-1)
}

// rounding summarizes the errors of a conversion for some elements.
type rounding struct {
	precision precision // of the new type

	most      float64 // the largest error
	largest   float64 // the largest absolute value that was finite and stayed so
	overflow  int64
	underflow int64
}

func (r *rounding) reset() { *r = rounding{precision: r.precision} }

func (r *rounding) add(o *rounding) {
	r.most, r.largest = max(r.most, o.most), max(r.largest, o.largest)
	r.overflow += o.overflow
	r.underflow += o.underflow
}

// measure is scratch memory for comparing a chunk before and after the
// conversion.
type measure struct {
	narrow [2][]float32
	wide   [2][]float64
}

// compare measures the conversion of the elements in to out. It fails with
// ErrVerify if an error exceeds that of rounding.
func (m *measure) compare(t *target, in, out []byte) (rounding, error) {
	r := rounding{precision: t.rounding.precision}
	n := len(in) / t.from.Size()
	if t.from != tensor.F64 && t.to != tensor.F64 {
		a, b := grown(&m.narrow[0], n), grown(&m.narrow[1], n)
		if err := tensor.ToFloat32(a, in, t.from); err != nil {
			return r, err
		}
		if err := tensor.ToFloat32(b, out, t.to); err != nil {
			return r, err
		}
		return r, compare(&r, a, b)
	}
	a, b := grown(&m.wide[0], n), grown(&m.wide[1], n)
	if err := m.widen(a, in, t.from); err != nil {
		return r, err
	}
	if err := m.widen(b, out, t.to); err != nil {
		return r, err
	}
	return r, compare(&r, a, b)
}

// widen reads elements as float64, which represents them all. It does not use
// the conversion that it verifies.
func (m *measure) widen(dst []float64, data []byte, d tensor.DType) error {
	if d == tensor.F64 {
		for i := range dst {
			dst[i] = math.Float64frombits(binary.LittleEndian.Uint64(data[8*i:]))
		}
		return nil
	}
	x := grown(&m.narrow[0], len(dst))
	if err := tensor.ToFloat32(x, data, d); err != nil {
		return err
	}
	for i, v := range x {
		dst[i] = float64(v)
	}
	return nil
}

func grown[T any](s *[]T, n int) []T {
	if cap(*s) < n {
		*s = make([]T, n)
	}
	return (*s)[:n]
}

// compare compares elements of a with their converted values.
func compare[T float32 | float64](r *rounding, a, b []T) error {
	// Half a unit in the last place is at most share relative to the number,
	// and this much below the normal numbers.
	share := math.Ldexp(1, -r.precision.mantissa-1)
	least := math.Ldexp(1, r.precision.minExp-r.precision.mantissa-1)
	limit := r.precision.limit()
	var most, largest float64
	b = b[:len(a)]
	for i := range a {
		x, y := float64(a[i]), float64(b[i])
		size, d := math.Abs(x), math.Abs(x-y) // branchless: a branch on the sign would be mispredicted half of the time
		if !(size <= limit && d <= math.MaxFloat64) {
			if err := r.special(x, y); err != nil {
				return err
			}
			continue
		}
		if size > largest {
			largest = size
		}
		if d > most {
			if d > max(size*share, least) {
				return fmt.Errorf("%v became %v: %w", x, y, ErrVerify)
			}
			most = d
		}
		if y == 0 && x != 0 {
			r.underflow++
		}
	}
	r.most, r.largest = most, largest
	return nil
}

// special compares x and y if one of them is not finite or x is out of range.
func (r *rounding) special(x, y float64) error {
	beyond := math.Abs(x) >= r.precision.limit()
	switch {
	case x == y, x != x && y != y:
		return nil
	case beyond && (y != y || y == math.Inf(sign(x)) || y == math.Copysign(r.precision.most, x)):
		r.overflow++
		return nil
	}
	return fmt.Errorf("%v became %v: %w", x, y, ErrVerify)
}

func sign(x float64) int {
	if x < 0 {
		return -1
	}
	return 1
}

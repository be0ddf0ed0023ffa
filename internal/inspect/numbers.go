package inspect

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"

	"github.com/lorafuse/lorafuse/safetensors"
	"github.com/lorafuse/lorafuse/tensor"
)

// kind is the method of comparing elements of two types without rounding.
type kind int

const (
	asFloat32 kind = iota // types of at most 16 bits, and F32
	asFloat64             // also F64, I32, U32
	asWhole               // integers; one of the types is I64 or U64
	asComplex             // C64
	asBytes               // types with unknown values: equal bytes, or rejected
)

// mix returns the kind for two types.
func mix(a, b safetensors.DType) (kind, error) {
	both := [2]safetensors.DType{a, b}
	k := asFloat32
	integers := 0
	for _, d := range both {
		switch d {
		case safetensors.F64, safetensors.I32, safetensors.U32, safetensors.I64, safetensors.U64:
			k = asFloat64
		case safetensors.C64:
			if a != b {
				return 0, fmt.Errorf("%v and %v: %w", a, b, ErrDType)
			}
			return asComplex, nil
		case safetensors.F32:
		default:
			if valuesOf(d) == nil && a == b {
				return asBytes, nil
			}
			if valuesOf(d) == nil {
				return 0, fmt.Errorf("%v: %w", d, ErrDType)
			}
		}
		if isInteger(d) {
			integers++
		}
	}
	if integers == 2 && (is64(a) || is64(b)) {
		k = asWhole
	}
	return k, nil
}

func is64(d safetensors.DType) bool { return d == safetensors.I64 || d == safetensors.U64 }

func isInteger(d safetensors.DType) bool {
	switch d {
	case safetensors.Bool, safetensors.U8, safetensors.I8, safetensors.U16, safetensors.I16, safetensors.U32, safetensors.I32, safetensors.U64, safetensors.I64:
		return true
	}
	return false
}

// block compares n elements of types p and q.
func (w *comparer) block(g *gap, k kind, x, y []byte, p, q safetensors.DType, n int) error {
	switch k {
	case asFloat32:
		w.narrow[0], w.narrow[1] = resize(w.narrow[0], n), resize(w.narrow[1], n)
		if err := toFloat32(w.narrow[0], x, p); err != nil {
			return err
		}
		if err := toFloat32(w.narrow[1], y, q); err != nil {
			return err
		}
		compareFloats(g, w.narrow[0], w.narrow[1])
	case asFloat64:
		w.wide[0], w.wide[1] = resize(w.wide[0], n), resize(w.wide[1], n)
		if err := toFloat64(w.wide[0], x, p); err != nil {
			return err
		}
		if err := toFloat64(w.wide[1], y, q); err != nil {
			return err
		}
		compareFloats(g, w.wide[0], w.wide[1])
	case asWhole:
		w.whole[0], w.whole[1] = resize(w.whole[0], n), resize(w.whole[1], n)
		toWhole(w.whole[0], x, p)
		toWhole(w.whole[1], y, q)
		compareWhole(g, w.whole[0], w.whole[1])
	case asComplex:
		compareComplex(g, x, y)
	}
	return nil
}

func toFloat32(dst []float32, data []byte, d safetensors.DType) error {
	t, err := tensor.ParseDType(d.String())
	if err != nil {
		return err
	}
	return tensor.ToFloat32(dst, data, t)
}

// toFloat64 converts any type except C64. Only I64 and U64 are rounded; they
// reach this function only when compared with floats.
func toFloat64(dst []float64, data []byte, d safetensors.DType) error {
	t, err := tensor.ParseDType(d.String())
	if err != nil {
		return err
	}
	return tensor.ToFloat64(dst, data, t)
}

// compareFloats adds the differences between x and y to g. The difference of two
// float64 numbers is 0 only if they are equal.
func compareFloats[T float32 | float64](g *gap, x, y []T) {
	var largest float64
	differ, most := int64(0), -1.0
	y = y[:len(x)]
	for i := range x {
		p, q := float64(x[i]), float64(y[i])
		size, d := math.Abs(p), math.Abs(p-q) // branchless: a branch on the sign would be mispredicted half of the time
		if size > largest && size <= math.MaxFloat64 {
			largest = size
		}
		if d <= most {
			if d != 0 {
				differ++
			}
			continue
		}
		if p == q || p != p && q != q { // also for subtracted infinities
			continue
		}
		if !(d <= math.MaxFloat64) {
			d = math.Inf(1)
		}
		differ++
		if d > most {
			most, g.at = d, int64(i)
		}
	}
	g.differ, g.most, g.largest = differ, max(most, 0), largest
}

// found records that element i differs by d.
func (g *gap) found(i int, d float64) {
	if g.differ == 0 || d > g.most {
		g.most, g.at = d, int64(i)
	}
	g.differ++
}

// whole is a signed or unsigned integer of up to 64 bits.
type whole struct {
	negative bool
	size     uint64
}

func toWhole(dst []whole, data []byte, d safetensors.DType) {
	for i := range dst {
		dst[i] = wholeAt(data, i, d)
	}
}

func wholeAt(data []byte, i int, d safetensors.DType) whole {
	var signed int64
	switch d {
	case safetensors.U64:
		return whole{false, binary.LittleEndian.Uint64(data[8*i:])}
	case safetensors.I64:
		signed = int64(binary.LittleEndian.Uint64(data[8*i:]))
	case safetensors.U32:
		signed = int64(binary.LittleEndian.Uint32(data[4*i:]))
	case safetensors.I32:
		signed = int64(int32(binary.LittleEndian.Uint32(data[4*i:])))
	case safetensors.U16:
		signed = int64(binary.LittleEndian.Uint16(data[2*i:]))
	case safetensors.I16:
		signed = int64(int16(binary.LittleEndian.Uint16(data[2*i:])))
	case safetensors.I8:
		signed = int64(int8(data[i]))
	case safetensors.Bool:
		signed = min(1, int64(data[i]))
	default:
		signed = int64(data[i])
	}
	if signed < 0 {
		return whole{true, -uint64(signed)}
	}
	return whole{false, uint64(signed)}
}

// minus returns |w-o|, rounded once.
func (w whole) minus(o whole) float64 {
	switch {
	case w.negative != o.negative:
		return float64(w.size) + float64(o.size)
	case w.size > o.size:
		return float64(w.size - o.size)
	}
	return float64(o.size - w.size)
}

func compareWhole(g *gap, x, y []whole) {
	largest := uint64(0)
	for i, p := range x {
		largest = max(largest, p.size)
		if q := y[i]; p != q {
			g.found(i, p.minus(q))
		}
	}
	g.largest = max(g.largest, float64(largest))
}

func compareComplex(g *gap, x, y []byte) {
	for i := range len(x) / 8 {
		p, q := complexAt(x, i), complexAt(y, i)
		if size := math.Hypot(real(p), imag(p)); size-size == 0 {
			g.largest = max(g.largest, size)
		}
		if same(real(p), real(q)) && same(imag(p), imag(q)) {
			continue
		}
		d := math.Hypot(distance(real(p), real(q)), distance(imag(p), imag(q)))
		g.found(i, d)
	}
}

func complexAt(data []byte, i int) complex128 {
	re, im := binary.LittleEndian.Uint32(data[8*i:]), binary.LittleEndian.Uint32(data[8*i+4:])
	return complex(float64(math.Float32frombits(re)), float64(math.Float32frombits(im)))
}

func same(p, q float64) bool { return p == q || p != p && q != q }

// distance returns |p-q|, infinite if exactly one of the two is not finite.
func distance(p, q float64) float64 {
	if same(p, q) {
		return 0
	}
	d := math.Abs(p - q)
	if d != d {
		return math.Inf(1)
	}
	return d
}

// text formats one element with enough digits to distinguish it from its
// neighbors.
func text(v *safetensors.View, at int64) (string, error) {
	var data []byte
	// Elements smaller than a byte are read together with the elements in the same
	// bytes.
	first, count := at, int64(1)
	if v.DType.Bits()%8 != 0 {
		first, count = at&^3, min(4, elements(v.Shape)-at&^3)
	}
	result := ""
	err := lendElements(v, first, count, &data, func(data []byte) error {
		switch d := v.DType; {
		case d == safetensors.C64:
			z := complexAt(data, 0)
			result = strconv.FormatComplex(z, 'g', 9, 128)
		case isInteger(d):
			w := wholeAt(data, 0, d)
			result = strconv.FormatUint(w.size, 10)
			if w.negative {
				result = "-" + result
			}
		case d == safetensors.F64:
			result = strconv.FormatFloat(math.Float64frombits(binary.LittleEndian.Uint64(data)), 'g', 17, 64)
		default:
			x := make([]float32, count)
			if err := toFloat32(x, data, d); err != nil {
				return err
			}
			result = strconv.FormatFloat(float64(x[at-first]), 'g', 9, 64)
		}
		return nil
	})
	return result, err
}

// Comparable reports whether Compare supports elements of these types.
func Comparable(a, b safetensors.DType) bool {
	_, err := mix(a, b)
	return err == nil
}

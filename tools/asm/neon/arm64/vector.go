package arm64

import "fmt"

// Register fields: destination, first and second source.
var (
	fieldsDN  = []uint{0, 5}
	fieldsDNM = []uint{0, 5, 16}
)

// shape is an arrangement of lanes.
type shape string

const (
	s4  shape = "4s"
	b16 shape = "16b"
	h8  shape = "8h"
	d2  shape = "2d"
)

// three emits d = op(n, m), or d = op(d, n, m).
func (f *Func) three(word uint32, name string, s shape, d, n, m V) {
	f.Word(word, []V{d, n, m}, fieldsDNM, fmt.Sprintf("%s v%%v.%s, v%%v.%s, v%%v.%s", name, s, s, s), d, n, m)
}

// two emits d = op(n).
func (f *Func) two(word uint32, name, to, from string, d, n V) {
	f.Word(word, []V{d, n}, fieldsDN, fmt.Sprintf("%s v%%v.%s, v%%v.%s", name, to, from), d, n)
}

// lane emits d = op(n, m[i]), or d = op(d, n, m[i]).
func (f *Func) lane(word uint32, name string, d, n, m V, i int) {
	f.Word(word|uint32(i&1)<<21|uint32(i>>1)<<11, []V{d, n, m}, fieldsDNM,
		fmt.Sprintf("%s v%%v.4s, v%%v.4s, v%%v.s[%d]", name, i), d, n, m)
}

// Float32 arithmetic, d = n op m. Max and Min return NaN if one operand is NaN.
func (f *Func) FAdd(d, n, m V) { f.three(0x4e20d400, "fadd", s4, d, n, m) }
func (f *Func) FSub(d, n, m V) { f.three(0x4ea0d400, "fsub", s4, d, n, m) }
func (f *Func) FMul(d, n, m V) { f.three(0x6e20dc00, "fmul", s4, d, n, m) }
func (f *Func) FDiv(d, n, m V) { f.three(0x6e20fc00, "fdiv", s4, d, n, m) }
func (f *Func) FMax(d, n, m V) { f.three(0x4e20f400, "fmax", s4, d, n, m) }
func (f *Func) FMin(d, n, m V) { f.three(0x4ea0f400, "fmin", s4, d, n, m) }

// FAddPairs adds neighbours: pairs of n to the lower half of d, pairs of m to the upper.
func (f *Func) FAddPairs(d, n, m V) { f.three(0x6e20d400, "faddp", s4, d, n, m) }

// FMulAdd computes d += n·m and FMulSub d −= n·m, rounded once.
func (f *Func) FMulAdd(d, n, m V) { f.three(0x4e20cc00, "fmla", s4, d, n, m) }
func (f *Func) FMulSub(d, n, m V) { f.three(0x4ea0cc00, "fmls", s4, d, n, m) }

// Multiplications with lane i of m in all lanes.
func (f *Func) FMulLane(d, n, m V, i int)    { f.lane(0x4f809000, "fmul", d, n, m, i) }
func (f *Func) FMulAddLane(d, n, m V, i int) { f.lane(0x4f801000, "fmla", d, n, m, i) }
func (f *Func) FMulSubLane(d, n, m V, i int) { f.lane(0x4f805000, "fmls", d, n, m, i) }

// FSqrt computes d = √n; FRound rounds to the nearest integer, ties to even, and FToInt converts with the same
// rounding.
func (f *Func) FSqrt(d, n V)  { f.two(0x6ea1f800, "fsqrt", "4s", "4s", d, n) }
func (f *Func) FRound(d, n V) { f.two(0x4e218800, "frintn", "4s", "4s", d, n) }
func (f *Func) FToInt(d, n V) { f.two(0x4e21a800, "fcvtns", "4s", "4s", d, n) }

// FEqual sets the lanes in which n = m.
func (f *Func) FEqual(d, n, m V) { f.three(0x4e20e400, "fcmeq", s4, d, n, m) }

// FromHalf widens the lower 4 float16 of n, FromHalf2 the upper; FromBrain and FromBrain2 widen bfloat16.
func (f *Func) FromHalf(d, n V)  { f.two(0x0e217800, "fcvtl", "4s", "4h", d, n) }
func (f *Func) FromHalf2(d, n V) { f.two(0x4e217800, "fcvtl2", "4s", "8h", d, n) }
func (f *Func) FromBrain(d, n V) {
	f.Word(0x2e613800, []V{d, n}, fieldsDN, "shll v%v.4s, v%v.4h, #16", d, n)
}
func (f *Func) FromBrain2(d, n V) {
	f.Word(0x6e613800, []V{d, n}, fieldsDN, "shll2 v%v.4s, v%v.8h, #16", d, n)
}

// ToHalf rounds to 4 float16 in the lower half of d and clears the upper;
// ToHalf2 fills the upper.
func (f *Func) ToHalf(d, n V)  { f.two(0x0e216800, "fcvtn", "4h", "4s", d, n) }
func (f *Func) ToHalf2(d, n V) { f.two(0x4e216800, "fcvtn2", "8h", "4s", d, n) }

// 32-bit integer operations. NotLess is unsigned, Greater signed.
func (f *Func) Add(d, n, m V)     { f.three(0x4ea08400, "add", s4, d, n, m) }
func (f *Func) Sub(d, n, m V)     { f.three(0x6ea08400, "sub", s4, d, n, m) }
func (f *Func) NotLess(d, n, m V) { f.three(0x6ea03c00, "cmhs", s4, d, n, m) }
func (f *Func) Greater(d, n, m V) { f.three(0x4ea03400, "cmgt", s4, d, n, m) }

// 32-bit shifts: ShiftRight is unsigned, SignRight signed.
func (f *Func) ShiftLeft(d, n V, by int)  { f.shift(0x4f005400, 32+by, "shl", by, d, n) }
func (f *Func) ShiftRight(d, n V, by int) { f.shift(0x6f000400, 64-by, "ushr", by, d, n) }
func (f *Func) SignRight(d, n V, by int)  { f.shift(0x4f000400, 64-by, "sshr", by, d, n) }

func (f *Func) shift(word uint32, code int, name string, by int, d, n V) {
	f.Word(word|uint32(code)<<16, []V{d, n}, fieldsDN, fmt.Sprintf("%s v%%v.4s, v%%v.4s, #%d", name, by), d, n)
}

// MulLow and MulHigh compute the 64-bit products of the lower and of the upper two lanes.
func (f *Func) MulLow(d, n, m V) {
	f.Word(0x2ea0c000, []V{d, n, m}, fieldsDNM, "umull v%v.2d, v%v.2s, v%v.2s", d, n, m)
}
func (f *Func) MulHigh(d, n, m V) {
	f.Word(0x6ea0c000, []V{d, n, m}, fieldsDNM, "umull2 v%v.2d, v%v.4s, v%v.4s", d, n, m)
}

// Bitwise operations. Select computes d = n where d is set, m elsewhere.
func (f *Func) And(d, n, m V)    { f.three(0x4e201c00, "and", b16, d, n, m) }
func (f *Func) Or(d, n, m V)     { f.three(0x4ea01c00, "orr", b16, d, n, m) }
func (f *Func) Xor(d, n, m V)    { f.three(0x6e201c00, "eor", b16, d, n, m) }
func (f *Func) Select(d, n, m V) { f.three(0x6e601c00, "bsl", b16, d, n, m) }

// Move computes d = n, Zero d = 0.
func (f *Func) Move(d, n V) { f.Or(d, n, n) }
func (f *Func) Zero(d V)    { f.Word(0x6f00e400, []V{d}, []uint{0}, "movi v%v.2d, #0", d) }

// Even and Odd extract the even and odd words of n, then of m. Transpose and Transpose2 interleave the even or odd
// words of n and m; Transpose64 and Transpose642 interleave doublewords.
func (f *Func) Even(d, n, m V)        { f.three(0x4e801800, "uzp1", s4, d, n, m) }
func (f *Func) Odd(d, n, m V)         { f.three(0x4e805800, "uzp2", s4, d, n, m) }
func (f *Func) Transpose(d, n, m V)   { f.three(0x4e802800, "trn1", s4, d, n, m) }
func (f *Func) Transpose2(d, n, m V)  { f.three(0x4e806800, "trn2", s4, d, n, m) }
func (f *Func) Transpose64(d, n, m V) { f.three(0x4ec02800, "trn1", d2, d, n, m) }
func (f *Func) Transpose642(d, n, m V) {
	f.three(0x4ec06800, "trn2", d2, d, n, m)
}

// OddHalves extracts the odd halfwords of n, then of m.
func (f *Func) OddHalves(d, n, m V) { f.three(0x4e405800, "uzp2", h8, d, n, m) }

// Square transposes the 4×4 words in r. It uses four more registers and returns the registers of the result.
func (f *Func) Square(r, tmp [4]V) [4]V {
	f.Transpose(tmp[0], r[0], r[1])
	f.Transpose2(tmp[1], r[0], r[1])
	f.Transpose(tmp[2], r[2], r[3])
	f.Transpose2(tmp[3], r[2], r[3])
	f.Transpose64(r[0], tmp[0], tmp[2])
	f.Transpose64(r[1], tmp[1], tmp[3])
	f.Transpose642(r[2], tmp[0], tmp[2])
	f.Transpose642(r[3], tmp[1], tmp[3])
	return r
}

// Spread broadcasts lane i of n to all lanes.
func (f *Func) Spread(d, n V, i int) {
	f.Word(0x4e000400|uint32(i<<3|4)<<16, []V{d, n}, fieldsDN, fmt.Sprintf("dup v%%v.4s, v%%v.s[%d]", i), d, n)
}

// SpreadWord broadcasts the lower word of r to all lanes, PutWord inserts it into lane i, and PutDouble inserts r into
// half i.
func (f *Func) SpreadWord(d V, r R) {
	f.Word(0x4e040c00|uint32(r)<<5, []V{d}, []uint{0}, "dup v%v.4s, w%d", d, int(r))
}
func (f *Func) PutWord(d V, i int, r R) {
	f.Word(0x4e001c00|uint32(i<<3|4)<<16|uint32(r)<<5, []V{d}, []uint{0}, "mov v%v.s[%d], w%d", d, i, int(r))
}
func (f *Func) PutDouble(d V, i int, r R) {
	f.Word(0x4e001c00|uint32(i<<4|8)<<16|uint32(r)<<5, []V{d}, []uint{0}, "mov v%v.d[%d], x%d", d, i, int(r))
}

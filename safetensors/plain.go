package safetensors

import (
	"encoding/binary"
	"math/bits"
)

// readPlain reads the description of a tensor that stands in the form in which
// the reference writes it, and nearly everybody else:
//
//	{"dtype":"BF16","shape":[8,4],"data_offsets":[0,64]}
//
// with the fields in this order, nothing wrong with them, and no white space but
// for one after colons and commas, as Python writes it. That takes half the time
// of read, which is for all else: where readPlain returns false it has read
// nothing, and read takes another form, or finds the words for what is wrong.
// last is the type of the tensor before, which is this one's as a rule.
func (r *record) readPlain(s *scanner, last DType) bool {
	text := s.text
	i := literal(text, optionalSpace(text, s.pos), `{"dtype":`)
	if i = literal(text, optionalSpace(text, i), `"`); i < 0 {
		return false
	}
	end := literal(text, i, dtypes[last].name)
	if r.dtype = last; end < 0 {
		end = plainPrefix(text, i)
		if r.dtype = dtypeNamed(s.piece(i, end)); r.dtype == Invalid {
			return false
		}
	}
	i = literal(text, end, `",`)
	i = literal(text, optionalSpace(text, i), `"shape":`)
	if i = literal(text, optionalSpace(text, i), `[`); i < 0 {
		return false
	}
	r.shapeAt = uint32(i - 1)
	elements, rank, i := plainShape(text, i)
	r.rank = rank
	i = literal(text, i, `,`)
	i = literal(text, optionalSpace(text, i), `"data_offsets":`)
	if i = literal(text, optionalSpace(text, i), `[`); i < 0 {
		return false
	}
	if r.begin, i = plainNumber(text, i); i < 0 {
		return false
	}
	if i = optionalSpace(text, literal(text, i, `,`)); i < 0 {
		return false
	}
	if r.end, i = plainNumber(text, i); i < 0 {
		return false
	}
	if i = literal(text, i, `]}`); i < 0 {
		return false
	}
	size, whole, overflow := elements.bytes(r.dtype)
	if overflow || !whole || r.begin > r.end || r.end-r.begin != size {
		return false
	}
	s.pos = i
	return true
}

// plainShape reads an array of numbers after its bracket. It returns the
// position after it, or -1.
func plainShape(text []byte, i int) (elements elementCount, rank uint32, end int) {
	elements.n = 1
	if end = literal(text, i, `]`); end > 0 {
		return elements, 0, end
	}
	for {
		var d uint64
		if d, i = plainNumber(text, i); i < 0 || i == len(text) {
			return elements, 0, -1
		}
		elements.times(d)
		rank++
		switch text[i] {
		case ',':
			i = optionalSpace(text, i+1)
		case ']':
			return elements, rank, i + 1
		default:
			return elements, 0, -1
		}
	}
}

// literal returns the position after a piece of text that must stand at i, or
// -1, also where i is.
func literal(text []byte, i int, piece string) int {
	if end := i + len(piece); i >= 0 && end <= len(text) && string(text[i:end]) == piece {
		return end
	}
	return -1
}

// optionalSpace returns the position after a space at i, or i.
func optionalSpace(text []byte, i int) int {
	if uint(i) < uint(len(text)) && text[i] == ' ' {
		return i + 1
	}
	return i
}

// plainNumber reads a number of at most 15 digits without a leading zero, not
// too close to the end of the text. It returns the position after it, or -1.
//
// All digits of a word are read at once: numbers have so many lengths that a
// loop over their digits costs more in branches predicted wrong than in
// arithmetic.
func plainNumber(text []byte, i int) (n uint64, end int) {
	n, digits := leadingDigits(text, i)
	switch {
	case digits == 0, digits > 1 && text[i] == '0':
		return 0, -1
	case digits < 8:
		return n, i + digits
	}
	powers := [...]uint64{1, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7}
	more, digits := leadingDigits(text, i+8)
	if digits == len(powers) {
		return 0, -1
	}
	return n*powers[digits] + more, i + 8 + digits
}

// leadingDigits is the number that the digits make with which the eight bytes
// at i begin, and how many they are; 0 where the text ends before.
func leadingDigits(text []byte, i int) (n uint64, digits int) {
	const (
		zeros = 0x3030303030303030
		above = 0x7676767676767676 // sets the high bit of a byte from 10 on
		highs = 0x8080808080808080
	)
	if i+8 > len(text) {
		return 0, 0
	}
	w := binary.LittleEndian.Uint64(text[i:]) ^ zeros
	// Carries may set bits above the lowest high bit, but not below it.
	digits = bits.TrailingZeros64((w+above|w)&highs) / 8
	// The last digit goes to the highest byte, with zeros in front of the
	// first; then neighbours are put together: digits, pairs, fours.
	w <<= 64 - 8*digits
	w = w*10 + w>>8
	const (
		pairs  = 0x000000ff000000ff
		first  = 100 + 1000000<<32
		second = 1 + 10000<<32
	)
	return (w&pairs*first + w>>16&pairs*second) >> 32, digits
}

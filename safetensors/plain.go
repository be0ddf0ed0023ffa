package safetensors

import (
	"encoding/binary"
	"math/bits"
)

// readPlain reads the description of a tensor in the form that the reference and
// nearly every other writer use:
//
//	{"dtype":"BF16","shape":[8,4],"data_offsets":[0,64]}
//
// The fields must be in this order and valid, without white space except for one
// space after colons and commas, as Python writes it. It takes half the time of
// read, which handles all other forms. If readPlain returns false, it has
// consumed nothing, and read parses the text or returns the error. last is the
// dtype of the previous tensor, usually the dtype of this one too.
func (r *record) readPlain(s *scanner, last DType) bool {
	text := s.text
	i := literal(text, optionalSpace(text, s.pos), `{"dtype":`)
	if i = literal(text, optionalSpace(text, i), `"`); i < 0 {
		return false
	}
	end := literal(text, i, dtypes[last].name)
	if r.dtype = last; end < 0 {
		end = plainPrefix(text, i)
		if r.dtype = dtypeNamed(s.slice(i, end)); r.dtype == Invalid {
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

// plainShape reads an array of numbers after its opening bracket. It returns
// the position after the array, or -1.
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

// literal returns the position after piece, which must be at position i of the
// text. It returns -1 otherwise, and also if i is -1.
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
// too close to the end of the text. It returns the position after the number,
// or -1.
//
// All digits of a word are parsed at once: the lengths of numbers vary so much
// that a loop over digits spends more time on mispredicted branches than on
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

// leadingDigits returns the number formed by the leading digits of the eight
// bytes at i, and their count. The count is 0 if the text ends earlier.
func leadingDigits(text []byte, i int) (n uint64, digits int) {
	const (
		zeros = 0x3030303030303030
		above = 0x7676767676767676 // sets the high bit of bytes ≥ 10
		highs = 0x8080808080808080
	)
	if i+8 > len(text) {
		return 0, 0
	}
	w := binary.LittleEndian.Uint64(text[i:]) ^ zeros
	// Carries may set bits above the lowest high bit, but not below it.
	digits = bits.TrailingZeros64((w+above|w)&highs) / 8
	// Shift the last digit to the highest byte, with zeros before the first,
	// then combine neighbours: digits, pairs, fours.
	w <<= 64 - 8*digits
	w = w*10 + w>>8
	const (
		pairs  = 0x000000ff000000ff
		first  = 100 + 1000000<<32
		second = 1 + 10000<<32
	)
	return (w&pairs*first + w>>16&pairs*second) >> 32, digits
}

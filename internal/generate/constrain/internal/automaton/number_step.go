package automaton

// numeralState is a position in a number.
type numeralState struct {
	at       part
	negative bool
	nonzero  bool // a digit was not zero
	digits   int8 // before the point, not counting a single zero
	places   int8 // after the point, or digits of the exponent
	low      int8 // comparison of the digits so far with the bound: -1, 0, 1
	high     int8
	residue  int32
}

type part int8

const (
	beginning part = iota
	signed
	leadingZero
	whole
	point
	fraction
	exponent // after the letter
	exponentSigned
	exponentDigits
)

func (m *numeral) interval(s numeralState) interval {
	if s.negative {
		return m.negative
	}
	return m.positive
}

func (m *numeral) step(s numeralState, b byte) (numeralState, bool) {
	digit := '0' <= b && b <= '9'
	switch s.at {
	case beginning:
		if b == '-' {
			return numeralState{at: signed, negative: true}, !m.negative.none
		}
		fallthrough
	case signed:
		if !digit || m.interval(s).none {
			return s, false
		}
		if b == '0' {
			s.at = leadingZero
			return s, true
		}
		s.at = whole
		return m.wholeDigit(s, b)
	case whole:
		if digit {
			return m.wholeDigit(s, b)
		}
		fallthrough
	case leadingZero:
		switch {
		case b == '.':
			s = m.ended(s)
			s.at = point
			return s, m.places > 0
		case b == 'e' || b == 'E':
			return numeralState{at: exponent, negative: s.negative, nonzero: s.nonzero}, m.exponents
		}
	case point, fraction:
		switch {
		case digit:
			return m.fractionDigit(s, b)
		case b == 'e' || b == 'E':
			return numeralState{at: exponent, negative: s.negative, nonzero: s.nonzero}, m.exponents && s.at == fraction
		}
	case exponent:
		if b == '+' || b == '-' {
			s.at = exponentSigned
			return s, true
		}
		fallthrough
	case exponentSigned, exponentDigits:
		s.at = exponentDigits
		s.places++
		return s, digit && s.places <= 2
	}
	return s, false
}

func (m *numeral) wholeDigit(s numeralState, b byte) (numeralState, bool) {
	i := m.interval(s)
	compare := func(order *int8, with *Bound) {
		if with != nil && *order == 0 && int(s.digits) < len(with.whole) {
			*order = compareDigits(b, with.whole[s.digits])
		}
	}
	compare(&s.low, i.low)
	compare(&s.high, i.high)
	s.digits++
	s.nonzero = true
	s.residue = int32((int(s.residue)*10 + int(b-'0')) % m.modulus)
	return s, int(s.digits) <= m.digits
}

func (m *numeral) fractionDigit(s numeralState, b byte) (numeralState, bool) {
	i := m.interval(s)
	compare := func(order *int8, with *Bound) {
		if with == nil || *order != 0 {
			return
		}
		other := byte('0')
		if int(s.places) < len(with.part) {
			other = with.part[s.places]
		}
		*order = compareDigits(b, other)
	}
	compare(&s.low, i.low)
	compare(&s.high, i.high)
	s.at = fraction
	s.places++
	s.nonzero = s.nonzero || b != '0'
	s.residue = int32((int(s.residue)*10 + int(b-'0')) % m.modulus)
	return s, int(s.places) <= m.places
}

func compareDigits(a, b byte) int8 {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// ended completes the comparison at the end of the digits before the point: a longer number is larger.
func (m *numeral) ended(s numeralState) numeralState {
	i := m.interval(s)
	compare := func(order *int8, with *Bound) {
		switch {
		case with == nil:
		case int(s.digits) < len(with.whole):
			*order = -1
		case int(s.digits) > len(with.whole):
			*order = 1
		}
	}
	compare(&s.low, i.low)
	compare(&s.high, i.high)
	s.digits = 0
	return s
}

func (m *numeral) final(s numeralState) bool {
	switch s.at {
	case leadingZero, whole:
		s = m.ended(s)
	case fraction, exponentDigits:
	default:
		return false
	}
	if s.negative && !s.nonzero {
		return false
	}
	if s.at == exponentDigits {
		return true
	}
	i := m.interval(s)
	reached := func(order int8, b *Bound) int8 {
		if order == 0 && int(s.places) < len(b.part) {
			return -1 // the last digit of its fraction is not zero
		}
		return order
	}
	if i.low != nil {
		if o := reached(s.low, i.low); o < 0 || o == 0 && i.low.Exclusive {
			return false
		}
	}
	if i.high != nil {
		if o := reached(s.high, i.high); o > 0 || o == 0 && i.high.Exclusive {
			return false
		}
	}
	residue := int(s.residue)
	for range m.multiplePlaces - int(s.places) {
		residue = residue * 10 % m.modulus
	}
	return residue == 0
}

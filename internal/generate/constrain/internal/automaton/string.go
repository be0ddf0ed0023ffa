package automaton

import "unicode/utf8"

// String returns an automaton that matches every JSON string, with any escapes; surrogates must be paired. Its
// characters can be counted with its Loop.
func String() *DFA {
	d, err := Build(NewBudget(1<<10), 1, jsonString{}, jsonString.step, func(s jsonString) bool { return s.at == closed })
	if err != nil {
		return &DFA{Loop: Dead} // cannot happen: it has a few dozen states
	}
	d.Loop = d.Next(0, '"')
	return d
}

// jsonString is a position in a JSON string of any value.
type jsonString struct {
	at   place
	left int8 // remaining bytes or digits
	// The next of these must be in the range from lo to hi.
	lo, hi byte
	low    bool // the second half of a surrogate pair must follow, or is being read
	half   bool // the first half is being read
}

func (s jsonString) step(b byte) (jsonString, bool) {
	switch s.at {
	case opening:
		return jsonString{at: within}, b == '"'
	case within:
		next := jsonString{at: inChar, lo: 0x80, hi: 0xBF}
		switch {
		case b == '"':
			return jsonString{at: closed}, true
		case b == '\\':
			return jsonString{at: escaped}, true
		case b < utf8.RuneSelf:
			return s, b >= ' '
		case 0xC2 <= b && b <= 0xDF:
			next.left = 1
		case 0xE0 <= b && b <= 0xEF:
			next.left = 2
			if b == 0xE0 {
				next.lo = 0xA0
			} else if b == 0xED {
				next.hi = 0x9F
			}
		case 0xF0 <= b && b <= 0xF4:
			next.left = 3
			if b == 0xF0 {
				next.lo = 0x90
			} else if b == 0xF4 {
				next.hi = 0x8F
			}
		default:
			return s, false
		}
		return next, true
	case inChar:
		if b < s.lo || b > s.hi {
			return s, false
		}
		if s.left == 1 {
			return jsonString{at: within}, true
		}
		return jsonString{at: inChar, left: s.left - 1, lo: 0x80, hi: 0xBF}, true
	case escaped:
		if b == 'u' {
			return jsonString{at: inHex, left: 4, low: s.low}, true
		}
		_, ok := shortEscape(b)
		return jsonString{at: within}, ok && !s.low
	case inHex:
		return s.hex(b)
	}
	return s, false
}

// hex consumes a digit of \u....; D800 to DBFF start a pair that DC00 to DFFF ends.
func (s jsonString) hex(b byte) (jsonString, bool) {
	if s.left == 0 { // backslash between the halves
		return jsonString{at: escaped, low: true}, b == '\\'
	}
	d, ok := hexDigit(b)
	if !ok {
		return s, false
	}
	switch s.left {
	case 4:
		if s.low && d != 0xD {
			return s, false
		}
		s.half = d == 0xD
	case 3:
		switch {
		case s.low && d < 0xC, !s.low && s.half && d >= 0xC:
			return s, false
		}
		s.half = s.half && d >= 8 && !s.low
	}
	if s.left--; s.left == 0 {
		if s.half {
			return s, true
		}
		return jsonString{at: within}, true
	}
	return s, true
}

package tools

// maxNesting limits the nesting depth of a call's arguments.
const maxNesting = 128

// scanner is a strict incremental scanner of one JSON object.
type scanner struct {
	want   expectation
	nest   []byte // open brackets
	rest   string // remaining letters of true, false or null
	digits int    // missing hex digits of \u
	key    bool   // the string is a member name
}

type expectation int

const (
	wantObject  expectation = iota // the opening brace
	wantValue                      //
	wantItem                       // a value, or ]
	wantName                       // a string
	wantFirst                      // a string, or }
	wantColon                      //
	wantMore                       // a comma or a closing bracket
	inString                       //
	inEscape                       // after a backslash
	inDigits                       // of \u
	inWord                         // true, false, null
	behindMinus                    //
	behindZero                     //
	inInteger                      //
	behindPoint                    //
	inFraction                     //
	behindE                        //
	behindSign                     //
	inExponent                     //
	ended                          //
)

func space(b byte) bool { return b == ' ' || b == '\n' || b == '\t' || b == '\r' }
func digit(b byte) bool { return '0' <= b && b <= '9' }

// step processes a byte and reports whether it is valid at this position.
func (s *scanner) step(b byte) bool {
	switch s.want {
	case wantObject:
		return b == '{' && s.open(b)
	case wantValue, wantItem:
		return space(b) || s.want == wantItem && b == ']' && s.close(b) || s.value(b)
	case wantName, wantFirst:
		if b == '"' {
			s.want, s.key = inString, true
			return true
		}
		return space(b) || s.want == wantFirst && b == '}' && s.close(b)
	case wantColon:
		if b == ':' {
			s.want = wantValue
			return true
		}
		return space(b)
	case wantMore:
		return s.more(b)
	case inString:
		switch {
		case b == '\\':
			s.want = inEscape
		case b == '"' && s.key:
			s.want, s.key = wantColon, false
		case b == '"':
			s.want = wantMore
		}
		return b >= ' '
	case inEscape:
		switch b {
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			s.want = inString
			return true
		case 'u':
			s.want, s.digits = inDigits, 4
			return true
		}
		return false
	case inDigits:
		if s.digits--; s.digits == 0 {
			s.want = inString
		}
		return digit(b) || 'a' <= b|0x20 && b|0x20 <= 'f'
	case inWord:
		if b != s.rest[0] {
			return false
		}
		if s.rest = s.rest[1:]; s.rest == "" {
			s.want = wantMore
		}
		return true
	case ended:
		return false
	}
	return s.number(b)
}

// value processes the first byte of a value.
func (s *scanner) value(b byte) bool {
	switch {
	case b == '{' || b == '[':
		return s.open(b)
	case b == '"':
		s.want = inString
	case b == 't':
		s.want, s.rest = inWord, "rue"
	case b == 'f':
		s.want, s.rest = inWord, "alse"
	case b == 'n':
		s.want, s.rest = inWord, "ull"
	case b == '-':
		s.want = behindMinus
	case b == '0':
		s.want = behindZero
	case digit(b):
		s.want = inInteger
	default:
		return false
	}
	return true
}

// number continues a number or ends it.
func (s *scanner) number(b byte) bool {
	was := s.want
	switch {
	case digit(b):
		switch was {
		case behindMinus:
			if s.want = inInteger; b == '0' {
				s.want = behindZero
			}
		case behindZero:
			return false
		case behindPoint:
			s.want = inFraction
		case behindE, behindSign:
			s.want = inExponent
		}
		return true
	case b == '.' && (was == behindZero || was == inInteger):
		s.want = behindPoint
		return true
	case b|0x20 == 'e' && (was == behindZero || was == inInteger || was == inFraction):
		s.want = behindE
		return true
	case (b == '+' || b == '-') && was == behindE:
		s.want = behindSign
		return true
	case was == behindZero || was == inInteger || was == inFraction || was == inExponent:
		s.want = wantMore
		return s.more(b)
	}
	return false
}

// more processes a byte after a value.
func (s *scanner) more(b byte) bool {
	switch {
	case space(b):
		return true
	case b == ',' && s.nest[len(s.nest)-1] == '{':
		s.want = wantName
		return true
	case b == ',':
		s.want = wantValue
		return true
	}
	return (b == '}' || b == ']') && s.close(b)
}

func (s *scanner) open(b byte) bool {
	if s.want = wantItem; b == '{' {
		s.want = wantFirst
	}
	s.nest = append(s.nest, b)
	return len(s.nest) <= maxNesting
}

func (s *scanner) close(b byte) bool {
	last := len(s.nest) - 1
	if s.nest[last] != b-2 { // the codes of matching brackets differ by two
		return false
	}
	s.nest = s.nest[:last]
	if s.want = wantMore; last == 0 {
		s.want = ended
	}
	return true
}

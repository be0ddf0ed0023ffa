package automaton

import (
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"
)

// ErrNumber is the error for a bound that is not a decimal number or has too many digits.
var ErrNumber = errors.New("number")

// MaxDigits is the maximum number of digits before the point, and after it, unless the bounds need more; an exponent
// has at most two. Every number is then within the range of float64, and a model cannot write digits endlessly.
const MaxDigits = 20

// Decimal is an exact JSON number.
type Decimal struct {
	negative bool
	whole    string // digits before the point, without leading zeros
	part     string // digits after the point, without trailing zeros
}

// ParseDecimal parses a JSON number.
func ParseDecimal(text string) (Decimal, error) {
	var d Decimal
	rest, negative := strings.CutPrefix(text, "-")
	mantissa, exponent := rest, 0
	if i := strings.IndexAny(rest, "eE"); i >= 0 {
		e, err := strconv.Atoi(rest[i+1:])
		if err != nil || e < -maxPlaces || e > maxPlaces {
			return d, fmt.Errorf("%w %s: its exponent is beyond %d", ErrNumber, text, maxPlaces)
		}
		mantissa, exponent = rest[:i], e
	}
	whole, part, _ := strings.Cut(mantissa, ".")
	for _, r := range whole + part {
		if r < '0' || r > '9' {
			return d, fmt.Errorf("%w: %q is none", ErrNumber, text)
		}
	}
	if len(whole)+len(part) > maxPlaces || whole == "" {
		return d, fmt.Errorf("%w: %q has no digits, or more than %d", ErrNumber, text, maxPlaces)
	}
	for ; exponent > 0; exponent-- {
		if part == "" {
			part = "0"
		}
		whole, part = whole+part[:1], part[1:]
	}
	for ; exponent < 0; exponent++ {
		if whole == "" {
			whole = "0"
		}
		whole, part = whole[:len(whole)-1], whole[len(whole)-1:]+part
	}
	d.whole, d.part = strings.TrimLeft(whole, "0"), strings.TrimRight(part, "0")
	d.negative = negative && d.whole+d.part != ""
	return d, nil
}

// maxPlaces is the maximum number of digits of a bound on either side of its point.
const maxPlaces = 64

// String returns d without an exponent.
func (d Decimal) String() string {
	s := d.whole
	if s == "" {
		s = "0"
	}
	if d.part != "" {
		s += "." + d.part
	}
	if d.negative {
		s = "-" + s
	}
	return s
}

// Rat returns the value of d.
func (d Decimal) Rat() *big.Rat {
	r, _ := new(big.Rat).SetString(d.String())
	return r
}

// Bound is one end of a range of numbers.
type Bound struct {
	Decimal
	Exclusive bool
}

// Numbers describes a set of numbers. The zero value means all numbers.
type Numbers struct {
	Integer  bool   // without a decimal point
	Min, Max *Bound // nil: none
	Multiple *big.Rat
}

// Number returns an automaton that matches JSON numbers. They may have an exponent only if they have no bounds, and
// there is no negative zero.
func Number(b *Budget, n Numbers) (*DFA, error) {
	m := &numeral{Numbers: n, digits: MaxDigits, places: MaxDigits, modulus: 1}
	m.exponents = !n.Integer && n.Min == nil && n.Max == nil && n.Multiple == nil
	if n.Multiple != nil {
		if err := m.multiple(n.Multiple); err != nil {
			return nil, err
		}
	}
	for _, x := range []*Bound{n.Min, n.Max} {
		if x != nil {
			m.digits = max(m.digits, len(x.whole)+1)
			if n.Multiple == nil {
				m.places = max(m.places, len(x.part)+1)
			}
		}
	}
	if n.Integer {
		m.places = 0
	}
	m.positive, m.negative = intervalOf(n.Min, n.Max, false), intervalOf(n.Max, n.Min, true)
	return Build(b, computed, numeralState{}, m.step, m.final)
}

// numeral holds the parameters of the automaton of a number.
type numeral struct {
	Numbers
	exponents      bool
	digits, places int // maximum before and after the point
	// A number padded with zeros to multiplePlaces places must be, without its point, a multiple of modulus.
	modulus, multiplePlaces int
	positive, negative      interval // of the digits, by sign
}

// interval limits digits, regardless of their sign.
type interval struct {
	low, high *Bound
	none      bool
}

// intervalOf returns the limits for the digits of one sign. near is the bound closer to zero, far the other one.
func intervalOf(near, far *Bound, negative bool) interval {
	i := interval{high: far, none: far != nil && far.negative != negative}
	if near != nil && near.negative == negative {
		i.low = near
	}
	return i
}

// multiple splits r into an integer and a power of ten.
func (m *numeral) multiple(r *big.Rat) error {
	places, scaled := 0, new(big.Rat).Set(r)
	for !scaled.IsInt() {
		if places++; places > MaxDigits {
			return fmt.Errorf("%w: multipleOf has more than %d places", ErrNumber, MaxDigits)
		}
		scaled.Mul(scaled, big.NewRat(10, 1))
	}
	if !scaled.Num().IsInt64() || scaled.Num().Int64() > 1<<20 {
		return fmt.Errorf("multipleOf: %w", ErrTooLarge)
	}
	m.modulus, m.multiplePlaces, m.places = int(scaled.Num().Int64()), places, places
	return nil
}

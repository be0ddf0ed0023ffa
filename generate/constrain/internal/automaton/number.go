package automaton

import (
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"
)

// ErrNumber is the error for a bound that is no decimal number, or a longer one than
// automata are made for.
var ErrNumber = errors.New("number")

// MaxDigits is the number of digits that a number has at most before its point, and
// behind it, where its bounds do not ask for more; an exponent has two at most. So all
// have a float64 near them, and a model cannot write digits for ever.
const MaxDigits = 20

// A Decimal is a number as JSON writes it, exactly.
type Decimal struct {
	negative bool
	whole    string // digits before the point, without leading zeros
	part     string // digits behind it, without zeros at their end
}

// ParseDecimal reads a JSON number.
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

// maxPlaces bounds the digits of a bound, on either side of its point.
const maxPlaces = 64

// String writes d without an exponent.
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

// Rat is the value of d.
func (d Decimal) Rat() *big.Rat {
	r, _ := new(big.Rat).SetString(d.String())
	return r
}

// A Bound is an end of a range of numbers.
type Bound struct {
	Decimal
	Exclusive bool
}

// Numbers are the numbers that Number matches. The zero value are all.
type Numbers struct {
	Integer  bool   // without a point
	Min, Max *Bound // nil: none
	Multiple *big.Rat
}

// Number matches JSON numbers. They have an exponent only where nothing bounds them,
// and there is no negative zero.
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

// numeral is what the states of a number are followed with.
type numeral struct {
	Numbers
	exponents      bool
	digits, places int // at most, before and behind the point
	// A number with so many places, which it is given zeros for, is a multiple of
	// modulus without its point.
	modulus, multiplePlaces int
	positive, negative      interval // of the digits, by the sign
}

// interval bounds digits without their sign.
type interval struct {
	low, high *Bound
	none      bool
}

// intervalOf is what bounds ask of the digits of one sign: near is the bound towards
// zero, far the other.
func intervalOf(near, far *Bound, negative bool) interval {
	i := interval{high: far, none: far != nil && far.negative != negative}
	if near != nil && near.negative == negative {
		i.low = near
	}
	return i
}

// multiple takes r apart into an integer and a power of ten.
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

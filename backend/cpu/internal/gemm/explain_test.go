package gemm

import (
	"fmt"
	"strings"
)

// Explain returns a description of the way that a call uses on an instruction set, available here or not, and the
// reason; precision is as for [Engine.SetPrecision]. The data of c is not read.
func Explain(isa ISA, precision Elem, c *Call) string {
	s := shapeOf(c, &limitsOf[isa], mode{bf16: precision == BF16})
	return s.explain()
}

// Explain returns a description of the way that c uses, and the reason. The data of c is not read.
func (e *Engine) Explain(c *Call) string {
	s := e.shapeOf(c)
	return s.explain()
}

func (s *shape) explain() string {
	r := s.route()
	return fmt.Sprintf("%s\n\tfor: %s\n\tsince: %s", s.describe(), r.class, r.why)
}

// describe returns the route and the choices within its way.
func (s *shape) describe() string {
	r := s.route()
	if w, ok := r.way.(rowBlocksWay); ok {
		return fmt.Sprintf("%s, %d rows at a time", s.describeWay(r, w.of), w.most(s.limits))
	}
	return s.describeWay(r, r.way)
}

func (s *shape) describeWay(r *route, w way) string {
	switch w := w.(type) {
	case tilesWay:
		return fmt.Sprint(r.name, " ", s.tilesFamily(w.fewColumns))
	case rowsInPlaceWay:
		return r.name + " " + s.describePairs(s.inRowsInPlace)
	case longKWay:
		return r.name + " " + s.describePairs(s.inLongK)
	case fewRowsWay:
		return r.name + " " + s.describePairs(s.inFewRows)
	case fewColumnsWay:
		switch {
		case s.spreads():
			return r.name + " spread"
		case s.rounds && s.limits.stripsPairs:
			return r.name + " strips pairs"
		}
		return r.name + " strips floats"
	case transposeResultWay:
		c := s.transposed(nil)
		inner := shapeOf(&c, s.limits, s.mode)
		return r.name + " of " + inner.describe()
	case panelsWay:
		text := fmt.Sprint(r.name, " ", s.panels())
		if s.thin() {
			text += " thin"
		}
		return text
	}
	return r.name
}

// describePairs returns the kernel of each pair that is multiplied.
func (s *shape) describePairs(by func(p *Pair) by) string {
	var list []string
	for i := range s.Pairs {
		if p := &s.Pairs[i]; !p.idle() {
			list = append(list, by(p).String())
		}
	}
	return strings.Join(list, "+")
}

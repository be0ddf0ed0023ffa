package chat

import (
	"math"
	"math/bits"
	"slices"
	"strings"
)

func (e *binaryExpr) eval(in *interpreter, sc *scope) (any, error) {
	if err := in.step(); err != nil {
		return nil, err
	}
	left, err := e.left.eval(in, sc)
	if err != nil {
		return nil, err
	}
	right, err := e.right.eval(in, sc)
	if err != nil {
		return nil, err
	}
	v, err := in.operate(e.op, left, right)
	return v, in.at(e.line, err)
}

func (e *signExpr) eval(in *interpreter, sc *scope) (any, error) {
	if err := in.step(); err != nil {
		return nil, err
	}
	v, err := e.value.eval(in, sc)
	if err != nil {
		return nil, err
	}
	if f, ok := v.(float64); ok {
		if e.minus {
			f = -f
		}
		return f, nil
	}
	i, ok := integer(v)
	switch {
	case !ok:
		return nil, in.at(e.line, operandError("a sign", v, int64(0)))
	case !e.minus:
		return i, nil
	}
	v, err = intOperation("-", 0, i)
	return v, in.at(e.line, err)
}

func operandError(op string, a, b any) error {
	for _, v := range []any{a, b} {
		if u, ok := v.(*undefined); ok {
			return u.fail()
		}
	}
	return typeError("%s does not go with %s and %s", op, typeName(a), typeName(b))
}

// operate applies a binary operator.
func (in *meter) operate(op string, a, b any) (any, error) {
	if op == "~" {
		s, t := in.text(a), in.text(b)
		return in.joined(s, t)
	}
	if s, ok := a.(string); ok && op == "%" {
		return in.percentFormat(s, b)
	}
	i, aInt := integer(a)
	j, bInt := integer(b)
	if aInt && bInt {
		return intOperation(op, i, j)
	}
	if x, ok := number(a); ok {
		if y, ok := number(b); ok {
			return floatOperation(op, x, y)
		}
	}
	switch op {
	case "+":
		switch a := a.(type) {
		case string:
			if b, ok := b.(string); ok {
				return in.joined(a, b)
			}
		case []any:
			if b, ok := b.([]any); ok {
				return in.concat(a, b)
			}
		case tuple:
			if b, ok := b.(tuple); ok {
				l, err := in.concat(a, b)
				return tuple(l), err
			}
		}
	case "*":
		if aInt {
			a, j, bInt = b, i, true
		}
		if bInt {
			return in.repeat(a, j)
		}
	}
	return nil, operandError(op, a, b)
}

func (in *meter) joined(a, b string) (any, error) {
	if err := in.read(a, b); err != nil {
		return nil, err
	}
	return a + b, nil
}

func (in *meter) concat(a, b []any) ([]any, error) {
	if err := in.spend(int64(len(a)+len(b)), itemBytes); err != nil {
		return nil, err
	}
	return slices.Concat(a, b), nil
}

func (in *meter) repeat(v any, n int64) (any, error) {
	n = max(n, 0)
	switch v := v.(type) {
	case string:
		if v == "" {
			return "", nil
		}
		if err := in.spend(n, int64(len(v))); err != nil {
			return nil, err
		}
		return strings.Repeat(v, int(n)), nil
	case []any:
		return in.repeatList(v, n)
	case tuple:
		list, err := in.repeatList(v, n)
		return tuple(list), err
	}
	return nil, operandError("*", v, n)
}

func (in *meter) repeatList(list []any, n int64) ([]any, error) {
	if len(list) == 0 {
		return []any{}, nil
	}
	if err := in.spend(n, int64(len(list))*itemBytes); err != nil {
		return nil, err
	}
	return slices.Repeat(list, int(n)), nil
}

func intOperation(op string, a, b int64) (any, error) {
	overflow := false
	var v int64
	switch op {
	case "+":
		v = a + b
		overflow = (v > a) != (b > 0) && b != 0
	case "-":
		v = a - b
		overflow = (v < a) != (b > 0) && b != 0
	case "*":
		hi, lo := bits.Mul64(magnitude(a), magnitude(b))
		v = a * b
		overflow = hi != 0 || lo > math.MaxInt64
	case "**":
		return intPower(a, b)
	default:
		if b == 0 {
			return nil, typeError("division by zero")
		}
		switch op {
		case "/":
			return float64(a) / float64(b), nil
		case "//":
			v = a / b
			if a%b != 0 && (a < 0) != (b < 0) {
				v--
			}
		case "%":
			v = a % b
			if v != 0 && (v < 0) != (b < 0) {
				v += b
			}
		}
	}
	if overflow {
		return nil, typeError("%d %s %d is too large", a, op, b)
	}
	return v, nil
}

func magnitude(i int64) uint64 {
	if i < 0 {
		return -uint64(i)
	}
	return uint64(i)
}

func intPower(a, b int64) (any, error) {
	if b < 0 {
		if a == 0 {
			return nil, typeError("division by zero")
		}
		return math.Pow(float64(a), float64(b)), nil
	}
	if a == 0 || a == 1 || a == -1 {
		if b > 0 && (a != -1 || b%2 == 1) {
			return a, nil
		}
		return int64(1), nil
	}
	v := int64(1)
	for range b {
		w, err := intOperation("*", v, a)
		if err != nil {
			return nil, err
		}
		v = w.(int64)
	}
	return v, nil
}

func floatOperation(op string, a, b float64) (any, error) {
	switch op {
	case "+":
		return a + b, nil
	case "-":
		return a - b, nil
	case "*":
		return a * b, nil
	case "**":
		return math.Pow(a, b), nil
	}
	if b == 0 {
		return nil, typeError("division by zero")
	}
	switch op {
	case "/":
		return a / b, nil
	case "//":
		return math.Floor(a / b), nil
	}
	m := math.Mod(a, b)
	if m != 0 && (m < 0) != (b < 0) {
		m += b
	}
	return m, nil
}

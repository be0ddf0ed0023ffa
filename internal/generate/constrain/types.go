package constrain

import "strings"

// types is a set of JSON Schema types. A number has type isNumber, and an integer also isInteger.
type types uint8

const (
	isNull types = 1 << iota
	isBoolean
	isInteger
	isNumber
	isString
	isArray
	isObject

	anyType = isNull | isBoolean | isInteger | isNumber | isString | isArray | isObject
)

var typeNames = []string{"null", "boolean", "integer", "number", "string", "array", "object"}

// typeOf returns the set of types for a type name; number includes integer.
func typeOf(name string) (types, bool) {
	for i, n := range typeNames {
		if n == name {
			t := types(1) << i
			if t == isNumber {
				t |= isInteger
			}
			return t, true
		}
	}
	return 0, false
}

func (t types) String() string {
	var names []string
	for i, n := range typeNames {
		if t&(1<<i) != 0 {
			names = append(names, n)
		}
	}
	return strings.Join(names, " or ")
}

package tools

import (
	"encoding/json"
	"strings"
)

// typeSet is a set of JSON types.
type typeSet uint8

const (
	isNull typeSet = 1 << iota
	isBoolean
	isNumber
	isString
	isArray
	isObject
	anyType = isNull | isBoolean | isNumber | isString | isArray | isObject
)

var typeNames = map[string]typeSet{
	"null": isNull, "boolean": isBoolean, "integer": isNumber, "number": isNumber, "string": isString, "array": isArray, "object": isObject,
}

// types returns a function that reports the types of a parameter of the tool: any if they are
// unknown.
func (t *Tool) types() func(parameter string) typeSet {
	var schema struct {
		Properties map[string]json.RawMessage
	}
	if t == nil || json.Unmarshal(t.Parameters, &schema) != nil {
		return func(string) typeSet { return anyType }
	}
	return func(parameter string) typeSet {
		s := typeSearch{t.Parameters, 100}
		return s.types(schema.Properties[parameter])
	}
}

// typeSearch determines the types that a schema allows.
type typeSearch struct {
	root json.RawMessage
	left int // limit of schemas still to visit
}

// types returns the types that the common keywords of a schema allow, or any if they do not
// restrict it.
func (s *typeSearch) types(schema json.RawMessage) typeSet {
	var v struct {
		Type         json.RawMessage
		Enum         []json.RawMessage
		Const        json.RawMessage
		AnyOf, OneOf []json.RawMessage
		Ref          string `json:"$ref"`
	}
	if s.left--; s.left < 0 || json.Unmarshal(schema, &v) != nil {
		return anyType
	}
	set := typeSet(0)
	switch {
	case v.Ref != "":
		return s.types(resolve(s.root, v.Ref))
	case v.Type != nil:
		var one string
		var several []string
		if json.Unmarshal(v.Type, &one) == nil {
			several = []string{one}
		} else if json.Unmarshal(v.Type, &several) != nil {
			return anyType
		}
		for _, name := range several {
			set |= typeNames[name]
		}
	case v.Const != nil:
		set = typeOf(v.Const)
	case v.Enum != nil:
		for _, e := range v.Enum {
			set |= typeOf(e)
		}
	default:
		for _, sub := range append(v.AnyOf, v.OneOf...) {
			set |= s.types(sub)
		}
	}
	if set == 0 {
		return anyType
	}
	return set
}

func typeOf(value json.RawMessage) typeSet {
	switch value[0] {
	case 'n':
		return isNull
	case 't', 'f':
		return isBoolean
	case '"':
		return isString
	case '[':
		return isArray
	case '{':
		return isObject
	}
	return isNumber
}

// resolve returns the schema that a reference points to, or nil.
func resolve(root json.RawMessage, ref string) json.RawMessage {
	path, ok := strings.CutPrefix(ref, "#")
	if !ok {
		return nil
	}
	for _, part := range strings.Split(path, "/")[1:] {
		var members map[string]json.RawMessage
		if json.Unmarshal(root, &members) != nil {
			return nil
		}
		root = members[strings.NewReplacer("~1", "/", "~0", "~").Replace(part)]
	}
	return root
}

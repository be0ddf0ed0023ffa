package gguf

import (
	"encoding/binary"
	"fmt"
	"math"
	"unicode/utf8"

	"github.com/lorafuse/lorafuse/internal/suggest"
)

// KeyValue is a metadata entry. Value is a uint8, int8, uint16, int16, uint32, int32,
// float32, bool, string, uint64, int64 or float64, or a slice of one of these types.
type KeyValue struct {
	Key   string
	Value any
}

// The types of values, by their numbers in files.
const (
	kindU8 uint32 = iota
	kindI8
	kindU16
	kindI16
	kindU32
	kindI32
	kindF32
	kindBool
	kindString
	kindArray
	kindU64
	kindI64
	kindF64
)

// kindBytes is the number of bytes of a value of each type, at least.
var kindBytes = map[uint32]int{
	kindU8: 1, kindI8: 1, kindU16: 2, kindI16: 2, kindU32: 4, kindI32: 4, kindF32: 4, kindBool: 1, kindString: 8,
	kindU64: 8, kindI64: 8, kindF64: 8,
}

// keyValue reads an entry.
func (p *parser) keyValue() KeyValue {
	kv := KeyValue{Key: p.text()}
	if p.err == nil && (kv.Key == "" || !utf8.ValidString(kv.Key)) {
		p.fail("%w: key %q is not a name", ErrFormat, kv.Key)
	}
	kind := p.u32()
	if p.err != nil {
		return kv
	}
	if kind != kindArray {
		kv.Value = p.value(kv.Key, kind)
		return kv
	}
	element := p.u32()
	size := kindBytes[element]
	if p.err == nil && size == 0 {
		p.fail("%w: key %q is an array of values of type %d", ErrFormat, kv.Key, element)
		return kv
	}
	if p.err != nil {
		return kv
	}
	n := p.count("values of "+kv.Key, size)
	switch element {
	case kindU8:
		kv.Value = list[uint8](p, kv.Key, element, n)
	case kindI8:
		kv.Value = list[int8](p, kv.Key, element, n)
	case kindU16:
		kv.Value = list[uint16](p, kv.Key, element, n)
	case kindI16:
		kv.Value = list[int16](p, kv.Key, element, n)
	case kindU32:
		kv.Value = list[uint32](p, kv.Key, element, n)
	case kindI32:
		kv.Value = list[int32](p, kv.Key, element, n)
	case kindF32:
		kv.Value = list[float32](p, kv.Key, element, n)
	case kindBool:
		kv.Value = list[bool](p, kv.Key, element, n)
	case kindString:
		kv.Value = list[string](p, kv.Key, element, n)
	case kindU64:
		kv.Value = list[uint64](p, kv.Key, element, n)
	case kindI64:
		kv.Value = list[int64](p, kv.Key, element, n)
	case kindF64:
		kv.Value = list[float64](p, kv.Key, element, n)
	}
	return kv
}

// list reads the n values of an array.
func list[T any](p *parser, key string, kind uint32, n int) []T {
	values := make([]T, 0, n)
	for range n {
		v, ok := p.value(key, kind).(T)
		if p.err != nil || !ok {
			return nil
		}
		values = append(values, v)
	}
	return values
}

// value reads a value that is not an array.
func (p *parser) value(key string, kind uint32) any {
	if kind == kindString {
		return p.text()
	}
	size := kindBytes[kind]
	if size == 0 {
		p.fail("%w: key %q has a value of type %d", ErrFormat, key, kind)
		return nil
	}
	b := p.next(uint64(size))
	if b == nil {
		return nil
	}
	switch kind {
	case kindU8:
		return b[0]
	case kindI8:
		return int8(b[0])
	case kindU16:
		return binary.LittleEndian.Uint16(b)
	case kindI16:
		return int16(binary.LittleEndian.Uint16(b))
	case kindU32:
		return binary.LittleEndian.Uint32(b)
	case kindI32:
		return int32(binary.LittleEndian.Uint32(b))
	case kindF32:
		return math.Float32frombits(binary.LittleEndian.Uint32(b))
	case kindBool:
		return b[0] != 0
	case kindU64:
		return binary.LittleEndian.Uint64(b)
	case kindI64:
		return int64(binary.LittleEndian.Uint64(b))
	}
	return math.Float64frombits(binary.LittleEndian.Uint64(b))
}

// Value returns the value of a key, nil if it is missing.
func (f *File) Value(key string) any {
	if i, ok := f.byKey[key]; ok {
		return f.Keys[i].Value
	}
	return nil
}

// Has reports whether the file has a key.
func (f *File) Has(key string) bool { _, ok := f.byKey[key]; return ok }

// missing returns the error for an absent key.
func (f *File) missing(key string) error {
	keys := make([]string, len(f.Keys))
	for i := range f.Keys {
		keys[i] = f.Keys[i].Key
	}
	return fmt.Errorf("gguf: %s: key %q: %w%s", f.Path, key, ErrMissing, suggest.DidYouMean(key, keys))
}

func (f *File) wrong(key, expected string) error {
	if !f.Has(key) {
		return f.missing(key)
	}
	return fmt.Errorf("gguf: %s: %s: %w: found %.60v (%T), expected %s", f.Path, key, ErrValue, f.Value(key), f.Value(key), expected)
}

// Int returns an integer of any type. Errors: ErrMissing, ErrValue.
func (f *File) Int(key string) (int, error) {
	if n, ok := toInt(f.Value(key)); ok {
		return n, nil
	}
	return 0, f.wrong(key, "an integer")
}

func toInt(v any) (int, bool) {
	switch v := v.(type) {
	case uint8:
		return int(v), true
	case int8:
		return int(v), true
	case uint16:
		return int(v), true
	case int16:
		return int(v), true
	case uint32:
		return int(v), true
	case int32:
		return int(v), true
	case int64:
		return int(v), true
	case uint64:
		return int(v), v <= math.MaxInt64
	}
	return 0, false
}

// Float returns a floating-point number. Errors: ErrMissing, ErrValue.
func (f *File) Float(key string) (float64, error) {
	switch v := f.Value(key).(type) {
	case float32:
		return float64(v), nil
	case float64:
		return v, nil
	}
	return 0, f.wrong(key, "a float")
}

// Text returns a string. Errors: ErrMissing, ErrValue.
func (f *File) Text(key string) (string, error) {
	if s, ok := f.Value(key).(string); ok {
		return s, nil
	}
	return "", f.wrong(key, "a string")
}

// Bool returns a boolean. Errors: ErrMissing, ErrValue.
func (f *File) Bool(key string) (bool, error) {
	if b, ok := f.Value(key).(bool); ok {
		return b, nil
	}
	return false, f.wrong(key, "true or false")
}

// Array returns an array of T. Errors: ErrMissing, ErrValue.
func Array[T any](f *File, key string) ([]T, error) {
	if a, ok := f.Value(key).([]T); ok {
		return a, nil
	}
	return nil, f.wrong(key, fmt.Sprintf("an array of %T", *new(T)))
}

// Ints returns an array of integers or booleans of any type, or n times a single one.
// Errors: ErrMissing, ErrValue.
func (f *File) Ints(key string, n int) ([]int, error) {
	var all []int
	add := func(v any) bool {
		i, ok := toInt(v)
		if b, isBool := v.(bool); isBool {
			if ok = true; b {
				i = 1
			}
		}
		all = append(all, i)
		return ok
	}
	ok := true
	switch v := f.Value(key).(type) {
	case []int32:
		for _, x := range v {
			ok = add(x) && ok
		}
	case []uint32:
		for _, x := range v {
			ok = add(x) && ok
		}
	case []bool:
		for _, x := range v {
			ok = add(x) && ok
		}
	default:
		for range n {
			ok = add(v) && ok
		}
	}
	if !ok || len(all) != n {
		return nil, f.wrong(key, fmt.Sprintf("an integer or %d of them", n))
	}
	return all, nil
}

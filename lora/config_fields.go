package lora

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// field couples a key of adapter_config.json with its place in a Config.
type field struct {
	key string
	at  func(*Config) any // a pointer to one of the types that decode knows
}

// commonKeys are the keys of the configurations of all PEFT methods.
var commonKeys = []field{
	{"auto_mapping", func(c *Config) any { return &c.AutoMapping }},
	{"base_model_name_or_path", func(c *Config) any { return &c.BaseModelNameOrPath }},
	{"exclude_modules", func(c *Config) any { return &c.ExcludeModules }},
	{"inference_mode", func(c *Config) any { return &c.InferenceMode }},
	{"layers_pattern", func(c *Config) any { return (*stringOrList)(&c.LayersPattern) }},
	{"layers_to_transform", func(c *Config) any { return (*intOrList)(&c.LayersToTransform) }},
	{"modules_to_save", func(c *Config) any { return &c.ModulesToSave }},
	{"peft_type", func(c *Config) any { return &c.PeftType }},
	{"peft_version", func(c *Config) any { return &c.PeftVersion }},
	{"revision", func(c *Config) any { return &c.Revision }},
	{"target_modules", func(c *Config) any { return &c.TargetModules }},
	{"task_type", func(c *Config) any { return &c.TaskType }},
}

// Types that differ from their Go type in how they look in the file.
type (
	alpha        float64  // written as an integer if integral
	intOrList    []int    // one number or a list of them
	stringOrList []string // one string or a list of them
)

// decode stores the JSON value v at p.
func decode(p any, v any) error {
	switch p := p.(type) {
	case *Opaque:
		p.value = v
	case *bool:
		if v == nil { // false to Python
			*p = false
			return nil
		}
		return scalar(p, v, "true or false")
	case *string:
		return scalar(p, v, "a string")
	case **string:
		*p = nil
		if v != nil {
			s, err := asString(v)
			if err != nil {
				return err
			}
			*p = &s
		}
	case *int:
		n, err := asInt(v)
		*p = n
		return err
	case *float64:
		f, err := asFloat(v)
		*p = f
		return err
	case *alpha:
		f, err := asFloat(v)
		*p = alpha(f)
		return err
	case *InitMethod:
		return decodeInit(p, v)
	case *ModuleSet:
		return decodeModules(p, v)
	case *[]string:
		return decodeList(p, v, asString)
	case *stringOrList:
		if s, ok := v.(string); ok {
			*p = nil
			if s != "" { // PEFT treats an empty pattern as unset
				*p = stringOrList{s}
			}
			return nil
		}
		return decodeList((*[]string)(p), v, asString)
	case *intOrList:
		if _, ok := v.(json.Number); ok {
			n, err := asInt(v)
			*p = intOrList{n}
			return err
		}
		return decodeList((*[]int)(p), v, asInt)
	case *RankPattern:
		*p = nil
		return decodeObject(v, func(key string, v any) error {
			r, err := asInt(v)
			*p = append(*p, RankRule{key, r})
			return err
		})
	case *AlphaPattern:
		*p = nil
		return decodeObject(v, func(key string, v any) error {
			a, err := asFloat(v)
			*p = append(*p, AlphaRule{key, a})
			return err
		})
	case *[]TokenRows:
		return decodeTokens(p, v)
	default:
		return fmt.Errorf("a field of type %T cannot be read", p)
	}
	return nil
}

func decodeInit(p *InitMethod, v any) error {
	switch v := v.(type) {
	case bool:
		*p = InitMethod(strconv.FormatBool(v))
	case nil: // false to Python
		*p = InitRandom
	case string:
		if v == "true" || v == "false" || v == "" {
			return fmt.Errorf("expected true, false or the name of a method, found the string %q", v)
		}
		*p = InitMethod(v)
	default:
		return wrongType("true, false or the name of a method", v)
	}
	return nil
}

func decodeModules(p *ModuleSet, v any) error {
	*p = ModuleSet{}
	switch v := v.(type) {
	case nil:
	case string:
		if v == "" {
			return fmt.Errorf("the pattern is empty and matches no module")
		}
		p.Pattern = v
	case array:
		if err := decodeList(&p.Names, v, asString); err != nil {
			return err
		}
	default:
		return wrongType("a list of names, a pattern or null", v)
	}
	return nil
}

func decodeTokens(p *[]TokenRows, v any) error {
	*p = nil
	if _, ok := v.(array); ok {
		rows := TokenRows{}
		err := decodeList(&rows.Tokens, v, asInt)
		*p = []TokenRows{rows}
		return err
	}
	return decodeObject(v, func(key string, v any) error {
		if key == "" {
			return fmt.Errorf("the name of the embedding is empty")
		}
		rows := TokenRows{Module: key}
		if v == nil {
			return wrongType("a list of integers", v)
		}
		err := decodeList(&rows.Tokens, v, asInt)
		*p = append(*p, rows)
		return err
	})
}

// decodeList reads a list or null.
func decodeList[T any](p *[]T, v any, as func(any) (T, error)) error {
	*p = nil
	if v == nil {
		return nil
	}
	elements, ok := v.(array)
	if !ok {
		return wrongType("a list", v)
	}
	*p = make([]T, len(elements))
	for i, e := range elements {
		var err error
		if (*p)[i], err = as(e); err != nil {
			return fmt.Errorf("element %d: %w", i, err)
		}
	}
	return nil
}

// decodeObject reads an object or null.
func decodeObject(v any, each func(key string, v any) error) error {
	if v == nil {
		return nil
	}
	o, ok := v.(object)
	if !ok {
		return wrongType("an object", v)
	}
	for _, m := range o {
		if err := each(m.key, m.value); err != nil {
			return fmt.Errorf("%q: %w", m.key, err)
		}
	}
	return nil
}

func scalar[T any](p *T, v any, want string) error {
	t, ok := v.(T)
	if !ok {
		return wrongType(want, v)
	}
	*p = t
	return nil
}

func asString(v any) (s string, err error) { return s, scalar(&s, v, "a string") }

func asInt(v any) (int, error) {
	n, ok := v.(json.Number)
	if !ok {
		return 0, wrongType("an integer", v)
	}
	i, err := strconv.Atoi(string(n))
	if err != nil {
		return 0, fmt.Errorf("expected an integer, found %s", n)
	}
	return i, nil
}

func asFloat(v any) (float64, error) {
	n, ok := v.(json.Number)
	if !ok {
		return 0, wrongType("a number", v)
	}
	f, err := n.Float64()
	if err != nil {
		return 0, fmt.Errorf("expected a number, found %s", n)
	}
	return f, nil
}

func wrongType(want string, v any) error {
	found := "null"
	switch v := v.(type) {
	case bool:
		found = strconv.FormatBool(v)
	case string:
		found = fmt.Sprintf("the string %q", v)
	case json.Number:
		found = "the number " + v.String()
	case array:
		found = "a list"
	case object:
		found = "an object"
	}
	return fmt.Errorf("expected %s, found %s", want, found)
}

// encode is the inverse of decode. It sorts values that PEFT treats as a set, so that
// equal configurations give equal files.
func encode(p any) any {
	switch p := p.(type) {
	case *Opaque:
		return p.value
	case *bool:
		return *p
	case *string:
		return *p
	case **string:
		if *p == nil {
			return nil
		}
		return **p
	case *int:
		return integer(*p)
	case *float64:
		return json.Number(pythonFloat(*p))
	case *alpha:
		return number(float64(*p))
	case *InitMethod:
		switch *p {
		case InitDefault, "":
			return true
		case InitRandom:
			return false
		}
		return string(*p)
	case *ModuleSet:
		if p.Pattern != "" {
			return p.Pattern
		}
		return encodeList(slices.Compact(slices.Sorted(slices.Values(p.Names))), p.Names == nil, asAny)
	case *[]string:
		return encodeList(*p, *p == nil, asAny)
	case *stringOrList:
		return encodeList(*p, *p == nil, asAny)
	case *intOrList:
		return encodeList(*p, *p == nil, integer)
	case *RankPattern:
		o := ordered{}
		for _, rule := range *p {
			o = append(o, member{rule.Key, integer(rule.R)})
		}
		return o
	case *AlphaPattern:
		o := ordered{}
		for _, rule := range *p {
			o = append(o, member{rule.Key, number(rule.Alpha)})
		}
		return o
	case *[]TokenRows:
		return encodeTokens(*p)
	}
	return nil
}

func encodeTokens(rows []TokenRows) any {
	switch {
	case len(rows) == 0:
		return nil
	case len(rows) == 1 && rows[0].Module == "":
		return encodeList(rows[0].Tokens, false, integer)
	}
	o := object{}
	for _, r := range rows {
		o = append(o, member{r.Module, encodeList(r.Tokens, false, integer)})
	}
	return o
}

func encodeList[T any](list []T, null bool, as func(T) any) any {
	if null {
		return nil
	}
	out := array{}
	for _, e := range list {
		out = append(out, as(e))
	}
	return out
}

func asAny(s string) any { return s }

func integer(n int) any { return json.Number(strconv.Itoa(n)) }

// number returns f as a JSON integer if it is integral, otherwise as a float.
func number(f float64) any {
	s := pythonFloat(f)
	if whole, ok := strings.CutSuffix(s, ".0"); ok {
		s = whole
	}
	return json.Number(s)
}
